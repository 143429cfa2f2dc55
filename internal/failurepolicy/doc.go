// Package failurepolicy keeps the failure policy of the eviction webhook: Ignore
// from the installation until the API server has proven, by a call of ours, that it
// reaches a manager and trusts its certificate, and from then on what the chart's
// values want. So an installation that never comes up refuses no eviction.
//
// Once set, the policy stays: a webhook that cannot be reached any more is an outage,
// which is what the policy is for, and not a reason to change it.
package failurepolicy

import "github.com/drawbridge-dev/drawbridge/api/v1alpha1"

// Names in the chart's ValidatingWebhookConfiguration.
const (
	// WantedAnnotation is on the configuration; its value is the failure policy that
	// the eviction webhook is to have, Fail or Ignore.
	WantedAnnotation = v1alpha1.GroupName + "/failure-policy"
	// EvictionWebhook is the webhook whose policy is kept.
	EvictionWebhook = "eviction-requests." + v1alpha1.GroupName
	// ProbeWebhook is called for evictions of ProbePod in our own namespace, as a dry
	// run, and for nothing else. It has the same way to us as the others.
	ProbeWebhook = "probe." + v1alpha1.GroupName
	// ProbePod is the name of a pod that does not exist.
	ProbePod = "drawbridge-webhook-probe"
	// ProbeAnswer is in the answer to every probe, and in no other text of ours: who
	// reads it has reached a manager of Drawbridge.
	ProbeAnswer = "drawbridge was reached, nothing was evicted"
)
