package request

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/evictor"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

const (
	exploredPod = "db-0"
	exploredUID = types.UID("uid-1")
	// exploredMinimum is what the second interceptor needs, in ticks.
	exploredMinimum = 2
	// successorUID is the pod that has the name afterwards.
	successorUID = types.UID("uid-2")
)

// exploredBudget is the one that refuses, so that a message can be told again.
var exploredBudget = []string{"db"}

// planOf is the plan of a pod with so many interceptors.
func planOf(custom int) []string {
	var names []string
	for i := range custom {
		names = append(names, fmt.Sprintf("i%d.example.com", i))
	}
	return append(names, v1alpha1.ImperativeEvictionInterceptor)
}

// exploredPlan is what the plan says of each. The second one needs longer than a deadline
// leaves that is in a tick, and is skipped then.
func exploredPlan(name string) v1alpha1.Interceptor {
	of := v1alpha1.Interceptor{Name: name}
	if name == planOf(2)[1] {
		of.Minimum, of.OnShortNotice = &metav1.Duration{Duration: exploredMinimum * tick}, v1alpha1.ShortNoticeSkip
	}
	return of
}

// message is the text that the evictor would write.
func (t wording) message(retries uint8) string {
	switch t {
	case textNone:
		return ""
	case textTerminating:
		return evictor.TerminatingMessage
	default:
		return fmt.Sprintf(evictor.FailedMessage, retries)
	}
}

// refusal is what the evictor would write beside the message.
func (t wording) refusal() *v1alpha1.EvictionRefusal {
	if t == textNone || t == textTerminating {
		return nil
	}
	last := lastTry{Text: t}.memory()
	return last.Refusal()
}

// memory is what the evictor remembers.
func (l lastTry) memory() evictor.Attempt {
	last := evictor.Attempt{At: l.At.time(), Since: l.Since.time(), Retries: int32(l.Retries), Budgets: exploredBudget}
	switch l.Text {
	case textBudget:
		last.Result = translate.ResultBudget
	case textDeadline:
		last.Result = translate.ResultDeadline
	case textNone, textTerminating:
		last.Result = translate.ResultEvicted
	}
	if l.At == never {
		return evictor.Attempt{}
	}
	return last
}

// hardSource ends what a status says of a requester that does not wait.
const hardSource = ", type Hard"

// object is the record as the API has it.
func (r record) object() *v1alpha1.EvictionRequest {
	er := &v1alpha1.EvictionRequest{}
	er.Namespace, er.Name, er.UID = "shop", string(exploredUID), "er-1"
	er.Generation = int64(r.Gen)
	// The first turn begins after the creation, so an activation time covers it.
	er.CreationTimestamp = metav1.NewTime(exploreEpoch.Add(-24 * time.Hour))
	er.Spec.Target.Pod = &v1alpha1.LocalPodReference{Name: exploredPod, UID: exploredUID}
	for i := range 2 {
		if r.Wanted.has(i) {
			requester := v1alpha1.Requester{Name: fmt.Sprintf("r%d.example.com", i)}
			if i == 0 && r.Due != never {
				requester.Deadline = new(metav1.NewTime(r.Due.time()))
			}
			if i == 0 && r.Hard {
				requester.Type = v1alpha1.RequesterHard
			}
			er.Spec.Requesters = append(er.Spec.Requesters, requester)
		}
	}
	s := &er.Status
	s.ObservedGeneration = int64(r.Seen)
	if r.Plan > 0 {
		for i, name := range planOf(int(r.Plan) - 1) {
			s.TargetInterceptors = append(s.TargetInterceptors, exploredPlan(name))
			report := v1alpha1.InterceptorStatus{Name: name}
			if beat := r.Items[i].Beat; beat != never {
				report.HeartbeatTime = new(metav1.NewTime(beat.time()))
				report.StartTime = report.HeartbeatTime
			}
			if r.Items[i].Forbids {
				report.Cancellation = v1alpha1.CancellationForbidden
			}
			if r.Items[i].Done {
				report.CompletionTime = new(metav1.NewTime(exploreEpoch))
			}
			if name == v1alpha1.ImperativeEvictionInterceptor {
				report.Retries, report.Message, report.Refusal = int32(r.Retries), r.Text.message(r.Retries), r.Text.refusal()
			}
			s.Interceptors = append(s.Interceptors, report)
			if r.Active.has(i) {
				s.ActiveInterceptors = append(s.ActiveInterceptors, name)
			}
			if r.Processed.has(i) {
				s.ProcessedInterceptors = append(s.ProcessedInterceptors, name)
			}
		}
	}
	if r.Activated != never {
		s.ActivationTime = new(metav1.NewTime(r.Activated.time()))
	}
	if r.Until != never {
		s.Deadline, s.DeadlineSource = new(metav1.NewTime(r.Until.time())), "requester r0.example.com"
		if r.UntilHard {
			s.DeadlineSource += hardSource
		}
	}
	if c := r.End.condition(); c != nil {
		s.Conditions = append(s.Conditions, *c)
	}
	return er
}

func (e ending) condition() *metav1.Condition {
	c := &metav1.Condition{Status: metav1.ConditionTrue}
	switch e {
	case running:
		return nil
	case endedDeleted:
		c.Type, c.Reason = v1alpha1.ConditionEvicted, v1alpha1.ReasonPodDeleted
	case endedTerminal:
		c.Type, c.Reason = v1alpha1.ConditionEvicted, v1alpha1.ReasonPodTerminal
	case endedUnwanted:
		c.Type, c.Reason = v1alpha1.ConditionCanceled, v1alpha1.ReasonNoRequesters
	case endedRefused:
		c.Type, c.Reason = v1alpha1.ConditionCanceled, v1alpha1.ReasonValidationFailed
	}
	return c
}

// withStatus is the record with the status of the object, which the request
// controller has encoded. The evictor's own words it never changes.
func (r record) withStatus(er *v1alpha1.EvictionRequest) record {
	s := &er.Status
	r.Seen = uint8(s.ObservedGeneration)
	r.Plan = uint8(len(s.TargetInterceptors))
	r.Active, r.Processed = 0, 0
	for i, target := range s.TargetInterceptors {
		if slices.Contains(s.ActiveInterceptors, target.Name) {
			r.Active = r.Active.with(i)
		}
		if slices.Contains(s.ProcessedInterceptors, target.Name) {
			r.Processed = r.Processed.with(i)
		}
	}
	r.UntilHard = strings.HasSuffix(s.DeadlineSource, hardSource)
	r.Activated, r.Until = ageOf(timeOf(s.ActivationTime)), ageOf(timeOf(s.Deadline))
	r.End = running
	for _, end := range []ending{endedDeleted, endedTerminal, endedUnwanted, endedRefused} {
		if c := end.condition(); slices.ContainsFunc(s.Conditions, func(have metav1.Condition) bool {
			return have.Type == c.Type && have.Reason == c.Reason && have.Status == c.Status
		}) {
			r.End = end
		}
	}
	return r
}

// object is the pod in this phase, nil if a reader finds nothing.
func (p podPhase) object() *corev1.Pod {
	b := builder.Pod("shop", exploredPod).UID(exploredUID).Node("n1").GracePeriod(0)
	switch p {
	case podUnseen, podGone:
		return nil
	case podRunning:
		return b.Phase(corev1.PodRunning).Obj()
	case podTerminal:
		return b.Phase(corev1.PodSucceeded).Obj()
	case podReplaced:
		return b.UID(successorUID).Phase(corev1.PodRunning).Obj()
	case podDeleting:
		pod := b.Phase(corev1.PodRunning).Obj()
		pod.DeletionTimestamp = new(metav1.NewTime(exploreEpoch))
		return pod
	}
	panic(fmt.Sprintf("no pod in phase %d", p))
}
