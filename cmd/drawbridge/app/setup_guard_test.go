package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestGuardOptions(t *testing.T) {
	cases := map[string]struct {
		change func(*GuardOptions)
		want   string
	}{
		"the defaults":                {change: func(*GuardOptions) {}},
		"nobody owns the budgets":     {change: func(g *GuardOptions) { g.Owner = "" }},
		"an owner that is no name":    {func(g *GuardOptions) { g.Owner = "a/b" }, `--guard-owner: "a/b" is not the name of a ClusterRole`},
		"no namespace is left out":    {change: func(g *GuardOptions) { g.ExcludedNamespaces = nil }},
		"a namespace that is no name": {func(g *GuardOptions) { g.ExcludedNamespaces = []string{"a", "B"} }, `--guard-excluded-namespace: "B" is not the name of a namespace`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions()
			o.Namespace = "drawbridge-system"
			tc.change(&o.Guard)
			got := ""
			if err := o.Validate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// onHold holds the pods of that name.
type onHold string

func (h onHold) Held(pod *corev1.Pod) (string, bool) { return "", pod.Name == string(h) }

func (onHold) OnPodChange(func(types.NamespacedName)) {}

func TestWhatASwitchedOffGuardMeans(t *testing.T) {
	labeled := builder.Pod("shop", "db-0").Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed).Obj()
	held := builder.Pod("shop", "db-1").Obj()
	got := map[string]bool{}
	for name, g := range map[string]GuardOptions{"on": {Enabled: true}, "off": {}} {
		gate, err := g.gate(onHold("db-1"))
		if err != nil {
			t.Fatal(err)
		}
		got[name+": labels"] = gate.Labels()
		got[name+": a labeled pod"] = gate.Blocks(labeled)
		got[name+": a held pod"] = gate.Blocks(held)
	}
	want := map[string]bool{
		"on: labels": true, "on: a labeled pod": true, "on: a held pod": true,
		"off: labels": false, "off: a labeled pod": false, "off: a held pod": true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("blocked (-want +got):\n%s", diff)
	}
}
