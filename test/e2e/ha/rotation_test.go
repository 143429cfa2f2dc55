//go:build unix

package ha

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// settle is what the replicas are told, so that the load need not last for minutes. The API server
// has to have heard of an authority by then, also on a slow machine.
const settle = 10 * time.Second

// Certificate, authority, and everything at once are replaced again and again while
// evictions are called. With the failure policy Fail a call that does not get through
// is a 500.
func TestCertificatesRotateUnderLoad(t *testing.T) {
	inst := installed(t, nil)
	s := inst.NewService(t)
	for range 2 {
		s.Replica(t, "--certificate-settle="+settle.String())
	}
	namespace := kube.Namespace(t)
	l := startLoad(t, intercepted(t, namespace, "a"), intercepted(t, namespace, "b"))
	until := time.Now().Add(*loadFor)
	rotations := 0
	for round := 0; round == 0 || time.Now().Before(until); round++ {
		for _, lose := range [][]string{{"tls.crt", "tls.key"}, {"ca.key"}, {"ca.crt", "ca.key", "tls.crt", "tls.key"}} {
			rotate(t, inst, s, lose)
			rotations++
		}
	}
	l.stop(t)
	t.Logf("%d rotations", rotations)
}

// rotate takes keys from the Secret, and waits until every replica serves what was
// issued instead.
func rotate(t *testing.T, inst *manager.Installation, s *manager.Service, lose []string) {
	t.Helper()
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: inst.Namespace, Name: inst.Release + "-webhook-cert"}
	var before []byte
	eventually(t, "the Secret to be changed", func(ctx context.Context) error {
		if err := admin.Get(ctx, key, secret); err != nil {
			return err
		}
		before = secret.Data["tls.crt"]
		for _, k := range lose {
			delete(secret.Data, k)
		}
		return admin.Update(ctx, secret)
	})
	eventually(t, "another certificate", func(ctx context.Context) error {
		if err := admin.Get(ctx, key, secret); err != nil {
			return err
		}
		if now := secret.Data["tls.crt"]; len(now) == 0 || bytes.Equal(now, before) {
			return errors.New("it is the one of before")
		}
		return nil
	})
	eventually(t, "every replica to serve it", func(ctx context.Context) error { return s.Serve(ctx, secret.Data["tls.crt"]) })
}

// The authority in the webhook configuration is repaired when somebody changes it.
func TestTheBundleIsRepaired(t *testing.T) {
	inst := installed(t, nil)
	start(t, inst, manager.PatientLease...)
	conf := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	var good []byte
	eventually(t, "the bundles to be lost", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKey{Name: inst.Release}, conf); err != nil {
			return err
		}
		good = conf.Webhooks[0].ClientConfig.CABundle
		for i := range conf.Webhooks {
			conf.Webhooks[i].ClientConfig.CABundle = nil
		}
		return admin.Update(ctx, conf)
	})
	eventually(t, "the bundles to be repaired", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKey{Name: inst.Release}, conf); err != nil {
			return err
		}
		for _, webhook := range conf.Webhooks {
			if !bytes.Equal(webhook.ClientConfig.CABundle, good) {
				return errors.New(webhook.Name + " has another one")
			}
		}
		return nil
	})
}
