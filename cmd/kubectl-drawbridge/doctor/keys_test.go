package doctor

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/keys"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestKeys(t *testing.T) {
	const surge = "drawbridge.dev/surge"
	const where = "docs/reference/labels-and-annotations.md lists what is understood."
	namespace := func(value string) func(*Facts) {
		return func(f *Facts) {
			f.keysOf(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{surge: value}}}, "Namespace", nil)
		}
	}
	pod := func(name string, change func(*builder.PodWrapper)) func(*Facts) {
		return func(f *Facts) {
			w := builder.Pod("shop", name)
			change(w)
			f.keysOf(w.Obj(), "Pod", nil)
		}
	}
	on := func(args ...string) func(*Facts) {
		return func(f *Facts) {
			c := &f.Deployments[0].Spec.Template.Spec.Containers[0]
			c.Args = append(c.Args, args...)
		}
	}
	owned := func(w *builder.PodWrapper) { w.OwnedBy("ReplicaSet", "web-5").Label(surge, "yes") }
	cases := map[string]struct {
		facts []func(*Facts)
		want  []Finding
	}{
		"a value that is understood": {facts: []func(*Facts){on("--surge=true"), namespace("enabled")}},
		"a value that is not": {
			facts: []func(*Facts){on("--surge=true"), namespace("true")},
			want: []Finding{{Object: "namespace/shop", Do: "Correct or remove it: " + where,
				What: `label drawbridge.dev/surge (Namespace): "true" is not understood, so it does nothing; the values are: enabled, disabled`}},
		},
		"the feature is off": {
			facts: []func(*Facts){namespace("enabled")},
			want: []Finding{{Object: "namespace/shop", Do: "Correct or remove it: " + where,
				What: "label drawbridge.dev/surge (Namespace): it does nothing while the value surge.enabled of the chart is false"}},
		},
		"nobody knows what is on": {facts: []func(*Facts){func(f *Facts) { f.Deployments = nil }, namespace("enabled")}},
		"the pods of one owner are one finding": {
			facts: []func(*Facts){on("--surge=true"), pod("a", owned), pod("b", owned)},
			want: []Finding{{Object: "pod/shop/a", Do: "Correct or remove it, also in the pod template of replicaset/shop/web-5: " + where,
				What: `label drawbridge.dev/surge (Pod): "yes" is not understood, so it does nothing; the values are: enabled, disabled (and on 1 more pod of the same owner)`}},
		},
		"a workload whose label does not reach the pods": {
			facts: []func(*Facts){on("--surge=true"), func(f *Facts) {
				d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{surge: "enabled"}}}
				f.keysOf(d, "Deployment", &d.Spec.Template)
			}},
			want: []Finding{{Object: "deployment/shop/web", Do: "Correct or remove it: " + where,
				What: "label drawbridge.dev/surge (Deployment): it does nothing here, it belongs on: Namespace, Pod, pod template of a Deployment"}},
		},
		"malformed interceptors of a pod are another check's": {
			facts: []func(*Facts){pod("a", func(w *builder.PodWrapper) { w.Annotation(v1alpha1.InterceptorsAnnotation, "Not A Name") })},
		},
		"what Drawbridge wrote": {
			facts: []func(*Facts){pod("a", func(w *builder.PodWrapper) { w.Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed) })},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fine()
			for _, add := range tc.facts {
				add(&f)
			}
			for i := range tc.want {
				tc.want[i].Severity = Warn
			}
			if diff := cmp.Diff(tc.want, understoodKeys(&f).findings, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// Every switch of the table is one that the doctor can see.
func TestTheDoctorKnowsEverySwitch(t *testing.T) {
	off := (&settings{known: true}).off()
	known := map[string]bool{}
	for _, value := range off {
		known[value] = true
	}
	for i := range keys.Rows {
		if value := keys.Rows[i].Switch; value != "" && !known[value] {
			t.Errorf("%s of %s", value, keys.Rows[i].Key)
		}
	}
}
