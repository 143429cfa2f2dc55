//go:build unix

package certmanager

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
)

// left are the Secrets of certificates in our namespace.
func left(t *testing.T) []string {
	t.Helper()
	list := &corev1.SecretList{}
	if err := admin.List(t.Context(), list, client.InNamespace(install.DefaultNamespace)); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range list.Items {
		if s.Annotations[certmanagerv1.CertificateNameKey] != "" {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names
}

// holds waits until evictions are held up.
func holds(t *testing.T) {
	t.Helper()
	pod := builder.Pod(kube.Namespace(t), "held").Interceptors(nobody).Obj()
	if err := admin.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := waitRunning(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := evict(t.Context(), pod); !isOurs(err) {
		t.Errorf("an intercepted pod is evicted, and the answer is %v", orNone(err))
	}
}

// What stays when Drawbridge is uninstalled first: cert-manager keeps the Secrets.
func TestDrawbridgeIsUninstalledFirst(t *testing.T) {
	needCertManager(t)
	t.Run("cert-manager issues", func(t *testing.T) {
		startPair(t, installed(t, byCertManager()))
		holds(t)
	})
	if diff := cmp.Diff([]string{authoritySecret, leafSecret}, left(t)); diff != "" {
		t.Errorf("the Secrets that are left (-want +got):\n%s", diff)
	}
	for _, list := range []client.ObjectList{&certmanagerv1.CertificateList{}, &certmanagerv1.IssuerList{}, &certmanagerv1.CertificateRequestList{}} {
		eventually(t, fmt.Sprintf("no %T to be left", list), func(ctx context.Context) error {
			if err := admin.List(ctx, list, client.InNamespace(install.DefaultNamespace)); err != nil {
				return err
			}
			if n := len(must(meta.ExtractList(list))(t)); n > 0 {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		})
	}
	t.Run("cert-manager issues again", func(t *testing.T) {
		startPair(t, installed(t, byCertManager()))
		holds(t)
	})
	t.Run("the manager issues, after the Secret is deleted", func(t *testing.T) {
		_, err := manager.Install(t.Context(), kube, manager.InstallOptions{})
		if err == nil || !strings.Contains(err.Error(), leafSecret) {
			t.Fatalf("helm takes over cert-manager's Secret, error %v", err)
		}
		t.Cleanup(func() { uninstall(t) })
		if err := admin.Delete(t.Context(), secret(t, leafSecret)); err != nil {
			t.Fatal(err)
		}
		inst := installed(t, nil)
		inst.NewService(t).Replica(t)
		holds(t)
	})
}

// When the definitions of cert-manager go first, the replicas serve their last certificate.
// helm deletes the chart's Certificates only if it knows their kind, so the definitions come
// back before.
func TestCertManagerIsUninstalledFirst(t *testing.T) {
	needCertManager(t)
	inst := installed(t, byCertManager())
	p := startPair(t, inst)
	for _, definition := range definitions {
		if err := admin.Delete(t.Context(), definition.DeepCopy()); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the definitions to be gone", func(ctx context.Context) error {
		for _, definition := range definitions {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(definition), definition.DeepCopy()); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s: %w", definition.GetName(), orNone(err))
			}
		}
		return nil
	})
	holds(t)
	served(t, p)
	if err := peer.Apply(t.Context(), admin, definitions, func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if err := waitServed(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := install.Uninstall(t.Context(), install.Options{Kubeconfig: kubeconfig(t)}); err != nil {
		t.Error(err)
	}
	conf := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: inst.Release}, conf); !apierrors.IsNotFound(err) {
		t.Errorf("the webhook configuration is left, error %v", err)
	}
}
