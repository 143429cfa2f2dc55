package request

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errServer: the API server refuses a write that was decided on the stored version.
var errServer = errors.New("the API server refuses the write")

// serverSkew is how far a time that is set may be from now.
const serverSkew = 30 * time.Second

// serverDeadline is the 20 minutes of the API server, in the time of the model.
func serverDeadline() time.Duration { return nativePolicy().Process.HeartbeatDeadline }

func refusedBy(rule, format string, args ...any) error {
	return fmt.Errorf("%w by rule %s: %s", errServer, rule, fmt.Sprintf(format, args...))
}

// acceptsEviction says why the API server refuses this status of an Eviction, nil if it does
// not: C.2 and C.3.
func acceptsEviction(before, after *lifecyclev1alpha1.Eviction) error {
	return errors.Join(keepsEnd(before, after), keepsPlan(before, after), acceptsReports(before, after), acceptsTurns(before, after))
}

func truth(conditions []metav1.Condition, kind lifecyclev1alpha1.EvictionConditionType) *metav1.Condition {
	if c := meta.FindStatusCondition(conditions, string(kind)); c != nil && c.Status == metav1.ConditionTrue {
		return c
	}
	return nil
}

func isEnded(e *lifecyclev1alpha1.Eviction) bool {
	return truth(e.Status.Conditions, lifecyclev1alpha1.EvictionConditionFailed) != nil ||
		truth(e.Status.Conditions, lifecyclev1alpha1.EvictionConditionTargetEvicted) != nil
}

func keepsEnd(before, after *lifecyclev1alpha1.Eviction) error {
	for _, kind := range []lifecyclev1alpha1.EvictionConditionType{lifecyclev1alpha1.EvictionConditionFailed, lifecyclev1alpha1.EvictionConditionTargetEvicted} {
		was, is := truth(before.Status.Conditions, kind), truth(after.Status.Conditions, kind)
		if was != nil && (is == nil || is.Reason != was.Reason) {
			return refusedBy("C.2", "%s was True", kind)
		}
	}
	was, is := before.Status.ObservedGeneration, after.Status.ObservedGeneration
	if was != nil && (is == nil || *is < *was) || is != nil && *is < 1 {
		return refusedBy("C.2", "observedGeneration")
	}
	seen := map[string]bool{}
	for _, r := range after.Status.Requesters {
		if seen[r.Name] || !strings.Contains(r.Name, "/") {
			return refusedBy("C.2", "requester %q", r.Name)
		}
		seen[r.Name] = true
	}
	return nil
}

func inOrder(responders []lifecyclev1alpha1.TargetResponder) []lifecyclev1alpha1.TargetResponder {
	domain := func(name string) []string {
		prefix, _, _ := strings.Cut(name, "/")
		labels := strings.Split(prefix, ".")
		slices.Reverse(labels)
		return labels
	}
	sorted := slices.Clone(responders)
	slices.SortFunc(sorted, func(a, b lifecyclev1alpha1.TargetResponder) int {
		return cmp.Or(cmp.Compare(*b.Priority, *a.Priority), slices.Compare(domain(a.Name), domain(b.Name)), strings.Compare(a.Name, b.Name))
	})
	return sorted
}

func keepsPlan(before, after *lifecyclev1alpha1.Eviction) error {
	plan := after.Status.TargetResponders
	if len(plan) > 11 || len(after.Status.Responders) != len(plan) {
		return refusedBy("C.2", "%d responders in the plan, %d reports", len(plan), len(after.Status.Responders))
	}
	seen := map[string]bool{}
	for _, r := range plan {
		evictor := r.Name == lifecyclev1alpha1.EvictionResponderImperativeEviction
		if seen[r.Name] || r.Priority == nil || evictor != (*r.Priority == 100) || !evictor && (*r.Priority < 1000 || *r.Priority > 100000) {
			return refusedBy("C.2", "responder %s", r.Name)
		}
		seen[r.Name] = true
		if !slices.ContainsFunc(after.Status.Responders, func(s lifecyclev1alpha1.ResponderStatus) bool { return s.Name == r.Name }) {
			return refusedBy("C.2", "no report of %s", r.Name)
		}
	}
	if len(before.Status.TargetResponders) == 0 {
		return nil
	}
	same := slices.EqualFunc(inOrder(before.Status.TargetResponders), inOrder(plan), func(a, b lifecyclev1alpha1.TargetResponder) bool {
		return a.Name == b.Name && *a.Priority == *b.Priority
	})
	if !same {
		return refusedBy("C.2", "the plan has changed")
	}
	return nil
}

func reportIn(e *lifecyclev1alpha1.Eviction, name string) lifecyclev1alpha1.ResponderStatus {
	for i := range e.Status.Responders {
		if e.Status.Responders[i].Name == name {
			return e.Status.Responders[i]
		}
	}
	return lifecyclev1alpha1.ResponderStatus{Name: name}
}

func stateIn(e *lifecyclev1alpha1.Eviction, name string) lifecyclev1alpha1.ResponderStateType {
	for _, r := range e.Status.TargetResponders {
		if r.Name == name {
			return r.State
		}
	}
	return ""
}

func near(t *metav1.Time) bool { return t.Sub(exploreEpoch).Abs() <= serverSkew }

func acceptsReports(before, after *lifecyclev1alpha1.Eviction) error {
	for i := range after.Status.Responders {
		is := after.Status.Responders[i]
		was := reportIn(before, is.Name)
		active := stateIn(after, is.Name) == lifecyclev1alpha1.ResponderStateActive
		if active && is.StartTime == nil {
			return refusedBy("C.2", "%s is Active without a startTime", is.Name)
		}
		if equality.Semantic.DeepEqual(was, is) {
			continue
		}
		if !active && stateIn(before, is.Name) != "" {
			return refusedBy("C.3.6", "the report of %s changes, who is not Active", is.Name)
		}
		for name, times := range map[string][2]*metav1.Time{
			"startTime": {was.StartTime, is.StartTime}, "heartbeatTime": {was.HeartbeatTime, is.HeartbeatTime}, "completionTime": {was.CompletionTime, is.CompletionTime},
		} {
			from, to := times[0], times[1]
			switch {
			case from.Equal(to):
			case to == nil, from != nil && (name != "heartbeatTime" || to.Before(from)), !near(to):
				return refusedBy("C.2", "%s of %s becomes %v", name, is.Name, to)
			case is.StartTime == nil || to.Before(is.StartTime):
				return refusedBy("C.2", "%s of %s is before its start", name, is.Name)
			}
		}
		if to := is.ExpectedCompletionTime; to != nil && !to.Equal(was.ExpectedCompletionTime) && (is.StartTime == nil || to.Before(is.StartTime) || to.Sub(exploreEpoch) < -serverSkew) {
			return refusedBy("C.2", "expectedCompletionTime of %s", is.Name)
		}
	}
	return nil
}

// acceptsTurns has the rules of C.3.
func acceptsTurns(before, after *lifecyclev1alpha1.Eviction) error {
	was, is := inOrder(before.Status.TargetResponders), inOrder(after.Status.TargetResponders)
	ended := isEnded(after)
	at, next := -1, -1 // Who was Active, and who has to become Active.
	if len(was) == 0 {
		next = 0
	} else {
		at = slices.IndexFunc(was, func(r lifecyclev1alpha1.TargetResponder) bool {
			return r.State == lifecyclev1alpha1.ResponderStateActive
		})
	}
	if at >= 0 && is[at].State != lifecyclev1alpha1.ResponderStateActive {
		report := reportIn(after, is[at].Name)
		sign := report.StartTime
		if report.HeartbeatTime != nil && sign.Before(report.HeartbeatTime) {
			sign = report.HeartbeatTime
		}
		switch early := exploreEpoch.Sub(sign.Time) < serverDeadline()-serverSkew; {
		case is[at].State == lifecyclev1alpha1.ResponderStateInactive:
			return refusedBy("C.3.3", "%s becomes Inactive", is[at].Name)
		case is[at].State == lifecyclev1alpha1.ResponderStateCompleted && report.CompletionTime == nil:
			return refusedBy("C.3.3", "%s is Completed and has not said so", is[at].Name)
		case report.CompletionTime == nil && early && !ended:
			return refusedBy("C.3.3", "%s loses its turn too early", is[at].Name)
		}
		next = at + 1
	}
	for i, r := range is {
		want := lifecyclev1alpha1.ResponderStateInactive
		switch {
		case i == at:
			want = r.State
		case i == next && !ended:
			want = lifecyclev1alpha1.ResponderStateActive
		case len(was) > 0:
			want = was[i].State
		}
		if r.State != want {
			return refusedBy("C.3.1,2,5", "%s is %s, not %s", r.Name, r.State, want)
		}
		if ended && r.State == lifecyclev1alpha1.ResponderStateActive {
			return refusedBy("C.3.4", "%s is Active at the end", r.Name)
		}
	}
	return nil
}

// acceptsRequest says why the API server refuses a native request: C.1.
func acceptsRequest(r *lifecyclev1alpha1.EvictionRequest) error {
	domain, key, found := strings.Cut(r.Spec.Requester, "/")
	switch {
	case !found || key == "" || domain == "k8s.io" || strings.HasSuffix(domain, ".k8s.io"):
		return refusedBy("C.1", "requester %s", r.Spec.Requester)
	case r.Status.ObservedGeneration != nil && *r.Status.ObservedGeneration < 1:
		return refusedBy("C.1", "observedGeneration")
	}
	return nil
}
