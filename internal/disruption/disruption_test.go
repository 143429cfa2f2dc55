package disruption

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// replicas are so many pods of a controller of that kind, all ready; none if empty.
func replicas(n int, kind string) []*corev1.Pod {
	all := make([]*corev1.Pod, 0, n)
	for i := range n {
		w := builder.Pod("shop", fmt.Sprintf("web-%d", i)).Label("app", "web").Ready()
		if kind != "" {
			w.OwnedBy(kind, "web")
		}
		all = append(all, w.Obj())
	}
	return all
}

// but changes the last pod.
func but(all []*corev1.Pod, change func(*corev1.Pod)) []*corev1.Pod {
	change(all[len(all)-1])
	return all
}

func unready(p *corev1.Pod) { p.Status.Conditions = nil }
func leaving(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0))) }
func ended(p *corev1.Pod)   { p.Status.Phase = corev1.PodSucceeded }
func lost(p *corev1.Pod)    { p.Labels = nil }

func TestWhatIsCounted(t *testing.T) {
	cases := map[string]struct {
		min, max string
		status   policyv1.PodDisruptionBudgetStatus
		pods     []*corev1.Pod
		want     Count
	}{
		"as in the status":                       {min: "1", status: status(2, 2, 1, 1), pods: replicas(2, "ReplicaSet"), want: Count{Pods: 2, Expected: 2, Healthy: 2, Desired: 1}},
		"the only pod has lost the label":        {min: "1", status: status(1, 1, 1, 0), pods: but(replicas(1, "ReplicaSet"), lost), want: Count{Desired: 1}},
		"one of two has lost the label":          {min: "1", status: status(2, 2, 1, 1), pods: but(replicas(2, "ReplicaSet"), lost), want: Count{Pods: 1, Expected: 1, Healthy: 1, Desired: 1}},
		"maxUnavailable, and none is selected":   {max: "0", status: status(1, 1, 1, 0), want: Count{}},
		"a pod that is not ready":                {min: "1", status: status(2, 1, 1, 0), pods: but(replicas(2, "ReplicaSet"), unready), want: Count{Pods: 2, Expected: 2, Healthy: 1, Desired: 1}},
		"a pod that is being deleted":            {min: "1", status: status(2, 1, 1, 0), pods: but(replicas(2, "StatefulSet"), leaving), want: Count{Pods: 2, Expected: 1, Healthy: 1, Desired: 1}},
		"a pod that has ended":                   {min: "1", status: status(2, 1, 1, 1), pods: but(replicas(2, "Job"), ended), want: Count{Pods: 1, Expected: 1, Healthy: 1, Desired: 1}},
		"the scale is not that of the pods":      {max: "1", status: status(3, 1, 2, 0), pods: replicas(1, "StatefulSet"), want: Count{Pods: 1, Expected: 3, Healthy: 1, Desired: 2}},
		"a percentage of the scale is rounded":   {max: "10%", status: status(3, 3, 2, 1), pods: replicas(3, "StatefulSet"), want: Count{Pods: 3, Expected: 3, Healthy: 3, Desired: 2}},
		"a status that is older than the spec":   {max: "1", status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, ExpectedPods: 9}, pods: replicas(3, "StatefulSet"), want: Count{Pods: 3, Expected: 3, Healthy: 3, Desired: 2}},
		"an eviction that is not over":           {min: "1", status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, DisruptedPods: map[string]metav1.Time{"web-0": {}}, DisruptionsAllowed: 1}, pods: replicas(3, "ReplicaSet"), want: Count{Pods: 3, Expected: 3, Healthy: 2, Desired: 1}},
		"a budget that says nothing counts none": {status: status(0, 0, 0, 1), pods: replicas(3, "ReplicaSet"), want: Count{Pods: 3, Healthy: 3}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := budgetOf(tc.min, tc.max, tc.status)
			got := Of(b, Selected(b, tc.pods))
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreUnexported(Count{}), cmpopts.IgnoreFields(Count{}, "Never")); diff != "" {
				t.Errorf("count (-want +got):\n%s", diff)
			}
		})
	}
}

func status(expected, healthy, desired, allowed int32) policyv1.PodDisruptionBudgetStatus {
	return policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, ExpectedPods: expected, CurrentHealthy: healthy, DesiredHealthy: desired, DisruptionsAllowed: allowed}
}

func budgetOf(minAvailable, maxUnavailable string, status policyv1.PodDisruptionBudgetStatus) *policyv1.PodDisruptionBudget {
	w := builder.Budget("shop", "web").Generation(2).Selects("app", "web")
	if minAvailable != "" {
		w.MinAvailable(minAvailable)
	}
	if maxUnavailable != "" {
		w.MaxUnavailable(maxUnavailable)
	}
	w.Status = status
	return w.Obj()
}

func TestBudgetsThatCanNeverAllow(t *testing.T) {
	alwaysAllow := func(b *policyv1.PodDisruptionBudget) {
		b.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
	}
	guard := func(b *policyv1.PodDisruptionBudget) {
		b.Labels = map[string]string{v1alpha1.GuardBudgetLabel: "true"}
	}
	old := func(b *policyv1.PodDisruptionBudget) { b.Status.ObservedGeneration = 1 }
	cases := map[string]struct {
		min, max string
		status   policyv1.PodDisruptionBudgetStatus
		pods     []*corev1.Pod
		change   func(*policyv1.PodDisruptionBudget)
		want     string
	}{
		"maxUnavailable is 0":                          {max: "0", status: status(3, 3, 3, 0), pods: replicas(3, "ReplicaSet"), want: "can never allow a disruption (maxUnavailable is 0)"},
		"and one is not ready":                         {max: "0", status: status(3, 2, 3, 0), pods: but(replicas(3, "StatefulSet"), unready), want: "can never allow a disruption (maxUnavailable is 0)"},
		"maxUnavailable is 0%":                         {max: "0%", status: status(3, 3, 3, 0), pods: replicas(3, "ReplicaSet"), want: "can never allow a disruption (maxUnavailable is 0%)"},
		"maxUnavailable is 1%, which is rounded up":    {max: "1%", status: status(3, 2, 2, 0), pods: but(replicas(3, "ReplicaSet"), unready)},
		"maxUnavailable is 1":                          {max: "1", status: status(3, 2, 2, 0), pods: but(replicas(3, "ReplicaSet"), unready)},
		"maxUnavailable is 1 of 1":                     {max: "1", status: status(1, 0, 0, 0), pods: but(replicas(1, "ReplicaSet"), unready)},
		"a pod more than the scale, as in a rollout":   {max: "0", status: status(3, 3, 3, 0), pods: but(replicas(4, "ReplicaSet"), unready)},
		"a pod of the scale that is being replaced":    {max: "0", status: status(3, 3, 3, 0), pods: but(replicas(4, "ReplicaSet"), leaving), want: "can never allow a disruption (maxUnavailable is 0)"},
		"the scale is larger than what is selected":    {max: "1", status: status(3, 1, 2, 0), pods: replicas(1, "StatefulSet")},
		"minAvailable is the number of pods":           {min: "3", status: status(3, 3, 3, 0), pods: replicas(3, "ReplicaSet"), want: "can never allow a disruption (minAvailable is 3 of 3 pods)"},
		"minAvailable is more than there are":          {min: "5", status: status(3, 3, 5, 0), pods: replicas(3, "StatefulSet"), want: "can never allow a disruption (minAvailable is 5 of 3 pods)"},
		"minAvailable is the only pod, without owner":  {min: "1", status: status(1, 1, 1, 0), pods: replicas(1, ""), want: "can never allow a disruption (minAvailable is 1 of 1 pod)"},
		"minAvailable is one less, and one is broken":  {min: "2", status: status(3, 2, 2, 0), pods: but(replicas(3, "ReplicaSet"), unready)},
		"all of a ReplicaSet, and one is broken":       {min: "3", status: status(3, 2, 3, 0), pods: but(replicas(3, "ReplicaSet"), unready), want: "can never allow a disruption (minAvailable is 3 of 3 pods)"},
		"a StatefulSet that may still make more":       {min: "2", status: status(2, 1, 2, 0), pods: but(replicas(2, "StatefulSet"), unready)},
		"a StatefulSet that makes one again":           {min: "2", status: status(3, 2, 2, 0), pods: but(replicas(3, "StatefulSet"), leaving)},
		"minAvailable is 100%":                         {min: "100%", status: status(2, 2, 2, 0), pods: replicas(2, "StatefulSet"), want: "can never allow a disruption (minAvailable is 100% of 2 pods)"},
		"minAvailable is 90% of 3, which is rounded":   {min: "90%", status: status(3, 3, 3, 0), pods: replicas(3, "StatefulSet"), want: "can never allow a disruption (minAvailable is 90% of 3 pods)"},
		"minAvailable is 90% of 10":                    {min: "90%", status: status(10, 9, 9, 0), pods: but(replicas(10, "StatefulSet"), unready)},
		"a part of the scale is selected":              {min: "50%", status: status(4, 2, 2, 0), pods: replicas(2, "StatefulSet")},
		"minAvailable is 0":                            {min: "0", status: status(1, 0, 0, 0), pods: but(replicas(1, "ReplicaSet"), unready)},
		"a budget that says nothing":                   {status: status(0, 0, 0, 0), pods: replicas(1, "ReplicaSet"), want: "can never allow a disruption (it has neither minAvailable nor maxUnavailable)"},
		"maxUnavailable for pods without a controller": {max: "1", status: status(0, 0, 0, 0), pods: replicas(1, ""), want: "can never allow a disruption (maxUnavailable is 1, which counts replicas, and its pods have no controller)"},
		"maxUnavailable is 0, without a controller":    {max: "0", status: status(0, 0, 0, 0), pods: replicas(1, ""), want: "can never allow a disruption (maxUnavailable is 0)"},
		"a percentage for pods without a controller":   {min: "50%", status: status(0, 0, 0, 0), pods: replicas(2, ""), want: "can never allow a disruption (minAvailable is 50%, which counts replicas, and its pods have no controller)"},
		"the controller has no scale that is known":    {max: "1", status: status(0, 0, 0, 0), pods: replicas(1, "Unknown")},
		"no pod, so nobody is held":                    {max: "0", status: status(1, 1, 1, 0), pods: but(replicas(1, "ReplicaSet"), lost)},
		"only pods that are being deleted":             {max: "0", status: status(1, 0, 1, 0), pods: but(replicas(1, "ReplicaSet"), leaving)},
		"an old status that still allows one":          {min: "1", status: status(2, 2, 1, 1), pods: but(replicas(2, "ReplicaSet"), lost)},
		"an old status that allows none":               {min: "2", status: status(3, 2, 2, 0), pods: but(replicas(3, "ReplicaSet"), lost), want: "can never allow a disruption (minAvailable is 2 of 2 pods)"},
		"a status that is older than the spec":         {max: "0", status: status(3, 3, 3, 0), pods: replicas(3, "ReplicaSet"), change: old},
		"pods that are not ready may always go":        {max: "0", status: status(3, 3, 3, 0), pods: replicas(3, "ReplicaSet"), change: alwaysAllow, want: "can never allow the disruption of a pod that is ready (maxUnavailable is 0)"},
		"Drawbridge's guard is meant to refuse":        {min: "2147483647", status: status(3, 3, 2147483647, 0), pods: replicas(3, "ReplicaSet"), change: guard},
		"a selector that cannot be read":               {max: "0", status: status(3, 3, 3, 0), pods: replicas(3, "ReplicaSet"), change: func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector.MatchLabels = map[string]string{"a b": "c"} }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := budgetOf(tc.min, tc.max, tc.status)
			if tc.change != nil {
				tc.change(b)
			}
			if got := Of(b, Selected(b, tc.pods)).Says(); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
