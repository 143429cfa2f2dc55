package lease

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

func TestLeaseEvents(t *testing.T) {
	t.Parallel()
	l := &Reconciler{Namespace: "drawbridge-system", Clock: testingclock.NewFakeClock(at(0))}
	l.init()
	lease := func(change func(*coordinationv1.Lease)) *coordinationv1.Lease {
		lease := leaseOf(aliceRecord())
		change(lease)
		return lease
	}
	updates := map[string]struct {
		after *coordinationv1.Lease
		want  bool
	}{
		"a renewal": {lease(func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = at(30); l.ResourceVersion = "2" }), false},
		"a renewal that goes back": {
			lease(func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = at(-30) }), true,
		},
		"a shorter duration": {lease(func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = ptr.To(int32(1)) }), true},
		"another marker": {
			lease(func(l *coordinationv1.Lease) { l.Annotations[translate.LeaseMarkersAnnotation] = "a,b" }), true,
		},
		"another lease of the name": {lease(func(l *coordinationv1.Lease) { l.UID = "lease-2" }), true},
		"not one of ours":           {lease(func(l *coordinationv1.Lease) { l.Labels = nil; l.UID = "lease-2" }), false},
		"another namespace":         {lease(func(l *coordinationv1.Lease) { l.Namespace = "kube-system"; l.UID = "lease-2" }), false},
	}
	for name, tc := range updates {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := l.leaseEvents().Update(event.UpdateEvent{ObjectOld: leaseOf(aliceRecord()), ObjectNew: tc.after})
			if got != tc.want {
				t.Errorf("passes: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestLeasesOfOtherObjects(t *testing.T) {
	t.Parallel()
	b := newBench(t, leaseOf(aliceRecord()))
	er := leasedRequest("uid-1").Leased("bob.users.drawbridge.dev", "lease-b").Requesters("native.example.com")
	want := []reconcile.Request{b.key(aliceLease), b.key("lease-b")}
	if diff := cmp.Diff(want, b.leasesOfRequest(t.Context(), er.Obj())); diff != "" {
		t.Errorf("leases of a request (-want +got):\n%s", diff)
	}
	if got := b.leasesOfRequest(t.Context(), er.Clone().Evicted(v1alpha1.ReasonPodDeleted, at(0)).Obj()); got != nil {
		t.Errorf("leases of a finished request are %v, want none", got)
	}
	if diff := cmp.Diff(want[:1], b.leasesOfNode(t.Context(), builder.Node("n1").Obj())); diff != "" {
		t.Errorf("leases of a node (-want +got):\n%s", diff)
	}
	if got := b.leasesOfNode(t.Context(), builder.Node("n2").Obj()); len(got) != 0 {
		t.Errorf("leases of another node are %v, want none", got)
	}
	node := func(change *builder.NodeWrapper) bool {
		return nodeEvents().Update(event.UpdateEvent{ObjectOld: builder.Node("n1").Obj(), ObjectNew: change.Obj()})
	}
	if !node(builder.Node("n1").Cordoned()) || node(builder.Node("n1").Label("a", "b").Ready(corev1.ConditionFalse)) {
		t.Error("of these changes of a node only the cordon matters")
	}
}
