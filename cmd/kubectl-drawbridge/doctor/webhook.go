package doctor

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
)

const upgrade = "Run helm upgrade with the values of the installation."

func webhookConfiguration(f *Facts) verdict {
	var v verdict
	s := f.settings()
	c := f.configuration()
	switch {
	case c == nil && s.known && s.configuration == "":
		v.warn("", "the webhook is switched off: evictions of kubectl drain and other tools bypass interceptors", "Set webhook.enabled=true.")
		return v
	case c == nil:
		v.fail("validatingwebhookconfiguration/"+s.configuration, "there is none that sends evictions to Drawbridge: they bypass interceptors", upgrade)
		return v
	}
	object := "validatingwebhookconfiguration/" + c.Name
	w := webhookNamed(c, failurepolicy.EvictionWebhook)
	if w == nil {
		v.fail(object, fmt.Sprintf("it has no webhook %s: evictions bypass interceptors", failurepolicy.EvictionWebhook), upgrade)
		return v
	}
	present := ptr.Deref(w.FailurePolicy, admissionregistrationv1.Fail)
	v.summary = fmt.Sprintf("failurePolicy %s", present)
	if !asksForEvictions(w.Rules) {
		v.fail(object, fmt.Sprintf("the rules of %s leave out the creation of pods/eviction: evictions bypass interceptors", w.Name), upgrade)
	}
	v.policy(f, c, object, present)
	for i := range c.Webhooks {
		if len(c.Webhooks[i].ClientConfig.CABundle) == 0 {
			v.fail(object, fmt.Sprintf("the webhook %s has no CA: the API server cannot trust the manager", c.Webhooks[i].Name),
				"The leader puts it in within moments. If it stays, look at its log, and for something else that writes this object (GitOps tools: leave caBundle out of the comparison).")
			break
		}
	}
	return v
}

// policy compares the failure policy with the one that is wanted.
func (v *verdict) policy(f *Facts, c *admissionregistrationv1.ValidatingWebhookConfiguration, object string, present admissionregistrationv1.FailurePolicyType) {
	wanted := admissionregistrationv1.FailurePolicyType(c.Annotations[failurepolicy.WantedAnnotation])
	switch {
	case wanted == "":
		v.warn(object, fmt.Sprintf("the annotation %s is missing: nobody keeps the failure policy", failurepolicy.WantedAnnotation), upgrade)
	case wanted == present:
	case !f.settings().managedPolicy:
		v.warn(object, fmt.Sprintf("the failurePolicy is %s, the values want %s, and the gate ManagedFailurePolicy is off", present, wanted), upgrade)
	case present == admissionregistrationv1.Ignore:
		v.warn(object, "the failurePolicy is Ignore, the values want Fail: while no replica can be reached, evictions bypass interceptors",
			"The manager sets Fail when a call of its own has come through. If \"reachable\" is OK and this stays, look at the leader's log.")
	default:
		v.warn(object, "the failurePolicy is Fail, the values want Ignore: while no replica can be reached, all evictions are refused",
			"The manager sets Ignore within moments. If this stays, look at the leader's log.")
	}
}

// asksForEvictions reports whether rules match the creation of an Eviction.
func asksForEvictions(rules []admissionregistrationv1.RuleWithOperations) bool {
	has := func(values []string, wanted ...string) bool {
		return slices.ContainsFunc(values, func(value string) bool { return slices.Contains(wanted, value) })
	}
	return slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		operation := slices.Contains(r.Operations, admissionregistrationv1.Create) || slices.Contains(r.Operations, admissionregistrationv1.OperationAll)
		return operation && has(r.APIGroups, "", "*") && has(r.APIVersions, "v1", "*") &&
			has(r.Resources, "pods/eviction", "pods/*", "*/eviction", "*/*") &&
			ptr.Deref(r.Scope, admissionregistrationv1.AllScopes) != admissionregistrationv1.ClusterScope
	})
}

// problems of a call, by words of its error, with what to do. The first match is
// reported.
var problems = []struct{ words, do string }{
	{"did not call the webhook", "The webhook configuration is missing, older than this plugin, or not known to the API server yet: see \"webhook\"."},
	{"x509:", "The API server does not trust the certificate: see \"certificate\", and docs/runbooks/webhook-down.md."},
	{"no endpoints available", "No replica is ready: see \"replicas\"."},
	{"connection refused", "Nobody listens: see \"replicas\"."},
	{"not found", "The Service of the webhook is missing. " + upgrade},
	{"deadline exceeded", unreachable},
	{"i/o timeout", unreachable},
	{"Timeout", unreachable},
	{"no route to host", unreachable},
}

const unreachable = "The way from the API server to the pods is blocked: look for network policies, and let the control plane reach the webhook's port (value webhook.port) on the nodes or pods. Private clusters of GKE need a firewall rule, clusters with another network plugin than the provider's a manager in the host's network."

func reachable(f *Facts) verdict {
	var v verdict
	switch {
	case f.Probe == nil:
		v.summary = "not tried"
	case f.Probe.Problem == "":
		v.summary = "a dry run came through"
	default:
		do := "See docs/runbooks/webhook-down.md."
		for _, p := range problems {
			if strings.Contains(f.Probe.Problem, p.words) {
				do = p.do
				break
			}
		}
		v.fail("", "a dry run of an eviction did not reach the manager: "+f.Probe.Problem, do)
	}
	return v
}
