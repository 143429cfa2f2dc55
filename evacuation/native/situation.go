package native

import (
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
)

// Situation is everything that a decision about one pod depends on.
type Situation struct {
	Now time.Time
	// Namespace and UID of the pod. PodName is the name that the objects give it.
	Namespace string
	UID       types.UID
	PodName   string
	// InCharge: the EvictionRequests and Evictions of the cluster are ours to move.
	InCharge bool
	// Target is what is known of the pod, Responders are its spec.evictionResponders.
	Target     process.Target
	Responders []lifecyclev1alpha1.TargetResponder
	// FoundUID is the UID of the pod that has the name, "" if there is none.
	FoundUID types.UID
	// Priority is that of v1alpha1.NativeResponder.
	Priority int32
	// Requests are all native EvictionRequests for the pod, Evictions all its Evictions.
	Requests  []*lifecyclev1alpha1.EvictionRequest
	Evictions []*lifecyclev1alpha1.Eviction
	// Strangers are native objects that give the pod of that UID another name.
	Strangers Strangers
	// Taken are the names of the Evictions of all pods of that name.
	Taken []string
	// Interceptors are those of the pod besides v1alpha1.NativeInterceptor. They matter as
	// long as Ours has no plan.
	Interceptors []string
	// Ours is our EvictionRequest of the pod, nil if there is none.
	Ours *v1alpha1.EvictionRequest
	// StartedAt is when this controller began to work.
	StartedAt time.Time
	// Policy are the constants.
	Policy Policy
}

// key is that of everything about the pod.
func (s Situation) key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: string(s.UID)}
}

// Strangers name a pod that does not exist.
type Strangers struct {
	Requests  []*lifecyclev1alpha1.EvictionRequest
	Evictions []*lifecyclev1alpha1.Eviction
}

// Policy has the constants of the native dialect.
type Policy struct {
	// Process is that of the responders. Its HeartbeatDeadline and ClockSkew are those that the
	// API server demands (C.2, C.3).
	Process process.Policy
	// ChainMin is the pause before an Eviction that has failed gets a successor; each further
	// one doubles it up to ChainMax. Defaults 10 s and 20 min.
	ChainMin, ChainMax time.Duration
	// KeepFailed is how many failed Evictions of a pod are kept. Default 5.
	KeepFailed int
	// HeartbeatInterval is how often the responder and the interceptor of ours report.
	// Default 3 min.
	HeartbeatInterval time.Duration
	// ReportMin is the least time between two reports because of a new message. Default 60 s,
	// which our API demands between two heartbeats.
	ReportMin time.Duration
	// Retention is how long an Eviction is kept that has ended and whose requests are gone.
	// Zero keeps it for ever.
	Retention time.Duration
}

// DefaultPolicy are the constants of the API server and of upstream (A.9), with the start-up
// grace of ours.
func DefaultPolicy() Policy {
	p := Policy{
		Process:  process.DefaultPolicy(),
		ChainMin: 10 * time.Second, ChainMax: 20 * time.Minute, KeepFailed: 5,
		HeartbeatInterval: 3 * time.Minute, ReportMin: time.Minute,
	}
	p.Process.HeartbeatDeadline, p.Process.ClockSkew = 20*time.Minute, 30*time.Second
	return p
}

// Decision is what to write. Every object in it carries the resourceVersion it was decided for.
type Decision struct {
	// Wishes are native EvictionRequests in the name of requesters of ours: to create if they
	// have no resourceVersion, else to update.
	Wishes []*lifecyclev1alpha1.EvictionRequest
	// Create is the Eviction to create, nil for none.
	Create *lifecyclev1alpha1.Eviction
	// Metadata are Evictions whose labels or owner references are to be written.
	Metadata []*lifecyclev1alpha1.Eviction
	// Statuses are Evictions whose status is to be written.
	Statuses []*lifecyclev1alpha1.Eviction
	// RequestStatuses are native EvictionRequests whose status is to be written.
	RequestStatuses []*lifecyclev1alpha1.EvictionRequest
	// Prune are Evictions to delete.
	Prune []*lifecyclev1alpha1.Eviction
	// Join: our EvictionRequest has to have v1alpha1.NativeInterceptor as a requester.
	// Withdraw: it has to lose that.
	Join, Withdraw bool
	// Responder is the report of v1alpha1.NativeResponder in Relevant, nil if the stored one is
	// right.
	Responder *ResponderReport
	// Interceptor is the report of v1alpha1.NativeInterceptor in Ours, nil if the stored one is
	// right.
	Interceptor *InterceptorReport
	// Relevant is the Eviction that counts for the pod, nil if there is none.
	Relevant *lifecyclev1alpha1.Eviction
	// Happened is what to announce, once written.
	Happened []Happening
	// WakeAt is when to decide again even if nothing happens; zero means never.
	WakeAt time.Time
}

// ResponderReport is what a responder says. Times have a precision of one second; zero means not
// set.
type ResponderReport struct {
	HeartbeatAt, ExpectedAt, CompletedAt time.Time
	Message                              string
}

// InterceptorReport is what an interceptor says. Times as in ResponderReport.
type InterceptorReport struct {
	StartedAt, HeartbeatAt, ExpectedAt, CompletedAt time.Time
	Message                                         string
}

// Happening is something to announce.
type Happening struct {
	// What is one of a closed set.
	What What
	// Eviction is the name of the Eviction, Who the responder, Text why.
	Eviction, Who, Text string
}

// What can happen.
type What int

const (
	// PassedOver says that a responder was silent for too long.
	PassedOver What = iota + 1
	// EvictionFailed says that the Eviction has ended without the pod's end.
	EvictionFailed
	// OursFirst says that the pod names so many responders that ours run before its Eviction.
	OursFirst
	// RequestRefused says that a native EvictionRequest is not valid.
	RequestRefused
)
