package interceptor

import (
	"context"
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
	// MinHeartbeatInterval is the least time between two heartbeats that the API
	// accepts (statement 43).
	MinHeartbeatInterval = time.Minute
	// DefaultHeartbeatInterval is what the KEP recommends (000:L257).
	DefaultHeartbeatInterval = 3 * time.Minute
	// maxHeartbeatInterval is the heartbeat deadline: who reports no more often is
	// passed over.
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

// Options say how an interceptor runs. Only Name is required.
type Options struct {
	// Name of the interceptor: the fully qualified domain name by which pods or an
	// EvictionInterceptor name it.
	Name string
	// Clock tells the time and drives the timers. Default: the real one.
	Clock clock.WithTicker
	// ServerClock learns how far Clock is off, so that reports go by the API server's
	// time. What the interceptor is told and tells is by its own clock all the same.
	// Default: a new one, unless Clock is set: then that is believed. Add lets it
	// learn; who uses NewReconciler hands over clients with its Wrap.
	ServerClock *ServerClock
	// Recorder records the events. Default: one of the manager.
	Recorder eventsclient.EventRecorder
	// HeartbeatInterval is the time between two heartbeats, at least a minute and
	// less than 20 of them. Default 3 minutes.
	HeartbeatInterval time.Duration
	// MaxConcurrent is how many pods Evacuate and Cancel are called for at a time.
	// Calls for one pod never overlap. Default 10.
	MaxConcurrent int
	// Timeout bounds one call of Evacuate or Cancel, by the context it gets. Default
	// 30 s.
	Timeout time.Duration
	// Watches are objects whose changes are a reason to call Evacuate again.
	Watches []Watch
	// Selector leaves out requests by their labels, which are those of the pod. It is
	// for several processes that share the pods of one interceptor: a request that
	// none of them takes waits for the heartbeat deadline. A process keeps what it
	// has begun as long as it runs; let the labels be ones that do not change, as
	// after a restart they count again. Default: all requests.
	Selector labels.Selector
	// FieldOwner is the field manager of the reports. Default: Name.
	FieldOwner string
}

// Watch makes changes of objects of a kind a reason to look again.
type Watch struct {
	// Object is an empty object of the kind, which must be in the manager's scheme;
	// a metav1.PartialObjectMetadata will do.
	Object client.Object
	// Requests maps an object to the EvictionRequests to look at. The request of a
	// pod is named by the pod's UID, in its namespace (see RequestOf). Those that are
	// not this interceptor's turn cost nothing.
	Requests func(ctx context.Context, obj client.Object) []types.NamespacedName
	// Predicates, if any, must all let an event pass.
	Predicates []predicate.Predicate
}

// RequestOf is the name of the EvictionRequest of a pod, if it has one.
func RequestOf(pod client.Object) types.NamespacedName {
	return v1alpha1.RequestKey(pod)
}

// complete fills in what is not set, but the Recorder, and checks the rest.
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
	if o.FieldOwner == "" {
		o.FieldOwner = cutName(o.Name, maxManager)
	}
	problems := validation.IsFullyQualifiedDomainName(field.NewPath("Name"), o.Name)
	refuse := func(option string, value any, why string) {
		problems = append(problems, field.Invalid(field.NewPath(option), value, why))
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
		return fmt.Errorf("interceptor %q: %w", o.Name, err)
	}
	return nil
}

// cutName shortens a domain name to a length, to something that still ends well.
func cutName(name string, length int) string {
	if len(name) <= length {
		return name
	}
	return strings.TrimRight(name[:length], "-.")
}
