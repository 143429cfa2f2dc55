package native

import (
	"slices"
	"strings"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
)

// Decide decides about one pod. It is total and deterministic; it changes none of the objects
// it is given.
func Decide(s Situation) Decision {
	d := Decision{}
	s.mirror(&d)
	if s.Target.Presence == process.Unknown {
		return d // Nothing is certain.
	}
	d.Relevant = s.relevant()
	if s.InCharge {
		s.advance(&d)
		s.follow(&d)
		s.prune(&d)
		s.refuse(&d)
	}
	s.nest(&d)
	return d
}

// wanting are the native requests that want the eviction (A.3: one that is being deleted does
// not).
func (s Situation) wanting() (wanting []*lifecyclev1alpha1.EvictionRequest) {
	for _, r := range s.Requests {
		if Wants(r) {
			wanting = append(wanting, r)
		}
	}
	return wanting
}

// Wants reports whether a native EvictionRequest still wants its pod evicted.
func Wants(r *lifecyclev1alpha1.EvictionRequest) bool {
	return r.DeletionTimestamp == nil && r.Spec.Intent == lifecyclev1alpha1.EvictionRequestIntentEviction &&
		!settled(conclusionOf(r.Status.Conditions))
}

// isWanted reports whether somebody wants the eviction, or will once the decision is written.
func (s Situation) isWanted(d *Decision) bool {
	return len(s.wanting()) > 0 || slices.ContainsFunc(d.Wishes, Wants)
}

// settled reports whether a request has ended for good (A.2, 3).
func settled(end conclusion) bool { return end.evicted != "" || end.failed == invalid }

// wake brings the next decision forward; zero means never.
func (d *Decision) wake(at time.Time) {
	if !at.IsZero() && (d.WakeAt.IsZero() || at.Before(d.WakeAt)) {
		d.WakeAt = at
	}
}

// relevant is the Eviction that counts (A.2, 5): one that has evicted the pod, with the latest
// transition; else the oldest that runs; else the one that failed last. Ties go by name, so that
// two looks give the same answer. One that claims to have evicted a pod that is there counts as
// failed: somebody else has written that.
func (s Situation) relevant() *lifecyclev1alpha1.Eviction {
	var evicted, running, ended *lifecyclev1alpha1.Eviction
	for _, e := range s.Evictions {
		end := conclusionOf(e.Status.Conditions)
		switch {
		case end.evicted != "" && s.targetEnded():
			if evicted == nil || compareTransition(e, evicted, targetEvicted) > 0 {
				evicted = e
			}
		case !end.final():
			if running == nil || compareAge(e, running) < 0 {
				running = e
			}
		default:
			if ended == nil || compareTransition(e, ended, failed) > 0 {
				ended = e
			}
		}
	}
	switch {
	case evicted != nil:
		return evicted
	case running != nil:
		return running
	default:
		return ended
	}
}

func (s Situation) targetEnded() bool {
	return s.Target.Presence == process.Gone || s.Target.Presence == process.Replaced || s.Target.Terminal
}

func compareAge(a, b *lifecyclev1alpha1.Eviction) int {
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

func compareTransition(a, b *lifecyclev1alpha1.Eviction, condition string) int {
	at := func(e *lifecyclev1alpha1.Eviction) time.Time {
		if c := meta.FindStatusCondition(e.Status.Conditions, condition); c != nil {
			return c.LastTransitionTime.Time
		}
		return time.Time{}
	}
	if c := at(a).Compare(at(b)); c != 0 {
		return c
	}
	return compareAge(a, b)
}

// advance moves the Evictions on, and creates one if it is wanted.
func (s Situation) advance(d *Decision) {
	wanting := s.wanting()
	relevant := d.Relevant
	if len(wanting) > 0 && s.mayCreate(d) {
		d.Create = s.newEviction(wanting)
	}
	if relevant == nil {
		return
	}
	for _, e := range s.Evictions {
		if e.DeletionTimestamp == nil {
			s.refresh(d, e)
		}
		end := conclusionOf(e.Status.Conditions)
		switch {
		case end.final():
		case e != relevant && !conclusionOf(relevant.Status.Conditions).final():
			s.put(d, e, process.Decision{Participants: decode(e, s, true).Participants, Outcome: process.OutcomeCanceled},
				conclusion{failed: invalid, message: "An active Eviction already exists for the same target."})
		default:
			s.step(d, e, s.isWanted(d))
		}
	}
}

// step moves one Eviction on.
func (s Situation) step(d *Decision, e *lifecyclev1alpha1.Eviction, wanted bool) {
	if wanted && s.waits(e) != "" {
		if s.oursFirst(e) {
			d.Happened = append(d.Happened, Happening{What: OursFirst, Eviction: e.Name})
		}
		return
	}
	snapshot := decode(e, s, wanted)
	stepped := process.Step(snapshot, s.Now, s.Policy.Process)
	end := concluded(s, stepped)
	if !end.final() && exhausted(snapshot) {
		end = conclusion{failed: noFurther, message: "All responders have completed without evicting the target."}
	}
	d.wake(stepped.WakeAt)
	s.put(d, e, stepped, end)
}

// exhausted reports whether the last one is final while the target lives (A.6, row 11).
func exhausted(s process.Snapshot) bool {
	return len(s.Participants) > 0 && !slices.ContainsFunc(s.Participants, func(p process.Participant) bool { return !p.State.Final() })
}

// put notes the status of an Eviction, if it differs.
func (s Situation) put(d *Decision, e *lifecyclev1alpha1.Eviction, stepped process.Decision, end conclusion) {
	after := e.DeepCopy()
	for i, p := range stepped.Participants {
		if end.final() && p.State == process.Active {
			// Nobody stays active at the end (C.3).
			stepped.Participants[i].State = process.Canceled
			if !p.CompletedAt.IsZero() {
				stepped.Participants[i].State = process.Completed
			}
		}
	}
	encode(after, s, stepped, end, s.requesters(e))
	if apiequality.Semantic.DeepEqual(e.Status, after.Status) {
		return
	}
	d.Statuses = append(d.Statuses, after)
	for _, t := range stepped.Transitions {
		if t.To == process.Interrupted && !s.targetEnded() {
			d.Happened = append(d.Happened, Happening{What: PassedOver, Eviction: e.Name, Who: t.Name})
		}
	}
	if end.failed != "" && end.failed != canceled {
		d.Happened = append(d.Happened, Happening{What: EvictionFailed, Eviction: e.Name, Text: end.message})
	}
}

// maxRequesters is the largest number in the status of an Eviction (C.2).
const maxRequesters = 100

// requesters are those of the status (A.5): who asks before who is only remembered, who wants
// before who has withdrawn, the older first, each once.
func (s Situation) requesters(e *lifecyclev1alpha1.Eviction) []lifecyclev1alpha1.Requester {
	live := slices.Clone(s.Requests)
	wants := func(r *lifecyclev1alpha1.EvictionRequest) int {
		if r.DeletionTimestamp == nil && r.Spec.Intent == lifecyclev1alpha1.EvictionRequestIntentEviction {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(live, func(a, b *lifecyclev1alpha1.EvictionRequest) int {
		if c := wants(a) - wants(b); c != 0 {
			return c
		}
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	var list []lifecyclev1alpha1.Requester
	add := func(name string, intent lifecyclev1alpha1.RequesterIntent) {
		known := slices.ContainsFunc(list, func(r lifecyclev1alpha1.Requester) bool { return r.Name == name })
		if !known && len(list) < maxRequesters {
			list = append(list, lifecyclev1alpha1.Requester{Name: name, Intent: intent})
		}
	}
	for _, r := range live {
		intent := lifecyclev1alpha1.RequesterIntentEviction
		if wants(r) > 0 {
			intent = lifecyclev1alpha1.RequesterIntentWithdrawn
		}
		add(r.Spec.Requester, intent)
	}
	for _, r := range e.Status.Requesters {
		add(r.Name, lifecyclev1alpha1.RequesterIntentWithdrawn)
	}
	return list
}

// mayCreate reports whether an Eviction may begin. One that has failed gets a successor after a
// pause: responders that complete at once without evicting anything would make Evictions for
// ever (A.13, 1).
func (s Situation) mayCreate(d *Decision) bool {
	if s.Target.Grouped || (len(s.Evictions) == 0 && s.targetEnded() && s.Target.Presence != process.Present) {
		return false
	}
	if d.Relevant == nil {
		return true
	}
	end := conclusionOf(d.Relevant.Status.Conditions)
	if !end.final() || end.evicted != "" && s.targetEnded() {
		return false
	}
	if end.failed == canceled {
		return true
	}
	due := s.chainDue(d.Relevant)
	if s.Now.Before(due) {
		d.wake(due)
		return false
	}
	return true
}

// chainDue is when a failed Eviction may have a successor.
func (s Situation) chainDue(last *lifecyclev1alpha1.Eviction) time.Time {
	began := last.CreationTimestamp.Time
	for _, kind := range []string{failed, targetEvicted} {
		if c := meta.FindStatusCondition(last.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionTrue {
			began = c.LastTransitionTime.Time
		}
	}
	// As long as the pod has been tried so far, so that the pauses double.
	pause := min(max(began.Sub(slices.MinFunc(s.Evictions, compareAge).CreationTimestamp.Time), s.Policy.ChainMin), s.Policy.ChainMax)
	// A clock that was set back must not make it wait for longer.
	return controllers.Earlier(began.Add(pause), s.Now.Add(pause))
}

// prune deletes Evictions that are of no use: failed ones between the first and the last few,
// and those that nobody's request owns, after the retention (A.13, 5).
func (s Situation) prune(d *Decision) {
	var dead []*lifecyclev1alpha1.Eviction
	for _, e := range s.Evictions {
		if e != d.Relevant && e.DeletionTimestamp == nil && conclusionOf(e.Status.Conditions).final() {
			dead = append(dead, e)
		}
	}
	slices.SortFunc(dead, compareAge)
	if extra := len(dead) - s.Policy.KeepFailed; extra > 0 {
		d.Prune = append(d.Prune, dead[1:1+extra]...)
	}
	if d.Relevant == nil || len(s.Requests) > 0 || s.Policy.Retention == 0 || d.Relevant.DeletionTimestamp != nil {
		return
	}
	end := time.Time{}
	for _, c := range d.Relevant.Status.Conditions {
		if c.Status == metav1.ConditionTrue {
			end = controllers.Later(end, c.LastTransitionTime.Time)
		}
	}
	if end.IsZero() {
		return
	}
	if due := end.Add(s.Policy.Retention); s.Now.Before(due) {
		d.wake(due)
		return
	}
	d.Prune = append(d.Prune, d.Relevant)
}
