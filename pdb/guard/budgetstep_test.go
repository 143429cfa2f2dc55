package guard

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// ours is the guard's budget in namespace "shop", changed.
func ours(change ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	pdb := NewBudget("shop", nil)
	pdb.UID, pdb.Generation, pdb.Status.ObservedGeneration = "pdb-1", 1, 1
	for _, c := range change {
		c(pdb)
	}
	return pdb
}

func theirs() *policyv1.PodDisruptionBudget {
	return builder.Budget("shop", v1alpha1.GuardBudgetName).UID("pdb-9").Selects("app", "web").MinAvailable("1").Obj()
}

func TestBudgetStep(t *testing.T) {
	const delay = 10 * time.Minute
	loose := func(pdb *policyv1.PodDisruptionBudget) { pdb.Spec.MinAvailable = new(intstr.FromInt32(0)) }
	stricter := func(pdb *policyv1.PodDisruptionBudget) {
		pdb.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
	}
	owned := func(names ...string) func(*policyv1.PodDisruptionBudget) {
		return func(pdb *policyv1.PodDisruptionBudget) { pdb.OwnerReferences = ownedByRoles(names...) }
	}
	noLabels := func(pdb *policyv1.PodDisruptionBudget) { pdb.Labels = nil }
	otherSelector := func(pdb *policyv1.PodDisruptionBudget) { pdb.Spec.Selector.MatchLabels["app"] = "web" }
	undescribed := func(pdb *policyv1.PodDisruptionBudget) { pdb.Annotations = nil }
	otherWords := func(pdb *policyv1.PodDisruptionBudget) {
		pdb.Annotations[descriptionAnnotation] = "Ask the platform team."
	}
	deleting := func(pdb *policyv1.PodDisruptionBudget) { pdb.DeletionTimestamp = new(metav1.NewTime(t0)) }
	tests := map[string]struct {
		in   BudgetInput
		want BudgetDecision
	}{
		"none, and nobody needs one":                     {BudgetInput{}, BudgetDecision{}},
		"none, and a pod needs one":                      {BudgetInput{Needed: true}, BudgetDecision{Action: BudgetCreate}},
		"needed":                                         {BudgetInput{Budget: ours(), Needed: true}, BudgetDecision{}},
		"needed a moment ago":                            {BudgetInput{Budget: ours(), LastNeeded: t0.Add(-time.Minute)}, BudgetDecision{WakeAt: t0.Add(9 * time.Minute)}},
		"not needed for the delay":                       {BudgetInput{Budget: ours(), LastNeeded: t0.Add(-delay)}, BudgetDecision{Action: BudgetDelete}},
		"last needed in the future":                      {BudgetInput{Budget: ours(), LastNeeded: t0.Add(time.Hour)}, BudgetDecision{WakeAt: t0.Add(delay)}},
		"somebody has loosened it":                       {BudgetInput{Budget: ours(loose), Needed: true}, BudgetDecision{Action: BudgetRepair}},
		"somebody has changed its selector":              {BudgetInput{Budget: ours(otherSelector), Needed: true}, BudgetDecision{Action: BudgetRepair}},
		"somebody has taken its labels":                  {BudgetInput{Budget: ours(noLabels), Needed: true}, BudgetDecision{Action: BudgetRepair}},
		"loosened, and needed a moment ago":              {BudgetInput{Budget: ours(loose), LastNeeded: t0}, BudgetDecision{Action: BudgetRepair, WakeAt: t0.Add(delay)}},
		"it is being deleted, its end is an event":       {BudgetInput{Budget: ours(deleting), Needed: true}, BudgetDecision{}},
		"one of an older version, without a description": {BudgetInput{Budget: ours(undescribed), Needed: true}, BudgetDecision{Action: BudgetRepair}},
		"described in other words":                       {BudgetInput{Budget: ours(otherWords), Needed: true}, BudgetDecision{}},
		"its description was taken a moment ago":         {BudgetInput{Budget: ours(undescribed), Needed: true, Wait: time.Minute}, BudgetDecision{WakeAt: t0.Add(time.Minute)}},
		"one more field":                                 {BudgetInput{Budget: ours(stricter), Needed: true}, BudgetDecision{Action: BudgetRepair}},
		"its owner owns it":                              {BudgetInput{Budget: ours(owned("role")), Needed: true, Owner: "role"}, BudgetDecision{}},
		"it lost its owner":                              {BudgetInput{Budget: ours(), Needed: true, Owner: "role"}, BudgetDecision{Action: BudgetRepair}},
		"another role owns it":                           {BudgetInput{Budget: ours(owned("other")), Needed: true, Owner: "role"}, BudgetDecision{Action: BudgetRepair}},
		"another owner would keep it":                    {BudgetInput{Budget: ours(owned("role", "other")), Needed: true, Owner: "role"}, BudgetDecision{Action: BudgetRepair}},
		"changed, but repaired a moment ago":             {BudgetInput{Budget: ours(loose), Needed: true, Wait: time.Minute}, BudgetDecision{WakeAt: t0.Add(time.Minute)}},
		"gone, but made a moment ago":                    {BudgetInput{Needed: true, Wait: time.Minute}, BudgetDecision{WakeAt: t0.Add(time.Minute)}},
		"changed and idle, repaired a moment ago":        {BudgetInput{Budget: ours(loose), LastNeeded: t0, Wait: time.Hour}, BudgetDecision{WakeAt: t0.Add(delay)}},
		"somebody else's has its name":                   {BudgetInput{Budget: theirs(), Needed: true}, BudgetDecision{Action: BudgetBlocked}},
		"somebody else's has its name, to no avail":      {BudgetInput{Budget: theirs()}, BudgetDecision{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, BudgetStep(tc.in, t0, delay)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("a repair keeps other words", func(t *testing.T) {
		if diff := cmp.Diff(ours(otherWords, owned("role")), repaired(ours(loose, otherWords), &ownedByRoles("role")[0])); diff != "" {
			t.Errorf("budget (-want +got):\n%s", diff)
		}
	})
	t.Run("a repaired one needs no repair", func(t *testing.T) {
		got := repaired(ours(loose, otherSelector, noLabels, undescribed, func(pdb *policyv1.PodDisruptionBudget) { pdb.Spec.MaxUnavailable = new(intstr.FromInt32(1)) }), &ownedByRoles("role")[0])
		if diff := cmp.Diff(ours(owned("role")), got); diff != "" {
			t.Errorf("budget (-want +got):\n%s", diff)
		}
	})
}

// ownedByRoles are references to ClusterRoles.
func ownedByRoles(names ...string) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for _, name := range names {
		refs = append(refs, metav1.OwnerReference{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: name, UID: types.UID("uid-" + name)})
	}
	return refs
}

func TestDifferences(t *testing.T) {
	tests := map[string]struct {
		change func(*policyv1.PodDisruptionBudget)
		want   []string
	}{
		"none":           {func(*policyv1.PodDisruptionBudget) {}, nil},
		"more labels":    {func(pdb *policyv1.PodDisruptionBudget) { pdb.Labels["team"] = "a" }, nil},
		"another label":  {func(pdb *policyv1.PodDisruptionBudget) { pdb.Labels["app.kubernetes.io/managed-by"] = "policy" }, []string{"metadata.labels"}},
		"no description": {func(pdb *policyv1.PodDisruptionBudget) { pdb.Annotations = nil }, []string{"metadata.annotations"}},
		"other words":    {func(pdb *policyv1.PodDisruptionBudget) { pdb.Annotations[descriptionAnnotation] = "x" }, nil},
		"no owner":       {func(pdb *policyv1.PodDisruptionBudget) { pdb.OwnerReferences = nil }, []string{"metadata.ownerReferences"}},
		"one more field": {func(pdb *policyv1.PodDisruptionBudget) {
			pdb.Spec.UnhealthyPodEvictionPolicy = new(policyv1.IfHealthyBudget)
		}, []string{"spec.unhealthyPodEvictionPolicy"}},
		"a wider selector": {func(pdb *policyv1.PodDisruptionBudget) { pdb.Spec.Selector = &metav1.LabelSelector{} }, []string{"spec.selector"}},
		"the other limit": {func(pdb *policyv1.PodDisruptionBudget) {
			pdb.Spec.MinAvailable, pdb.Spec.MaxUnavailable = nil, new(intstr.FromInt32(0))
		}, []string{"spec.minAvailable", "spec.maxUnavailable"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := differences(ours(func(pdb *policyv1.PodDisruptionBudget) { pdb.OwnerReferences = ownedByRoles("role") }, tc.change), "role")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInForce(t *testing.T) {
	tests := map[string]struct {
		pdb  *policyv1.PodDisruptionBudget
		want bool
	}{
		"counted":                    {ours(), true},
		"never counted":              {ours(func(pdb *policyv1.PodDisruptionBudget) { pdb.Generation, pdb.Status.ObservedGeneration = 0, 0 }), false},
		"not counted yet":            {ours(func(pdb *policyv1.PodDisruptionBudget) { pdb.Status.ObservedGeneration = 0 }), false},
		"not counted since a change": {ours(func(pdb *policyv1.PodDisruptionBudget) { pdb.Generation = 2 }), false},
		"loosened":                   {ours(func(pdb *policyv1.PodDisruptionBudget) { pdb.Spec.MinAvailable = new(intstr.FromInt32(0)) }), false},
		"going":                      {ours(func(pdb *policyv1.PodDisruptionBudget) { pdb.DeletionTimestamp = new(metav1.NewTime(t0)) }), false},
		"somebody else's":            {theirs(), false},
		"with one more field": {ours(func(pdb *policyv1.PodDisruptionBudget) {
			pdb.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
		}), true},
		"without its labels":       {ours(func(pdb *policyv1.PodDisruptionBudget) { pdb.Labels = nil }), true},
		"with a narrower selector": {ours(func(pdb *policyv1.PodDisruptionBudget) { pdb.Spec.Selector.MatchLabels["app"] = "web" }), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := inForce(tc.pdb); got != tc.want {
				t.Errorf("in force: got %t, want %t", got, tc.want)
			}
		})
	}
}
