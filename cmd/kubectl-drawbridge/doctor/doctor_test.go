package doctor

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
	"github.com/drawbridge-dev/drawbridge/test/builder"
)

var update = flag.Bool("update", false, "write the golden files")

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const system = "drawbridge-system"

// fine are the facts of an installation in which nothing is wrong.
func fine() Facts {
	f := Facts{
		Now: t0, Namespace: system, ServiceAccount: "drawbridge", Kubernetes: "v1.37.2", Unread: map[Source]Unread{},
		Deployments: []appsv1.Deployment{{
			ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "drawbridge", Labels: map[string]string{versionLabel: "0.1.0"}},
			Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: managerContainer,
				Args: []string{"--leader-elect", "--webhook-configuration=drawbridge", "--webhook-cert-secret=drawbridge-webhook-cert", "--guard=true", "--surge=false"},
			}}}}},
			Status: appsv1.DeploymentStatus{ReadyReplicas: 2},
		}},
		Lease: &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("drawbridge-0"), RenewTime: &metav1.MicroTime{Time: t0}, LeaseDurationSeconds: ptr.To[int32](15)}},
		Probe: &Probe{},
		Validating: []admissionregistrationv1.ValidatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: "drawbridge", Annotations: map[string]string{failurepolicy.WantedAnnotation: "Ignore"}},
			Webhooks:   []admissionregistrationv1.ValidatingWebhook{webhook(failurepolicy.EvictionWebhook, "drawbridge-webhook")},
		}},
	}
	f.Certificate, f.Validating[0].Webhooks[0].ClientConfig.CABundle = issue("drawbridge-webhook."+system+".svc", t0.Add(300*24*time.Hour))
	for _, name := range kinds {
		f.CRDs = append(f.CRDs, apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{versionLabel: "0.1.0"}},
			Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1", Served: true, Storage: true}}},
			Status:     apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}},
		})
	}
	f.AdmissionPolicies = append(f.AdmissionPolicies, admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: warningPolicyName}})
	f.PolicyBindings = append(f.PolicyBindings, admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: warningPolicyName},
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: warningPolicyName, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}},
	})
	for _, policy := range admissionPolicyNames {
		f.AdmissionPolicies = append(f.AdmissionPolicies, admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: policy[0]}})
		f.PolicyBindings = append(f.PolicyBindings, admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: policy[0]},
			Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy[0], ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
		})
	}
	return f
}

// webhook is one that is asked about evictions.
func webhook(name, service string) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name:          name,
		FailurePolicy: ptr.To(admissionregistrationv1.Ignore),
		ClientConfig:  admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: system, Name: service}},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/eviction"}},
		}},
	}
}

// broken are facts in which much is wrong, for the golden files.
func broken() Facts {
	f := fine()
	f.CRDs = f.CRDs[1:]
	f.Deployments[0].Status.ReadyReplicas = 1
	f.ManagerPods = []corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Name: "drawbridge-1"},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: managerContainer, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
		}}},
	}}
	f.Validating = append(f.Validating,
		admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "strimzi-drain-cleaner"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{webhook("strimzi-drain-cleaner.strimzi.io", "strimzi-drain-cleaner")}},
		admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "gatekeeper"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{webhook("validation.gatekeeper.sh", "gatekeeper-webhook-service")}},
	)
	f.Probe = &Probe{Problem: `evict drawbridge-webhook-probe as a dry run: Internal error occurred: failed calling webhook "probe.drawbridge.dev": context deadline exceeded`}
	f.Unread[Nodes] = Unread{Forbidden: true, Detail: `nodes is forbidden: User "pat" cannot list resource "nodes" in API group "" at the cluster scope`}
	f.Unread[Maintenances] = Unread{Missing: true, Detail: "no matches for kind"}
	f.Pods = []corev1.Pod{*builder.Pod("shop", "db-0").Label("app", "db").OwnedBy("StatefulSet", "db").Obj()}
	f.Budgets = append(f.Budgets,
		*builder.Budget("shop", "db").Selects("app", "db").MinAvailable("1").Obj(),
		*builder.Budget("shop", "all").SelectsAll().MaxUnavailable("1").Obj(),
	)
	f.Budgets[0].Status.ExpectedPods, f.Budgets[0].Status.DesiredHealthy = 1, 1
	f.Budgets[0].Status.ObservedGeneration = f.Budgets[0].Generation
	return f
}

func TestGolden(t *testing.T) {
	cases := map[string]Facts{"fine": fine(), "broken": broken()}
	for name, facts := range cases {
		t.Run(name, func(t *testing.T) {
			report := Examine(facts)
			var text strings.Builder
			if err := Print(&text, report, 100); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".txt", text.String())
			data, err := yaml.Marshal(report)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".yaml", string(data))
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; go test -update writes it):\n%s", name, diff)
	}
}

// only is the result of one check.
func only(t *testing.T, f Facts, name string) Result {
	t.Helper()
	for _, c := range Examine(f).Checks {
		if c.Check == name {
			return c
		}
	}
	t.Fatalf("there is no check %q", name)
	return Result{}
}

// brief is a finding in one line, without the advice.
func brief(r Result) []string {
	var lines []string
	for _, f := range r.Findings {
		lines = append(lines, fmt.Sprintf("%s %s: %s", f.Severity, f.Object, f.What))
	}
	return lines
}

func TestEveryFindingSaysWhatToDo(t *testing.T) {
	for name, facts := range map[string]Facts{"nothing there": {Unread: map[Source]Unread{}}, "much wrong": broken()} {
		for _, c := range Examine(facts).Checks {
			for _, f := range c.Findings {
				if f.Check != c.Check || f.What == "" || f.Do == "" {
					t.Errorf("%s: %+v", name, f)
				}
			}
		}
	}
}

func TestAReportTellsAllChecksWhateverCouldBeRead(t *testing.T) {
	f := fine()
	for _, c := range checks {
		for _, source := range c.needs {
			f.Unread[source] = Unread{Forbidden: true, Detail: "forbidden: " + string(source)}
		}
	}
	r := Examine(f)
	if r.Severity != Warn || len(r.Checks) != len(checks) {
		t.Errorf("severity %s, %d checks", r.Severity, len(r.Checks))
	}
	for _, c := range r.Checks {
		if c.Severity != Warn || !strings.HasPrefix(c.Findings[0].Do, "Ask for ") {
			t.Errorf("%s: %s, %+v", c.Check, c.Severity, c.Findings)
		}
	}
}

func TestKubernetesVersions(t *testing.T) {
	cases := map[string]struct {
		version string
		want    Severity
	}{
		"the oldest one that is supported": {"v1.30.0", OK},
		"one before it":                    {"v1.29.14", Fail},
		"a distribution's":                 {"v1.33.4-gke.1134000", OK},
		"one that cannot be read":          {"unknown", Warn},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fine()
			f.Kubernetes = tc.version
			if got := only(t, f, "kubernetes").Severity; got != tc.want {
				t.Errorf("severity %s, want %s", got, tc.want)
			}
		})
	}
}

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

func TestSeveralBudgetsAreBoundedAndTheInterceptedOnesComeFirst(t *testing.T) {
	f := fine()
	for i := range most + 5 {
		namespace := fmt.Sprintf("team-%02d", i)
		pod := builder.Pod(namespace, "web-0").Label("app", "web")
		if i == most+4 {
			pod.Interceptors("a.example.com")
		}
		f.Pods = append(f.Pods, *pod.Obj(), *builder.Pod(namespace, "web-1").Label("app", "web").Obj())
		f.Budgets = append(f.Budgets, *builder.Budget(namespace, "b").Selects("app", "web").Obj(), *builder.Budget(namespace, "a").Selects("app", "web").Obj())
		guard := builder.Budget(namespace, "drawbridge-guard").SelectsAll().Obj()
		guard.Labels = map[string]string{"drawbridge.dev/guard-budget": "true"}
		f.Budgets = append(f.Budgets, *guard)
	}
	got := brief(only(t, f, "several-budgets"))
	if len(got) != most+1 {
		t.Fatalf("%d findings: %v", len(got), got)
	}
	want := []string{
		"WARN pod/team-14/web-0: budgets a, b select it, as 1 other pod with it (1 with interceptors): the API server answers every eviction with 500",
		"WARN pod/team-00/web-0: budgets a, b select it, as 1 other pod with it: the API server answers every eviction with 500",
		"WARN : 5 more groups of pods have several budgets",
	}
	if diff := cmp.Diff(want, []string{got[0], got[1], got[most]}); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestBudgetsThatNeverAllow(t *testing.T) {
	cases := map[string]struct {
		minAvailable, maxUnavailable string
		expected, desired            int32
		stale                        bool
		want                         string
	}{
		"maxUnavailable 0":                {maxUnavailable: "0", expected: 3, desired: 3, want: "maxUnavailable is 0"},
		"as many as there are":            {minAvailable: "3", expected: 3, desired: 3, want: "minAvailable is 3 of 3 pods"},
		"more than there are":             {minAvailable: "5", expected: 3, desired: 5, want: "minAvailable is 5 of 3 pods"},
		"all of them":                     {minAvailable: "100%", expected: 2, desired: 2, want: "minAvailable is 100% of 2 pods"},
		"one less":                        {minAvailable: "2", expected: 3, desired: 2},
		"no pod, so nobody is held":       {maxUnavailable: "0"},
		"a status of an older generation": {maxUnavailable: "0", expected: 3, desired: 3, stale: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := builder.Budget("shop", "web").Generation(2)
			if tc.minAvailable != "" {
				w.MinAvailable(tc.minAvailable)
			}
			if tc.maxUnavailable != "" {
				w.MaxUnavailable(tc.maxUnavailable)
			}
			b := w.Obj()
			b.Status.ExpectedPods, b.Status.DesiredHealthy, b.Status.ObservedGeneration = tc.expected, tc.desired, 2
			if tc.stale {
				b.Status.ObservedGeneration = 1
			}
			if got := neverAllows(b); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestABudgetThatSurgeGetsPastIsNoFinding(t *testing.T) {
	f := fine()
	f.Deployments[0].Spec.Template.Spec.Containers[0].Args = append(f.Deployments[0].Spec.Template.Spec.Containers[0].Args, "--surge=true")
	b := builder.Budget("shop", "web").Selects("app", "web").MaxUnavailable("0").Obj()
	b.Status.ExpectedPods, b.Status.DesiredHealthy, b.Status.ObservedGeneration = 1, 1, b.Generation
	f.Budgets = append(f.Budgets, *b)
	f.Pods = []corev1.Pod{*builder.Pod("shop", "web-0").Label("app", "web").Interceptors("surge.drawbridge.dev").Obj()}
	r := only(t, f, "blocking-budgets")
	if r.Severity != OK || r.Summary != "1 budget would block, but the pods get replacements first (surge)" {
		t.Errorf("severity %s, summary %q, %v", r.Severity, r.Summary, brief(r))
	}
}

func TestProblemsOfTheProbeAreExplained(t *testing.T) {
	cases := map[string]string{
		"the API server did not call the webhook probe.drawbridge.dev":           `see "webhook"`,
		"tls: failed to verify certificate: x509: certificate signed by unknown": `see "certificate"`,
		`no endpoints available for service "drawbridge-webhook"`:                `see "replicas"`,
		"dial tcp 127.0.0.1:9: connect: connection refused":                      `see "replicas"`,
		`service "drawbridge-webhook" not found`:                                 "The Service of the webhook is missing",
		"context deadline exceeded":                                              "network policies",
		"something that nobody has seen":                                         "docs/runbooks/webhook-down.md",
	}
	for problem, do := range cases {
		f := fine()
		f.Probe = &Probe{Problem: problem}
		r := only(t, f, "reachable")
		if r.Severity != Fail || !strings.Contains(r.Findings[0].Do, do) {
			t.Errorf("%s: %s, %+v", problem, r.Severity, r.Findings)
		}
	}
}

func TestThePermissionsFollowTheSettings(t *testing.T) {
	f := fine()
	resources := func() []string {
		var all []string
		for _, n := range Needs(&f) {
			all = append(all, n.text(system))
		}
		return all
	}
	if got := resources(); slices.Contains(got, `"get, list, watch" on deployments.apps`) || !slices.Contains(got, `"update, delete" on poddisruptionbudgets.policy "drawbridge-guard"`) ||
		!slices.Contains(got, `"list, watch, update" on secrets "drawbridge-webhook-cert" in the namespace drawbridge-system`) {
		t.Errorf("with the guard and without surge: %v", got)
	}
	f.Deployments[0].Spec.Template.Spec.Containers[0].Args = []string{"--surge=true", "--guard=false", "--webhook-cert-secret=s", "--cert-manager-certificate=c"}
	if got := resources(); !slices.Contains(got, `"get, list, watch" on deployments.apps`) || slices.Contains(got, `"create" on poddisruptionbudgets.policy`) ||
		!slices.Contains(got, `"list, watch" on secrets "s" in the namespace drawbridge-system`) {
		t.Errorf("with surge and cert-manager, without the guard: %v", got)
	}
}

func TestABudgetThatIsNotCountedIsAFinding(t *testing.T) {
	cases := map[string]struct {
		expected int32
		reason   string
		pods     bool
		want     string
	}{
		"counted":                       {expected: 2, pods: true},
		"no pod is expected":            {pods: true, want: "it allows no disruption, because the disruption controller expects no pods, although it selects web-0"},
		"there is no pod":               {},
		"the controller cannot compute": {expected: 2, pods: true, reason: policyv1.SyncFailedReason, want: "it allows no disruption, because the disruption controller could not compute it: no scale"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fine()
			b := builder.Budget("shop", "web").Selects("app", "web").MinAvailable("1").Obj()
			b.Status.ExpectedPods, b.Status.DesiredHealthy, b.Status.ObservedGeneration = tc.expected, 1, b.Generation
			if tc.reason != "" {
				b.Status.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: tc.reason, Message: "no scale"}}
			}
			f.Budgets = append(f.Budgets, *b)
			if tc.pods {
				f.Pods = []corev1.Pod{*builder.Pod("shop", "web-0").Label("app", "web").Obj()}
			}
			wantFinding(t, only(t, f, "blocking-budgets"), tc.want)
		})
	}
}

// wantFinding wants one finding with that text, or none if it is empty.
func wantFinding(t *testing.T, r Result, want string) {
	t.Helper()
	var got []string
	for _, finding := range r.Findings {
		got = append(got, finding.What)
	}
	if want == "" && len(got) == 0 || len(got) == 1 && strings.Contains(got[0], want) && want != "" {
		return
	}
	t.Errorf("findings %q, want %q", got, want)
}

func TestPodsWithInterceptorsInExcludedNamespaces(t *testing.T) {
	cases := map[string]struct {
		excluded, annotated bool
		want                string
	}{
		"excluded and intercepted": {true, true, "1 pod with interceptors, such as db-0, in a namespace that the webhook leaves out"},
		"excluded only":            {true, false, ""},
		"intercepted only":         {false, true, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fine()
			f.Namespaces = append(f.Namespaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{corev1.LabelMetadataName: "shop"}}})
			webhook := webhookNamed(f.configuration(), failurepolicy.EvictionWebhook)
			webhook.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"nowhere"}},
			}}
			if tc.excluded {
				webhook.NamespaceSelector.MatchExpressions[0].Values = []string{"shop"}
			}
			pod := builder.Pod("shop", "db-0")
			if tc.annotated {
				pod.Interceptors("a.example.com")
			}
			f.Pods = []corev1.Pod{*pod.Obj()}
			wantFinding(t, only(t, f, "excluded-namespaces"), tc.want)
		})
	}
}

func TestARegistrationForAllPodsIsAFinding(t *testing.T) {
	cases := map[string]struct {
		registration *builder.EvictionInterceptorWrapper
		want         string
	}{
		"of everything":              {builder.EvictionInterceptor("a.example.com"), "it intercepts every pod"},
		"of some pods":               {builder.EvictionInterceptor("a.example.com").Pods("app", "db"), ""},
		"of some namespaces":         {builder.EvictionInterceptor("a.example.com").InNamespace("shop"), ""},
		"of what an expression says": {builder.EvictionInterceptor("a.example.com").When("true"), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fine()
			r := tc.registration.Obj()
			r.Status.ObservedGeneration = r.Generation
			f.Registrations = []v1alpha1.EvictionInterceptor{*r}
			wantFinding(t, only(t, f, "registrations"), tc.want)
		})
	}
}

func TestAReportOfChecksThatCouldNotLookSaysNothing(t *testing.T) {
	f := fine()
	if n, most := Examine(f).Blind(); n > 0 || most {
		t.Errorf("%d checks could not look (most: %t), want none", n, most)
	}
	f.Unread = map[Source]Unread{Secret: {Forbidden: true}}
	if n, most := Examine(f).Blind(); n != 1 || most {
		t.Errorf("without the Secret %d checks could not look (most: %t), want one", n, most)
	}
	for _, source := range []Source{CRDs, AdmissionPolicies, ValidatingWebhooks, Deployments, Budgets, Pods, Registrations, EvacuationPolicies, Requests, Nodes} {
		f.Unread[source] = Unread{Forbidden: true}
	}
	if n, most := Examine(f).Blind(); !most {
		t.Errorf("%d checks could not look, which is not most of them", n)
	}
}

// The policy that warns refuses nothing, so without it the check warns, too.
func TestThePolicyThatWarns(t *testing.T) {
	cases := map[string]struct {
		change func(*Facts)
		want   string
	}{
		"is there":         {func(*Facts) {}, ""},
		"denies even":      {func(f *Facts) { f.PolicyBindings[0].Spec.ValidationActions[0] = admissionregistrationv1.Deny }, ""},
		"is missing":       {func(f *Facts) { f.AdmissionPolicies = f.AdmissionPolicies[1:] }, "it is missing: nobody is warned"},
		"is not bound":     {func(f *Facts) { f.PolicyBindings = f.PolicyBindings[1:] }, "the policy is not bound: nobody is warned"},
		"is only recorded": {func(f *Facts) { f.PolicyBindings[0].Spec.ValidationActions[0] = admissionregistrationv1.Audit }, "it does not warn: nobody is warned"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fine()
			tc.change(&f)
			wantFinding(t, only(t, f, "admission-policies"), tc.want)
		})
	}
}
