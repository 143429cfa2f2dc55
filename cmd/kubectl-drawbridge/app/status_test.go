package app

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/golden"
)

// state is a cluster in which something is going on.
func state() ([]v1alpha1.NodeMaintenance, []v1alpha1.EvictionRequest) {
	const a, b = "a.example.com", "b.example.com"
	m := builder.NodeMaintenance("drain-node-1").Nodes("node-1").Obj()
	m.CreationTimestamp.Time = ago(5 * time.Minute)
	m.Spec.Cordon, m.Spec.Drain, m.Spec.Reason = true, true, "kernel update"
	m.Status.Stage = v1alpha1.StageDrain
	m.Status.Progress = v1alpha1.MaintenanceProgress{Nodes: 1, NodesCordoned: 1, NodesDraining: 1, PodsPendingEvacuation: 2, PodsEvacuating: 1, PodsBlocking: 1, PodsEvacuated: 7}
	m.Status.Nodes = []v1alpha1.MaintenanceNodeStatus{{
		Name: "node-1", Stage: v1alpha1.StageDrain, PodsPendingEvacuation: 2, PodsBlocking: 1,
		BlockingPods: []v1alpha1.BlockingPod{{Namespace: "shop", Name: "queue-0", Reason: v1alpha1.BlockEvictionRefused, Message: "budget queue allows none"}},
	}}
	lost := builder.NodeMaintenance("lost").Term("pool", corev1.NodeSelectorOpIn, "gone").Obj()
	lost.CreationTimestamp.Time = ago(time.Hour)
	lost.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionNodesSelected, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoMatchingNodes, Message: "no node matches the selector"}}
	request := func(pod, uid string) *builder.EvictionRequestWrapper {
		return builder.EvictionRequest("shop", pod, types.UID("uid-"+uid)).Created(ago(4 * time.Minute)).NodeName("node-1").Requesters(m.RequesterName())
	}
	working := request("db-0", "1").Interceptors(a, b).Active(a, ago(time.Minute)).Report(a, func(s *v1alpha1.InterceptorStatus) {
		s.Message, s.ExpectedFinishTime = "42 %", &metav1.Time{Time: now.Add(90 * time.Second)}
	})
	blocked := request("queue-0", "2").Interceptors().Active(v1alpha1.ImperativeEvictionInterceptor, ago(time.Minute)).Refused(3, "queue")
	elsewhere := request("web-0", "3").NodeName("node-2").Requesters("alice.users.drawbridge.dev").Interceptors(b).Active(b, ago(time.Minute))
	over := request("old-0", "4").Interceptors().Evicted(v1alpha1.ReasonPodDeleted, ago(time.Minute))
	return []v1alpha1.NodeMaintenance{*m, *lost}, []v1alpha1.EvictionRequest{*working.Obj(), *blocked.Obj(), *elsewhere.Obj(), *over.Obj()}
}

func TestStatusIsPrinted(t *testing.T) {
	maintenances, requests := state()
	waves, _ := state()
	waves[0].Status.Nodes[0].Wave, waves[0].Status.Nodes[0].PodsInLaterWaves = "databases", 1
	node := builder.Node("node-1").Cordoned().Annotation(v1alpha1.MaintenancesAnnotation, "drain-node-1=Drain").
		Annotation(v1alpha1.MaintenancePhaseAnnotation, "Drain").Annotation(v1alpha1.CordonAnnotation, v1alpha1.CordonOther).Obj()
	cases := map[string]struct {
		node         *corev1.Node
		format       string
		maintenances []v1alpha1.NodeMaintenance
		requests     []v1alpha1.EvictionRequest
	}{
		"all":     {nil, "", maintenances, requests},
		"wide":    {nil, cli.FormatWide, maintenances, requests},
		"node":    {node, "", maintenances, requests},
		"waves":   {node, "", waves, requests},
		"nothing": {builder.Node("node-9").Obj(), "", maintenances, requests},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, out, _ := testOptions()
			o.Output = tc.format
			if err := o.printStatus(statusOf(tc.node, tc.maintenances, evictionsOf(tc.requests, nil)), now); err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, "status-"+name+".golden.txt", out.String())
		})
	}
	o, out, _ := testOptions()
	o.Output = cli.FormatJSON
	if err := o.PrintValue(statusOf(nil, maintenances, evictionsOf(requests, nil))); err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "status.golden.json", out.String())
}

// One pod has a request of ours whose turn is that of native responders, another one only a native
// Eviction, and a third had a request that has ended before somebody asked natively.
func TestNativeRespondersInTheStatus(t *testing.T) {
	const a, b = "a.example.com/a", "b.example.com/b"
	working := func(pod, uid string) *lifecyclev1alpha1.Eviction {
		return builder.NativeEviction("shop", pod, types.UID(uid)).Created(ago(3*time.Minute)).Requesters("acme.example.com/scale").Responders(b, a).
			State(a, lifecyclev1alpha1.ResponderStateActive, ago(time.Minute)).Report(a, func(s *lifecyclev1alpha1.ResponderStatus) {
			s.Message, s.ExpectedCompletionTime = new("copying, 42 %"), new(metav1.NewTime(now.Add(90*time.Second)))
		}).Obj()
	}
	ours := builder.EvictionRequest("shop", "db-0", "uid-0").Created(ago(4*time.Minute)).NodeName("node-1").Requesters("alice.users.drawbridge.dev").
		Interceptors(v1alpha1.NativeInterceptor, "c.example.com").Active(v1alpha1.NativeInterceptor, ago(time.Minute)).Obj()
	over := builder.EvictionRequest("shop", "db-2", "uid-2").NodeName("node-1").Interceptors().Canceled(v1alpha1.ReasonNoRequesters, ago(time.Minute)).Obj()
	all := evictionsOf([]v1alpha1.EvictionRequest{*ours, *over}, []lifecyclev1alpha1.Eviction{*working("db-0", "uid-0"), *working("db-1", "uid-1"), *working("db-2", "uid-2")})
	all.nodes["uid-1"], all.nodes["uid-2"] = "node-2", "node-1"
	o, out, _ := testOptions()
	o.Output = cli.FormatWide
	if err := o.printStatus(statusOf(nil, nil, all), now); err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "status-native.golden.txt", out.String())
	out.Reset()
	o.Output = cli.FormatJSON
	if err := o.PrintValue(statusOf(builder.Node("node-2").Obj(), nil, all)); err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "status-native.golden.json", out.String())
}
