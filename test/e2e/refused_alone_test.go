//go:build unix

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// What the manager writes for itself: its presets, its certificate and its webhooks. With a
// manager of its own, or all tests would be without certificate.
func TestRefusedWritesOfTheInstallation(t *testing.T) {
	m := startManager(t, nil)
	registration := waitRegistration(t, kubevirtInterceptor, "there", func(*v1alpha1.EvictionInterceptor) bool { return true })
	end := refuse(t, refusal{group: v1alpha1.GroupName, resource: "evictioninterceptors", namespace: inst.Namespace, only: "request.options.?fieldManager.orValue('') == 'presets'"})
	before := registration.Spec.Priority
	patch(t, registration, func() { registration.Spec.Priority = new(int32(12345)) })
	wantRefused(t, m, registration, refused.Preset, refused.Policy, words)
	end()
	eventually(t, "the preset to be written", func(ctx context.Context) error { return wantAccepted(ctx, registration) })
	waitRegistration(t, kubevirtInterceptor, "as in the preset", func(r *v1alpha1.EvictionInterceptor) bool { return ptr.Equal(r.Spec.Priority, before) })

	end = refuse(t, refusal{group: "admissionregistration.k8s.io", resource: "validatingwebhookconfigurations", namespace: inst.Namespace})
	conf := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: inst.Release}, conf); err != nil {
		t.Fatal(err)
	}
	bundle := conf.Webhooks[0].ClientConfig.CABundle
	conf.Webhooks[0].ClientConfig.CABundle = nil
	if err := admin.Update(t.Context(), conf); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, m, conf, refused.WebhookConfiguration, refused.Policy, words)
	end()
	eventually(t, "the bundle to be back", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(conf), conf); err != nil {
			return err
		}
		if !bytes.Equal(conf.Webhooks[0].ClientConfig.CABundle, bundle) {
			return fmt.Errorf("it has %d bytes", len(conf.Webhooks[0].ClientConfig.CABundle))
		}
		return nil
	})

	end = refuse(t, refusal{resource: "secrets", namespace: inst.Namespace})
	secret := &corev1.Secret{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: inst.Namespace, Name: inst.Release + "-webhook-cert"}, secret); err != nil {
		t.Fatal(err)
	}
	secret.Data = nil
	if err := admin.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, m, secret, refused.Certificate, refused.Policy, words)
	end()
	eventually(t, "a new certificate", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil || len(secret.Data) > 0 {
			return err
		}
		return errors.New("it is empty")
	})
}

// wantAccepted wants an event that what was refused is accepted.
func wantAccepted(ctx context.Context, about client.Object) error {
	list := &corev1.EventList{}
	if err := admin.List(ctx, list, client.MatchingFields{"involvedObject.uid": string(about.GetUID()), "reason": "WriteAccepted"}); err != nil {
		return err
	}
	if len(list.Items) == 0 {
		return errors.New("no event says so")
	}
	return nil
}

// However often a caller asks: what is refused for good is sent a few times in the first
// minutes, and then once in five. With a manager whose clock can be advanced.
func TestARefusedWriteIsNoLoop(t *testing.T) {
	m := startManager(t, nil)
	pod, _ := held(t)
	quota := without(t, pod.Namespace, "count/evictionrequests.drawbridge.dev")
	sent := func(mark cluster.Mark) int {
		return len(since(t, mark).By(drawbridge()).Where(func(r cluster.Request) bool {
			return r.Resource == "evictionrequests" && r.Namespace == pod.Namespace && r.Code == http.StatusForbidden
		}))
	}
	asks := func(minutes int) int {
		mark := kube.RequestLog().Mark()
		for range minutes * 3 {
			answered(t, pod, "a quota of the namespace refuses the request")
			m.Clock.Advance(20 * time.Second)
		}
		return sent(mark)
	}
	if n := asks(6); n < 3 || n > maxRefused {
		t.Errorf("%d writes in the first minutes", n)
	}
	if n := asks(20); n < 3 || n > 5 {
		t.Errorf("%d writes in the 20 minutes after that", n)
	}
	deleteObject(t, quota)
	// The API server may not know yet that it is gone, and then the next write is due after as long again.
	eventually(t, "the request to be written", func(context.Context) error {
		m.Clock.Advance(5 * time.Minute)
		if got := evict(t, "alice", pod, eviction(pod)); !strings.Contains(string(got.body), "Eviction triggered evacuation") {
			return fmt.Errorf("%d %s", got.code, got.body)
		}
		return nil
	})
}
