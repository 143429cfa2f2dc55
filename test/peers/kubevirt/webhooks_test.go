//go:build unix

package kubevirt

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// withoutTheirs takes KubeVirt's eviction webhooks away until the end of the test, as
// the guide says, or until they are put back.
func withoutTheirs(t *testing.T) (putBack func()) {
	t.Helper()
	before := theirWebhooks(t)
	isTheirs := func(w admissionregistrationv1.ValidatingWebhook) bool {
		return strings.Contains(w.Name, "eviction-interceptor")
	}
	taken := len(before.Webhooks)
	setWebhooks(t, slices.DeleteFunc(slices.Clone(before.Webhooks), isTheirs))
	if taken -= len(theirWebhooks(t).Webhooks); taken == 0 {
		t.Fatal("KubeVirt has no eviction webhook: the test shows nothing")
	}
	putBack = func() { setWebhooks(t, before.Webhooks) }
	t.Cleanup(putBack)
	asksTheirs(t, false)
	return putBack
}

func theirWebhooks(t *testing.T) *admissionregistrationv1.ValidatingWebhookConfiguration {
	t.Helper()
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	// The test's own context may have ended by now.
	if err := admin.Get(context.Background(), client.ObjectKey{Name: validator}, config); err != nil {
		t.Fatal(err)
	}
	return config
}

func setWebhooks(t *testing.T, webhooks []admissionregistrationv1.ValidatingWebhook) {
	t.Helper()
	config := theirWebhooks(t)
	before := config.DeepCopy()
	config.Webhooks = webhooks
	if err := admin.Patch(context.Background(), config, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// asksTheirs waits until the API server asks KubeVirt about evictions, or does not. A
// launcher whose machine does not exist is refused by KubeVirt alone.
func asksTheirs(t *testing.T, want bool) {
	t.Helper()
	namespace := kube.Namespace(t)
	orphan := builder.Pod(namespace, "virt-launcher-orphan").Node(addNodes(t, namespace, 1)[0]).
		Label("kubevirt.io", "virt-launcher").Annotation("kubevirt.io/domain", "nobody").Obj()
	if err := admin.Create(t.Context(), orphan); err != nil {
		t.Fatal(err)
	}
	call := evictionOf(orphan)
	call.DeleteOptions.DryRun = []string{metav1.DryRunAll}
	eventually(t, fmt.Sprintf("the API server to ask KubeVirt about evictions: %t", want), func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(orphan), &corev1.Pod{}); err != nil {
			return err
		}
		got := evict(t, orphan, call)
		if refused := got.code == http.StatusTooManyRequests && strings.Contains(got.body, "kubevirt failed getting the vmi"); refused != want {
			return fmt.Errorf("%d %s", got.code, got.body)
		}
		return nil
	})
}
