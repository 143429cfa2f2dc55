//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// presetPolicy reads a policy of the chart.
func presetPolicy(t *testing.T, name string) *v1alpha1.EvacuationPolicy {
	t.Helper()
	return must(install.PresetPolicy(filepath.Join("..", "..", "charts", "drawbridge"), name))(t)
}

func readPolicy(t *testing.T, file string) *v1alpha1.EvacuationPolicy {
	t.Helper()
	data := must(os.ReadFile(file))(t)
	p := &v1alpha1.EvacuationPolicy{}
	if err := yaml.UnmarshalStrict(data, p); err != nil {
		t.Fatal(err)
	}
	return p
}

// ownPolicy creates a policy for the pods with a label of the test's own, and its
// registration.
func ownPolicy(t *testing.T, namespace string, p *v1alpha1.EvacuationPolicy, change func(*v1alpha1.EvacuationPolicySpec)) *v1alpha1.EvacuationPolicy {
	t.Helper()
	p.Name = p.Name + "-" + namespace
	p.Spec.Interceptor = nameIn(namespace, "vm.example.com")
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"kubevirt.io": "of-" + namespace}}
	p.Spec.Pods.Selector = selector
	if change != nil {
		change(&p.Spec)
	}
	create(t, p)
	registration := &v1alpha1.EvictionInterceptor{
		ObjectMeta: metav1.ObjectMeta{Name: p.Spec.Interceptor},
		Spec:       v1alpha1.EvictionInterceptorSpec{PodSelector: selector},
	}
	create(t, registration)
	t.Cleanup(func() {
		// The test's own context has ended by now.
		for _, object := range []client.Object{p, registration} {
			if err := client.IgnoreNotFound(admin.Delete(context.Background(), object)); err != nil {
				t.Error(err)
			}
		}
	})
	waitPolicy(t, p.Name, v1alpha1.ConditionAccepted, metav1.ConditionTrue, "")
	return p
}

// A platform nobody has heard of, with other fields and a status subresource, by
// nothing but an EvacuationPolicy.
func TestAnInventedPlatform(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	policy := &v1alpha1.EvacuationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "hyper"}, Spec: v1alpha1.EvacuationPolicySpec{
		Workload: &v1alpha1.WorkloadReference{APIVersion: "hyper.example.com/v2", Kind: "Guest", Name: "pod.metadata.labels['guest']"},
		Strategy: "workload.spec.onDrain == 'move' ? 'LiveMigrate' : 'None'", Migratable: "workload.spec.movable",
		Mark: &v1alpha1.WorkloadPatch{Subresource: "status", Operations: []v1alpha1.PatchOperation{
			{Op: "test", Path: "/status/host", Value: "pod.spec.nodeName"},
			{Op: "add", Path: "/status/leave", Value: "{'host': pod.spec.nodeName, 'by': request.requesters[0]}"},
		}},
		Unmark:     &v1alpha1.WorkloadPatch{Subresource: "status", Operations: []v1alpha1.PatchOperation{{Op: "remove", Path: "/status/leave"}}},
		Evacuating: "has(workload.status.leave) && workload.status.leave.host == pod.spec.nodeName",
		Done:       "workload.status.host != pod.spec.nodeName",
		Message:    "'Hyper moves it.'", ETA: "has(workload.status.eta) ? workload.status.eta : ''",
	}}
	policy = ownPolicy(t, namespace, policy, nil)
	waitPolicy(t, policy.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	guest := vmcrds.New(vmcrds.Guest, namespace, "g", map[string]any{"spec.onDrain": "move", "spec.movable": true})
	create(t, guest)
	vmcrds.Set(guest, "status.host", nodes[0])
	if err := admin.Status().Update(t.Context(), guest); err != nil {
		t.Fatal(err)
	}
	pod := createPod(t, builder.Pod(namespace, "guest-g").Node(nodes[0]).Label("kubevirt.io", "of-"+namespace).Label("guest", "g").Obj())

	drain := startDrain(t, "alice", nodes[0], "--force")
	eventually(t, "the guest to be told to leave", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(guest), guest); err != nil {
			return err
		}
		if vmcrds.Text(guest, "status.leave.host") != nodes[0] {
			return fmt.Errorf("status: %v", guest.Object["status"])
		}
		return nil
	})
	if by := vmcrds.Text(guest, "status.leave.by"); !strings.HasPrefix(by, "alice.users") {
		t.Errorf("by: %q", by)
	}
	waitRequest(t, pod, "followed", says(policy.Spec.Interceptor, "Eviction triggered evacuation of Guest "+namespace+"/g. Hyper moves it."))
	lives(t, pod)
	vmcrds.Set(guest, "status.host", nodes[1])
	if err := admin.Status().Update(t.Context(), guest); err != nil {
		t.Fatal(err)
	}
	result := finishWell(t, drain)
	saysAll(t, "standard output", result.Stdout, "node/"+nodes[0]+" drained")
	gone(t, pod)
}

// Strimzi's way: the pod itself is the workload.
func TestThePodItselfIsMarked(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 1)
	policy := ownPolicy(t, namespace, presetPolicy(t, "strimzi"), func(s *v1alpha1.EvacuationPolicySpec) { s.Pods.MatchConditions = nil })
	waitPolicy(t, policy.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	pod := createPod(t, builder.Pod(namespace, "kafka-0").Node(nodes[0]).Label("kubevirt.io", "of-"+namespace).Obj())
	if got := evictUntil(t, "alice", pod, policy.Spec.Interceptor); got.code != http.StatusTooManyRequests {
		t.Errorf("want 429, got %d", got.code)
	}
	eventually(t, "the pod to be marked", func(ctx context.Context) error {
		now := &corev1.Pod{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
			return err
		}
		if now.Annotations["strimzi.io/manual-rolling-update"] != "true" {
			return fmt.Errorf("annotations: %v", now.Annotations)
		}
		return nil
	})
	if err := admin.Delete(t.Context(), pod); err != nil { // The operator rolls it.
		t.Fatal(err)
	}
	waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
}

// What is wrong with a policy stands in its conditions.
func TestPoliciesThatDoNotWork(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 1)
	simple := func(name, kind, strategy string) *v1alpha1.EvacuationPolicy {
		return &v1alpha1.EvacuationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.EvacuationPolicySpec{
			Workload: &v1alpha1.WorkloadReference{APIVersion: "kubevirt.io/v1", Kind: kind, Name: "'vm'"},
			Strategy: strategy, Evacuating: "false",
		}}
	}
	own := func(suffix string) func(*v1alpha1.EvacuationPolicySpec) {
		return func(s *v1alpha1.EvacuationPolicySpec) {
			s.Interceptor = nameIn(namespace, suffix+".example.com")
			s.Pods.Selector.MatchLabels = map[string]string{"kubevirt.io": suffix + "-" + namespace}
		}
	}
	createMachine(t, namespace, "vm", nodes[0], "None", "True")

	t.Run("the kind is not installed", func(t *testing.T) {
		p := ownPolicy(t, namespace, simple("absent", "Nothing", "'None'"), own("absent"))
		waitPolicy(t, p.Name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonKindNotInstalled)
	})
	t.Run("Drawbridge may not", func(t *testing.T) {
		p := simple("forbidden", "", "'None'")
		p.Spec.Workload = &v1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "ControllerRevision", Name: "'vm'"}
		p = ownPolicy(t, namespace, p, own("forbidden"))
		waitPolicy(t, p.Name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonForbidden)
	})
	t.Run("an expression reads what is not there", func(t *testing.T) {
		p := ownPolicy(t, namespace, simple("missing", "VirtualMachineInstance", "workload.spec.nothing"), own("missing"))
		waitPolicy(t, p.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
		pod := createPod(t, builder.Pod(namespace, "missing").Node(nodes[0]).Label("kubevirt.io", "missing-"+namespace).Obj())
		got := evictUntil(t, "alice", pod, "Eviction could not be coordinated yet: an interceptor of the pod could not be asked")
		if got.code != http.StatusTooManyRequests {
			t.Errorf("want 429, got %d: %s", got.code, got.body)
		}
		c := waitPolicy(t, p.Name, v1alpha1.ConditionEvaluated, metav1.ConditionFalse, v1alpha1.ReasonEvaluationFailed)
		saysAll(t, "the condition", c.Message, "spec.strategy: no such key: nothing")
		lives(t, pod)
	})
	t.Run("two cover a pod", func(t *testing.T) {
		first := ownPolicy(t, namespace, simple("first", "VirtualMachineInstance", "'None'"), func(s *v1alpha1.EvacuationPolicySpec) {
			own("both")(s)
			s.Priority = 1
		})
		second := simple("second", "VirtualMachineInstance", "'External'")
		second.Name += "-" + namespace
		second.Spec.Interceptor = first.Spec.Interceptor
		second.Spec.Pods.Selector = first.Spec.Pods.Selector
		create(t, second)
		t.Cleanup(func() { _ = admin.Delete(context.Background(), second) }) // The cluster ends soon.
		waitPolicy(t, second.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
		pod := createPod(t, builder.Pod(namespace, "both").Node(nodes[0]).Label("kubevirt.io", "both-"+namespace).Obj())
		evictUntilGranted(t, pod)
		for _, name := range []string{first.Name, second.Name} {
			waitPolicy(t, name, v1alpha1.ConditionExclusive, metav1.ConditionFalse, v1alpha1.ReasonOverlapping)
		}
	})
	t.Run("refused by the API", func(t *testing.T) {
		patch := func(path string) *v1alpha1.WorkloadPatch {
			return &v1alpha1.WorkloadPatch{Operations: []v1alpha1.PatchOperation{{Op: "replace", Path: path, Value: "'evil:1'"}}}
		}
		for name, tc := range map[string]struct {
			change func(*v1alpha1.EvacuationPolicySpec)
			want   string
		}{
			"a mark that is never taken back": {
				func(s *v1alpha1.EvacuationPolicySpec) { s.Mark = patch("/a") }, "mark and unmark belong together",
			},
			"a mark of the pod's image": {
				func(s *v1alpha1.EvacuationPolicySpec) {
					s.Workload, s.Mark, s.Unmark = nil, patch("/spec/containers/0/image"), patch("/metadata/labels/a")
				}, "of a pod only labels and annotations can be marked",
			},
			"a mark of another pod's image": {
				func(s *v1alpha1.EvacuationPolicySpec) {
					s.Workload = &v1alpha1.WorkloadReference{APIVersion: "v1", Kind: "Pod", Name: "'etcd-0'"}
					s.Mark, s.Unmark = patch("/metadata/labels/a"), patch("/spec/containers/0/image")
				}, "of a pod only labels and annotations can be marked",
			},
			"the node as the workload": {
				func(s *v1alpha1.EvacuationPolicySpec) {
					s.Workload = &v1alpha1.WorkloadReference{APIVersion: "v1", Kind: "Node", Name: "pod.spec.nodeName"}
				}, "this kind cannot be a workload",
			},
			"a request as the workload": {
				func(s *v1alpha1.EvacuationPolicySpec) {
					s.Workload = &v1alpha1.WorkloadReference{APIVersion: "drawbridge.dev/v1alpha1", Kind: "EvictionRequest", Name: "pod.metadata.uid"}
				}, "this kind cannot be a workload",
			},
			"requests for the eviction of other pods": {
				func(s *v1alpha1.EvacuationPolicySpec) {
					s.Migration = &v1alpha1.MigrationSpec{
						APIVersion: "drawbridge.dev/v1alpha1", Kind: "EvictionRequest", WorkloadName: "''", Finished: "true", Failed: "false", Ours: "true",
					}
				}, "this kind cannot stand for a migration",
			},
			"a strategy in ${}": {
				func(s *v1alpha1.EvacuationPolicySpec) { s.Strategy = "${workload.spec.evictionStrategy}" }, "here write the expression alone",
			},
			"a strategy in ${} that is not closed": {
				func(s *v1alpha1.EvacuationPolicySpec) { s.Strategy = "${workload.spec.evictionStrategy" }, "here write the expression alone",
			},
			"a mark in ${} within a text": {
				func(s *v1alpha1.EvacuationPolicySpec) {
					s.Mark, s.Unmark = patch("/metadata/labels/a"), patch("/metadata/labels/a")
					s.Mark.Operations[0].Value = "'${pod.spec.nodeName}'"
				}, "here write the expression alone",
			},
			"a path with ${}": {
				func(s *v1alpha1.EvacuationPolicySpec) {
					s.Mark, s.Unmark = patch("/metadata/labels/${pod.metadata.name}"), patch("/metadata/labels/a")
				}, "path is written as it is",
			},
			"a migration that is ours by a text": {
				func(s *v1alpha1.EvacuationPolicySpec) {
					s.Migration = &v1alpha1.MigrationSpec{APIVersion: "kubevirt.io/v1", Kind: "M", WorkloadName: "''", Finished: "true", Failed: "false", Ours: "'yes'"}
				}, "must be of type bool, and it is a constant of another type",
			},
			"a constant strategy that is unknown": {
				func(s *v1alpha1.EvacuationPolicySpec) { s.Strategy = `"Migrate"` }, "strategy is constant and none of None, LiveMigrate",
			},
			"a done that is a text": {
				func(s *v1alpha1.EvacuationPolicySpec) { s.Done = "'yes'" }, "must be of type bool, and it is a constant of another type",
			},
			"the name of our own interceptor": {
				func(s *v1alpha1.EvacuationPolicySpec) { s.Interceptor = "surge.drawbridge.dev" }, "this name is Drawbridge's own",
			},
		} {
			t.Run(name, func(t *testing.T) {
				p := simple("refused", "VirtualMachineInstance", "'None'")
				p.Spec.Interceptor = "vm.example.com"
				tc.change(&p.Spec)
				if err := admin.Create(t.Context(), p); err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("want %q, got %v", tc.want, err)
				}
			})
		}
	})
}
