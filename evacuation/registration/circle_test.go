package registration

import (
	"math/rand/v2"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestAnOrderThatIsACircleIsRefused(t *testing.T) {
	register := func() *builder.EvictionInterceptorWrapper { return builder.EvictionInterceptor("a.x") }
	storage := func() *builder.EvictionInterceptorWrapper { return register().Pods("app", "storage") }
	cases := map[string]struct {
		from *builder.EvictionInterceptorWrapper
		want bool
	}{
		"the same pods":                                {storage().After("app", "storage"), true},
		"all others":                                   {storage().AfterWhere("app", "NotIn", "storage"), false},
		"those without a label":                        {storage().AfterWhere("app", "DoesNotExist"), false},
		"all that have the label":                      {storage().AfterWhere("app", "Exists"), true},
		"some of its own":                              {storage().After("app", "storage").After("role", "replica"), true},
		"by another label: both are possible":          {storage().After("tier", "front"), false},
		"all pods after some of them":                  {register().After("app", "db"), true},
		"pods of a namespace after all of it":          {storage().Namespaces("team", "a").AfterNamespaces("team", "a"), true},
		"pods of a namespace after those of another":   {storage().Namespaces("team", "a").After("app", "storage").AfterNamespaces("team", "b"), false},
		"pods of all namespaces after those of one":    {storage().After("app", "storage").AfterNamespaces("team", "b"), true},
		"pods of a namespace after all in any":         {storage().Namespaces("team", "a").After("app", "storage"), true},
		"a namespace and other pods of it":             {storage().Namespaces("team", "a").AfterWhere("app", "NotIn", "storage").AfterNamespaces("team", "a"), false},
		"a condition may tell them apart":              {storage().When("object.metadata.name == 'a'").After("app", "storage"), false},
		"some values of several":                       {register().PodsWhere("app", "In", "a", "b").AfterWhere("app", "In", "a", "b", "c"), true},
		"values that overlap":                          {register().PodsWhere("app", "In", "a", "b").AfterWhere("app", "In", "b", "c"), false},
		"whom it selects can have no such labels":      {register().PodsWhere("app", "In", "a").PodsWhere("app", "NotIn", "a").After("tier", "front"), false},
		"whom it waits for can have no such labels":    {storage().AfterWhere("app", "Exists").AfterWhere("app", "DoesNotExist"), false},
		"who is not a is among who is neither, surely": {register().PodsWhere("app", "NotIn", "a").AfterWhere("app", "NotIn", "a", "b"), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			refused := compileEntry(tc.from.Obj(), nil).refused
			switch {
			case tc.want:
				checkRefused(t, refused, v1alpha1.ReasonOrderCircle, "spec.after selects pods that the registration itself selects, so they would wait for each other. ", "The registration selects no pods.")
			case refused != nil:
				t.Errorf("refused because of %s: %s", refused.reason, refused.message)
			}
		})
	}
}

// What is said of selectors is what is true of all labels that there can be. One value stands
// for all that nobody lists.
func TestCirclesAreThoseOfAllLabels(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	selector := func() labels.Selector {
		from := &metav1.LabelSelector{}
		for range random.IntN(4) {
			r := metav1.LabelSelectorRequirement{Key: pick("a", "b"), Operator: metav1.LabelSelectorOperator(pick("In", "NotIn", "Exists", "DoesNotExist"))}
			if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
				r.Values = []string{pick("1", "2"), pick("2", "3")}
			}
			from.MatchExpressions = append(from.MatchExpressions, r)
		}
		made, err := metav1.LabelSelectorAsSelector(from)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	var all []labels.Set
	for _, a := range []string{"", "1", "2", "3", "other"} {
		for _, b := range []string{"", "1", "2", "3", "other"} {
			set := labels.Set{}
			if a != "" {
				set["a"] = a
			}
			if b != "" {
				set["b"] = b
			}
			all = append(all, set)
		}
	}
	count := func(selectors ...labels.Selector) (n int) {
		for _, set := range all {
			if !slices.ContainsFunc(selectors, func(s labels.Selector) bool { return !s.Matches(set) }) {
				n++
			}
		}
		return n
	}
	seen := map[bool]int{}
	for range 5000 {
		ownPods, ownNamespaces, pods, namespaces := selector(), selector(), selector(), selector()
		// Each pod may be in each namespace.
		own, others := count(ownPods)*count(ownNamespaces), count(pods)*count(namespaces)
		both := count(ownPods, pods) * count(ownNamespaces, namespaces)
		want := both > 0 && (both == own || both == others)
		if got := circular(placeOf(ownPods, ownNamespaces), placeOf(pods, namespaces)); got != want {
			t.Fatalf("pods %q of %q after %q of %q: circular %t, want %t", ownPods, ownNamespaces, pods, namespaces, got, want)
		}
		seen[want]++
	}
	if seen[true] < 100 || seen[false] < 100 {
		t.Errorf("of both kinds there are %v", seen)
	}
}
