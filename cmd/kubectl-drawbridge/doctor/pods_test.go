package doctor

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

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
		// label of the pods, of which the status counts 2.
		label string
		unready, alwaysAllow, guard,
		behind bool
		want string
	}{
		"as many as there are":               {label: "web", want: "it can never allow a disruption (minAvailable is 2 of 2 pods): no drain of a node with its pods ends"},
		"those that are not ready may go":    {label: "web", alwaysAllow: true, want: "it can never allow the disruption of a pod that is ready (minAvailable is 2 of 2 pods): no drain of a node with its pods ends"},
		"a StatefulSet may still make more":  {label: "web", unready: true},
		"the pods have lost the label":       {label: "former"},
		"a status of an older generation":    {label: "web", behind: true},
		"Drawbridge's own is meant to block": {label: "web", guard: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fine()
			b := builder.Budget("shop", "web").Generation(2).Selects("app", "web").MinAvailable("2").Obj()
			b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, ExpectedPods: 2, CurrentHealthy: 2, DesiredHealthy: 2}
			if tc.behind {
				b.Status.ObservedGeneration = 1
			}
			if tc.alwaysAllow {
				b.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
			}
			if tc.guard {
				b.Labels = map[string]string{"drawbridge.dev/guard-budget": "true"}
			}
			f.Budgets = append(f.Budgets, *b)
			for _, name := range []string{"web-0", "web-1"} {
				w := builder.Pod("shop", name).Label("app", tc.label).OwnedBy("StatefulSet", "web")
				if !tc.unready {
					w.Ready()
				}
				f.Pods = append(f.Pods, *w.Obj())
			}
			wantFinding(t, only(t, f, "blocking-budgets"), tc.want)
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
				f.Pods = []corev1.Pod{*builder.Pod("shop", "web-0").Label("app", "web").Obj(), *builder.Pod("shop", "web-1").Label("app", "web").Obj()}
			}
			wantFinding(t, only(t, f, "blocking-budgets"), tc.want)
		})
	}
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
