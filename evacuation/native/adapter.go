package native

import (
	"fmt"
	"slices"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/evacuation/process"
)

// The names of the conditions and their reasons, as text.
const (
	failed        = string(lifecyclev1alpha1.EvictionConditionFailed)
	targetEvicted = string(lifecyclev1alpha1.EvictionConditionTargetEvicted)

	awaiting     = string(lifecyclev1alpha1.EvictionConditionReasonAwaitingEviction)
	invalid      = string(lifecyclev1alpha1.EvictionConditionReasonEvictionInvalid)
	canceled     = string(lifecyclev1alpha1.EvictionConditionReasonCanceledDueToNoRequesters)
	succeeded    = string(lifecyclev1alpha1.EvictionConditionReasonSucceeded)
	noFurther    = string(lifecyclev1alpha1.EvictionConditionReasonNoFurtherResponder)
	podDeleted   = string(lifecyclev1alpha1.EvictionConditionReasonPodDeleted)
	podTerminal  = string(lifecyclev1alpha1.EvictionConditionReasonPodTerminal)
	notSucceeded = string(lifecyclev1alpha1.EvictionConditionReasonEvictionFailed)
)

// The states of process and of the API; they are the same five.
var states = map[process.State]lifecyclev1alpha1.ResponderStateType{
	process.Inactive:    lifecyclev1alpha1.ResponderStateInactive,
	process.Active:      lifecyclev1alpha1.ResponderStateActive,
	process.Completed:   lifecyclev1alpha1.ResponderStateCompleted,
	process.Interrupted: lifecyclev1alpha1.ResponderStateInterrupted,
	process.Canceled:    lifecyclev1alpha1.ResponderStateCanceled,
}

func stateOf(state lifecyclev1alpha1.ResponderStateType) process.State {
	for s, name := range states {
		if name == state {
			return s
		}
	}
	return process.Inactive // The server has no other.
}

// conclusion is the end of an Eviction or EvictionRequest: A.7. The zero value is running.
type conclusion struct {
	// evicted is the reason of TargetEvicted=True, failed that of Failed=True; at most one.
	evicted, failed string
	message         string
}

func (c conclusion) final() bool { return c.evicted != "" || c.failed != "" }

// conclusionOf reads it.
func conclusionOf(conditions []metav1.Condition) conclusion {
	// Evicted first: if both are True against the rules, the pod is gone.
	if c := meta.FindStatusCondition(conditions, targetEvicted); c != nil && c.Status == metav1.ConditionTrue {
		return conclusion{evicted: c.Reason, message: c.Message}
	}
	if c := meta.FindStatusCondition(conditions, failed); c != nil && c.Status == metav1.ConditionTrue {
		return conclusion{failed: c.Reason, message: c.Message}
	}
	return conclusion{}
}

// write sets both conditions. waiting is what is said while it runs. The time of a condition
// whose status stays is kept.
func (c conclusion) write(conditions *[]metav1.Condition, generation int64, waiting string, now time.Time) {
	ended := metav1.Condition{Type: failed, Status: metav1.ConditionFalse, Reason: awaiting, Message: waiting}
	evicted := metav1.Condition{Type: targetEvicted, Status: metav1.ConditionFalse, Reason: awaiting, Message: waiting}
	switch {
	case c.evicted != "":
		ended.Reason, ended.Message = succeeded, ""
		evicted.Status, evicted.Reason, evicted.Message = metav1.ConditionTrue, c.evicted, c.message
	case c.failed != "":
		ended.Status, ended.Reason, ended.Message = metav1.ConditionTrue, c.failed, c.message
		evicted.Reason, evicted.Message = notSucceeded, ""
	}
	for _, condition := range []metav1.Condition{ended, evicted} {
		condition.ObservedGeneration = generation
		condition.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		meta.SetStatusCondition(conditions, condition)
	}
}

// responderOf is the report of a responder, an empty one if there is none.
func responderOf(e *lifecyclev1alpha1.Eviction, name string) lifecyclev1alpha1.ResponderStatus {
	for i := range e.Status.Responders {
		if e.Status.Responders[i].Name == name {
			return e.Status.Responders[i]
		}
	}
	return lifecyclev1alpha1.ResponderStatus{Name: name}
}

// StateOf is the state of a responder, "" if it is none.
func StateOf(e *lifecyclev1alpha1.Eviction, name string) lifecyclev1alpha1.ResponderStateType {
	for _, r := range e.Status.TargetResponders {
		if r.Name == name {
			return r.State
		}
	}
	return ""
}

// active is the responder that has the turn, "" if nobody has.
func active(e *lifecyclev1alpha1.Eviction) string {
	for _, r := range e.Status.TargetResponders {
		if r.State == lifecyclev1alpha1.ResponderStateActive {
			return r.Name
		}
	}
	return ""
}

// decode makes the snapshot of an Eviction.
func decode(e *lifecyclev1alpha1.Eviction, s Situation, wanted bool) process.Snapshot {
	snapshot := process.Snapshot{
		Target: s.Target, CreatedAt: e.CreationTimestamp.Time, EngineStartedAt: s.StartedAt,
		Generation: e.Generation, Withdrawn: e.DeletionTimestamp != nil,
	}
	if e.Status.ObservedGeneration != nil {
		snapshot.ObservedGeneration = *e.Status.ObservedGeneration
	}
	if wanted {
		snapshot.Intents = []string{s.Namespace}
	}
	plan := slices.Clone(e.Status.TargetResponders)
	slices.SortStableFunc(plan, compareResponders)
	for _, r := range plan {
		snapshot.Participants = append(snapshot.Participants, participantOf(e, r, snapshot.Target))
	}
	for _, r := range planOf(s.Responders, s.withOurs(), s.Priority) {
		snapshot.Planned = append(snapshot.Planned, process.Participant{Name: r.Name})
	}
	return snapshot
}

func participantOf(e *lifecyclev1alpha1.Eviction, r lifecyclev1alpha1.TargetResponder, target process.Target) process.Participant {
	report := responderOf(e, r.Name)
	p := process.Participant{
		Name: r.Name, State: stateOf(r.State),
		ActivatedAt: timeOf(report.StartTime), StartedAt: timeOf(report.StartTime),
		HeartbeatAt: timeOf(report.HeartbeatTime), CompletedAt: timeOf(report.CompletionTime),
	}
	// The evictor is never silent as long as there is something to evict: an outage of ours
	// must not end an Eviction for good (A.13, 2). At the end it may report like all others.
	living := target.Presence == process.Present && !target.Terminal
	p.LastResort = r.Name == lifecyclev1alpha1.EvictionResponderImperativeEviction && living && p.CompletedAt.IsZero()
	return p
}

// encode writes a decision into the status of an Eviction: what the controller owns of it, and
// nothing else.
func encode(e *lifecyclev1alpha1.Eviction, s Situation, d process.Decision, end conclusion, requesters []lifecyclev1alpha1.Requester) {
	status := &e.Status
	if len(status.TargetResponders) == 0 && len(d.Participants) > 0 {
		for _, r := range planOf(s.Responders, s.withOurs(), s.Priority) {
			status.TargetResponders = append(status.TargetResponders, r)
			status.Responders = append(status.Responders, lifecyclev1alpha1.ResponderStatus{Name: r.Name})
		}
	}
	for _, p := range d.Participants {
		for i := range status.TargetResponders {
			if status.TargetResponders[i].Name == p.Name {
				status.TargetResponders[i].State = states[p.State]
			}
		}
		for i := range status.Responders {
			if status.Responders[i].Name == p.Name && p.State == process.Active && status.Responders[i].StartTime == nil {
				status.Responders[i].StartTime = new(metav1.NewTime(s.Now.Truncate(time.Second)))
			}
		}
	}
	status.Requesters = requesters
	if e.Generation > 0 {
		status.ObservedGeneration = new(e.Generation)
	}
	end.write(&status.Conditions, e.Generation, "", s.Now)
}

// concluded is how an Eviction ends by a decision, the zero value if it does not. existed is
// false for one that was never acted on.
func concluded(s Situation, d process.Decision) conclusion {
	switch {
	case d.Outcome == process.OutcomeEvicted && d.Cause == process.TargetTerminal:
		return conclusion{evicted: podTerminal, message: "Pod has reached terminal state."}
	case d.Outcome == process.OutcomeEvicted:
		return conclusion{evicted: podDeleted, message: "Target pod has been deleted."}
	case d.Outcome == process.OutcomeRunning:
		return conclusion{}
	}
	switch d.Cause {
	case process.TargetNotFound, process.TargetMismatch:
		// Once there is an Eviction, absence means evicted (A.2, 4; A.6, row 12).
		return conclusion{evicted: podDeleted, message: "Target pod has been deleted."}
	case process.TargetGrouped:
		return conclusion{failed: invalid, message: groupedMessage(s.PodName)}
	default:
		return conclusion{failed: canceled, message: "No active requesters with eviction intent."}
	}
}

// groupedMessage is the literal of seed 000 (A.8), as is that of notFoundMessage.
func groupedMessage(pod string) string {
	return fmt.Sprintf("Target Pod %s is part of a Workload/PodGroup. Eviction of such pods is currently not supported.", pod)
}

func notFoundMessage(s Situation, wanted *lifecyclev1alpha1.EvictionRequest) string {
	message := fmt.Sprintf("Target Pod %s was not found.", s.PodName)
	if s.Target.Presence == process.Replaced {
		message += fmt.Sprintf(" The pod of that name has UID %s, the request names UID %s.", s.FoundUID, wanted.Spec.Target.Pod.UID)
	}
	return message
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
