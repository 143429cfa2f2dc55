package charts_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func alerts(t *testing.T, more values) []monitoringv1.Rule {
	t.Helper()
	rule := values{"enabled": true}
	for k, v := range more {
		rule[k] = v
	}
	groups := only[*monitoringv1.PrometheusRule](t, render(t, values{"prometheusRule": rule})).Spec.Groups
	if len(groups) != 1 {
		t.Fatalf("want one group of rules, have %d", len(groups))
	}
	return groups[0].Rules
}

// An alert says what is wrong, how bad it is, and where to read what to do. That its
// expression does what it should is proved in test/alerts.
func TestEveryAlertHasARunbook(t *testing.T) {
	seen := map[string]bool{}
	for _, rule := range alerts(t, nil) {
		if seen[rule.Alert] {
			t.Errorf("there are two alerts %s", rule.Alert)
		}
		seen[rule.Alert] = true
		if severity := rule.Labels["severity"]; severity != "critical" && severity != "warning" {
			t.Errorf("%s: severity %q", rule.Alert, severity)
		}
		for _, annotation := range []string{"summary", "description"} {
			if rule.Annotations[annotation] == "" {
				t.Errorf("%s has no %s", rule.Alert, annotation)
			}
		}
		page := filepath.Base(rule.Annotations["runbook_url"])
		content, err := os.ReadFile(filepath.Join("..", "docs", "runbooks", page))
		if err != nil {
			t.Errorf("%s: %v", rule.Alert, err)
		}
		if !strings.Contains(string(content), rule.Alert) {
			t.Errorf("docs/runbooks/%s does not say that it is for the alert %s", page, rule.Alert)
		}
	}
}

func TestAlertsCanBeChanged(t *testing.T) {
	find := func(rules []monitoringv1.Rule, name string) *monitoringv1.Rule {
		for i := range rules {
			if rules[i].Alert == name {
				return &rules[i]
			}
		}
		return nil
	}
	rules := alerts(t, values{
		"disabled": []any{"DrawbridgeDown"}, "alertLabels": values{"team": "x", "severity": "page"},
		"runbookURL": "https://example.com/books", "requestStuckSeconds": 2000000,
	})
	if find(rules, "DrawbridgeDown") != nil {
		t.Error("the disabled alert is there")
	}
	stuck := find(rules, "DrawbridgeRequestStuck")
	if diff := cmp.Diff(map[string]string{"team": "x", "severity": "warning"}, stuck.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if want := "https://example.com/books/request-stuck.md"; stuck.Annotations["runbook_url"] != want {
		t.Errorf("runbook_url is %s, want %s", stuck.Annotations["runbook_url"], want)
	}
	if expr := stuck.Expr.String(); !strings.HasSuffix(expr, "> 2000000") {
		t.Errorf("the threshold is not the one given: %s", expr)
	}
}

// The alert on the failure policy compares with the one that the values ask for.
func TestTheAlertKnowsTheFailurePolicy(t *testing.T) {
	cases := map[string]struct {
		values values
		want   string
	}{
		"by default":        {values{}, "Ignore"},
		"without the guard": {values{"guard": values{"enabled": false}}, "Fail"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.values["prometheusRule"] = values{"enabled": true}
			for _, rule := range only[*monitoringv1.PrometheusRule](t, render(t, tc.values)).Spec.Groups[0].Rules {
				if rule.Alert == "DrawbridgeFailurePolicyChanged" && !strings.Contains(rule.Expr.String(), `policy="`+tc.want+`"`) {
					t.Errorf("it does not ask for %s: %s", tc.want, rule.Expr.String())
				}
			}
		})
	}
}

func TestTheDashboardIsWellFormed(t *testing.T) {
	objects := render(t, values{"grafanaDashboard": values{"enabled": true}})
	var dashboard struct {
		UID    string `json:"uid"`
		Panels []struct {
			ID      int              `json:"id"`
			Title   string           `json:"title"`
			Targets []map[string]any `json:"targets"`
			GridPos struct{ X, Y, W, H int }
		} `json:"panels"`
	}
	for _, m := range all[*corev1.ConfigMap](objects) {
		if m.Labels["grafana_dashboard"] == "1" {
			if err := json.Unmarshal([]byte(m.Data["drawbridge.json"]), &dashboard); err != nil {
				t.Fatal(err)
			}
		}
	}
	if dashboard.UID != "drawbridge" || len(dashboard.Panels) == 0 {
		t.Fatalf("no dashboard: %+v", dashboard)
	}
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, panel := range dashboard.Panels {
		if ids[panel.ID] {
			t.Errorf("panel %q has the ID of another one", panel.Title)
		}
		ids[panel.ID] = true
		for x := panel.GridPos.X; x < panel.GridPos.X+panel.GridPos.W; x++ {
			for y := panel.GridPos.Y; y < panel.GridPos.Y+panel.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q lies over %q or the edge", panel.Title, other)
				}
				taken[[2]int{x, y}] = panel.Title
			}
		}
	}
}

// Monitors, NetworkPolicy and constraints select the manager's pods, by ports that
// the pods have.
func TestSelectorsFindTheManager(t *testing.T) {
	objects := render(t, values{
		"metrics":       values{"serviceMonitor": values{"enabled": true}},
		"networkPolicy": values{"enabled": true},
		"deployment": values{"topologySpreadConstraints": []any{
			values{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
			values{"maxSkew": 2, "topologyKey": "host", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": values{"matchLabels": values{"a": "b"}}},
		}},
	})
	template := only[*appsv1.Deployment](t, objects).Spec.Template
	ports := map[string]bool{}
	for _, port := range template.Spec.Containers[0].Ports {
		ports[port.Name] = true
	}
	matches := func(what string, selector *metav1.LabelSelector, on map[string]string) {
		t.Helper()
		s, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		if s.Empty() || !s.Matches(labels.Set(on)) {
			t.Errorf("%s selects %s, which is not the manager", what, s)
		}
	}
	policy := only[*networkingv1.NetworkPolicy](t, objects)
	matches("the NetworkPolicy", &policy.Spec.PodSelector, template.Labels)
	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			if !ports[port.Port.StrVal] {
				t.Errorf("the NetworkPolicy lets nobody in: the pods have no port %s", port.Port)
			}
		}
	}
	service := only[*corev1.Service](t, objects)
	monitor := only[*monitoringv1.ServiceMonitor](t, objects)
	matches("the ServiceMonitor", &monitor.Spec.Selector, service.Labels)
	if name := monitor.Spec.Endpoints[0].Port; name != "metrics" || !ports[name] {
		t.Errorf("the ServiceMonitor scrapes port %s", name)
	}
	constraints := template.Spec.TopologySpreadConstraints
	matches("the first constraint", constraints[0].LabelSelector, template.Labels)
	if diff := cmp.Diff(map[string]string{"a": "b"}, constraints[1].LabelSelector.MatchLabels); diff != "" {
		t.Errorf("selector of the second constraint (-want +got):\n%s", diff)
	}
}

// The pod of helm test is not one of the manager's, and runs as it is restricted.
func TestTheSelfTestIsNotAReplica(t *testing.T) {
	objects := render(t, values{"fullnameOverride": "other", "serviceAccount": values{"name": "acct"}})
	pod := only[*corev1.Pod](t, objects)
	if pod.Annotations["helm.sh/hook"] != "test" {
		t.Errorf("it is no test of helm's: %v", pod.Annotations)
	}
	for what, selector := range map[string]map[string]string{
		"the Service":    only[*corev1.Service](t, objects).Spec.Selector,
		"the Deployment": only[*appsv1.Deployment](t, objects).Spec.Selector.MatchLabels,
	} {
		if labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels)) {
			t.Errorf("%s selects it", what)
		}
	}
	manager := only[*appsv1.Deployment](t, objects).Spec.Template.Spec
	if pod.Spec.ServiceAccountName != "acct" || pod.Spec.Containers[0].Image != manager.Containers[0].Image {
		t.Errorf("it runs as %s, with image %s", pod.Spec.ServiceAccountName, pod.Spec.Containers[0].Image)
	}
	if diff := cmp.Diff(manager.SecurityContext, pod.Spec.SecurityContext); diff != "" {
		t.Errorf("security context (-manager +self-test):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"self-test", "--webhook-configuration=other"}, pod.Spec.Containers[0].Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

// What a hardened namespace (the Pod Security Standard "restricted") asks for.
func TestThePodIsRestricted(t *testing.T) {
	spec := only[*appsv1.Deployment](t, render(t, nil)).Spec.Template.Spec
	pod, container := spec.SecurityContext, spec.Containers[0].SecurityContext
	if !*pod.RunAsNonRoot || pod.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("security context of the pod: %v", pod)
	}
	if *container.AllowPrivilegeEscalation || !*container.ReadOnlyRootFilesystem {
		t.Errorf("security context of the container: %v", container)
	}
	if diff := cmp.Diff([]corev1.Capability{"ALL"}, container.Capabilities.Drop); diff != "" {
		t.Errorf("dropped capabilities (-want +got):\n%s", diff)
	}
	if len(spec.TopologySpreadConstraints) != 1 || spec.Affinity.PodAntiAffinity == nil {
		t.Errorf("the replicas are not kept apart: %v, %v", spec.TopologySpreadConstraints, spec.Affinity)
	}
}

// The chart says with which Kubernetes it works, and so does the page for installers.
func TestTheRangeOfKubernetesIsStated(t *testing.T) {
	chart, err := os.ReadFile("drawbridge/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	oldest := regexp.MustCompile(`kubeVersion: ">=(1\.\d+)\.0-0"`).FindSubmatch(chart)
	if oldest == nil {
		t.Fatal("Chart.yaml has no kubeVersion of the form >=1.N.0-0")
	}
	page, err := os.ReadFile("../docs/guides/install.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "Kubernetes "+string(oldest[1])+" or later") {
		t.Errorf("docs/guides/install.md does not say Kubernetes %s or later", oldest[1])
	}
}
