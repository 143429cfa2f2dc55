package order

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// Only what may end a wait is an event.
func TestWhichChangesMatter(t *testing.T) {
	o := &Order{}
	o.following.follow("n1", types.NamespacedName{Namespace: "shop", Name: "storage-0"})
	podEvents := o.podEvents()
	pod, request, node := podOn("web", "web-0"), asked("web-0", "a.example.com"), builder.Node("n1")
	cases := map[string]struct {
		events        predicate.Predicate
		before, after client.Object
		want          bool
	}{
		"a pod is Ready":                {podEvents, pod.Obj(), pod.Clone().Ready().Obj(), false},
		"a pod is being deleted":        {podEvents, pod.Obj(), pod.Clone().Deleting(t0).Obj(), false},
		"a pod has ended":               {podEvents, pod.Obj(), pod.Clone().Phase(corev1.PodFailed).Obj(), true},
		"a pod has another label":       {podEvents, pod.Obj(), pod.Clone().Label(builder.AppLabel, "cache").Obj(), true},
		"a pod is another one":          {podEvents, pod.Obj(), pod.Clone().UID("other").Obj(), true},
		"a request has a report":        {requestEvents(), request.Obj(), request.Clone().Started("a.example.com", t0).Obj(), false},
		"a request is canceled":         {requestEvents(), request.Obj(), request.Clone().Canceled(v1alpha1.ReasonNoRequesters, t0).Obj(), true},
		"a turn of the order begins":    {requestEvents(), asked("web-0", Name).Obj(), inTurn("web-0").Obj(), false},
		"a turn of the order has ended": {requestEvents(), inTurn("web-0").Obj(), asked("web-0", Name).Processed(Name).Active("b.example.com", t0).Obj(), true},
		"a node is cordoned":            {nodeEvents(), node.Obj(), node.Clone().Cordoned().Obj(), false},
		"a node is uncordoned":          {nodeEvents(), node.Clone().Cordoned().Obj(), node.Obj(), true},
		"a node is Ready":               {nodeEvents(), node.Clone().Ready(corev1.ConditionFalse).Obj(), node.Clone().Ready(corev1.ConditionTrue).Obj(), false},
		"not what was expected":         {nodeEvents(), pod.Obj(), pod.Obj(), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.events.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
				t.Errorf("it is an event: %t, want %t", got, tc.want)
			}
		})
	}
	for what, tc := range map[string]struct {
		events predicate.Predicate
		object client.Object
	}{"pod": {podEvents, pod.Obj()}, "request": {requestEvents(), request.Obj()}, "node": {nodeEvents(), node.Obj()}} {
		if tc.events.Create(event.CreateEvent{Object: tc.object}) || !tc.events.Delete(event.DeleteEvent{Object: tc.object}) {
			t.Errorf("of a %s its beginning must not count, and its end must", what)
		}
	}

	elsewhere := pod.Clone().Node("n2")
	if podEvents.Delete(event.DeleteEvent{Object: elsewhere.Obj()}) ||
		podEvents.Update(event.UpdateEvent{ObjectOld: elsewhere.Obj(), ObjectNew: elsewhere.Clone().Phase(corev1.PodFailed).Obj()}) {
		t.Error("a pod of a node on which nobody waits is an event")
	}
}
