// Package budgetstatus says when an EvictionBudget would let a pod go, as far as its spec and its
// status tell. It is pure, and it knows no more than the manager has written: what it says
// is for people, and decides nothing.
package budgetstatus

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// When is the kind of moment at which a pod may go. Later ones are greater.
type When int

// The moments, the earliest first.
const (
	// Granted: the budget has let it go already.
	Granted When = iota
	// Now: nothing keeps it.
	Now
	// AtTime: at a time that is known.
	AtTime
	// Afterwards: after other pods are available again.
	Afterwards
	// Someday: after something that the status does not tell.
	Someday
	// Never: somebody has to change the budget, or to skip it.
	Never
)

// Status is when a budget would let a pod go.
type Status struct {
	// Budget is its name.
	Budget string
	When   When
	// Reason is that of the condition Granting; empty if nothing keeps the pod, or if the
	// status does not tell.
	Reason string
	// Until is the time, if it is known.
	Until time.Time
	// Groups have to be available again before, at least one of them.
	Groups []string
	// Text says it in words, for example: after group "a" is available again.
	Text string
}

// Last is the latest of the statuses: all budgets must let a pod go. There must be one.
func Last(all []Status) Status {
	return slices.MaxFunc(all, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.When, b.When), a.Until.Compare(b.Until), strings.Compare(b.Budget, a.Budget))
	})
}

// Input is everything that a status depends on.
type Input struct {
	Budget *v1alpha1.EvictionBudget
	Pod    *corev1.Pod
	// Node of the pod; nil if it is not known. Only groups by its labels need it.
	Node *corev1.Node
	// Before are how many pods of each group are to go before this one.
	Before map[string]int32
	// Now is the time. Times are printed in its location.
	Now time.Time
}

// Of returns the status. It asks in the order in which the manager decides, but for what
// never ends by itself, which is worth more than the next window.
func Of(in Input) Status {
	o := in.closed()
	if o == nil && !in.outside() && Ready(in.Pod) {
		o = in.full()
	}
	if o == nil {
		o = &Status{When: Now, Text: "now"}
	}
	o.Budget = in.Budget.Name
	return *o
}

// closed is nil if the budget grants something now, or need not.
func (in *Input) closed() *Status {
	b := in.Budget
	accepted := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionAccepted)
	switch {
	case slices.ContainsFunc(b.Status.Grants, func(g v1alpha1.BudgetGrant) bool { return g.PodUID == string(in.Pod.UID) }):
		return &Status{When: Granted, Text: "granted already"}
	case b.Status.ObservedGeneration != b.Generation || accepted == nil:
		return &Status{When: Someday, Text: "not known: the manager has not observed it yet"}
	case accepted.Status == metav1.ConditionFalse:
		return &Status{When: Never, Reason: v1alpha1.ReasonNotAccepted, Text: "never: it is not accepted: " + text.Clean(accepted.Message)}
	}
	opening, open := in.opening()
	continues := len(b.Spec.Windows) > 0 && b.Spec.OutsideWindow == v1alpha1.OutsideWindowContinue
	switch {
	case continues && !open:
		return nil
	case !continues && AllowsNothing(b):
		return &Status{When: Never, Reason: v1alpha1.ReasonNothingAllowed, Text: "never: maxUnavailable is " + b.Spec.MaxUnavailable.String()}
	case !open && opening == nil:
		return &Status{When: Never, Reason: v1alpha1.ReasonOutsideWindow, Text: "never: no window opens any more"}
	case !open && !opening.End.After(in.Now):
		return &Status{When: Someday, Reason: v1alpha1.ReasonOutsideWindow, Text: "not known: the manager has not computed the next window"}
	case !open:
		return &Status{When: AtTime, Reason: v1alpha1.ReasonOutsideWindow, Until: opening.Start.Time, Text: "not before " + in.at(opening.Start.Time) + ", when its next window opens"}
	}
	if o := in.blocked(); o != nil {
		return in.orClosing(o, opening)
	}
	return nil
}

// opening is the window that is open or the next one; nil if there is none. Without windows
// the budget is always open.
func (in *Input) opening() (opening *v1alpha1.BudgetOpening, open bool) {
	if len(in.Budget.Spec.Windows) == 0 {
		return nil, true
	}
	opening = in.Budget.Status.Window
	return opening, opening != nil && !in.Now.Before(opening.Start.Time) && in.Now.Before(opening.End.Time)
}

// outside reports whether there is no budget now.
func (in *Input) outside() bool {
	_, open := in.opening()
	return !open
}

// blocked is nil unless the budget grants nothing to anybody while it is open.
func (in *Input) blocked() *Status {
	b := in.Budget
	granting := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionGranting)
	next := time.Time{}
	if b.Status.LastGrantTime != nil && b.Spec.MinInterval != nil {
		next = b.Status.LastGrantTime.Add(b.Spec.MinInterval.Duration)
	}
	refuses := func(reason string) bool {
		return granting != nil && granting.Status == metav1.ConditionFalse && granting.Reason == reason
	}
	switch {
	case refuses(v1alpha1.ReasonConditionFalse):
		return &Status{When: Someday, Reason: v1alpha1.ReasonConditionFalse, Text: "after its conditions are true"}
	case AllowsNothing(b):
		return &Status{When: Never, Reason: v1alpha1.ReasonNothingAllowed}
	case refuses(v1alpha1.ReasonGrantsFull):
		return &Status{When: Someday, Reason: v1alpha1.ReasonGrantsFull, Text: "after the pods that it has granted have successors"}
	case in.Now.Before(next):
		return &Status{When: AtTime, Reason: v1alpha1.ReasonMinInterval, Until: next, Text: "not before " + in.at(next) + ", for minInterval"}
	default:
		return nil
	}
}

// full is nil unless too many pods are unavailable for this one, which is ready, to go.
func (in *Input) full() *Status {
	b := in.Budget
	group, known := GroupOf(b, in.Pod, in.Node)
	if !known {
		return &Status{When: Someday, Text: "not known: the labels of its node could not be read"}
	}
	opening, _ := in.opening()
	if b.Spec.GroupBy != nil {
		if o := in.otherGroups(group); o != nil {
			return in.orClosing(o, opening)
		}
	}
	// The status leaves groups out that have all their pods, if there are very many.
	at := slices.IndexFunc(b.Status.Groups, func(g v1alpha1.BudgetGroup) bool { return g.Name == group })
	if at >= 0 && in.crowded(b.Status.Groups[at]) {
		o := &Status{When: Afterwards, Reason: v1alpha1.ReasonPodsUnavailable, Groups: []string{group}, Text: "after other pods of it are available again"}
		if b.Spec.GroupBy != nil {
			o.Text = "after other pods of group " + strconv.Quote(group) + " are available again"
		}
		return in.orClosing(o, opening)
	}
	if interval := ptr.Deref(b.Spec.MinInterval, metav1.Duration{}).Duration; interval > 0 && len(in.Before) > 0 {
		return &Status{When: Afterwards, Reason: v1alpha1.ReasonMinInterval, Text: fmt.Sprintf("in its turn, one every %s", interval)}
	}
	if len(b.Spec.Conditions) > 0 && len(in.Before) == 0 && ptr.Deref(b.Status.DisruptionsAllowed, 1) == 0 && in.available() {
		// While nobody waits, the status does not say why.
		return in.orClosing(&Status{When: Someday, Reason: v1alpha1.ReasonConditionFalse, Text: "after its conditions are true"}, opening)
	}
	return nil
}

// crowded reports whether too many pods of the pod's own group would be unavailable.
func (in *Input) crowded(own v1alpha1.BudgetGroup) bool {
	unavailable := own.Disrupted + in.Before[own.Name]
	if in.available() {
		unavailable++
	}
	return unavailable > MaxUnavailable(in.Budget, own.Expected)
}

// otherGroups is nil unless other groups must be available again first.
func (in *Input) otherGroups(own string) *Status {
	var names []string
	for _, g := range in.Budget.Status.Groups {
		if g.Name != own && g.Disrupted > 0 {
			names = append(names, g.Name)
		}
	}
	for name, n := range in.Before {
		if name != own && n > 0 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	most := int(ptr.Deref(in.Budget.Spec.MaxGroups, 1))
	if len(names) < most {
		return nil
	}
	o := &Status{When: Afterwards, Reason: v1alpha1.ReasonGroupsDisrupted, Groups: names}
	switch {
	case len(names) == 1:
		o.Text = "after " + groups(names, "") + " is available again"
	case len(names) == most:
		o.Text = "after " + groups(names, " or ") + " is available again"
	default:
		o.Text = fmt.Sprintf("after %d of the %s are available again", len(names)-most+1, groups(names, ", "))
	}
	return o
}

// maxNamed is how many groups a text names.
const maxNamed = 3

// groups names groups: group "a".
func groups(names []string, separator string) string {
	var quoted []string
	for _, name := range names[:min(len(names), maxNamed)] {
		quoted = append(quoted, strconv.Quote(name))
	}
	noun := "group "
	if separator == ", " {
		noun = "groups "
	}
	if rest := len(names) - maxNamed; rest > 0 {
		quoted = append(quoted, fmt.Sprintf("%d more", rest))
	}
	return noun + strings.Join(quoted, separator)
}

// orClosing adds that the budget lets all go when its window closes, if it does.
func (in *Input) orClosing(o *Status, opening *v1alpha1.BudgetOpening) *Status {
	if opening == nil || in.Budget.Spec.OutsideWindow != v1alpha1.OutsideWindowContinue || o.When == AtTime && o.Until.Before(opening.End.Time) {
		return o
	}
	if o.When == AtTime || o.When == Never {
		o.Text = "not before " + in.at(opening.End.Time) + ", when its window closes"
	} else {
		o.Text += ", or at " + in.at(opening.End.Time) + ", when its window closes"
	}
	o.When, o.Until = AtTime, opening.End.Time
	return o
}

// at prints a time.
func (in *Input) at(t time.Time) string { return t.In(in.Now.Location()).Format(time.RFC3339) }

// available reports whether the budget counts the pod as available.
func (in *Input) available() bool { return Unavailable(in.Budget, in.Pod, in.Now) == "" }
