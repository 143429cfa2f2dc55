package disruption

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// Exhausted is what is to be known before a pod is deleted although a PodDisruptionBudget
// refuses its eviction, because that can never allow it.
type Exhausted struct {
	Now time.Time
	// Pod is the UID of the pod.
	Pod types.UID
	// Budget is the only PodDisruptionBudget that selects the pod, nil if it is gone. All has at
	// least the pods that it selects. Both come from the API server, not from a cache.
	Budget *policyv1.PodDisruptionBudget
	All    []*corev1.Pod
	// Since is since when the eviction has been refused; zero is now.
	Since time.Time
	// Off: the manager must not delete pods, or none of this namespace.
	Off bool
	// Agreements are those of the EvictionBudgets that cover the pod, by name.
	Agreements []Agreement
}

// Agreement is what one EvictionBudget says about such pods.
type Agreement struct {
	Name string
	// Evict: it consents that they are deleted, After that time.
	Evict bool
	After time.Duration
	// Selector of its pods.
	Selector labels.Selector
	// Granted: it has granted the eviction of this pod, on record.
	Granted bool
	// Closed says what keeps it from granting now, but for its windows; empty if nothing does.
	Closed string
	// Opens is the first time at or after another one at which a window is open, which is any
	// without windows; false if none opens any more.
	Opens func(time.Time) (time.Time, bool)
	// Unavailable is how many other pods it counts as unavailable or missing.
	Unavailable int
	// Going are the other pods that were let go in spite of the same PodDisruptionBudget, and
	// whose places are not filled again, as far as that is on record.
	Going []string
}

// Consent is what the EvictionBudgets of a pod say together. The zero value is that none
// consents, or that there is nothing to decide.
type Consent struct {
	// Deletes: the pod may be deleted now.
	Deletes bool
	// Waits: it will be, without anybody doing anything, At that time if it is set.
	Waits bool
	At    time.Time
	// Says is a sentence for people, empty if no EvictionBudget consents.
	Says string
	// By names the EvictionBudgets, separated by commas. Budgets refers to them if the pod may be
	// deleted; whoever asks fills it in.
	By      string
	Budgets []corev1.ObjectReference
}

// Decide is the decision. What lasts until somebody changes it comes first, then the time, then
// what passes by itself.
func (in Exhausted) Decide() Consent {
	var names, against []string
	var after time.Duration
	for _, a := range in.Agreements {
		if !a.Evict {
			against = append(against, a.Name)
			continue
		}
		names, after = append(names, a.Name), max(after, a.After)
	}
	c := Consent{By: strings.Join(names, ", ")}
	if c.By == "" || in.Budget == nil {
		return Consent{}
	}
	refuse := func(format string, args ...any) Consent {
		c.Says = "EvictionBudget " + c.By + " would have the pod deleted, but " + fmt.Sprintf(format, args...) + "."
		return c
	}
	selected := Selected(in.Budget, in.All)
	switch {
	case in.Off:
		return refuse("Drawbridge must not delete pods here (value budgets.exhausted of the chart)")
	case len(against) > 0:
		return refuse("EvictionBudget %s of the pod would not (spec.exhausted)", strings.Join(against, ", "))
	case !slices.ContainsFunc(in.Agreements, func(a Agreement) bool { return a.coversAll(selected) }):
		return refuse("it does not cover all pods of PodDisruptionBudget %s", in.Budget.Name)
	case slices.ContainsFunc(in.Agreements, func(a Agreement) bool { return !a.Granted }):
		return refuse("it has not granted the eviction")
	}
	since := in.Since
	if since.IsZero() {
		since = in.Now
	}
	at, opens := in.open(later(since.Add(after), in.Now))
	if !opens {
		return refuse("none of its windows opens any more")
	}
	c.Waits = true
	if at.After(in.Now) {
		c.At = at
		c.Says = fmt.Sprintf("EvictionBudget %s has the pod deleted from %s on.", c.By, at.UTC().Format(time.RFC3339))
		return c
	}
	if why := in.passing(selected); why != "" {
		return refuse("%s", why)
	}
	c.Waits, c.Deletes = false, true
	c.Says = fmt.Sprintf("The pod is deleted in spite of PodDisruptionBudget %s, as EvictionBudget %s says.", in.Budget.Name, c.By)
	return c
}

// maxOpenings is how often windows of several EvictionBudgets are asked for a time that is in
// all of them.
const maxOpenings = 100

// open is the first time from then on at which all have a window that is open.
func (in Exhausted) open(from time.Time) (time.Time, bool) {
	for range maxOpenings {
		at := from
		for _, a := range in.Agreements {
			next, ok := a.Opens(at)
			if !ok {
				return time.Time{}, false
			}
			at = later(at, next)
		}
		if at.Equal(from) {
			return at, true
		}
		from = at
	}
	return time.Time{}, false
}

// passing says what has to pass by itself, empty for nothing.
func (in Exhausted) passing(selected []*corev1.Pod) string {
	if !slices.ContainsFunc(selected, func(p *corev1.Pod) bool { return p.UID == in.Pod }) {
		return "PodDisruptionBudget " + in.Budget.Name + " does not select it any more"
	}
	for _, a := range in.Agreements {
		switch {
		case a.Closed != "":
			return a.Closed
		case len(a.Going) > 0:
			return fmt.Sprintf("pod %s goes in the same way first, until its place is filled again", a.Going[0])
		case a.Unavailable > 0:
			return "another pod that EvictionBudget " + a.Name + " covers is unavailable"
		}
	}
	if !settled(in.Budget, selected) {
		return fmt.Sprintf("PodDisruptionBudget %s does not count as many healthy pods as it expects and asks for", in.Budget.Name)
	}
	return ""
}

// settled reports whether a budget is exhausted by arithmetic alone: all that it expects are
// there and healthy, it asks for all of them, and nothing is on its way. Its status may be older
// than the pods, and an integer in minAvailable makes it expect the pods that there are, not
// those that should be there, so all numbers have to fit.
func settled(b *policyv1.PodDisruptionBudget, selected []*corev1.Pod) bool {
	s := &b.Status
	if s.ObservedGeneration < b.Generation || s.DisruptionsAllowed != 0 || len(s.DisruptedPods) > 0 || Of(b, selected).Never == "" {
		return false
	}
	if s.ExpectedPods < 1 || s.DesiredHealthy < s.ExpectedPods || s.CurrentHealthy < s.DesiredHealthy {
		return false
	}
	for _, pod := range selected {
		if pod.DeletionTimestamp != nil || !pods.IsReady(pod) {
			return false
		}
	}
	return len(selected) >= int(s.CurrentHealthy)
}

func (a Agreement) coversAll(selected []*corev1.Pod) bool {
	return !slices.ContainsFunc(selected, func(p *corev1.Pod) bool { return !a.Selector.Matches(labels.Set(p.Labels)) })
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
