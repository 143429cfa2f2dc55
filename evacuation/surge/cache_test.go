package surge

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func TestTheRegistrationIsRead(t *testing.T) {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "drawbridge-surge", UID: "r"}}
	const good = "apiVersion: drawbridge.dev/v1alpha1\nkind: EvictionInterceptor\nmetadata:\n  name: surge.drawbridge.dev\n"
	object, err := readRegistration(good, role)
	if err != nil {
		t.Fatal(err)
	}
	want := []metav1.OwnerReference{{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "drawbridge-surge", UID: "r"}}
	if diff := cmp.Diff(want, object.GetOwnerReferences()); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	for name, text := range map[string]string{
		"nothing":      "",
		"no YAML":      "{",
		"another kind": "apiVersion: v1\nkind: Secret\nmetadata:\n  name: surge.drawbridge.dev\n",
		"another name": "apiVersion: drawbridge.dev/v1alpha1\nkind: EvictionInterceptor\nmetadata:\n  name: a.example.com\n",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := readRegistration(text, role); err == nil {
				t.Error("accepted")
			}
		})
	}
}
