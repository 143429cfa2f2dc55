// Package turns tells the turns of a pod's eviction as one list, whichever API they belong to:
// the native responders of its Eviction (lifecycle.k8s.io) and the interceptors of its
// EvictionRequest (drawbridge.dev), which are nested in one turn of it.
package turns

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/listing"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/evacuation/native"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
)

// State of a turn, in a few words.
type State string

// The states.
const (
	Waits      State = "waits for its turn"
	Active     State = "has its turn"
	Done       State = "done"
	PassedOver State = "passed over"
	Skipped    State = "skipped"
	CalledOff  State = "canceled"
)

// Turn is one turn. Times that are not known are nil.
type Turn struct {
	// Name of the interceptor, or of the native responder.
	Name string `json:"name"`
	// Native: it is a responder of the Eviction.
	Native bool  `json:"native,omitempty"`
	State  State `json:"state"`
	// Since when it has its turn, and the times of its report.
	Since     *time.Time `json:"since,omitempty"`
	Heard     *time.Time `json:"heard,omitempty"`
	Expected  *time.Time `json:"expected,omitempty"`
	Completed *time.Time `json:"completed,omitempty"`
	Message   string     `json:"message,omitempty"`
}

// Of are the turns of a pod in their order. Any of the three may be nil: the request if nobody
// asked by our API, the Eviction if nobody asked natively, the pod if it is gone or was not read.
// The Eviction is one of ByPod.
func Of(er *v1alpha1.EvictionRequest, e *lifecyclev1alpha1.Eviction, pod *corev1.Pod) []Turn {
	er = current(er, e)
	asked := responders(e)
	if er == nil || len(er.Status.TargetInterceptors) == 0 {
		return asked
	}
	before, after, evictor := around(asked)
	var all []Turn
	placed := false
	for _, target := range er.Status.TargetInterceptors {
		ours := interceptor(er, target.Name)
		switch target.Name {
		case v1alpha1.NativeInterceptor:
			placed = true
			if len(asked) > 0 {
				all = append(all, before...)
				continue
			}
			if waiting := waitingOf(pod); ours.State == Waits && len(waiting) > 0 {
				all = append(all, waiting...)
				continue
			}
			all = append(all, ours)
			if ours.State == Active {
				all = append(all, waitingOf(pod)...)
			}
		case v1alpha1.ImperativeEvictionInterceptor:
			all, evictor = append(all, after...), nil
			all = append(all, ours)
		default:
			all = append(all, ours)
		}
	}
	if !placed {
		all = slices.Concat(before, all) // The wish came natively, and ours is nested in it.
	}
	return append(all, evictor...)
}

// current is nil for a request that has ended while an Eviction runs: it is about an earlier wish.
func current(er *v1alpha1.EvictionRequest, e *lifecyclev1alpha1.Eviction) *v1alpha1.EvictionRequest {
	if er != nil && v1alpha1.IsFinished(er) && Runs(e) {
		return nil
	}
	return er
}

// around splits the responders at the one that stands for our interceptors: what comes before it,
// what after, and the evictor. Without it, all others are before.
func around(all []Turn) (before, after, evictor []Turn) {
	nested := false
	for _, t := range all {
		switch {
		case t.Name == v1alpha1.NativeResponder:
			nested = true
		case t.Name == lifecyclev1alpha1.EvictionResponderImperativeEviction:
			evictor = append(evictor, t)
		case nested:
			after = append(after, t)
		default:
			before = append(before, t)
		}
	}
	return before, after, evictor
}

// waitingOf are the native responders that a pod names.
func waitingOf(pod *corev1.Pod) (all []Turn) {
	if pod != nil {
		for _, name := range listing.Responders(pod) {
			all = append(all, Turn{Name: name, Native: true, State: Waits})
		}
	}
	return all
}

// responders are those of an Eviction in their order.
func responders(e *lifecyclev1alpha1.Eviction) (all []Turn) {
	if e == nil {
		return nil
	}
	plan := slices.Clone(e.Status.TargetResponders)
	slices.SortStableFunc(plan, func(a, b lifecyclev1alpha1.TargetResponder) int {
		return listing.CompareResponders(a.Name, a.Priority, b.Name, b.Priority)
	})
	states := map[lifecyclev1alpha1.ResponderStateType]State{
		lifecyclev1alpha1.ResponderStateActive: Active, lifecyclev1alpha1.ResponderStateCompleted: Done,
		lifecyclev1alpha1.ResponderStateInterrupted: PassedOver, lifecyclev1alpha1.ResponderStateCanceled: CalledOff,
	}
	for _, r := range plan {
		t := Turn{Name: r.Name, Native: true, State: cmp.Or(states[r.State], Waits)}
		if i := slices.IndexFunc(e.Status.Responders, func(s lifecyclev1alpha1.ResponderStatus) bool { return s.Name == r.Name }); i >= 0 {
			s := &e.Status.Responders[i]
			t.Since, t.Heard, t.Expected, t.Completed = at(s.StartTime), at(s.HeartbeatTime), at(s.ExpectedCompletionTime), at(s.CompletionTime)
			t.Message = text.Clean(ptr.Deref(s.Message, ""))
		}
		all = append(all, t)
	}
	return all
}

// interceptor is the turn of one of ours.
func interceptor(er *v1alpha1.EvictionRequest, name string) Turn {
	said := v1alpha1.ReportOf(er, name)
	t := Turn{
		Name: name, State: Waits, Since: at(said.StartTime), Heard: at(said.HeartbeatTime), Expected: at(said.ExpectedFinishTime),
		Completed: at(said.CompletionTime), Message: text.Clean(said.Message),
	}
	switch {
	case said.SkippedBy != "":
		t.State = Skipped
	case said.CompletionTime != nil:
		t.State = Done
	case slices.Contains(er.Status.ActiveInterceptors, name):
		t.State = Active
		if since := at(er.Status.ActivationTime); since != nil {
			t.Since = since
		}
	case slices.Contains(er.Status.ProcessedInterceptors, name):
		t.State = PassedOver
	}
	return t
}

func at(t *metav1.Time) *time.Time {
	if t == nil {
		return nil
	}
	return new(t.UTC())
}

// Runs reports whether there is an Eviction and it has not ended.
func Runs(e *lifecyclev1alpha1.Eviction) bool {
	return e != nil && e.DeletionTimestamp == nil && !failed(e) && !evicted(e)
}

func failed(e *lifecyclev1alpha1.Eviction) bool {
	return meta.IsStatusConditionTrue(e.Status.Conditions, string(lifecyclev1alpha1.EvictionConditionFailed))
}

func evicted(e *lifecyclev1alpha1.Eviction) bool {
	return meta.IsStatusConditionTrue(e.Status.Conditions, string(lifecyclev1alpha1.EvictionConditionTargetEvicted))
}

// ByPod has the Eviction that counts for each pod, by the UID of that: the oldest that runs, or
// else the last one that has evicted it. One that has failed counts no more.
func ByPod(evictions []*lifecyclev1alpha1.Eviction) map[types.UID]*lifecyclev1alpha1.Eviction {
	found := map[types.UID]*lifecyclev1alpha1.Eviction{}
	for _, e := range evictions {
		if e.Spec.Target.Pod == nil || !Runs(e) && !evicted(e) {
			continue
		}
		if best := found[e.Spec.Target.Pod.UID]; best == nil || countsBefore(e, best) {
			found[e.Spec.Target.Pod.UID] = e
		}
	}
	return found
}

// countsBefore reports whether a counts more than b, another one for the same pod.
func countsBefore(a, b *lifecyclev1alpha1.Eviction) bool {
	if Runs(a) != Runs(b) {
		return Runs(a)
	}
	age := cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	return Runs(a) == (age < 0)
}

// Observe is what requester.Observe says of a request, with the native responder that has the
// turn in place of the interceptor that stands for all of them. Position and Total are then those
// of the one list. With nil as the request it is what the Eviction says.
func Observe(er *v1alpha1.EvictionRequest, e *lifecyclev1alpha1.Eviction) requester.Update {
	er = current(er, e)
	u := requester.Update{State: v1alpha1.StatePending}
	if er != nil {
		u = requester.Observe(er)
	}
	if !Runs(e) {
		return u
	}
	all := Of(er, e, nil)
	i := slices.IndexFunc(all, func(t Turn) bool { return t.State == Active })
	if i < 0 {
		return u
	}
	u.Position, u.Total = i+1, len(all)
	if t := all[i]; t.Native {
		// Deadlines do not hurry native responders.
		u.State, u.Interceptor, u.Message, u.ExpectedFinishTime, u.Deadline = v1alpha1.StateIntercepting, t.Name, t.Message, ptr.Deref(t.Expected, time.Time{}), time.Time{}
		if t.Name == lifecyclev1alpha1.EvictionResponderImperativeEviction {
			u.State, u.Interceptor = v1alpha1.StateEvicting, v1alpha1.ImperativeEvictionInterceptor
		}
	}
	return u
}

// Requesters are those that want the eviction, of both APIs: those of the request by their names
// there, and those that asked natively by their keys. Any of the two may be nil.
func Requesters(er *v1alpha1.EvictionRequest, e *lifecyclev1alpha1.Eviction) (names []string) {
	mirrored := map[string]bool{}
	if er != nil {
		for _, r := range er.Spec.Requesters {
			if r.Name == v1alpha1.NativeInterceptor && e != nil {
				continue // It stands for those that follow.
			}
			names = append(names, r.Name)
			mirrored[native.RequesterKey(r.Name)] = true
		}
	}
	if e == nil {
		return names
	}
	for _, r := range e.Status.Requesters {
		if r.Intent == lifecyclev1alpha1.RequesterIntentEviction && !mirrored[r.Name] {
			names = append(names, r.Name)
		}
	}
	return names
}
