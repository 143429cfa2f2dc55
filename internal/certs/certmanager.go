package certs

import (
	"context"
	"fmt"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmetav1 "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

const (
	// lookEvery is how often cert-manager's Certificate is read: changes matter within
	// days, and a watch would tie our readiness to another API.
	lookEvery   = time.Minute
	lookTimeout = 10 * time.Second
)

// CertManager reports on a Certificate of cert-manager, on the leader.
//
// Permission: get of that Certificate.
type CertManager struct {
	// Reader reads from the API server. Its scheme has cert-manager's kinds.
	Reader client.Reader
	Clock  clock.WithTicker
	// Certificate that fills the Secret.
	Certificate types.NamespacedName
	Metrics     *metrics.Certificates

	// said is what was last logged, if logged is true.
	logged bool
	said   string
}

var _ manager.LeaderElectionRunnable = &CertManager{}

// NeedLeaderElection is true: one replica tells.
func (c *CertManager) NeedLeaderElection() bool { return true }

// Start checks every minute until the context ends.
func (c *CertManager) Start(ctx context.Context) error {
	ticker := c.Clock.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		c.observe(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// observe checks and reports once.
func (c *CertManager) observe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	ready, why, err := c.ready(ctx)
	log := ctrl.LoggerFrom(ctx).WithName("certificate").WithValues("certificate", c.Certificate.String())
	if err != nil {
		why = err.Error()
	}
	c.Metrics.Ready(c.Certificate.Name, ready)
	if c.logged && why == c.said {
		return
	}
	c.logged, c.said = true, why
	if ready {
		log.Info("The Certificate of cert-manager is Ready")
		return
	}
	log.Info("The Certificate of cert-manager is not Ready", "reason", why)
}

// ready reads the condition Ready.
func (c *CertManager) ready(ctx context.Context) (ready bool, why string, err error) {
	certificate := &certmanagerv1.Certificate{}
	switch err := c.Reader.Get(ctx, c.Certificate, certificate); {
	case meta.IsNoMatchError(err):
		return false, "", fmt.Errorf("cert-manager is not installed: %w", err)
	case apierrors.IsNotFound(err):
		return false, "there is no such Certificate", nil
	case err != nil:
		return false, "", fmt.Errorf("get Certificate: %w", err)
	}
	for _, condition := range certificate.Status.Conditions {
		if condition.Type != certmanagerv1.CertificateConditionReady {
			continue
		}
		if condition.Status == cmmetav1.ConditionTrue {
			return true, "", nil
		}
		return false, condition.Reason + ": " + condition.Message, nil
	}
	return false, "cert-manager has not looked at it yet", nil
}
