//go:build unix

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// A budget that can never allow is told alike everywhere, as what it is; callers hear the
// same as of any other budget. What was said is taken back when the budget changes, although
// it still refuses.
func TestABudgetThatCanNeverAllowIsToldAlikeEverywhere(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	const name, says = "flush.example.com", "can never allow a disruption (maxUnavailable is 0)"
	web := builder.Deployment(namespace, "web").Replicas(3).Pods(onNodesOf(namespace, intercepted(name))).Obj()
	create(t, web)
	pod := readyPods(t, namespace, 3, node)[0]
	budget := createBudget(t, builder.Budget(namespace, "web").Selects(builder.AppLabel, "web").MaxUnavailable("0").Obj(), 3)
	tells := func(command, text string) {
		t.Helper()
		if printed := plugin(t, strings.Fields(command)...); !strings.Contains(printed, text) {
			t.Errorf("%s: want %q in:\n%s", command, text, printed)
		}
	}
	tells("drain "+node+" --dry-run=client", "be evicted after "+name+"; budget web "+says)
	tells("forecast "+node, "by PodDisruptionBudget web, because it "+says)
	tells("why "+pod.Name+" -n "+namespace, "Then budget web "+says+", unless an interceptor makes room for it.")

	m := maintain(t, ofNamespace(namespace, "").Drain())
	waitRequest(t, &pod, "in the hands of the interceptor", activeIs(name))
	plugin(t, "skip", pod.Name, name, "-n", namespace, "--reason=nothing to flush")
	er := waitRequest(t, &pod, "blocked", blocked)
	want := &v1alpha1.EvictionRefusal{Reason: "BudgetNeverAllows", Budgets: []string{"web"}, Message: "PodDisruptionBudget web " + says + "."}
	if diff := gocmp.Diff(want, lastReport(er).Refusal); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
	saysAll(t, "the event", waitEvent(t, &pod, "BudgetNeverAllows").Note, "PodDisruptionBudget web "+says+".", "needs 3 healthy pods and has 3 currently")
	blocks := func(reason v1alpha1.BlockReason, message string) func(*v1alpha1.NodeMaintenance) bool {
		return func(m *v1alpha1.NodeMaintenance) bool {
			for _, n := range m.Status.Nodes {
				for _, b := range n.BlockingPods {
					if b.Name == pod.Name && b.Reason == reason && strings.Contains(b.Message, message) {
						return true
					}
				}
			}
			return false
		}
	}
	waitMaintenance(t, m, "blocked for good", blocks(v1alpha1.BlockBudgetNeverAllows, want.Message))
	tells("status", "BudgetNeverAllows: "+want.Message)
	if told := storyOf(t, &pod, 0); told.Verdict != why.VerdictBudgetNeverAllows || told.Headline != "All interceptors are done; budget web "+says+"." {
		t.Errorf("verdict %s: %s", told.Verdict, told.Headline)
	}
	evictUntil(t, "alice", &pod, "The disruption budget web needs 3 healthy pods and has 3 currently")

	// One may be unavailable now, and one is: it finds no place on the cordoned node.
	patch(t, web, func() { web.Spec.Replicas = new(int32(4)) })
	eventually(t, "the fourth replica to be counted", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(budget), budget); err != nil {
			return err
		}
		if budget.Status.ExpectedPods != 4 {
			return fmt.Errorf("status %+v", budget.Status)
		}
		return nil
	})
	patch(t, budget, func() { budget.Spec.MaxUnavailable = new(intstr.FromInt32(1)) })
	waitRequest(t, &pod, "refused for now only", func(er *v1alpha1.EvictionRequest) bool {
		r := lastReport(er).Refusal
		return r != nil && r.Reason == "EvictionBlocked"
	})
	waitMaintenance(t, m, "blocked for now", blocks(v1alpha1.BlockEvictionRefused, "waiting for budget web: "))
	lives(t, &pod)
	patch(t, budget, func() { budget.Spec.MaxUnavailable = new(intstr.FromInt32(2)) })
	gone(t, &pod)
}

// Kubernetes does not look at a budget again when a pod loses its label. What is said of it
// is counted, not read.
func TestWhatABudgetCountsIsNotReadFromAnOldStatus(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	primary := func(name string) *corev1.Pod {
		return createPod(t, builder.Pod(namespace, name).Node(node).Label("role", "primary").Label("db", "main").Obj())
	}
	kept, former := primary("kept"), primary("former")
	budget := createBudget(t, builder.Budget(namespace, "primary").Selects("role", "primary").MinAvailable("1").Obj(), 2)
	// Kubernetes looks at a budget once more when it has written its status, and has done so when it
	// has counted a younger one.
	createBudget(t, builder.Budget(namespace, "younger").Selects("role", "nobody").MinAvailable("1").Obj(), 0)
	patch(t, former, func() { former.Labels["role"] = "replica" })

	told := storyOf(t, kept, 0)
	if diff := gocmp.Diff([]why.Budget{{Name: "primary", Allows: true, Why: "allows 1 more; 1 of 1 pods healthy, 1 needed"}}, told.Budgets); diff != "" {
		t.Errorf("budgets (-want +got):\n%s", diff)
	}
	if told := storyOf(t, former, 0); len(told.Budgets) != 0 || told.Verdict != why.VerdictNothingBlocks {
		t.Errorf("verdict %s, budgets %v", told.Verdict, told.Budgets)
	}
	if printed := plugin(t, "forecast", node, "--force"); strings.Contains(printed, "PodDisruptionBudget primary") {
		t.Errorf("a forecast names the budget, although the API server lets go what the status allows:\n%s", printed)
	}
	now := &policyv1.PodDisruptionBudget{}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(budget), now); err != nil {
		t.Fatal(err)
	}
	if now.Status.ExpectedPods != 2 {
		t.Errorf("Kubernetes counts again by itself: %+v", now.Status)
	}
	newNative(t, namespace, "rebalancer", "rebalancer.example.com").apply(t, kept, true)
	gone(t, kept) // As foretold.
}
