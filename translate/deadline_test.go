package translate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// said is what the objects of a kind say.
type said struct {
	Node string
	Learnt
}

func TestDeadlinesOfObjects(t *testing.T) {
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	const began = "2026-05-04T12:00:00Z"
	claim := func(annotation string) map[string]any {
		return map[string]any{
			"metadata": map[string]any{"name": "default-7x2k4", "deletionTimestamp": began, "annotations": map[string]any{karpenterTerminatesAt: annotation}},
			"status":   map[string]any{"nodeName": "n1"},
		}
	}
	machine := func(spec map[string]any, began string) map[string]any {
		return map[string]any{
			"metadata": map[string]any{"namespace": "capi", "name": "worker-1"}, "spec": spec,
			"status": map[string]any{"nodeRef": map[string]any{"name": "n1"}, "deletion": map[string]any{"nodeDrainStartTime": began}},
		}
	}
	seconds := func(n int64) map[string]any {
		return map[string]any{"deletion": map[string]any{"nodeDrainTimeoutSeconds": n}}
	}
	kept := claim(began)
	unstructured.RemoveNestedField(kept, "metadata", "deletionTimestamp")
	cases := map[string]struct {
		kind   string
		object map[string]any
		want   said
	}{
		"a NodeClaim that is deleted":                            {"karpenter", claim(began), said{"n1", Learnt{Source: "NodeClaim default-7x2k4", At: noon}}},
		"one without a node":                                     {"karpenter", map[string]any{"metadata": claim(began)["metadata"]}, said{"", Learnt{Source: "NodeClaim default-7x2k4", At: noon}}},
		"one that somebody gave a time, and that is not deleted": {"karpenter", kept, said{Node: "n1"}},
		"one that is not deleted":                                {"karpenter", map[string]any{"status": map[string]any{"nodeName": "n1"}}, said{Node: "n1"}},
		"one with an annotation that is no time":                 {"karpenter", claim("soon"), said{Node: "n1"}},
		"one with a time that no client writes":                  {"karpenter", claim("9999-12-31T23:59:59-12:00"), said{Node: "n1"}},
		"one of another epoch":                                   {"karpenter", claim("0001-01-01T00:00:00Z"), said{Node: "n1"}},
		"a Machine with a timeout":                               {"cluster-api", machine(seconds(600), began), said{"n1", Learnt{Source: "Machine capi/worker-1", At: noon.Add(10 * time.Minute)}}},
		"one of v1beta1":                                         {"cluster-api", machine(map[string]any{"nodeDrainTimeout": "5m0s"}, began), said{"n1", Learnt{Source: "Machine capi/worker-1", At: noon.Add(5 * time.Minute)}}},
		"one that waits for ever":                                {"cluster-api", machine(seconds(0), began), said{Node: "n1"}},
		"one that does so by leaving it out":                     {"cluster-api", machine(map[string]any{}, began), said{Node: "n1"}},
		"one that is not drained yet":                            {"cluster-api", machine(seconds(600), ""), said{Node: "n1"}},
		"one with the largest timeout there is":                  {"cluster-api", machine(seconds(1<<62), began), said{Node: "n1"}},
		"one with a timeout below zero":                          {"cluster-api", machine(seconds(-5), began), said{Node: "n1"}},
		"one that is all wrong":                                  {"cluster-api", map[string]any{"spec": "x", "status": int64(1)}, said{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, kind := range DeadlineKinds() {
				if kind.Option != tc.kind {
					continue
				}
				var got said
				got.Node, got.Learnt = kind.Of(&unstructured.Unstructured{Object: tc.object})
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				return
			}
			t.Errorf("there is no kind %s", tc.kind)
		})
	}
}

func TestWhichNodesHaveSuchObjects(t *testing.T) {
	cases := map[string]struct {
		meta metav1.ObjectMeta
		want []string
	}{
		"one of Karpenter":             {metav1.ObjectMeta{Labels: map[string]string{"karpenter.sh/nodepool": "default"}}, []string{"karpenter"}},
		"one that a NodeClaim owns":    {metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim"}}}, []string{"karpenter"}},
		"one that something else owns": {metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{APIVersion: "other.sh/v1", Kind: "NodeClaim"}}}, nil},
		"one of Cluster API":           {metav1.ObjectMeta{Annotations: map[string]string{"cluster.x-k8s.io/machine": "worker-1"}}, []string{"cluster-api"}},
		"one of neither":               {metav1.ObjectMeta{Name: "n1"}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, kind := range DeadlineKinds() {
				if kind.Concerns(&corev1.Node{ObjectMeta: tc.meta}) {
					got = append(got, kind.Option)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeadlinesOfTaints(t *testing.T) {
	noon := metav1.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{
		{Key: "other"}, {Key: "reclaimed"}, {Key: "stopped", TimeAdded: &noon},
	}}}
	want := []Learnt{
		{Source: "taint reclaimed of node n1", After: time.Minute},
		{Source: "taint stopped of node n1", At: noon.Add(time.Hour)},
	}
	got := TaintDeadlines(node, map[string]time.Duration{"reclaimed": time.Minute, "stopped": time.Hour, "elsewhere": time.Second})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestThePatienceOfCallers(t *testing.T) {
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	rec := LeaseRecord{Requester: "ops.example.com", Class: ClassKubectl, Others: []Voice{{Class: ClassManagedUpgrade}}}
	cases := map[string]struct {
		table map[CallerClass]time.Duration
		want  Learnt
	}{
		"nobody's is known":  {map[CallerClass]time.Duration{ClassMCO: time.Minute}, Learnt{}},
		"that of one":        {map[CallerClass]time.Duration{ClassManagedUpgrade: time.Hour}, Learnt{Source: "requester ops.example.com, which waits 1h0m0s (managed-upgrade)", At: noon.Add(time.Hour)}},
		"the shorter of two": {map[CallerClass]time.Duration{ClassManagedUpgrade: time.Hour, ClassKubectl: time.Minute}, Learnt{Source: "requester ops.example.com, which waits 1m0s (kubectl)", At: noon.Add(time.Minute)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, ok := PatienceDeadline(rec, noon, tc.table)
			if diff := cmp.Diff(tc.want, got); diff != "" || ok != (tc.want != Learnt{}) {
				t.Errorf("%t (-want +got):\n%s", ok, diff)
			}
		})
	}
}
