package doctor

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestARegistrationForAllPodsIsAFinding(t *testing.T) {
	cases := map[string]struct {
		registration *builder.EvictionInterceptorWrapper
		want         string
	}{
		"of everything":              {builder.EvictionInterceptor("a.example.com"), "it intercepts every pod"},
		"of some pods":               {builder.EvictionInterceptor("a.example.com").Pods("app", "db"), ""},
		"of some namespaces":         {builder.EvictionInterceptor("a.example.com").InNamespace("shop"), ""},
		"of what an expression says": {builder.EvictionInterceptor("a.example.com").When("true"), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fine()
			r := tc.registration.Obj()
			r.Status.ObservedGeneration = r.Generation
			f.Registrations = []v1alpha1.EvictionInterceptor{*r}
			wantFinding(t, only(t, f, "registrations"), tc.want)
		})
	}
}

// What a maintenance leaves on a node is found without it, and the advice removes all of it.
func TestWhatAMaintenanceLeavesOnANodeIsAFinding(t *testing.T) {
	tainted := func() *builder.NodeWrapper {
		return builder.Node("node-1").Taint(v1alpha1.MaintenanceTaint, "", corev1.TaintEffectNoSchedule)
	}
	const untaint = "kubectl taint node node-1 drawbridge.dev/maintenance-"
	cases := map[string]struct {
		node    *corev1.Node
		stages  string
		want    string
		untaint bool
	}{
		"of one that is there": {tainted().Obj(), "kernel=Drain", "", false},
		"of one that is gone":  {tainted().Cordoned().Obj(), "old=Drain", "it is marked by a NodeMaintenance that is gone (old), and still cordoned", true},
		"only the marks":       {builder.Node("node-1").Obj(), "old=Drain", "it is marked by a NodeMaintenance that is gone (old)", false},
		"only the taint":       {tainted().Obj(), "", "it has the taint drawbridge.dev/maintenance of a maintenance, and is under none", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fine()
			f.Maintenances = []v1alpha1.NodeMaintenance{*builder.NodeMaintenance("kernel").Drain().Obj()}
			if tc.stages != "" {
				tc.node.Annotations = map[string]string{v1alpha1.MaintenancesAnnotation: tc.stages}
			}
			f.Nodes = []corev1.Node{*tc.node}
			got := only(t, f, "nodes")
			wantFinding(t, got, tc.want)
			if len(got.Findings) > 0 && strings.Contains(got.Findings[0].Do, untaint) != tc.untaint {
				t.Errorf("advice %q, to remove the taint: %t", got.Findings[0].Do, tc.untaint)
			}
		})
	}
}
