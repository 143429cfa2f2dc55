package doctor

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// eviction is any webhook that is called for evictions.
type eviction struct {
	// object is its configuration, name the webhook's own.
	object, name string
	// service is the namespace/name of its Service, or a URL.
	service string
	// mutating: it may change the eviction.
	mutating bool
}

// says reports whether what is known of the webhook contains one of the words.
func (e eviction) says(words ...string) bool {
	return slices.ContainsFunc(words, func(word string) bool {
		return strings.Contains(e.name, word) || strings.Contains(e.object, word) || strings.Contains(e.service, word)
	})
}

// product is a product whose webhook is known.
type product struct {
	name string
	// is reports whether the webhook is this product's.
	is func(e eviction) bool
	// judge says what is wrong and what to do; nothing is wrong if both are empty.
	judge func(f *Facts) (what, do string)
}

// products are known products that answer evictions. Their behaviour was read from
// their sources, see the comparison in docs/guides/doctor.md.
var products = []product{
	{"KubeVirt", func(e eviction) bool { return e.says("eviction-interceptor.kubevirt.io") }, kubeVirt},
	{"Strimzi Drain Cleaner", func(e eviction) bool { return e.says("drain-cleaner") }, strimzi},
	{"Grafana rollout-operator", func(e eviction) bool { return e.says("rollout-operator", ".grafana.com") }, func(*Facts) (string, string) {
		return "it refuses evictions with 403 or 500 as well, at which kubectl drain gives up, also while an interceptor works",
			"Let only one of the two answer for a pod: leave the namespaces of its ZoneAwarePodDisruptionBudgets out (webhook.excludedNamespaces), or name no interceptors there."
	}},
	{"pod-graceful-drain", func(e eviction) bool { return e.says("pod-graceful-drain") }, func(*Facts) (string, string) {
		return "it turns evictions into dry runs and answers that all went well: callers think that the pod was evicted, and interceptors are not waited for",
			"Uninstall it, or leave the namespaces with interceptors out of its namespaceSelector. A readiness gate or preStop hook does the same for load balancers."
	}},
	{"Aerospike operator", func(e eviction) bool { return e.says("aerospike") }, func(*Facts) (string, string) {
		return "it refuses evictions with 403, at which kubectl drain gives up",
			"Leave ENABLE_SAFE_POD_EVICTION off for pods with interceptors, or name no interceptors for its pods."
	}},
	{"Gatekeeper", func(e eviction) bool { return e.says("gatekeeper") }, harmless},
	{"Kyverno", func(e eviction) bool { return e.says("kyverno") }, harmless},
	{"OPA", func(e eviction) bool { return e.says("openpolicyagent.org", "kube-mgmt") }, harmless},
}

// harmless is for policy engines: they are called for everything, and refuse what their
// rules say.
func harmless(*Facts) (string, string) { return "", "" }

func kubeVirt(f *Facts) (what, do string) {
	if !hasPolicy(f, "kubevirt") {
		return "", "" // Its pods are its own business.
	}
	return "both answer for virtual machines; that works, but the preset kubevirt makes it unnecessary",
		"When the policies are ready and the guard is closed for every machine, take it away: step 5 of docs/guides/kubevirt.md."
}

func strimzi(f *Facts) (what, do string) {
	what = "it answers 500, at which kubectl drain gives up; with interceptors on the same pods, callers hear one or the other"
	if hasPolicy(f, "strimzi") {
		return what, "The preset strimzi does its work: uninstall the Drain Cleaner, or set STRIMZI_DENY_EVICTION=false."
	}
	return what, "Set vm.strimzi.enabled=true and uninstall the Drain Cleaner. To keep it, set STRIMZI_DENY_EVICTION=false, or leave the namespaces of its clusters out (webhook.excludedNamespaces)."
}

func hasPolicy(f *Facts, name string) bool {
	return slices.ContainsFunc(f.EvacuationPolicies, func(p v1alpha1.EvacuationPolicy) bool { return p.Name == name })
}

func unknownWebhook(e eviction) (what, do string) {
	if e.mutating {
		return "an unknown product may change evictions before Drawbridge sees them", "Find out what it does with pods/eviction. If it delays or answers evictions itself, let only one of the two act on a pod."
	}
	return "an unknown product may refuse evictions as well", "Find out what it answers. Only 429 makes kubectl drain try again. If it holds pods of its own, write an interceptor or an EvacuationPolicy instead (docs/guides/write-an-interceptor.md), or let only one of the two act on a pod."
}

func otherWebhooks(f *Facts) verdict {
	var v verdict
	var quiet []string
	var findings []Finding
	for _, e := range evictionWebhooks(f) {
		name, what, do := judge(f, e)
		if what == "" {
			if !slices.Contains(quiet, name) {
				quiet = append(quiet, name)
			}
			continue
		}
		findings = append(findings, Finding{Severity: Warn, Object: e.object, What: fmt.Sprintf("%s (webhook %s): %s", name, e.name, what), Do: do})
	}
	v.findings = bounded(findings, "webhooks are asked about evictions")
	v.summary = "none"
	if len(quiet) > 0 {
		v.summary = "also asked, which is all right: " + strings.Join(quiet, ", ")
	}
	return v
}

func judge(f *Facts, e eviction) (name, what, do string) {
	for _, p := range products {
		if p.is(e) {
			what, do = p.judge(f)
			return p.name, what, do
		}
	}
	what, do = unknownWebhook(e)
	return "unknown", what, do
}

// evictionWebhooks are all but ours.
func evictionWebhooks(f *Facts) []eviction {
	var found []eviction
	ours := f.configuration()
	for i := range f.Validating {
		c := &f.Validating[i]
		if ours != nil && c.Name == ours.Name {
			continue
		}
		for j := range c.Webhooks {
			w := &c.Webhooks[j]
			if asksForEvictions(w.Rules) && !off(w.MatchConditions) {
				found = append(found, eviction{object: "validatingwebhookconfiguration/" + c.Name, name: w.Name, service: serviceOf(w.ClientConfig)})
			}
		}
	}
	for i := range f.Mutating {
		c := &f.Mutating[i]
		for j := range c.Webhooks {
			w := &c.Webhooks[j]
			if asksForEvictions(w.Rules) && !off(w.MatchConditions) {
				found = append(found, eviction{object: "mutatingwebhookconfiguration/" + c.Name, name: w.Name, service: serviceOf(w.ClientConfig), mutating: true})
			}
		}
	}
	return found
}

// off reports whether a webhook was switched off by a condition that never holds.
func off(conditions []admissionregistrationv1.MatchCondition) bool {
	return slices.ContainsFunc(conditions, func(c admissionregistrationv1.MatchCondition) bool {
		return strings.TrimSpace(c.Expression) == "false"
	})
}

func serviceOf(config admissionregistrationv1.WebhookClientConfig) string {
	switch {
	case config.Service != nil:
		return config.Service.Namespace + "/" + config.Service.Name
	case config.URL != nil:
		return *config.URL
	default:
		return ""
	}
}
