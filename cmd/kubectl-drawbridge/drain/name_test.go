package drain

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestTheNameOfAMaintenance(t *testing.T) {
	long := strings.Repeat("very-long-name.", 20)
	cases := map[string]struct {
		nodes    []string
		selector string
		front    string
		same     []string // other nodes that must get the same name
	}{
		"one node":                         {nodes: []string{"node-1"}, front: "drain-node-1-"},
		"several, in any order":            {nodes: []string{"b", "a", "c"}, front: "drain-a-and-2-more-", same: []string{"c", "b", "a", "a"}},
		"a node with a domain":             {nodes: []string{"ip-10-0-0-1.eu.internal"}, front: "drain-ip-10-0-0-1-eu-internal-"},
		"a long name":                      {nodes: []string{long}, front: "drain-very-long-name-very-long"},
		"labels":                           {selector: "pool=blue", front: "drain-pool-blue-"},
		"labels without letters or digits": {selector: "!x", front: "drain-x-"},
	}
	seen := map[string]string{}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := maintenanceName(tc.nodes, tc.selector)
			if !strings.HasPrefix(got, tc.front) || len(got) > 63 {
				t.Errorf("name %q, want one of at most 63 characters that begins with %q", got, tc.front)
			}
			if other := seen[got]; other != "" {
				t.Errorf("%q and %q have the same name %q", name, other, got)
			}
			seen[got] = name
			if tc.same != nil && maintenanceName(tc.same, "") != got {
				t.Errorf("the same nodes in another order are %q, not %q", maintenanceName(tc.same, ""), got)
			}
		})
	}
	if maintenanceName(nil, "a=b,c=d") != maintenanceName(nil, "c=d, a=b") {
		t.Error("the same labels in another order get another name")
	}
}

func TestNodeSelector(t *testing.T) {
	byName := func(names ...string) (terms []corev1.NodeSelectorTerm) {
		for _, name := range names {
			terms = append(terms, corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{name}}}})
		}
		return terms
	}
	cases := map[string]struct {
		names    []string
		selector string
		want     []corev1.NodeSelectorTerm
		err      string
	}{
		"names, each once": {names: []string{"b", "a", "b"}, want: byName("a", "b")},
		"labels": {selector: "pool in (blue,green),!gpu,zone!=x,size>4", want: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "pool", Operator: "In", Values: []string{"blue", "green"}}, {Key: "gpu", Operator: "DoesNotExist"},
			{Key: "zone", Operator: "NotIn", Values: []string{"x"}}, {Key: "size", Operator: "Gt", Values: []string{"4"}},
		}}}},
		"a selector that cannot be read": {selector: "a=b=c", err: "--selector: "},
		"a selector that says nothing":   {selector: " ", err: `--selector " " selects by nothing`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := nodeSelector(tc.names, tc.selector)
			if tc.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.err) {
					t.Errorf("error %v, want one that begins with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range got.NodeSelectorTerms {
				slices.SortFunc(got.NodeSelectorTerms[i].MatchExpressions, byKey)
			}
			for i := range tc.want {
				slices.SortFunc(tc.want[i].MatchExpressions, byKey)
			}
			if diff := cmp.Diff(tc.want, got.NodeSelectorTerms, equateEmpty); diff != "" {
				t.Errorf("terms (-want +got):\n%s", diff)
			}
		})
	}
}

func byKey(a, b corev1.NodeSelectorRequirement) int { return strings.Compare(a.Key, b.Key) }

var equateEmpty = cmp.FilterValues(func(a, b []string) bool { return len(a) == 0 && len(b) == 0 }, cmp.Ignore())
