package disruption

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

var night = time.Date(2026, 12, 1, 22, 0, 0, 0, time.UTC)

// always is a budget without windows, and from is one whose window opens then.
func always(t time.Time) (time.Time, bool) { return t, true }

func from(start time.Time) func(time.Time) (time.Time, bool) {
	return func(t time.Time) (time.Time, bool) { return later(t, start), true }
}

func agrees(name string) Agreement {
	return Agreement{Name: name, Evict: true, After: 30 * time.Minute, Selector: labels.SelectorFromSet(labels.Set{"app": "web"}), Granted: true, Opens: always}
}

// singleton is the only pod of a StatefulSet behind minAvailable 1, after its time.
func singleton() Exhausted {
	all := replicas(1, "StatefulSet")
	all[0].UID = "uid-0"
	return Exhausted{
		Now: night, Pod: "uid-0", Since: night.Add(-30 * time.Minute),
		Budget: budgetOf("1", "", status(1, 1, 1, 0)), All: all, Agreements: []Agreement{agrees("db")},
	}
}

// pair are two pods that one budget counts.
func pair(minAvailable, maxUnavailable string, s policyv1.PodDisruptionBudgetStatus) Exhausted {
	in := singleton()
	in.Budget, in.All = budgetOf(minAvailable, maxUnavailable, s), replicas(2, "StatefulSet")
	for i := range in.All {
		in.All[i].UID = types.UID([]string{"uid-0", "uid-1"}[i])
	}
	return in
}

// Each condition alone keeps the pod.
func TestExhausted(t *testing.T) {
	const (
		goes = "The pod is deleted in spite of PodDisruptionBudget web, as EvictionBudget db says."
		but  = "EvictionBudget db would have the pod deleted, but "
		few  = but + "PodDisruptionBudget web does not count as many healthy pods as it expects and asks for."
	)
	change := func(in Exhausted, change func(*Exhausted)) Exhausted {
		change(&in)
		return in
	}
	agreement := func(change func(*Agreement)) Exhausted {
		in := singleton()
		change(&in.Agreements[0])
		return in
	}
	pdb := func(change func(*policyv1.PodDisruptionBudget)) Exhausted {
		in := singleton()
		change(in.Budget)
		return in
	}
	waits := func(says string) Consent { return Consent{Waits: true, By: "db", Says: says} }
	stays := func(says string) Consent { return Consent{By: "db", Says: says} }
	at := func(t time.Time) Consent {
		return Consent{Waits: true, By: "db", At: t, Says: "EvictionBudget db has the pod deleted from " + t.Format(time.RFC3339) + " on."}
	}
	cases := map[string]struct {
		in   Exhausted
		want Consent
	}{
		"the only pod":                         {singleton(), Consent{Deletes: true, By: "db", Says: goes}},
		"one of two that are all needed":       {pair("2", "", status(2, 2, 2, 0)), Consent{Deletes: true, By: "db", Says: goes}},
		"one of two, and maxUnavailable is 0":  {pair("", "0", status(2, 2, 2, 0)), Consent{Deletes: true, By: "db", Says: goes}},
		"one of two, and minAvailable is 100%": {pair("100%", "", status(2, 2, 2, 0)), Consent{Deletes: true, By: "db", Says: goes}},

		"no EvictionBudget":        {change(singleton(), func(in *Exhausted) { in.Agreements = nil }), Consent{}},
		"it says Wait":             {agreement(func(a *Agreement) { a.Evict = false }), Consent{}},
		"the budget is gone":       {change(singleton(), func(in *Exhausted) { in.Budget = nil }), Consent{}},
		"the manager must not":     {change(singleton(), func(in *Exhausted) { in.Off = true }), stays(but + "Drawbridge must not delete pods here (value budgets.exhausted of the chart).")},
		"another one says Wait":    {change(singleton(), func(in *Exhausted) { in.Agreements = append(in.Agreements, Agreement{Name: "shop", Opens: always}) }), stays(but + "EvictionBudget shop of the pod would not (spec.exhausted).")},
		"it does not cover all":    {change(pair("2", "", status(2, 2, 2, 0)), func(in *Exhausted) { in.Agreements[0].Selector = labels.SelectorFromSet(labels.Set{"db": "a"}) }), stays(but + "it does not cover all pods of PodDisruptionBudget web.")},
		"it has not granted it":    {agreement(func(a *Agreement) { a.Granted = false }), stays(but + "it has not granted the eviction.")},
		"no window opens any more": {agreement(func(a *Agreement) { a.Opens = func(time.Time) (time.Time, bool) { return time.Time{}, false } }), stays(but + "none of its windows opens any more.")},

		"refused for a second less":   {change(singleton(), func(in *Exhausted) { in.Since = in.Since.Add(time.Second) }), at(night.Add(time.Second))},
		"refused just now":            {change(singleton(), func(in *Exhausted) { in.Since = time.Time{} }), at(night.Add(30 * time.Minute))},
		"outside of its windows":      {agreement(func(a *Agreement) { a.Opens = from(night.Add(time.Hour)) }), at(night.Add(time.Hour))},
		"a window, and then the time": {change(agreement(func(a *Agreement) { a.Opens = from(night.Add(time.Minute)) }), func(in *Exhausted) { in.Since = night }), at(night.Add(30 * time.Minute))},
		"the longer time of two": {change(singleton(), func(in *Exhausted) {
			more := agrees("shop")
			more.After = time.Hour
			in.Agreements = append(in.Agreements, more)
		}), Consent{Waits: true, By: "db, shop", At: night.Add(30 * time.Minute), Says: "EvictionBudget db, shop has the pod deleted from 2026-12-01T22:30:00Z on."}},

		"a condition is not true":           {agreement(func(a *Agreement) { a.Closed = "condition quiet is not true (EvictionBudget db)" }), waits(but + "condition quiet is not true (EvictionBudget db).")},
		"another pod went the same way":     {agreement(func(a *Agreement) { a.Going = []string{"db-1"} }), waits(but + "pod db-1 goes in the same way first, until its place is filled again.")},
		"another pod is missing":            {agreement(func(a *Agreement) { a.Unavailable = 1 }), waits(but + "another pod that EvictionBudget db covers is unavailable.")},
		"it is selected no more":            {change(singleton(), func(in *Exhausted) { lost(in.All[0]) }), waits(but + "PodDisruptionBudget web does not select it any more.")},
		"it allows one":                     {pdb(func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = 1 }), waits(few)},
		"a status of an older spec":         {pdb(func(b *policyv1.PodDisruptionBudget) { b.Status.ObservedGeneration = 1 }), waits(few)},
		"an eviction that is not over":      {pdb(func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptedPods = map[string]metav1.Time{"web-9": {}} }), waits(few)},
		"nothing is expected":               {pdb(func(b *policyv1.PodDisruptionBudget) { b.Status.ExpectedPods = 0 }), waits(few)},
		"more are expected than are there":  {pdb(func(b *policyv1.PodDisruptionBudget) { b.Status.ExpectedPods = 2 }), waits(few)},
		"fewer are healthy than expected":   {pdb(func(b *policyv1.PodDisruptionBudget) { b.Status.CurrentHealthy = 0 }), waits(few)},
		"fewer are needed than expected":    {pdb(func(b *policyv1.PodDisruptionBudget) { b.Status.DesiredHealthy = 0 }), waits(few)},
		"it may allow, with other replicas": {pair("1", "", status(2, 2, 1, 0)), waits(few)},
		"Drawbridge's guard": {pdb(func(b *policyv1.PodDisruptionBudget) {
			b.Labels = map[string]string{"drawbridge.dev/guard-budget": "true"}
		}), waits(few)},

		"the pod is not ready":                                {change(singleton(), func(in *Exhausted) { unready(in.All[0]) }), waits(few)},
		"the other pod is not ready":                          {change(pair("", "0", status(2, 2, 2, 0)), func(in *Exhausted) { unready(in.All[1]) }), waits(few)},
		"the other pod leaves, and the status does not say":   {change(pair("", "0", status(2, 2, 2, 0)), func(in *Exhausted) { leaving(in.All[1]) }), waits(few)},
		"the other pod has gone, and the status does not say": {change(pair("2", "", status(2, 2, 2, 0)), func(in *Exhausted) { in.All = in.All[:1] }), waits(few)},
		"the other pod has gone, and the status says so":      {change(pair("2", "", status(1, 1, 2, 0)), func(in *Exhausted) { in.All = in.All[:1] }), waits(few)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.in.Decide()); diff != "" {
				t.Errorf("consent (-want +got):\n%s", diff)
			}
		})
	}
}

// Of two pods of one budget whose status does not tell that one has gone, because it counts the
// scale of those controllers only that have a pod, the record of the first keeps the second.
func TestTheRecordOfTheFirstKeepsTheSecond(t *testing.T) {
	in := pair("", "0", status(1, 1, 1, 0))
	in.All = []*corev1.Pod{in.All[0]}
	if c := in.Decide(); !c.Deletes {
		t.Fatalf("the counts alone would keep it: %+v", c)
	}
	in.Agreements[0].Going = []string{"web-1"}
	if c := in.Decide(); c.Deletes {
		t.Errorf("both go at a time: %+v", c)
	}
}
