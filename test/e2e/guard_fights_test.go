//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// failover intercepts the pods of these tests.
const failover = "failover.example.com"

// guardFlips is how often the guard of one pod may move while nothing about it changes.
const guardFlips = 2

// goesOn takes pods of the namespace from their first eviction to their last, so that
// a guard that cannot rest has the time to show it.
func goesOn(t *testing.T, namespace, node string, rebalancer native, complete func(*corev1.Pod)) {
	t.Helper()
	for i := range 3 {
		name := fmt.Sprintf("other-%d", i)
		pod := createPod(t, builder.Pod(namespace, name).Node(node).Interceptors(failover).Obj())
		rebalancer.apply(t, pod, true)
		waitGuard(t, pod, true)
		complete(pod)
		gone(t, pod)
	}
}

// podWrites are the labels that we put on a pod and took off it.
func podWrites(t *testing.T, mark cluster.Mark, namespace, name string) cluster.Requests {
	t.Helper()
	return since(t, mark).By(drawbridge()).Where(func(r cluster.Request) bool {
		return r.Verb == "patch" && r.Resource == "pods" && r.Namespace == namespace && r.Name == name
	})
}

// Anybody who may edit a namespace can make such a budget. It selects a pod when its
// guard is closed, and only then: no reason to open it, and close it, and open it.
func TestABudgetThatSelectsTheGuardsLabelMovesNoGuard(t *testing.T) {
	m, _ := startGuarded(t, func(o *app.Options) { noTimer(o); onlyTheGuard(o) })
	selectors := map[string]metav1.LabelSelector{
		"the label":            {MatchLabels: map[string]string{v1alpha1.GuardLabel: v1alpha1.GuardClosed}},
		"the label and theirs": {MatchLabels: map[string]string{v1alpha1.GuardLabel: v1alpha1.GuardClosed, builder.AppLabel: "db"}},
		"any label of its key": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: v1alpha1.GuardLabel, Operator: metav1.LabelSelectorOpExists}}},
		"pods without it": {
			MatchLabels:      map[string]string{builder.AppLabel: "db"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: v1alpha1.GuardLabel, Operator: metav1.LabelSelectorOpDoesNotExist}},
		},
	}
	for name, selector := range selectors {
		t.Run(name, func(t *testing.T) {
			namespace := kube.Namespace(t)
			node := addNodes(t, namespace, 1)[0]
			rebalancer := newNative(t, namespace, "rebalancer", "rebalancer.example.com")
			pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Change(ofApp("db")).Interceptors(failover).Obj())
			mark := kube.RequestLog().Mark()
			stranger := builder.Budget(namespace, "stranger").MinAvailable("0").Obj()
			stranger.Spec.Selector = &selector
			create(t, stranger)
			rebalancer.apply(t, pod, true)
			waitGuard(t, pod, true)
			goesOn(t, namespace, node, rebalancer, func(pod *corev1.Pod) { complete(t, pod, failover, m.Clock.Now) })

			waitGuard(t, pod, true)
			if writes := podWrites(t, mark, namespace, pod.Name); len(writes) > guardFlips {
				t.Errorf("the guard of one pod moved %d times while nothing about it changed", len(writes))
			}
			waitEvent(t, stranger, events.ReasonGuardLabelSelected)
			complete(t, pod, failover, m.Clock.Now)
			gone(t, pod)
		})
	}
}

// A controller that selects its pods by the guard's label loses those whose label the
// guard takes off, and makes others, which have it, too.
func TestALabelOfTheGuardInATemplateMakesNoPods(t *testing.T) {
	m, _ := startGuarded(t, noTimer)
	tests := map[string]struct {
		object     func(namespace string) client.Object
		pods       int
		inSelector bool
		// evict: its pods are intercepted.
		evict bool
	}{
		"in the selector of a ReplicaSet":            {func(n string) client.Object { return born(n, true).replicaSet() }, 2, true, false},
		"in the selector of one that is intercepted": {func(n string) client.Object { return born(n, true, failover).replicaSet() }, 2, true, true},
		"in its template alone":                      {func(n string) client.Object { return born(n, false).replicaSet() }, 2, false, false},
		"in the template of intercepted pods":        {func(n string) client.Object { return born(n, false, failover).replicaSet() }, 2, false, true},
		"in the selector of a StatefulSet":           {func(n string) client.Object { return born(n, true, failover).statefulSet() }, 2, true, true},
		"in that of a ReplicationController":         {func(n string) client.Object { return born(n, true).replicationController() }, 2, true, false},
		"in that of a DaemonSet":                     {func(n string) client.Object { return born(n, true).daemonSet() }, 1, true, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := kube.Namespace(t)
			node := addNodes(t, namespace, 1)[0]
			rebalancer := newNative(t, namespace, "rebalancer", "rebalancer.example.com")
			mark := kube.RequestLog().Mark()
			owner := tc.object(namespace)
			create(t, owner)
			pods := readyPods(t, namespace, tc.pods, node)
			goesOn(t, namespace, node, rebalancer, func(pod *corev1.Pod) { complete(t, pod, failover, m.Clock.Now) })
			made := since(t, mark).Where(func(r cluster.Request) bool {
				return r.Verb == "create" && r.Resource == "pods" && r.Subresource == "" && r.Namespace == namespace && strings.HasSuffix(r.User, "-controller")
			})
			if len(made) != tc.pods {
				t.Errorf("want %d pods made by their controller, got %d", tc.pods, len(made))
			}
			if tc.inSelector {
				waitEvent(t, owner, events.ReasonGuardLabelLeft)
			} else {
				waitGuard(t, &pods[0], false)
			}
			if !tc.evict {
				return
			}
			// It is not held for ever either.
			rebalancer.apply(t, &pods[0], true)
			waitGuard(t, &pods[0], true)
			complete(t, &pods[0], failover, m.Clock.Now)
			gone(t, &pods[0])
		})
	}
}

// bornClosed makes controllers whose pods are born with the guard's label.
type bornClosed struct {
	meta     metav1.ObjectMeta
	template corev1.PodTemplateSpec
	selector *metav1.LabelSelector
}

// born has the label in the template, and, if asked for, in the selector.
func born(namespace string, inSelector bool, interceptors ...string) bornClosed {
	template := builder.Deployment(namespace, "db").Pods(onNodesOf(namespace, func(w *builder.PodWrapper) {
		w.Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed)
		if len(interceptors) > 0 {
			w.Interceptors(interceptors...)
		}
	})).Obj().Spec.Template
	selector := map[string]string{builder.AppLabel: "db"}
	if inSelector {
		selector[v1alpha1.GuardLabel] = v1alpha1.GuardClosed
	}
	return bornClosed{metav1.ObjectMeta{Namespace: namespace, Name: "db"}, template, &metav1.LabelSelector{MatchLabels: selector}}
}

func (b bornClosed) replicaSet() client.Object {
	return &appsv1.ReplicaSet{ObjectMeta: b.meta, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(2)), Selector: b.selector, Template: b.template}}
}

func (b bornClosed) statefulSet() client.Object {
	return &appsv1.StatefulSet{ObjectMeta: b.meta, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(2)), ServiceName: "db", Selector: b.selector, Template: b.template}}
}

func (b bornClosed) replicationController() client.Object {
	return &corev1.ReplicationController{ObjectMeta: b.meta, Spec: corev1.ReplicationControllerSpec{
		Replicas: new(int32(2)), Selector: b.selector.MatchLabels, Template: &b.template,
	}}
}

func (b bornClosed) daemonSet() client.Object {
	return &appsv1.DaemonSet{ObjectMeta: b.meta, Spec: appsv1.DaemonSetSpec{Selector: b.selector, Template: b.template}}
}

// A policy engine writes one more field into every budget. What matters is as the guard
// wants it, so it protects, and does not go on writing.
func TestABudgetWithOneMoreFieldIsInForceAndTold(t *testing.T) {
	m, _ := startGuarded(t, noTimer)
	namespace := kube.Namespace(t)
	mutateBudgets(t, namespace, `Object{spec: Object.spec{unhealthyPodEvictionPolicy: "AlwaysAllow"}}`)
	node := addNodes(t, namespace, 1)[0]
	mark := kube.RequestLog().Mark()
	rebalancer := newNative(t, namespace, "rebalancer", "rebalancer.example.com")
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors(failover).Obj())
	rebalancer.apply(t, pod, true)
	waitGuard(t, pod, true)
	budget := guardBudget(t, namespace)
	if got := budget.Spec.UnhealthyPodEvictionPolicy; got == nil || *got != policyv1.AlwaysAllow {
		t.Fatalf("the policy has not written its field: %+v", budget.Spec)
	}
	event := waitEvent(t, budget, events.ReasonGuardBudgetChanged)
	saysAll(t, "the event", event.Note, "spec.unhealthyPodEvictionPolicy")

	goesOn(t, namespace, node, rebalancer, func(pod *corev1.Pod) { complete(t, pod, failover, m.Clock.Now) })
	writes := since(t, mark).By(drawbridge()).Where(func(r cluster.Request) bool {
		return r.Resource == "poddisruptionbudgets" && r.Namespace == namespace && r.Writes()
	})
	if len(writes) > 6 {
		t.Errorf("the budget was written %d times", len(writes))
	}
	complete(t, pod, failover, m.Clock.Now)
	gone(t, pod)
}

// Without its owner the budget would outlive the installation.
func TestABudgetThatLostItsOwnerGetsItBack(t *testing.T) {
	startGuarded(t, noTimer)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors(failover).Obj())
	newNative(t, namespace, "rebalancer", "rebalancer.example.com").apply(t, pod, true)
	waitGuard(t, pod, true)
	want := guardBudget(t, namespace).OwnerReferences
	if len(want) != 1 {
		t.Fatalf("want one owner, got %v", want)
	}
	for what, owners := range map[string]string{
		"somebody takes it away":             `null`,
		"somebody puts another in its place": `[{"apiVersion":"v1","kind":"Namespace","name":"` + namespace + `","uid":"6f1f3f3e-0000-0000-0000-000000000000"}]`,
	} {
		t.Run(what, func(t *testing.T) {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"ownerReferences":`+owners+`}}`))
			if err := admin.Patch(t.Context(), guardBudget(t, namespace), patch); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the budget to have its owner", func(ctx context.Context) error {
				pdb := &policyv1.PodDisruptionBudget{} // One without a living owner may be collected, and made again.
				if err := admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.GuardBudgetName}, pdb); err != nil {
					return err
				}
				if !slices.Contains(pdb.OwnerReferences, want[0]) {
					return fmt.Errorf("it has %v", pdb.OwnerReferences)
				}
				return nil
			})
		})
	}
}

// guardBudget is the guard's budget of a namespace.
func guardBudget(t *testing.T, namespace string) *policyv1.PodDisruptionBudget {
	t.Helper()
	pdb := &policyv1.PodDisruptionBudget{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: v1alpha1.GuardBudgetName}, pdb); err != nil {
		t.Fatal(err)
	}
	return pdb
}

// createMutating creates MutatingAdmissionPolicies and their bindings for the time of a test, which
// is left out where there are none.
func createMutating(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		err := admin.Create(t.Context(), object)
		if meta.IsNoMatchError(err) {
			t.Skip("this Kubernetes has no MutatingAdmissionPolicy")
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := admin.Delete(context.Background(), object); err != nil {
				t.Error(err)
			}
		})
	}
}

// mutateBudgets applies a configuration to all budgets of a namespace, as a policy
// engine does, and waits until it does.
func mutateBudgets(t *testing.T, namespace, expression string) {
	t.Helper()
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"policy"}, APIVersions: []string{"v1"}, Resources: []string{"poddisruptionbudgets"}},
				},
			}}},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: expression},
			}},
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		},
	}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: namespace,
			MatchResources: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			},
		},
	}
	createMutating(t, policy, binding)
	eventually(t, "the policy to mutate budgets", func(ctx context.Context) error {
		tried := builder.Budget(namespace, "tried").Selects("none", "none").MinAvailable("1").Obj()
		before := tried.Spec.DeepCopy()
		if err := admin.Create(ctx, tried, client.DryRunAll); err != nil {
			return err
		}
		if tried.Spec.UnhealthyPodEvictionPolicy == before.UnhealthyPodEvictionPolicy {
			return errors.New("it does not yet")
		}
		return nil
	})
}

// People who meet the budget in a drain read what it is for, also on one that an older
// version made. Another text is left to whoever wrote it.
func TestTheGuardsBudgetSaysWhatItIsFor(t *testing.T) {
	startGuarded(t, noTimer)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors(failover).Obj())
	rebalancer := newNative(t, namespace, "rebalancer", "rebalancer.example.com")
	rebalancer.apply(t, pod, true)
	waitGuard(t, pod, true)
	const key = "kubernetes.io/description"
	described := func(t *testing.T, text string) {
		t.Helper()
		eventually(t, "the budget to say what it is for", func(context.Context) error {
			if got := guardBudget(t, namespace).Annotations[key]; !strings.Contains(got, text) {
				return fmt.Errorf("it says %q", got)
			}
			return nil
		})
	}
	describe := func(t *testing.T, value string) {
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+key+`":`+value+`}}}`))
		if err := admin.Patch(t.Context(), guardBudget(t, namespace), patch); err != nil {
			t.Fatal(err)
		}
	}
	described(t, "Drawbridge's guard.")
	describe(t, "null")
	described(t, "nothing can meet 2147483647")

	describe(t, `"Ask the platform team."`)
	mark := kube.RequestLog().Mark()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"minAvailable":1}}`))
	if err := admin.Patch(t.Context(), guardBudget(t, namespace), patch); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the repair of the number", func(context.Context) error {
		if got := guardBudget(t, namespace).Spec.MinAvailable.IntValue(); got != 2147483647 {
			return fmt.Errorf("it is %d", got)
		}
		return nil
	})
	described(t, "Ask the platform team.")
	writes := since(t, mark).By(drawbridge()).Where(func(r cluster.Request) bool {
		return r.Resource == "poddisruptionbudgets" && r.Namespace == namespace && r.Writes() && r.Code != http.StatusConflict
	})
	if len(writes) != 1 {
		t.Errorf("want one write that is taken, the repair of the number:\n%s", writes)
	}
}
