package request

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// observation is what this process remembers and the object does not say.
type observation struct {
	// endSeenAt is when the end of the target was first seen, zero if it lives.
	endSeenAt time.Time
	// heartbeatSeenAt is when the active interceptor's heartbeat was first seen.
	heartbeatSeenAt time.Time
	// foundCompleted is the interceptor that was already completed when this process first
	// saw the request; "" if there was none.
	foundCompleted string
}

// decode makes the snapshot of a request. The planned interceptors matter only as long as
// the request has none. It is the inverse of encode for everything that the status can
// hold. Lost are the activation times of earlier turns, and which check refused the
// target; nothing depends on either.
func decode(er *v1alpha1.EvictionRequest, target process.Target, planned []process.Participant, seen observation, engineStartedAt time.Time) process.Snapshot {
	target.EndSeenAt = seen.endSeenAt
	s := process.Snapshot{
		Target:             target,
		CreatedAt:          er.CreationTimestamp.Time,
		Generation:         er.Generation,
		ObservedGeneration: er.Status.ObservedGeneration,
		EngineStartedAt:    engineStartedAt,
		Withdrawn:          er.DeletionTimestamp != nil,
		Planned:            planned,
	}
	s.Outcome, s.Cause = decodeOutcome(er.Status.Conditions)
	for _, requester := range er.Spec.Requesters {
		s.Intents = append(s.Intents, requester.Name)
	}
	for _, interceptor := range er.Status.TargetInterceptors {
		s.Participants = append(s.Participants, decodeParticipant(er, interceptor, s.Outcome, seen))
	}
	return s
}

func decodeOutcome(conditions []metav1.Condition) (process.Outcome, process.Cause) {
	// Evicted first: if both are True against the rules, the pod is gone.
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionEvicted); c != nil && c.Status == metav1.ConditionTrue {
		if c.Reason == v1alpha1.ReasonPodTerminal {
			return process.OutcomeEvicted, process.TargetTerminal
		}
		return process.OutcomeEvicted, process.TargetDeleted
	}
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionCanceled); c != nil && c.Status == metav1.ConditionTrue {
		if c.Reason == v1alpha1.ReasonValidationFailed {
			return process.OutcomeCanceled, process.TargetNotFound
		}
		return process.OutcomeCanceled, process.NoIntent
	}
	return process.OutcomeRunning, process.NoCause
}

// participant is an interceptor before it has done anything.
func participant(of v1alpha1.Interceptor) process.Participant {
	return process.Participant{
		Name: of.Name, LastResort: of.Name == v1alpha1.ImperativeEvictionInterceptor, Unhurried: v1alpha1.IsUnhurried(of.Name),
		HeartbeatDeadline: durationOf(of.HeartbeatDeadline), Minimum: durationOf(of.Minimum), Skips: of.OnShortNotice == v1alpha1.ShortNoticeSkip,
		OnNodeLost: lostPolicies[of.OnNodeLost],
	}
}

// lostPolicies are all but Wait, which is the default.
var lostPolicies = map[v1alpha1.NodeLostPolicy]process.LostPolicy{
	v1alpha1.NodeLostSkip: process.LostSkip, v1alpha1.NodeLostInterrupt: process.LostInterrupt,
}

func decodeParticipant(er *v1alpha1.EvictionRequest, of v1alpha1.Interceptor, outcome process.Outcome, seen observation) process.Participant {
	p, name := participant(of), of.Name
	report := v1alpha1.ReportOf(er, name)
	p.StartedAt = timeOf(report.StartTime)
	p.HeartbeatAt = timeOf(report.HeartbeatTime)
	p.CompletedAt = timeOf(report.CompletionTime)
	p.CancelForbidden = report.Cancellation == v1alpha1.CancellationForbidden

	processed := er.Status.ProcessedInterceptors
	switch {
	case slices.Contains(er.Status.ActiveInterceptors, name):
		p.State = process.Active
		p.HeartbeatSeenAt = seen.heartbeatSeenAt
		p.ActivatedAt = timeOf(er.Status.ActivationTime)
		if er.Status.ActivationTime == nil {
			// Written together with the name, so another writer must have removed it. Year
			// 1 as the baseline would end the turn immediately.
			p.ActivatedAt = er.CreationTimestamp.Time
		}
	case !slices.Contains(processed, name):
		p.State = process.Inactive
	case report.CompletionTime != nil:
		p.State = process.Completed
	case (outcome == process.OutcomeCanceled || er.DeletionTimestamp != nil) && processed[len(processed)-1] == name:
		p.State = process.Canceled
	default:
		p.State = process.Interrupted
	}
	return p
}

// itemOf is the inverse of participant.
func itemOf(p process.Participant) v1alpha1.Interceptor {
	of := v1alpha1.Interceptor{Name: p.Name}
	if p.HeartbeatDeadline > 0 {
		of.HeartbeatDeadline = &metav1.Duration{Duration: p.HeartbeatDeadline}
	}
	if p.Minimum > 0 {
		of.Minimum = &metav1.Duration{Duration: p.Minimum}
	}
	if p.Skips {
		of.OnShortNotice = v1alpha1.ShortNoticeSkip // Begin is the default.
	}
	for api, policy := range lostPolicies {
		if policy == p.OnNodeLost {
			of.OnNodeLost = api
		}
	}
	return of
}

// facts are what encode needs besides the decision.
type facts struct {
	// now is the time of the decision. The API keeps whole seconds of it.
	now time.Time
	// nodeName is the node of the target, "" if unknown.
	nodeName string
	// foundUID is the UID of the pod that has the target's name, if there is one.
	foundUID types.UID
	// deadline is that of the requesters.
	deadline deadline
	// nodeSeen: the node of the target was looked for, and loss is what was found.
	nodeSeen bool
	loss     translate.NodeLoss
}

// encode writes a decision into the status of the request. A status that already
// says the same stays as it is, byte for byte.
func encode(er *v1alpha1.EvictionRequest, d process.Decision, f facts) {
	status := &er.Status
	running := !v1alpha1.IsFinished(er)
	status.ObservedGeneration = d.ObservedGeneration

	if len(status.TargetInterceptors) == 0 {
		for _, p := range d.Participants {
			status.TargetInterceptors = append(status.TargetInterceptors, itemOf(p))
			status.Interceptors = append(status.Interceptors, v1alpha1.InterceptorStatus{Name: p.Name})
		}
	}
	var active []string
	var activatedAt *metav1.Time
	for _, p := range d.Participants {
		switch {
		case p.State == process.Active:
			active = append(active, p.Name)
			activatedAt = new(metav1.NewTime(p.ActivatedAt.Truncate(time.Second)))
		case p.State.Final() && !slices.Contains(status.ProcessedInterceptors, p.Name):
			status.ProcessedInterceptors = append(status.ProcessedInterceptors, p.Name)
		}
	}
	if !slices.Equal(active, status.ActiveInterceptors) {
		status.ActiveInterceptors, status.ActivationTime = active, activatedAt
	}
	if running && status.NodeName == "" {
		status.NodeName = f.nodeName
	}
	if condition := conditionOf(er, d, f); running && condition != nil {
		status.Conditions = withRoom(status.Conditions)
		meta.SetStatusCondition(&status.Conditions, *condition)
	}
	if running {
		f.deadline.write(status)
		noteCutOff(er, d, f.deadline.over, f.now)
		noteForbidden(er, d, f.now)
		noteShort(er, d, f.now)
		noteLost(er, d, f)
	}
	if condition := heldCondition(er, d, f); condition != nil {
		meta.SetStatusCondition(&status.Conditions, *condition)
	}
	status.Summary = v1alpha1.Summarize(er)
}

// conditionOf converts an outcome to a condition (ruling R10, statements 51-53 and 90-92);
// nil while the request runs.
func conditionOf(er *v1alpha1.EvictionRequest, d process.Decision, f facts) *metav1.Condition {
	name, uid := "", types.UID("")
	if pod := er.Spec.Target.Pod; pod != nil {
		name, uid = pod.Name, pod.UID
	}
	c := &metav1.Condition{
		Status:             metav1.ConditionTrue,
		ObservedGeneration: d.ObservedGeneration,
		LastTransitionTime: metav1.NewTime(f.now.Truncate(time.Second)),
	}
	switch d.Outcome {
	case process.OutcomeRunning:
		return nil
	case process.OutcomeEvicted:
		c.Type = v1alpha1.ConditionEvicted
	case process.OutcomeCanceled:
		c.Type = v1alpha1.ConditionCanceled
	}
	switch d.Cause {
	case process.TargetDeleted:
		c.Reason, c.Message = v1alpha1.ReasonPodDeleted, "Target pod has been deleted"
	case process.TargetTerminal:
		c.Reason, c.Message = v1alpha1.ReasonPodTerminal, "Pod has reached terminal state"
	case process.NoIntent:
		c.Reason, c.Message = v1alpha1.ReasonNoRequesters, "Nobody wants the pod evicted any more, so it stays: the list of requesters is empty"
	case process.TargetNotFound:
		c.Reason, c.Message = v1alpha1.ReasonValidationFailed, fmt.Sprintf("Target Pod %s was not found.", name)
	case process.TargetMismatch:
		c.Reason = v1alpha1.ReasonValidationFailed
		c.Message = fmt.Sprintf("Target Pod %s was not found. The pod of that name has UID %s, the request names UID %s.", name, f.foundUID, uid)
	case process.TargetGrouped:
		c.Reason = v1alpha1.ReasonValidationFailed
		c.Message = fmt.Sprintf("Target Pod %s is part of a Workload/PodGroup. Eviction of such pods is currently not supported.", name)
	case process.NoCause:
	}
	return c
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

func durationOf(d *metav1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.Duration
}
