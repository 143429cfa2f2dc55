//go:build unix

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// mayDelete lets the manager delete pods that a PodDisruptionBudget can never let go.
func mayDelete(o *app.Options) { o.Budgets.Exhausted = true }

// consented is how long the pods stay nevertheless. The clock flows while a test looks at that, and
// a kubectl that is silent for so long still counts.
const consented = 2 * time.Minute

// consents is an EvictionBudget that lets all pods go at a time, and consents that they are
// deleted after that.
func consents(b *builder.EvictionBudgetWrapper) { b.MaxUnavailable("100%").Exhausted(consented) }

// behind puts the pods of a paced namespace behind a PodDisruptionBudget that needs so many.
func (p *paced) behind(t *testing.T, minAvailable int) {
	t.Helper()
	createBudget(t, builder.Budget(p.namespace, "quorum").Selects(builder.AppLabel, pacedSet).MinAvailable(fmt.Sprint(minAvailable)).Obj(), int32(len(p.pods)))
}

// refusedUntil wants that the last stage says from when on the pod is deleted.
func refusedUntil(er *v1alpha1.EvictionRequest) bool {
	return blocked(er) && lastReport(er).ExpectedFinishTime != nil
}

// deletionsBy are the pods that a user has deleted.
func deletionsBy(requests cluster.Requests, user, namespace string) cluster.Requests {
	return requests.By(user).Where(func(r cluster.Request) bool {
		return r.Resource == "pods" && r.Subresource == "" && r.Verb == "delete" && r.Namespace == namespace
	})
}

// The only pod of a StatefulSet, which its PodDisruptionBudget can never let go, is deleted when
// the time of its EvictionBudget is over, and everybody is told before.
func TestASingletonGoesInSpiteOfItsBudget(t *testing.T) {
	m := startManager(t, mayDelete)
	p := newPaced(t, 1, consents)
	p.behind(t, 1)
	p.room(t)
	waitBudget(t, p.budget, "consent", budgetIs(v1alpha1.ConditionExhausted, metav1.ConditionTrue, v1alpha1.ReasonExhaustedEvicts, "deleted after 2m0s"))
	pod := &p.pods[0]
	drain := startDrain(t, "alice", p.node)
	er := waitRequest(t, pod, "told when it goes", refusedUntil)
	refusal, at := lastReport(er).Refusal, lastReport(er).ExpectedFinishTime.UTC().Format(time.RFC3339)
	saysAll(t, "the refusal", refusal.Message, "PodDisruptionBudget quorum can never allow a disruption (minAvailable is 1 of 1 pod).", "EvictionBudget pace has the pod deleted from "+at+" on.")
	if refusal.Reason != "EvictionBlocked" {
		t.Errorf("the reason is %s, as if somebody had to act", refusal.Reason)
	}
	evictUntil(t, "alice", pod, "disruption budget quorum can never allow it, the pod is deleted from "+at+" on")
	p.live(t)

	mark := kube.RequestLog().Mark()
	m.Clock.Advance(consented)
	gone(t, pod)
	waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	const says = "Pod db-0: The pod is deleted in spite of PodDisruptionBudget quorum, as EvictionBudget pace says."
	for _, about := range []client.Object{pod, er, p.budget} {
		if note := waitEvent(t, about, "DeletedDespiteBudget").Note; note != says {
			t.Errorf("the event of %T: %q", about, note)
		}
	}
	finishWell(t, drain)
	if calls := deletionsBy(since(t, mark), drawbridge(), p.namespace); len(calls) != 1 {
		t.Errorf("want one deletion, got:\n%s", calls)
	}
	waitBudget(t, p.budget, "forget it when the place is filled", func(s *v1alpha1.EvictionBudgetStatus) bool { return len(s.Grants) == 0 })
}

// What must be true besides the time is asked again before the deletion.
func TestASingletonStays(t *testing.T) {
	m := startManager(t, mayDelete)
	window, opens := closedWindow()
	cases := map[string]struct {
		needs  int
		change func(*testing.T, *paced)
		says   string
	}{
		"outside of the windows": {1, func(t *testing.T, p *paced) {
			p.spec(t, func(s *v1alpha1.EvictionBudgetSpec) { s.Windows = []v1alpha1.BudgetWindow{window} })
		}, "EvictionBudget pace has the pod deleted from " + opens.Format(time.RFC3339) + " on."},
		"by a condition": {1, func(t *testing.T, p *paced) {
			p.spec(t, func(s *v1alpha1.EvictionBudgetSpec) {
				s.Conditions = []v1alpha1.MatchCondition{{Name: "quiet", Expression: "false"}}
			})
		}, "condition quiet is not true (EvictionBudget pace)."},
		"when it says Wait": {1, func(t *testing.T, p *paced) {
			p.spec(t, func(s *v1alpha1.EvictionBudgetSpec) { s.Exhausted.Action = v1alpha1.ExhaustedWait })
		}, "can never allow a disruption (minAvailable is 1 of 1 pod)."},
		"behind one that needs more than there are": {2, func(*testing.T, *paced) {}, "does not count as many healthy pods as it expects and asks for."},
	}
	worlds, retries := map[string]*paced{}, map[string]int32{}
	for name, tc := range cases {
		p := newPaced(t, 1, consents)
		p.behind(t, tc.needs)
		p.room(t)
		worlds[name] = p
		newNative(t, p.namespace, "rebalancer", "rebalancer.example.com").apply(t, &p.pods[0], true)
		waitRequest(t, &p.pods[0], "told when it goes", refusedUntil)
		tc.change(t, p)
		waitBudget(t, p.budget, "be read", func(*v1alpha1.EvictionBudgetStatus) bool { return true })
		retries[name] = lastReport(waitRequest(t, &p.pods[0], "blocked", blocked)).Retries
	}
	m.Clock.Advance(2 * consented)
	for name, tc := range cases {
		p := worlds[name]
		waitRequest(t, &p.pods[0], "refused again: "+name, func(er *v1alpha1.EvictionRequest) bool {
			last := lastReport(er)
			return last.Retries > retries[name] && last.Refusal != nil && strings.HasSuffix(last.Refusal.Message, tc.says)
		})
		lives(t, &p.pods[0])
	}
}

// Without the permission, an EvictionBudget that says Evict says why that does not happen.
func TestASingletonWaitsIfTheManagerMustNotDelete(t *testing.T) {
	shareManager(t)
	p := newPaced(t, 1, consents)
	p.behind(t, 1)
	waitBudget(t, p.budget, "say that it is off", budgetIs(v1alpha1.ConditionExhausted, metav1.ConditionFalse, v1alpha1.ReasonExhaustedOff, "budgets.exhausted.enabled"))
	newNative(t, p.namespace, "rebalancer", "rebalancer.example.com").apply(t, &p.pods[0], true)
	er := waitRequest(t, &p.pods[0], "blocked", blocked)
	saysAll(t, "the refusal", lastReport(er).Refusal.Message, "EvictionBudget pace would have the pod deleted, but Drawbridge must not delete pods here")
	if got := lastReport(er); got.Refusal.Reason != "BudgetNeverAllows" || got.ExpectedFinishTime != nil {
		t.Errorf("it says that the pod goes: %+v", got)
	}
	p.live(t)
}

// Two pods that one PodDisruptionBudget can never let go, and that the EvictionBudget has let go
// at the same time, are deleted one after the other.
func TestTwoSingletonsGoOneAfterTheOther(t *testing.T) {
	m := startManager(t, mayDelete)
	p := newPaced(t, 2, consents)
	p.behind(t, 2)
	p.room(t)
	watcher := p.watch(t)
	rebalancer := newNative(t, p.namespace, "rebalancer", "rebalancer.example.com")
	for i := range p.pods {
		rebalancer.apply(t, &p.pods[i], true)
		waitRequest(t, &p.pods[i], "told when it goes", refusedUntil)
	}
	mark := kube.RequestLog().Mark()
	m.Clock.Advance(consented)
	// Whoever is second asks again each minute.
	cluster.Eventually(t, "both pods to be deleted", func(ctx context.Context) error {
		left := 0
		for i := range p.pods {
			now := &corev1.Pod{}
			if err := admin.Get(ctx, client.ObjectKeyFromObject(&p.pods[i]), now); err == nil && now.UID == p.pods[i].UID {
				left++
			}
		}
		if left > 0 {
			m.Clock.Advance(10 * time.Second)
			return fmt.Errorf("%d are there", left)
		}
		return nil
	})
	oneAtATime(t, watcher, pacedSet)
	if calls := deletionsBy(since(t, mark), drawbridge(), p.namespace); len(calls) != 2 {
		t.Errorf("want two deletions, got:\n%s", calls)
	}
}

// Who may have pods deleted is who may delete them, and what the manager records and deletes is
// kept within bounds.
func TestThePoliciesOfExhaustedBudgets(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	const authors, records, deletions = "evictionbudget-exhausted.drawbridge.dev", "manager-deletion-records.drawbridge.dev", "manager-deletions.drawbridge.dev"
	budgets := rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"evictionbudgets"}, Verbs: []string{"create"}}
	some := newAccount(t, namespace, "some", budgets)
	all := newAccount(t, namespace, "all", budgets, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"delete"}})
	mustDeny(t, answerTo(t, func(ctx context.Context) error {
		return some.status.Create(ctx, budgetOf(t, namespace, "evicts", `{"exhausted":{"action":"Evict"}}`), client.DryRunAll)
	}), authors, `the verb "delete" on resource "pods"`)
	allowed(t, "whoever may delete pods", func(ctx context.Context) error {
		return all.status.Create(ctx, budgetOf(t, namespace, "evicts", `{"exhausted":{"action":"Evict"}}`), client.DryRunAll)
	})
	if err := answerTo(t, func(ctx context.Context) error {
		return some.status.Create(ctx, budgetOf(t, namespace, "waits", `{"exhausted":{"action":"Wait"}}`), client.DryRunAll)
	}); err != nil {
		t.Errorf("whoever waits: %v", err)
	}

	thief := must(client.New(managersConfig(t), client.Options{Scheme: scheme}))(t)
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(addNodes(t, namespace, 1)[0]).Obj())
	mustDeny(t, thief.Delete(t.Context(), pod, client.DryRunAll), deletions, "without the precondition of its UID")
	mustDeny(t, thief.Delete(t.Context(), pod, client.DryRunAll, client.Preconditions{UID: &pod.UID}, client.GracePeriodSeconds(0)), deletions, "less than its own grace period")
	if err := thief.Delete(t.Context(), pod, client.DryRunAll, client.Preconditions{UID: &pod.UID}); err != nil {
		t.Errorf("a pod with its UID: %v", err)
	}
	for name, want := range map[string]string{"waits": "unless spec.exhausted.action is Evict", "evicts": ""} {
		b := builder.EvictionBudget(namespace, name, builder.AppLabel, "nobody").Exhausted(time.Minute).Obj()
		if want != "" {
			b.Spec.Exhausted.Action = v1alpha1.ExhaustedWait
		}
		create(t, b)
		err := answerTo(t, func(ctx context.Context) error {
			now := &v1alpha1.EvictionBudget{}
			if err := admin.Get(ctx, client.ObjectKeyFromObject(b), now); err != nil {
				return err
			}
			now.Status.Grants = []v1alpha1.BudgetGrant{{PodUID: "1", Pod: "db-0", Request: "2", DisruptionBudget: "quorum", Time: metav1.NowMicro()}}
			return thief.Status().Update(ctx, now, client.DryRunAll)
		})
		if want != "" {
			mustDeny(t, err, records, want)
		} else if err != nil {
			t.Errorf("the record of one that says Evict: %v", err)
		}
	}
}
