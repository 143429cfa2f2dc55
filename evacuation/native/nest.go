package native

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/text"
)

// maxMessage is the longest message of a responder, in characters (C.2).
const maxMessage = 4000

// mirror asks natively in the name of the requesters of our request, from the turn of
// v1alpha1.NativeInterceptor on, and takes that back when they leave. Its own name is not
// asked for: our request has it because there is an Eviction. But where an interceptor has forbidden
// to cancel, the pod goes even if nobody wants that any more, and responders that have not had their
// turn are still to have it. Wishes of a request that is deleted go with it, but until then they
// would still count.
func (s Situation) mirror(d *Decision) {
	if s.targetEnded() {
		return // Nobody waits for a pod that is gone.
	}
	wanted := map[string]string{}
	if s.oursRuns() && s.Ours.Spec.Target.Pod != nil && (isActive(s.Ours, v1alpha1.NativeInterceptor) || slices.Contains(s.Ours.Status.ProcessedInterceptors, v1alpha1.NativeInterceptor)) {
		for _, r := range s.Ours.Spec.Requesters {
			if r.Name != v1alpha1.NativeInterceptor {
				wanted[wishName(s.UID, r.Name)] = r.Name
			}
		}
		if v1alpha1.Forbidding(s.Ours) != "" {
			wanted[wishName(s.UID, v1alpha1.NativeInterceptor)] = v1alpha1.NativeInterceptor
		}
	}
	for _, r := range s.Requests {
		_, stays := wanted[r.Name]
		delete(wanted, r.Name)
		intent := lifecyclev1alpha1.EvictionRequestIntentWithdrawn
		if stays {
			intent = lifecyclev1alpha1.EvictionRequestIntentEviction
		}
		switch owner := WishOwner(r); {
		case owner == "":
			continue // Somebody else's.
		case s.Ours == nil, owner != s.Ours.UID:
			intent = lifecyclev1alpha1.EvictionRequestIntentWithdrawn // Its successor has to wait.
		}
		if r.Spec.Intent == intent || r.DeletionTimestamp != nil {
			continue
		}
		after := r.DeepCopy()
		after.Spec.Intent = intent
		d.Wishes = append(d.Wishes, after)
	}
	for name, of := range wanted {
		d.Wishes = append(d.Wishes, s.wish(name, of))
	}
	slices.SortFunc(d.Wishes, func(a, b *lifecyclev1alpha1.EvictionRequest) int { return cmp.Compare(a.Name, b.Name) })
}

// wish is the native request in the name of one requester.
func (s Situation) wish(name, of string) *lifecyclev1alpha1.EvictionRequest {
	return &lifecyclev1alpha1.EvictionRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: name,
			// With our request it goes, too, and that counts as withdrawn.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "EvictionRequest", Name: s.Ours.Name, UID: s.Ours.UID,
			}},
		},
		Spec: lifecyclev1alpha1.EvictionRequestSpec{
			Target:    lifecyclev1alpha1.EvictionRequestTarget{Pod: &lifecyclev1alpha1.EvictionRequestPodReference{Name: s.PodName, UID: s.UID}},
			Requester: RequesterKey(of), Intent: lifecyclev1alpha1.EvictionRequestIntentEviction,
		},
	}
}

// WishOwner is the UID of our request that a native one was made for, "" if it is none of ours.
func WishOwner(r *lifecyclev1alpha1.EvictionRequest) types.UID {
	for _, o := range r.OwnerReferences {
		if o.Kind == "EvictionRequest" && o.APIVersion == v1alpha1.SchemeGroupVersion.String() {
			return o.UID
		}
	}
	return ""
}

// oursRuns reports whether our request is being processed.
func (s Situation) oursRuns() bool {
	return s.Ours != nil && s.Ours.DeletionTimestamp == nil && !v1alpha1.IsFinished(s.Ours)
}

func isActive(er *v1alpha1.EvictionRequest, name string) bool {
	return slices.Contains(er.Status.ActiveInterceptors, name)
}

// withOurs reports whether the pod has interceptors of ours besides the native one. The plan of
// a request counts as long as it runs.
func (s Situation) withOurs() bool {
	if s.oursRuns() && len(s.Ours.Status.TargetInterceptors) > 0 {
		return slices.ContainsFunc(s.Ours.Status.TargetInterceptors, func(i v1alpha1.Interceptor) bool {
			return i.Name != v1alpha1.NativeInterceptor && i.Name != v1alpha1.ImperativeEvictionInterceptor
		})
	}
	return len(s.Interceptors) > 0
}

// oursFirst reports whether the first write of an Eviction waits for our interceptors, because
// there is no place for them among its responders. If nobody wants our request any more, they have
// their turns in the next one.
func (s Situation) oursFirst(e *lifecyclev1alpha1.Eviction) bool {
	if len(e.Status.TargetResponders) > 0 || s.targetEnded() || !isFull(s.Responders) || !s.withOurs() {
		return false
	}
	return !s.oursRuns() || v1alpha1.IsUnwanted(s.Ours) ||
		!isActive(s.Ours, v1alpha1.NativeInterceptor) && !isActive(s.Ours, v1alpha1.ImperativeEvictionInterceptor)
}

// waits says why the first write of an Eviction waits for our interceptors, "" if it does not.
func (s Situation) waits(e *lifecyclev1alpha1.Eviction) string {
	switch {
	case s.oursFirst(e):
		return oursFirstMessage
	case len(e.Status.TargetResponders) == 0 && !s.targetEnded() && s.oursGoOn():
		return oursGoOnMessage
	default:
		return ""
	}
}

// begins reports whether a decision has the first write of an Eviction, beside which interceptors of
// ours may work.
func (s Situation) begins(d Decision) bool {
	return (s.Ours != nil || s.withOurs()) && slices.ContainsFunc(d.Statuses, func(after *lifecyclev1alpha1.Eviction) bool {
		return len(after.Status.TargetResponders) > 0 && slices.ContainsFunc(s.Evictions, func(e *lifecyclev1alpha1.Eviction) bool {
			return e.UID == after.UID && len(e.Status.TargetResponders) == 0
		})
	})
}

// oursGoOn reports whether an interceptor of ours has the turn or is the next, because it had begun
// before an Eviction that has ended: the responders of the one that begins anew must not work at
// the same time. Where ours come before them, they do not.
func (s Situation) oursGoOn() bool {
	if !s.oursRuns() || len(s.Ours.Status.ActiveInterceptors) == 0 ||
		planOf(s.Responders, true, s.Priority)[0].Name == v1alpha1.NativeResponder {
		return false
	}
	switch active := s.Ours.Status.ActiveInterceptors[0]; active {
	case v1alpha1.ImperativeEvictionInterceptor:
		return false
	case v1alpha1.NativeInterceptor:
		return v1alpha1.ReportOf(s.Ours, active).CompletionTime != nil && s.withOurs()
	default:
		return true
	}
}

// nest decides about what joins the two: our request has to exist during the turn of
// v1alpha1.NativeResponder, which reports what it does, and v1alpha1.NativeInterceptor reports
// what the Eviction does.
func (s Situation) nest(d *Decision) {
	soon := s.soon(d)
	joined := s.oursRuns() && slices.ContainsFunc(s.Ours.Spec.Requesters, func(r v1alpha1.Requester) bool { return r.Name == v1alpha1.NativeInterceptor })
	switch needed := s.needsOurs(soon, s.isWanted(d)); {
	case needed && !joined && !s.refused():
		d.Join = true
	case !needed && joined && !s.targetEnded() && d.Create == nil:
		d.Withdraw = true
	}
	if soon != nil && soon == d.Relevant {
		s.respond(d, soon)
	}
	if s.oursRuns() && isActive(s.Ours, v1alpha1.NativeInterceptor) {
		s.intercept(d, soon)
	}
}

// refused reports whether the controller of our requests has refused this pod.
func (s Situation) refused() bool {
	return s.Ours != nil && v1alpha1.IsFinished(s.Ours) && conclusionText(s.Ours) == v1alpha1.ReasonValidationFailed
}

func conclusionText(er *v1alpha1.EvictionRequest) string {
	for _, c := range er.Status.Conditions {
		if c.Status == metav1.ConditionTrue && (c.Type == v1alpha1.ConditionCanceled || c.Type == v1alpha1.ConditionEvicted) {
			return c.Reason
		}
	}
	return ""
}

// needsOurs reports whether a running Eviction, which somebody may want, needs our request.
func (s Situation) needsOurs(e *lifecyclev1alpha1.Eviction, wanted bool) bool {
	if e == nil || s.targetEnded() || conclusionOf(e.Status.Conditions).final() || e.DeletionTimestamp != nil {
		return false
	}
	if len(e.Status.TargetResponders) == 0 {
		return s.InCharge && wanted && (isFull(s.Responders) && s.withOurs() || s.oursGoOn())
	}
	switch state := StateOf(e, v1alpha1.NativeResponder); {
	case state == "" && theirs(e) && active(e) == lifecyclev1alpha1.EvictionResponderImperativeEviction:
		// The pod could not name it, and our interceptors have no turn but this.
		return s.hasOurs()
	case state == "", state == lifecyclev1alpha1.ResponderStateInactive:
		// Without a place for it, it was needed before the first write, and stays. One that had all
		// turns before an Eviction that begins anew stays, too, or they would come once more.
		return s.oursRuns() && (isFull(s.Responders) || isActive(s.Ours, v1alpha1.ImperativeEvictionInterceptor))
	default:
		return s.hasOurs()
	}
}

// hasOurs reports whether there is anything to do in the turn of v1alpha1.NativeResponder. A pod
// may name it although no interceptor covers it: the policy that puts it there goes by selectors
// only, and registrations come and go.
func (s Situation) hasOurs() bool { return s.oursRuns() || len(s.Interceptors) > 0 }

// respond decides about the report of v1alpha1.NativeResponder.
func (s Situation) respond(d *Decision, e *lifecyclev1alpha1.Eviction) {
	if StateOf(e, v1alpha1.NativeResponder) != lifecyclev1alpha1.ResponderStateActive {
		return
	}
	stored := responderOf(e, v1alpha1.NativeResponder)
	if stored.CompletionTime != nil {
		return
	}
	last := ResponderReport{HeartbeatAt: timeOf(stored.HeartbeatTime), ExpectedAt: timeOf(stored.ExpectedCompletionTime)}
	// The API server accepts nothing from before the turn, which another clock may have begun (C.2).
	now := controllers.Later(s.second(), controllers.Later(timeOf(stored.StartTime), last.HeartbeatAt))
	if stored.Message != nil {
		last.Message = *stored.Message
	}
	next := last
	switch {
	case s.targetEnded(), s.refused(), s.oursRuns() && isActive(s.Ours, v1alpha1.ImperativeEvictionInterceptor):
		next.CompletedAt, next.Message = now, "All interceptors of Drawbridge had their turn."
		if s.refused() {
			next.Message = "Drawbridge has refused the pod."
		}
	case !s.hasOurs():
		next.CompletedAt, next.Message = now, "No interceptor of Drawbridge covers the pod."
	case s.oursRuns():
		update := requester.Observe(s.Ours)
		next.Message = text.Cut(progressOf("interceptor", update.Interceptor, update.Position, update.Total, update.Message), maxMessage)
		if update.Interceptor == "" {
			next.Message = "Drawbridge's interceptors begin."
		}
		next.ExpectedAt = s.future(update.ExpectedFinishTime, last.ExpectedAt)
		if !next.ExpectedAt.IsZero() {
			next.ExpectedAt = controllers.Later(next.ExpectedAt, timeOf(stored.StartTime))
		}
	}
	if due := s.due(last.Message == next.Message && last.ExpectedAt.Equal(next.ExpectedAt), last.HeartbeatAt); next.CompletedAt.IsZero() && s.Now.Before(due) {
		d.wake(due)
		return
	}
	next.HeartbeatAt = now
	d.Responder = &next
	d.wake(s.Now.Add(s.Policy.HeartbeatInterval))
}

// intercept decides about the report of v1alpha1.NativeInterceptor.
func (s Situation) intercept(d *Decision, e *lifecyclev1alpha1.Eviction) {
	stored := v1alpha1.ReportOf(s.Ours, v1alpha1.NativeInterceptor)
	if stored.CompletionTime != nil {
		return
	}
	last := InterceptorReport{
		StartedAt: timeOf(stored.StartTime), HeartbeatAt: timeOf(stored.HeartbeatTime),
		ExpectedAt: timeOf(stored.ExpectedFinishTime), Message: stored.Message,
	}
	next := last
	switch {
	case e == nil || conclusionOf(e.Status.Conditions).final():
		next.Message = "The native Eviction has not begun."
	case s.passedBy(e):
		next.CompletedAt, next.Message = s.second(), "All native responders had their turn."
	default:
		who, position, total, message := Progress(e)
		next.Message = text.Cut(progressOf("responder", who, position, total, message), v1alpha1.MaxMessageLength)
		next.ExpectedAt = s.future(timeOf(responderOf(e, who).ExpectedCompletionTime), last.ExpectedAt)
	}
	if due := s.due(last.Message == next.Message && last.ExpectedAt.Equal(next.ExpectedAt), last.HeartbeatAt); next.CompletedAt.IsZero() && s.Now.Before(due) {
		d.wake(due)
		return
	}
	now := s.second()
	switch {
	case last.StartedAt.IsZero():
		next.StartedAt, next.HeartbeatAt = now, now
	case now.Sub(last.HeartbeatAt) >= s.Policy.ReportMin:
		next.HeartbeatAt = now
	}
	d.Interceptor = &next
	d.wake(s.Now.Add(s.Policy.HeartbeatInterval))
}

// passedBy reports whether the native responders before ours had their turn.
func (s Situation) passedBy(e *lifecyclev1alpha1.Eviction) bool {
	state := StateOf(e, v1alpha1.NativeResponder)
	if state == "" {
		state = StateOf(e, lifecyclev1alpha1.EvictionResponderImperativeEviction)
	}
	return state != "" && state != lifecyclev1alpha1.ResponderStateInactive
}

// due is when to report next: at once if nothing was reported yet, after ReportMin if there is
// something new, else after the interval.
func (s Situation) due(same bool, last time.Time) time.Time {
	if last.IsZero() {
		return s.Now
	}
	if same {
		return last.Add(s.Policy.HeartbeatInterval)
	}
	return last.Add(s.Policy.ReportMin)
}

// second is the time of the decision as the API keeps it.
func (s Situation) second() time.Time { return s.Now.Truncate(time.Second) }

// future is an expected time that both APIs accept, otherwise the one that is stored.
func (s Situation) future(expected, stored time.Time) time.Time {
	if expected.After(s.Now) && expected.Before(s.Now.AddDate(9, 0, 0)) {
		return expected.Truncate(time.Second).UTC()
	}
	return stored
}

// progressOf is one sentence about who has the turn.
func progressOf(kind, who string, position, total int, message string) string {
	switch {
	case who == "":
		return message
	case message == "":
		return fmt.Sprintf("Waiting for %s %q (%d of %d).", kind, who, position, total)
	default:
		return fmt.Sprintf("Waiting for %s %q (%d of %d): %s", kind, who, position, total, message)
	}
}

// Progress is the responder that has the turn, the position-th of total, and what it says. who is
// "" if nobody has.
func Progress(e *lifecyclev1alpha1.Eviction) (who string, position, total int, message string) {
	plan := slices.Clone(e.Status.TargetResponders)
	slices.SortStableFunc(plan, compareResponders)
	who = active(e)
	if who == "" {
		return "", 0, len(plan), ""
	}
	position = 1 + slices.IndexFunc(plan, func(r lifecyclev1alpha1.TargetResponder) bool { return r.Name == who })
	if m := responderOf(e, who).Message; m != nil {
		message = *m
	}
	return who, position, len(plan), message
}
