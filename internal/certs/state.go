package certs

import (
	"context"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
)

// stateTimeout bounds a read of the cache, which waits as long as it is not in sync.
const stateTimeout = time.Second

// Expiry returns when the certificate ends that is served now; zero while there is
// none.
func (s *Server) Expiry() time.Time {
	if c := s.current.Load(); c != nil {
		return c.Leaf.NotAfter
	}
	return time.Time{}
}

// FailurePolicy returns the failure policy that the configuration has for the webhook
// for evictions, its first one; empty when that is not known.
func (s *Server) FailurePolicy() string {
	if s.WebhookConfiguration == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), stateTimeout)
	defer cancel()
	conf := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err := s.Cache.Get(ctx, types.NamespacedName{Name: s.WebhookConfiguration}, conf)
	if err != nil || len(conf.Webhooks) == 0 || conf.Webhooks[0].FailurePolicy == nil {
		return ""
	}
	return string(*conf.Webhooks[0].FailurePolicy)
}
