package doctor

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Keys of the Secret that are public, and the only ones that are kept.
const (
	keyCert = "tls.crt"
)

// nearEnd is how long before its end a certificate should have been renewed: the
// manager does so after three quarters of a year, cert-manager 30 days before.
const nearEnd = 14 * 24 * time.Hour

// injections are the annotations by which cert-manager's CA injector writes caBundle.
var injections = []string{certmanagerv1.WantInjectAnnotation, certmanagerv1.WantInjectFromSecretAnnotation, certmanagerv1.WantInjectAPIServerCAAnnotation}

func certificate(f *Facts) verdict {
	var v verdict
	c := f.configuration()
	if c == nil {
		v.summary = "there is no webhook"
		return v
	}
	object := fmt.Sprintf("secret/%s/%s", f.Namespace, f.secretName())
	renew := fmt.Sprintf("Empty the Secret, and the leader makes a new one: kubectl -n %s patch secret %s --type=json -p '[{\"op\":\"remove\",\"path\":\"/data\"}]'", f.Namespace, f.secretName())
	if f.settings().certManager != "" {
		renew = "See \"cert-manager\": it fills this Secret."
	}
	if f.Certificate == nil {
		v.fail(object, "the Secret with the webhook's certificate is missing", upgrade)
		return v
	}
	cert, err := parseCertificate(f.Certificate[keyCert])
	if err != nil {
		v.fail(object, fmt.Sprintf("the webhook has no certificate: %v", err), "The leader makes one: see \"replicas\", and its log. "+renew)
		return v
	}
	left := cert.NotAfter.Sub(f.Now)
	v.summary = "valid for " + duration.HumanDuration(left)
	switch {
	case left <= 0:
		v.fail(object, fmt.Sprintf("the certificate ended at %s", cert.NotAfter.UTC().Format(time.RFC3339)), renew)
		return v
	case f.Now.Before(cert.NotBefore):
		v.fail(object, fmt.Sprintf("the certificate begins at %s only", cert.NotBefore.UTC().Format(time.RFC3339)), "Look at the clocks of the nodes, and yours.")
		return v
	case left < nearEnd:
		v.warn(object, fmt.Sprintf("the certificate ends in %s, and should have been renewed", duration.HumanDuration(left)), "Look at the leader's log. "+renew)
	}
	for _, annotation := range injections {
		if c.Annotations[annotation] != "" {
			v.warn("validatingwebhookconfiguration/"+c.Name, fmt.Sprintf("the annotation %s lets cert-manager's CA injector write the authority, as the leader does", annotation),
				"Remove the annotation. The injector takes the previous authority away at once, and does not wait until every replica serves the new certificate.")
		}
	}
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		if len(w.ClientConfig.CABundle) == 0 {
			continue // The check of the configuration reports that.
		}
		if err := trusts(w.ClientConfig, cert, f.Now); err != nil {
			v.fail("validatingwebhookconfiguration/"+c.Name, fmt.Sprintf("the CA of the webhook %s does not vouch for the certificate in the Secret: %v", w.Name, err),
				"The leader repairs it within moments. If it stays, look at its log, and for something else that writes caBundle (cert-manager's CA injector, GitOps tools).")
			break
		}
	}
	return v
}

func parseCertificate(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("tls.crt is missing or not PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read tls.crt: %w", err)
	}
	return cert, nil
}

// trusts checks the certificate as the API server does.
func trusts(config admissionregistrationv1.WebhookClientConfig, cert *x509.Certificate, now time.Time) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(config.CABundle) {
		return errors.New("caBundle is not PEM")
	}
	_, err := cert.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: now, DNSName: serverName(config), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

// serverName is the name that the API server expects in the certificate; empty if
// unknown.
func serverName(config admissionregistrationv1.WebhookClientConfig) string {
	if config.Service != nil {
		return config.Service.Name + "." + config.Service.Namespace + ".svc"
	}
	if config.URL == nil {
		return ""
	}
	u, err := url.Parse(*config.URL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

func certManager(f *Facts) verdict {
	var v verdict
	name := f.settings().certManager
	object := fmt.Sprintf("certificate/%s/%s", f.Namespace, name)
	switch {
	case name == "":
		v.summary = "the manager issues its certificate itself"
	case f.CertManager == nil:
		v.fail(object, "the Certificate that is to fill the webhook's Secret is missing", upgrade)
	case !f.CertManager.Ready:
		v.fail(object, "the Certificate is not ready: "+f.CertManager.Message, fmt.Sprintf("kubectl -n %s describe certificate %s, and look at its issuer.", f.Namespace, name))
	default:
		v.summary = "the Certificate is ready"
	}
	return v
}
