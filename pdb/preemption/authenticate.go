package preemption

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// ClientCAKey is the key of the ConfigMap that has the authorities of clients, as in
// kube-system/extension-apiserver-authentication.
const ClientCAKey = "client-ca-file"

// minToken is the shortest token that is accepted, in bytes: it must be hard to guess.
const minToken = 16

var (
	errNoCredentials = errors.New("no client certificate and no token: see docs/guides/preemption.md for what the scheduler's configuration needs")
	errWrongToken    = errors.New("wrong token")
)

// Authenticator authenticates the scheduler: by a client certificate of one of the
// cluster's authorities for one of its users, or by a token, which the scheduler can
// send only as the password in its urlPrefix.
type Authenticator struct {
	// ClientCA is the ConfigMap with the authorities; empty: no certificates.
	ClientCA types.NamespacedName
	// Users are the names that certificates may have.
	Users []string
	// TokenFile has the token; empty: none. It is read each time, so that a new token
	// needs no restart.
	TokenFile string
	// Cache has the ConfigMap.
	Cache cache.Cache
	// Clock is used to check certificates.
	Clock clock.PassiveClock

	authorities atomic.Pointer[x509.CertPool]
}

var _ manager.LeaderElectionRunnable = &Authenticator{}

// NeedLeaderElection is false: every replica answers.
func (a *Authenticator) NeedLeaderElection() bool { return false }

// Start follows the authorities until the context ends. If authorities cannot be read,
// the previous ones stay valid.
func (a *Authenticator) Start(ctx context.Context) error {
	if a.ClientCA.Name == "" {
		<-ctx.Done()
		return nil
	}
	log := ctrl.LoggerFrom(ctx).WithName("preemption")
	informer, err := a.Cache.GetInformer(ctx, &corev1.ConfigMap{})
	if err != nil {
		return fmt.Errorf("watch the authorities of clients: %w", err)
	}
	load := func(obj any) {
		configMap, ok := obj.(*corev1.ConfigMap)
		if !ok || configMap.Namespace != a.ClientCA.Namespace || configMap.Name != a.ClientCA.Name {
			return
		}
		if err := a.load(configMap); err != nil {
			log.Error(err, "Cannot take the authorities of clients from the ConfigMap")
		}
	}
	handle, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    load,
		UpdateFunc: func(_, obj any) { load(obj) },
	})
	if err != nil {
		return fmt.Errorf("watch the authorities of clients: %w", err)
	}
	<-ctx.Done()
	if err := informer.RemoveEventHandler(handle); err != nil {
		return fmt.Errorf("stop watching the authorities of clients: %w", err)
	}
	return nil
}

func (a *Authenticator) load(configMap *corev1.ConfigMap) error {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(configMap.Data[ClientCAKey])) {
		return fmt.Errorf("ConfigMap %s/%s has no certificate under %s", configMap.Namespace, configMap.Name, ClientCAKey)
	}
	a.authorities.Store(pool)
	return nil
}

// Ready returns nil if certificates can be checked, and otherwise says what is missing.
func (a *Authenticator) Ready() error {
	if a.ClientCA.Name != "" && a.authorities.Load() == nil {
		return fmt.Errorf("there are no authorities of clients yet (ConfigMap %s)", a.ClientCA)
	}
	return nil
}

// Check returns nil if the scheduler has sent the request.
func (a *Authenticator) Check(r *http.Request) error {
	var problems []error
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		err := a.certificate(r.TLS.PeerCertificates)
		if err == nil {
			return nil
		}
		problems = append(problems, err)
	}
	if token := tokenOf(r); token != "" {
		err := a.token(token)
		if err == nil {
			return nil
		}
		problems = append(problems, err)
	}
	if len(problems) == 0 {
		return errNoCredentials
	}
	return errors.Join(problems...)
}

func (a *Authenticator) certificate(chain []*x509.Certificate) error {
	pool := a.authorities.Load()
	if pool == nil {
		return errors.New("client certificates are not accepted")
	}
	intermediates := x509.NewCertPool()
	for _, certificate := range chain[1:] {
		intermediates.AddCert(certificate)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{
		Roots: pool, Intermediates: intermediates, CurrentTime: a.Clock.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return fmt.Errorf("client certificate: %w", err)
	}
	if name := chain[0].Subject.CommonName; !slices.Contains(a.Users, name) {
		return fmt.Errorf("client certificate: user %q is not one of %s", name, strings.Join(a.Users, ", "))
	}
	return nil
}

// tokenOf is the token of a request: the password of its URL, or a bearer token.
func tokenOf(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return token
}

func (a *Authenticator) token(given string) error {
	if a.TokenFile == "" {
		return errors.New("tokens are not accepted")
	}
	content, err := os.ReadFile(a.TokenFile)
	if err != nil {
		return fmt.Errorf("read the token: %w", err)
	}
	want := bytes.TrimSpace(content)
	if len(want) < minToken {
		return fmt.Errorf("the token in the Secret is shorter than %d characters and not accepted", minToken)
	}
	// Hashes have the same length, so this takes constant time.
	wantHash, givenHash := sha256.Sum256(want), sha256.Sum256([]byte(given))
	if subtle.ConstantTimeCompare(wantHash[:], givenHash[:]) != 1 {
		return errWrongToken
	}
	return nil
}
