//go:build unix

package ha

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"testing"
	"time"

	"github.com/cert-manager/cert-manager/pkg/apis/certmanager"
	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// issue makes an authority and a certificate of it, in one step, as cert-manager does
// when the authority is renewed.
func issue(t *testing.T, serial int64) map[string][]byte {
	t.Helper()
	newKey := func() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t) }
	caKey, leafKey := newKey(), newKey()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: fmt.Sprintf("ca-%d", serial)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(serial + 1), DNSNames: []string{"localhost", "drawbridge-webhook.drawbridge-system.svc"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	encode := func(kind string, bytes []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes})
	}
	return map[string][]byte{
		"ca.crt":  encode("CERTIFICATE", must(x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey))(t)),
		"tls.crt": encode("CERTIFICATE", must(x509.CreateCertificate(rand.Reader, leaf, ca, leafKey.Public(), caKey))(t)),
		"tls.key": encode("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(leafKey))(t)),
	}
}

// createCertManagersKinds creates the kinds of cert-manager, without their schemas.
func createCertManagersKinds(t *testing.T) {
	t.Helper()
	extensions := must(apiextensions.NewForConfig(kube.Config()))(t)
	for plural, kind := range map[string]string{"certificates": "Certificate", "issuers": "Issuer"} {
		group := certmanager.GroupName
		crd := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group, Annotations: map[string]string{"api-approved.kubernetes.io": "unapproved, for a test"}},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: group, Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}},
				}},
			},
		}
		if _, err := extensions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, kind+" to be served", func(ctx context.Context) error {
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion(certmanagerv1.SchemeGroupVersion.String())
			list.SetKind(kind + "List")
			return admin.List(ctx, list)
		})
	}
}

// cert-manager fills the Secret; the manager serves what is in it, puts the authority
// into the configuration, and reports the condition. The test plays cert-manager.
func TestCertManagerIssuesTheCertificate(t *testing.T) {
	createCertManagersKinds(t)
	inst := installed(t, values{"certificates": values{"mode": "cert-manager"}})
	certificate := &certmanagerv1.Certificate{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: inst.Namespace, Name: "drawbridge-webhook"}, certificate); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: inst.Namespace, Name: certificate.Spec.SecretName}, Type: corev1.SecretTypeTLS, Data: issue(t, 1)}
	if err := admin.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Delete(context.WithoutCancel(t.Context()), secret); err != nil {
			t.Error(err)
		}
	})
	s := inst.NewService(t)
	args := []string{"--cert-manager-certificate=drawbridge-webhook", "--certificate-settle=" + settle.String()}
	p := s.Replica(t, args...)
	s.Replica(t, args...)

	ready := func(want float64) {
		t.Helper()
		eventually(t, fmt.Sprintf("the metric to be %v", want), func(ctx context.Context) error {
			got, err := p.Metric(ctx, `drawbridge_webhook_certificate_ready{certificate="drawbridge-webhook"}`)
			if err == nil && got != want {
				err = fmt.Errorf("it is %v", got)
			}
			return err
		})
	}
	ready(0)

	// Renewed, authority and all, under load.
	l := startLoad(t, intercepted(t, kube.Namespace(t), "a"))
	// cert-manager applies its own keys, and leaves others alone.
	eventually(t, "the Secret to be renewed", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
			return err
		}
		maps.Copy(secret.Data, issue(t, 10))
		return admin.Update(ctx, secret)
	})
	eventually(t, "every replica to serve it", func(ctx context.Context) error { return s.Serve(ctx, secret.Data["tls.crt"]) })
	l.stop(t)

	// The manager never writes what is cert-manager's.
	now := &corev1.Secret{}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(secret), now); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"ca.crt", "tls.crt", "tls.key"} {
		if string(now.Data[key]) != string(secret.Data[key]) {
			t.Errorf("%s was written", key)
		}
	}
	if len(now.Data["webhook-token"]) == 0 {
		t.Error("the Secret has no token")
	}
}
