//go:build unix

package certmanager

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmetav1 "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// The chart's Certificates, and the Secrets that cert-manager fills for them.
const (
	leaf            = "drawbridge-webhook"
	leafSecret      = "drawbridge-webhook-cert"
	authority       = "drawbridge-webhook-ca"
	authoritySecret = "drawbridge-webhook-ca"
)

// Certificate and authority are replaced again and again by cert-manager while evictions
// are called.
func TestCertManagerRotatesUnderLoad(t *testing.T) {
	needCertManager(t)
	rotate := map[string]func(t *testing.T, p *pair){
		"the certificate": func(t *testing.T, p *pair) {
			t.Helper()
			renewed(t, leaf, leafSecret)
			served(t, p)
		},
		// The authority's own renewal changes nothing for the certificate.
		"authority and certificate": func(t *testing.T, p *pair) {
			t.Helper()
			renewed(t, authority, authoritySecret)
			renewed(t, leaf, leafSecret)
			served(t, p)
		},
		"the Secret, which somebody deletes": func(t *testing.T, p *pair) {
			t.Helper()
			before := secret(t, leafSecret)
			// An issuance that ends now would write its certificate again, the same one.
			eventually(t, "no issuance to be under way", func(ctx context.Context) error {
				certificate := &certmanagerv1.Certificate{}
				if err := admin.Get(ctx, client.ObjectKey{Namespace: install.DefaultNamespace, Name: leaf}, certificate); err != nil {
					return err
				}
				if issuing(certificate) {
					return errors.New("one is under way")
				}
				return nil
			})
			if err := admin.Delete(t.Context(), before); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a Secret in place of the deleted one", func(ctx context.Context) error {
				now := &corev1.Secret{}
				if err := admin.Get(ctx, client.ObjectKeyFromObject(before), now); err != nil {
					return err
				}
				if now.UID == before.UID || len(now.Data["tls.crt"]) == 0 {
					return errors.New("it is not there yet")
				}
				return nil
			})
			served(t, p)
		},
	}
	policies := map[string]struct {
		values values
		args   []string
	}{
		// A call that does not come through is a 500.
		"Fail": {},
		// A call that does not come through evicts the pod: nothing else protects it.
		"Ignore": {unprotected, []string{"--guard=false"}},
	}
	for policy, tc := range policies {
		t.Run(policy, func(t *testing.T) {
			inst := installed(t, byCertManager(tc.values))
			p := startPair(t, inst, tc.args...)
			for name, once := range rotate {
				t.Run(name, func(t *testing.T) {
					l := startLoad(t, p)
					for range *rotations {
						once(t, p)
					}
					l.unharmed(t, l.stop(t))
					sparing(t, l.mark, *rotations)
				})
			}
		})
	}
}

// unprotected are the values with which nothing but the webhook protects pods.
var unprotected = values{"webhook": values{"failurePolicy": "Ignore"}, "guard": values{"enabled": false}}

// renewed does what cmctl renew does, and waits for what is issued.
func renewed(t *testing.T, name, secretName string) {
	t.Helper()
	before := secret(t, secretName)
	certificate := &certmanagerv1.Certificate{}
	eventually(t, "the renewal to be asked for", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKey{Namespace: install.DefaultNamespace, Name: name}, certificate); err != nil {
			return err
		}
		// Or this would be taken for the renewal before, which has not quite ended.
		if issuing(certificate) {
			return errors.New("one is under way")
		}
		now := metav1.Now()
		certificate.Status.Conditions = slices.DeleteFunc(certificate.Status.Conditions, func(c certmanagerv1.CertificateCondition) bool {
			return c.Type == certmanagerv1.CertificateConditionIssuing
		})
		certificate.Status.Conditions = append(certificate.Status.Conditions, certmanagerv1.CertificateCondition{
			Type: certmanagerv1.CertificateConditionIssuing, Status: cmmetav1.ConditionTrue, ObservedGeneration: certificate.Generation,
			Reason: "ManuallyTriggered", Message: "Certificate re-issuance manually triggered", LastTransitionTime: &now,
		})
		return admin.Status().Update(ctx, certificate)
	})
	another(t, before)
}

// issuing reports whether cert-manager is about to issue the certificate.
func issuing(certificate *certmanagerv1.Certificate) bool {
	return slices.ContainsFunc(certificate.Status.Conditions, func(c certmanagerv1.CertificateCondition) bool {
		return c.Type == certmanagerv1.CertificateConditionIssuing && c.Status == cmmetav1.ConditionTrue
	})
}

func secret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	eventually(t, "the Secret "+name, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKey{Namespace: install.DefaultNamespace, Name: name}, s); err != nil {
			return err
		}
		if len(s.Data["tls.crt"]) == 0 {
			return errors.New("it has no certificate")
		}
		return nil
	})
	return s
}

// another waits until the Secret has another certificate, and returns it.
func another(t *testing.T, before *corev1.Secret) *corev1.Secret {
	t.Helper()
	now := &corev1.Secret{}
	eventually(t, "another certificate in "+before.Name, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(before), now); err != nil {
			return err
		}
		if len(now.Data["tls.crt"]) == 0 || bytes.Equal(now.Data["tls.crt"], before.Data["tls.crt"]) {
			return errors.New("it is the one of before")
		}
		return nil
	})
	return now
}

// served waits until every replica serves the certificate of the Secret.
func served(t *testing.T, p *pair) {
	t.Helper()
	eventually(t, "every replica to serve the certificate", func(ctx context.Context) error {
		now := &corev1.Secret{}
		if err := admin.Get(ctx, client.ObjectKey{Namespace: install.DefaultNamespace, Name: leafSecret}, now); err != nil {
			return err
		}
		return p.Serve(ctx, now.Data["tls.crt"])
	})
}

// writesTo counts the writes of the webhook configuration since the mark, by user and
// field manager.
func writesTo(t *testing.T, mark cluster.Mark) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, r := range must(kube.RequestLog().Since(t.Context(), mark))(t) {
		if r.Resource != "validatingwebhookconfigurations" || r.Name != install.DefaultRelease || !r.Writes() || r.DryRun {
			continue
		}
		uri := must(url.ParseRequestURI(r.URI))(t)
		counts[r.User+" "+uri.Query().Get("fieldManager")]++
	}
	return counts
}

// mostWrites is how often the leader may write the webhook configuration for a rotation:
// for a new authority, for a new token, and to give up the ownership after each.
const mostWrites = 4

// sparing fails the test if the leader writes more than the rotations ask for, or anybody
// else writes at all.
func sparing(t *testing.T, mark cluster.Mark, rotations int) {
	t.Helper()
	counts, all := writesTo(t, mark), 0
	for writer, n := range counts {
		if !strings.HasPrefix(writer, "system:serviceaccount:"+install.DefaultNamespace+":") {
			t.Errorf("%s has written the webhook configuration", writer)
		}
		all += n
	}
	t.Logf("%d rotations, writes to the webhook configuration: %v", rotations, counts)
	if all > mostWrites*(rotations+1) { // The token of the rotation before may still be on its way.
		t.Errorf("the leader has written the webhook configuration %d times for %d rotations", all, rotations)
	}
}
