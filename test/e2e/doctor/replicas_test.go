//go:build unix

package doctor

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/doctor"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// What can be wrong with the Deployment. Its pods are Ready, as all of the embedded
// control plane are, and run no program: so no replica leads, and none can be reached.
//
// It comes last, by the name of its file: no manager of a test can be started beside
// the Deployment.
func TestFindingsInTheDeployment(t *testing.T) {
	reinstall(t, map[string]any{"surge": map[string]any{"enabled": true}})
	object := "deployment/drawbridge-system/drawbridge"
	deployment := func() *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: inst.Namespace, Name: inst.Release}}
	}
	cluster.Eventually(t, "the Deployment to be ready", func(ctx context.Context) error {
		d := deployment()
		if err := admin.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if d.Status.ReadyReplicas != 2 {
			return fmt.Errorf("%d replicas are ready", d.Status.ReadyReplicas)
		}
		return nil
	})
	recognised(t, 0, wanted{"replicas", doctor.Fail, "lease/drawbridge-system/drawbridge-leader", "no replica leads"})
	// An API server that has not taken up the installation yet calls nobody.
	r := recognised(t, 0, wanted{"reachable", doctor.Fail, "", "did not reach the manager"})
	if f := r.find(wanted{"permissions", doctor.Fail, "", ""}); f != nil {
		t.Errorf("the chart gives all that the doctor asks for, and it finds %+v", *f)
	}

	cases := []struct {
		name  string
		make  func(t *testing.T)
		want  wanted
		ahead time.Duration
	}{
		{
			name: "scaled to nothing",
			make: func(t *testing.T) {
				t.Helper()
				changed(t, deployment(), func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0) })
			},
			want: wanted{"replicas", doctor.Fail, object, "it is scaled to 0"},
		},
		{
			name: "one replica",
			make: func(t *testing.T) {
				t.Helper()
				changed(t, deployment(), func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](1) })
			},
			want: wanted{"replicas", doctor.Warn, object, "there is one replica"},
		},
		{
			name: "a rollout that fits on no node",
			make: func(t *testing.T) {
				t.Helper()
				changed(t, deployment(), func(d *appsv1.Deployment) {
					d.Spec.Template.Spec.NodeSelector = map[string]string{"nobody": "has-it"}
				})
			},
			want: wanted{"replicas", doctor.Warn, object, "a rollout is not finished: pod drawbridge-"},
		},
		{
			name: "replicas of two versions",
			make: func(t *testing.T) {
				t.Helper()
				anotherImage(t)
			},
			want: wanted{"replicas", doctor.Warn, object, "the replicas run different images"},
		},
		{
			name: "a leader that has gone silent", ahead: 10 * time.Minute,
			make: func(t *testing.T) {
				t.Helper()
				now := metav1.NowMicro()
				passing(t, &coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Namespace: inst.Namespace, Name: "drawbridge-leader"},
					Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("drawbridge-0"), RenewTime: &now, LeaseDurationSeconds: ptr.To[int32](15)},
				})
			},
			want: wanted{"replicas", doctor.Fail, "lease/drawbridge-system/drawbridge-leader", "drawbridge-0 has not renewed it for 1"},
		},
		{
			name: "definitions of another version",
			make: func(t *testing.T) {
				t.Helper()
				changed(t, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "evictionrequests.drawbridge.dev"}},
					func(c *apiextensionsv1.CustomResourceDefinition) { c.Labels["app.kubernetes.io/version"] = "0.0.1" })
			},
			want: wanted{"versions", doctor.Warn, "customresourcedefinition/evictionrequests.drawbridge.dev", "the CustomResourceDefinitions are of version 0.0.1, older than the manager (0.1.0)"},
		},
		{
			name: "a second installation", make: secondInstallation,
			want: wanted{"replicas", doctor.Warn, "deployment/", "it is a second installation"},
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			tc.make(t)
			recognised(t, tc.ahead, tc.want)
		})
	}

	t.Run("cert-manager has not filled the certificate", func(t *testing.T) {
		changed(t, deployment(), func(d *appsv1.Deployment) {
			args := &d.Spec.Template.Spec.Containers[0].Args
			*args = append(*args, "--cert-manager-certificate=drawbridge-webhook")
		})
		recognised(t, 0, wanted{"cert-manager", doctor.Fail, "certificate/drawbridge-system/drawbridge-webhook", "is missing"})
	})
}

// reinstall installs the chart anew: helm does not take over what others have written.
func reinstall(t *testing.T, values map[string]any) {
	t.Helper()
	kubeconfig, err := kube.KubeconfigFile("installer", asAdmin...)
	if err != nil {
		t.Fatal(err)
	}
	options := install.Options{Kubeconfig: kubeconfig, Release: inst.Release, Namespace: inst.Namespace, Values: values}
	if err := install.Uninstall(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	var definitions apiextensionsv1.CustomResourceDefinitionList
	cluster.Eventually(t, "the definitions are gone", func(ctx context.Context) error {
		if err := admin.List(ctx, &definitions, client.MatchingLabels{"app.kubernetes.io/name": "drawbridge"}); err != nil {
			return err
		}
		for i := range definitions.Items {
			if err := admin.Delete(ctx, &definitions.Items[i]); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		if len(definitions.Items) > 0 {
			return fmt.Errorf("%d are there", len(definitions.Items))
		}
		return nil
	})
	if err := install.Run(t.Context(), options); err != nil {
		t.Fatal(err)
	}
}

// anotherImage makes one replica say that it runs another image, as its kubelet would.
func anotherImage(t *testing.T) {
	t.Helper()
	cluster.Eventually(t, "a replica runs another image", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := admin.List(ctx, &pods, client.InNamespace(inst.Namespace), client.MatchingLabels{"app.kubernetes.io/name": "drawbridge"}); err != nil {
			return err
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if len(pod.Status.ContainerStatuses) == 0 || pod.DeletionTimestamp != nil {
				continue
			}
			before := pod.DeepCopy()
			pod.Status.ContainerStatuses[0].ImageID = "example.com/drawbridge@sha256:0123"
			return admin.Status().Patch(ctx, pod, client.MergeFrom(before))
		}
		return fmt.Errorf("none of %d pods has a status", len(pods.Items))
	})
}

// secondInstallation is one that forgot the first.
func secondInstallation(t *testing.T) {
	t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: inst.Namespace, Name: inst.Release}}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
		t.Fatal(err)
	}
	d.ObjectMeta = metav1.ObjectMeta{Namespace: kube.Namespace(t), Name: d.Name, Labels: d.Labels}
	d.Spec.Replicas = ptr.To[int32](0)
	passing(t, d)
}
