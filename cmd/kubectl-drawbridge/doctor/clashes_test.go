package doctor

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOtherWebhooks(t *testing.T) {
	withPolicy := func(name string) func(*Facts) {
		return func(f *Facts) { f.EvacuationPolicies = append(f.EvacuationPolicies, policyNamed(name)) }
	}
	cases := map[string]struct {
		webhook string
		change  func(*Facts, *admissionregistrationv1.ValidatingWebhook)
		facts   func(*Facts)
		want    string
		quiet   string
		do      string
	}{
		"Strimzi's, without the preset":     {webhook: "strimzi-drain-cleaner.strimzi.io", want: "Strimzi Drain Cleaner", do: "vm.strimzi.enabled=true"},
		"Strimzi's, with the preset":        {webhook: "strimzi-drain-cleaner.strimzi.io", facts: withPolicy("strimzi"), want: "Strimzi Drain Cleaner", do: "uninstall the Drain Cleaner"},
		"KubeVirt's, without the preset":    {webhook: "virt-launcher-eviction-interceptor.kubevirt.io", quiet: "KubeVirt"},
		"KubeVirt's, with the preset":       {webhook: "virt-launcher-eviction-interceptor.kubevirt.io", facts: withPolicy("kubevirt"), want: "KubeVirt", do: "step 5"},
		"KubeVirt's for hotplugged volumes": {webhook: "hotplug-pod-eviction-interceptor.kubevirt.io", facts: withPolicy("kubevirt"), want: "KubeVirt", do: "step 5"},
		"Grafana's":                         {webhook: "pod-eviction-mimir.grafana.com", want: "Grafana rollout-operator", do: "webhook.excludedNamespaces"},
		"pod-graceful-drain":                {webhook: "mpodseviction.pod-graceful-drain.io", want: "pod-graceful-drain", do: "Uninstall it"},
		"the Aerospike operator's":          {webhook: "veviction.kb.asdb.aerospike.com", want: "Aerospike operator", do: "ENABLE_SAFE_POD_EVICTION"},
		"an engine of rules":                {webhook: "validation.gatekeeper.sh", quiet: "Gatekeeper"},
		"one that nobody knows":             {webhook: "gate.example.com", want: "unknown", do: "Only 429"},
		"one that never holds": {webhook: "gate.example.com", change: func(_ *Facts, w *admissionregistrationv1.ValidatingWebhook) {
			w.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "off", Expression: "false"}}
		}},
		"one for pods, not for subresources": {webhook: "gate.example.com", change: func(_ *Facts, w *admissionregistrationv1.ValidatingWebhook) { w.Rules[0].Resources = []string{"*"} }},
		"one for all subresources": {webhook: "gate.example.com", change: func(_ *Facts, w *admissionregistrationv1.ValidatingWebhook) {
			w.Rules[0].Resources = []string{"pods/*"}
		}, want: "unknown", do: "Only 429"},
		"one for updates": {webhook: "gate.example.com", change: func(_ *Facts, w *admissionregistrationv1.ValidatingWebhook) {
			w.Rules[0].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Update}
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fine()
			w := webhook(tc.webhook, "somebody")
			if tc.change != nil {
				tc.change(&f, &w)
			}
			if tc.facts != nil {
				tc.facts(&f)
			}
			f.Validating = append(f.Validating, admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{w}})
			r := only(t, f, "other-webhooks")
			if tc.want == "" {
				if r.Severity != OK || !strings.Contains(r.Summary, tc.quiet) {
					t.Errorf("severity %s, summary %q, %v", r.Severity, r.Summary, brief(r))
				}
				return
			}
			if len(r.Findings) != 1 || !strings.HasPrefix(r.Findings[0].What, tc.want+" (webhook ") || !strings.Contains(r.Findings[0].Do, tc.do) {
				t.Errorf("%+v", r.Findings)
			}
		})
	}
}

func TestAMutatingWebhookForEvictionsIsTold(t *testing.T) {
	f := fine()
	w := webhook("gate.example.com", "somebody")
	f.Mutating = []admissionregistrationv1.MutatingWebhookConfiguration{{
		ObjectMeta: metav1.ObjectMeta{Name: "other"},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules}},
	}}
	want := []string{"WARN mutatingwebhookconfiguration/other: unknown (webhook gate.example.com): an unknown product may change evictions before Drawbridge sees them"}
	if diff := cmp.Diff(want, brief(only(t, f, "other-webhooks"))); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}
