package interceptor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	eventsclient "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Bounds and defaults of Options.
const (
	// MinHeartbeatInterval is the minimum time between two heartbeats that the API
	// accepts (statement 43).
	MinHeartbeatInterval = time.Minute
	// DefaultHeartbeatInterval is what the KEP recommends (000:L257).
	DefaultHeartbeatInterval = 3 * time.Minute
	// maxHeartbeatInterval is the heartbeat deadline: interceptors that report less
	// often are passed over.
	maxHeartbeatInterval = 20 * time.Minute

	defaultMaxConcurrent = 10
	defaultTimeout       = 30 * time.Second

	// maxManager is the longest name of a field manager (apimachinery:
	// pkg/apis/meta/v1/validation, FieldManagerMaxLength).
	maxManager = 128
	// maxReporter is the longest name of an event's reportingController (kubernetes:
	// pkg/apis/core/validation/events.go, a qualified name).
	maxReporter = 63
)

// Options say how an interceptor runs. Only Name or NativeKey is required.
type Options struct {
	// Name of the interceptor: the fully qualified domain name that pods or an
	// EvictionInterceptor use. Empty only for a responder that has only a NativeKey.
	Name string
	// NativeKey makes the interceptor a responder of Kubernetes' own API (lifecycle.k8s.io,
	// Kubernetes 1.37 and later), too: the key that pods have in spec.evictionResponders,
	// such as db.example.com/checkpoint. Its prefix is a domain outside of k8s.io and
	// kubernetes.io. Give an EvictionInterceptor the same spec.nativeKey: then pods that have
	// both names get one turn, the native one, and else one for each. The same methods are called, with Target.Native set. Add finds out every
	// 30 s whether that API is served; if not, it is silent.
	//
	// There are differences. Target.Deadline is never set, Save never called, and the point
	// of no return known to this process only: after a restart Cancel may be called, and
	// returns ErrPointOfNoReturn. The manager's scheme must have lifecycle/v1alpha1. For
	// the node and labels of a Target, and for a Selector, the account needs get on pods; a
	// pod that is gone has neither.
	NativeKey string
	// Clock tells the time and drives the timers. Default: the real one.
	Clock clock.WithTicker
	// ServerClock measures how far Clock is off, so that reports use the API server's
	// time. The interceptor itself always uses its own clock. Default: a new one,
	// unless Clock is set, which is then trusted. Add connects it; callers of
	// NewReconciler pass clients that use its Wrap.
	ServerClock *ServerClock
	// Recorder records the events. Default: one of the manager.
	Recorder eventsclient.EventRecorder
	// HeartbeatInterval is the time between two heartbeats, at least a minute and
	// less than 20 of them. Default 3 minutes.
	HeartbeatInterval time.Duration
	// MaxConcurrent is how many pods Evacuate and Cancel are called for at a time, in each
	// of the two APIs. Calls for one pod in one of them never overlap. Default 10.
	MaxConcurrent int
	// Timeout bounds one call of Evacuate or Cancel, by the context it gets. Default
	// 30 s.
	Timeout time.Duration
	// Save is called when a requester is of type Hard, for an interceptor that waits for its
	// turn: until Target.Deadline, about ten seconds from then, it may save what it can. All
	// interceptors of the pod are called at the same time, and the one that has the turn gets
	// a call of Evacuate. It is called until it succeeds once; after a restart perhaps once
	// more. Optional.
	Save func(ctx context.Context, t Target) error
	// Watches are objects whose changes are a reason to call Evacuate again.
	Watches []Watch
	// Selector selects requests by their labels, which are those of the pod. It lets
	// several processes share the pods of one interceptor: a request that none of them
	// takes waits for the heartbeat deadline. A process keeps what it has begun as long
	// as it runs. Use labels that do not change, because they are evaluated again after
	// a restart. Default: all requests.
	Selector labels.Selector
	// FieldOwner is the field manager of the reports. No two interceptors may share it.
	// Default: Name, and for the native API NativeKey.
	FieldOwner string
}

// Watch makes Evacuate run again when objects of a kind change.
type Watch struct {
	// Object is an empty object of the kind, which must be in the manager's scheme;
	// a metav1.PartialObjectMetadata will do.
	Object client.Object
	// Requests maps an object to the EvictionRequests to reconcile. The request of a
	// pod is named by the pod's UID, in its namespace (see RequestOf). The same keys stand
	// for the pod's native Evictions, whatever their names. Requests without this
	// interceptor's turn cost nothing.
	Requests func(ctx context.Context, obj client.Object) []types.NamespacedName
	// Predicates, if any, must all let an event pass.
	Predicates []predicate.Predicate
}

// RequestOf is the key of a pod's EvictionRequest.
func RequestOf(pod client.Object) types.NamespacedName {
	return v1alpha1.RequestKey(pod)
}

// complete sets the defaults, except for the Recorder, and validates the rest.
func (o *Options) complete() error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
		if o.ServerClock == nil {
			o.ServerClock = &ServerClock{}
		}
	}
	if o.HeartbeatInterval == 0 {
		o.HeartbeatInterval = DefaultHeartbeatInterval
	}
	if o.MaxConcurrent == 0 {
		o.MaxConcurrent = defaultMaxConcurrent
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Selector == nil {
		o.Selector = labels.Everything()
	}
	var problems field.ErrorList
	if o.Name != "" || o.NativeKey == "" {
		problems = validation.IsFullyQualifiedDomainName(field.NewPath("Name"), o.Name)
	}
	refuse := func(option string, value any, why string) {
		problems = append(problems, field.Invalid(field.NewPath(option), value, why))
	}
	if o.NativeKey != "" {
		for _, why := range nativeKeyProblems(o.NativeKey) {
			refuse("NativeKey", o.NativeKey, why)
		}
	}
	if o.HeartbeatInterval < MinHeartbeatInterval || o.HeartbeatInterval >= maxHeartbeatInterval {
		refuse("HeartbeatInterval", o.HeartbeatInterval.String(), fmt.Sprintf("must be at least %s and less than %s", MinHeartbeatInterval, maxHeartbeatInterval))
	}
	if o.MaxConcurrent < 0 {
		refuse("MaxConcurrent", o.MaxConcurrent, "must not be negative")
	}
	if o.Timeout < 0 {
		refuse("Timeout", o.Timeout.String(), "must not be negative")
	}
	if len(o.FieldOwner) > maxManager {
		problems = append(problems, field.TooLong(field.NewPath("FieldOwner"), o.FieldOwner, maxManager))
	}
	for i, w := range o.Watches {
		if w.Object == nil || w.Requests == nil {
			problems = append(problems, field.Required(field.NewPath("Watches").Index(i), "Object and Requests"))
		}
	}
	if err := problems.ToAggregate(); err != nil {
		return fmt.Errorf("interceptor %q: %w", cmp.Or(o.Name, o.NativeKey), err)
	}
	return nil
}

// forDrawbridge are complete Options for Drawbridge's API.
func forDrawbridge(o Options) Options {
	if o.FieldOwner == "" {
		o.FieldOwner = cutName(o.Name, maxManager)
	}
	return o
}

// forNative are complete Options for the native API, where the interceptor's name is its
// key. A cut field manager could be another responder's.
func forNative(o Options) Options {
	o.Name, o.Save = o.NativeKey, nil
	switch {
	case o.FieldOwner != "":
	case len(o.NativeKey) <= maxManager:
		o.FieldOwner = o.NativeKey
	default:
		sum := sha256.Sum256([]byte(o.NativeKey))
		o.FieldOwner = "responder-" + hex.EncodeToString(sum[:])
	}
	return o
}

// cutName shortens a domain name to a length, keeping a valid end.
func cutName(name string, length int) string {
	if len(name) <= length {
		return name
	}
	return strings.TrimRight(name[:length], "-.")
}
