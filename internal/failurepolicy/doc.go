// Package failurepolicy manages the failure policy of the eviction webhook: Ignore
// after the installation, until one of our calls has proven that the API server reaches
// a manager and trusts its certificate; then the policy of the chart's values. So an
// installation that never becomes ready refuses no eviction.
//
// Once set, the policy stays: an unreachable webhook is an outage, which is what the
// policy is for, and no reason to change it.
package failurepolicy

import "github.com/drawbridge-dev/drawbridge/api/v1alpha1"

// Names in the chart's ValidatingWebhookConfiguration.
const (
	// WantedAnnotation is on the configuration; its value is the wanted failure policy
	// of the eviction webhook, Fail or Ignore.
	WantedAnnotation = v1alpha1.GroupName + "/failure-policy"
	// EvictionWebhook is the webhook whose policy is managed.
	EvictionWebhook = "eviction-requests." + v1alpha1.GroupName
	// ProbeWebhook is called only for dry-run evictions of ProbePod in our own
	// namespace. It is reached in the same way as the other webhooks.
	ProbeWebhook = "probe." + v1alpha1.GroupName
	// ProbePod is the name of a pod that does not exist.
	ProbePod = "drawbridge-webhook-probe"
	// ProbeAnswer is in the answer to every probe, and in no other text of ours: it
	// proves that a manager of Drawbridge was reached.
	ProbeAnswer = "drawbridge was reached, nothing was evicted"
)
