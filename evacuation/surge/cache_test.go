package surge

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// What the informers keep is what decisions look at, and no more than that.
func TestTheSlimObjectsDecideTheSame(t *testing.T) {
	inputs := map[string]func(*input){
		"as it is": func(*input) {},
		"rollout":  func(in *input) { in.set = replicaSet("web-new", 1, 1) },
		"stuck": func(in *input) {
			in.set = replicaSet("web-new", 1, 1)
			progressing(in, corev1.ConditionFalse, "ProgressDeadlineExceeded", t0)
		},
		"paused":      func(in *input) { in.set = replicaSet("web-new", 1, 1); in.deployment.Spec.Paused = true },
		"no surge":    func(in *input) { surgeOf(in, "0") },
		"no quota":    func(in *input) { cannot(in.set) },
		"unseen":      func(in *input) { in.deployment.Generation++ },
		"min ready":   func(in *input) { in.deployment.Spec.MinReadySeconds = 60; in.pods = []corev1.Pod{replacement("web-2")} },
		"no deadline": func(in *input) { in.deployment.Spec.ProgressDeadlineSeconds = nil },
		"late":        func(in *input) { in.deployment.Spec.ProgressDeadlineSeconds = new(int32(30)) },
	}
	for name, change := range inputs {
		t.Run(name, func(t *testing.T) {
			for _, in := range []*input{before(), raised(t)} {
				change(in)
				want := step(in)
				d, err := slimDeployment(in.deployment)
				if err != nil {
					t.Fatal(err)
				}
				set, err := slimReplicaSet(in.set)
				if err != nil {
					t.Fatal(err)
				}
				in.deployment, in.set = d.(*appsv1.Deployment), set.(*appsv1.ReplicaSet)
				if diff := cmp.Diff(want, step(in), cmp.AllowUnexported(decision{})); diff != "" {
					t.Errorf("decision (-full +slim):\n%s", diff)
				}
				if in.deployment.Spec.Template.Labels != nil || in.deployment.ManagedFields != nil {
					t.Error("the template was kept")
				}
			}
		})
	}
}
