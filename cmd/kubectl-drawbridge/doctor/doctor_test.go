package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/golden"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const system = "drawbridge-system"

// fine are the facts of an installation in which nothing is wrong.
func fine() Facts {
	f := Facts{
		Now: t0, Namespace: system, ServiceAccount: "drawbridge", Plugin: "v0.1.0", Kubernetes: "v1.37.2", Unread: map[Source]Unread{},
		Deployments: []appsv1.Deployment{{
			ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "drawbridge", Labels: map[string]string{cli.VersionLabel: "0.1.0"}},
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
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{cli.VersionLabel: "0.1.0"}},
			Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1", Served: true, Storage: true}}},
			Status:     apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}},
		})
	}
	for _, policy := range warningPolicyNames {
		f.AdmissionPolicies = append(f.AdmissionPolicies, admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: policy[0]}})
		f.PolicyBindings = append(f.PolicyBindings, admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: policy[0]},
			Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy[0], ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}},
		})
	}
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
	f.Pods = []corev1.Pod{*builder.Pod("shop", "db-0").Label("app", "db").OwnedBy("StatefulSet", "db").Ready().Obj()}
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
			golden.Equal(t, name+".txt", text.String())
			data, err := yaml.Marshal(report)
			if err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, name+".yaml", string(data))
		})
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
