package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestHowANodeIsReleased(t *testing.T) {
	byLabel := func(name string) *builder.NodeMaintenanceWrapper {
		return builder.NodeMaintenance(name).Term("pool", corev1.NodeSelectorOpIn, "blue")
	}
	noted := func(names string) *builder.NodeWrapper {
		return builder.Node("n1").Annotation(v1alpha1.MaintenancesAnnotation, names)
	}
	cases := map[string]struct {
		node  *builder.NodeWrapper
		all   []*builder.NodeMaintenanceWrapper
		whole bool
		want  []string
		err   string
	}{
		"nobody has it":                              {node: builder.Node("n1"), all: []*builder.NodeMaintenanceWrapper{builder.NodeMaintenance("other").Nodes("n2")}},
		"one for it alone is deleted":                {node: builder.Node("n1"), all: []*builder.NodeMaintenanceWrapper{builder.NodeMaintenance("m").Nodes("n1")}, want: []string{"m deleted"}},
		"one that names others goes on without it":   {node: builder.Node("n1"), all: []*builder.NodeMaintenanceWrapper{builder.NodeMaintenance("m").Nodes("n1", "n2")}, want: []string{"m goes on with [n2]"}},
		"or is deleted as a whole":                   {node: builder.Node("n1"), whole: true, all: []*builder.NodeMaintenanceWrapper{builder.NodeMaintenance("m").Nodes("n1", "n2")}, want: []string{"m deleted"}},
		"one that selects by labels needs the whole": {node: noted("m=Drain"), all: []*builder.NodeMaintenanceWrapper{byLabel("m")}, err: "selects node n1 by labels"},
		"and gets it":                                {node: noted("a=Cordon,m=Drain"), whole: true, all: []*builder.NodeMaintenanceWrapper{byLabel("m"), byLabel("x")}, want: []string{"m deleted"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var maintenances []v1alpha1.NodeMaintenance
			for _, w := range tc.all {
				maintenances = append(maintenances, *w.Obj())
			}
			all, err := releases(tc.node.Obj(), maintenances, tc.whole)
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("error %v, want %q", err, tc.err)
			}
			var got []string
			for _, r := range all {
				if r.selector == nil {
					got = append(got, r.maintenance.Name+" deleted")
					continue
				}
				rest := v1alpha1.NodeMaintenance{Spec: v1alpha1.NodeMaintenanceSpec{NodeSelector: *r.selector}}
				got = append(got, fmt.Sprintf("%s goes on with %v", r.maintenance.Name, namedNodes(&rest)))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("releases (-want +got):\n%s", diff)
			}
		})
	}
}
