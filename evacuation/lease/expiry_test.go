package lease

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

func TestLeasesExpiry(t *testing.T) {
	t.Parallel()
	b := newBench(
		t, leaseOf(aliceRecord()), builder.Node("n1").Cordoned().Obj(),
		leasedRequest("uid-1").Obj(),
		builder.EvictionRequest("shop", "web-2", "uid-2").Requesters("native.example.com").Leased(requesterName, aliceLease).
			Leased("bob.users.drawbridge.dev", "other-lease").Obj(),
		leasedRequest("uid-3").Evicted(v1alpha1.ReasonPodDeleted, at(0)).Obj(),
		leasedRequest("uid-4").Canceled(v1alpha1.ReasonNoRequesters, at(0)).Obj(),
	)
	if after := b.reconcile(); after != 160*time.Second || len(b.writes) != 0 {
		t.Fatalf("it comes back in %s and wrote %v, want 2m40s and nothing", after, b.writes)
	}
	b.clock.Step(163 * time.Second)
	if after := b.reconcile(); after != 0 {
		t.Errorf("it comes back in %s, want never", after)
	}
	if b.leaseExists() {
		t.Error("the lease is still there")
	}
	if b.writes[0] != "delete "+aliceLease || len(b.writes) != 3 {
		t.Errorf("writes are %v, want the lease's deletion, then two patches", b.writes)
	}
	want := map[string][]string{
		"uid-1": {}, "uid-2": {"native.example.com", "bob.users.drawbridge.dev"},
		// The finished ones keep them: they tell who wanted the eviction.
		"uid-3": {requesterName}, "uid-4": {requesterName},
	}
	got := map[string][]string{}
	for name := range want {
		got[name] = b.requesters(name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requesters (-want +got):\n%s", diff)
	}
	note := "EvictionRequest RequesterExpired: Requester alice.users.drawbridge.dev (kubectl (alice)) was removed: no call for an eviction was recorded for 2m43s."
	if diff := cmp.Diff([]string{note, note}, b.log.Events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if len(b.observed) != 0 {
		t.Errorf("%d leases are remembered, want none", len(b.observed))
	}
}

func TestLeasesRenewalIsSeenWhenTheOldOneRunsOut(t *testing.T) {
	t.Parallel()
	b := newBench(t, leaseOf(aliceRecord()), builder.Node("n1").Cordoned().Obj(), leasedRequest("uid-1").Obj())
	b.reconcile()
	lease := &coordinationv1.Lease{}
	if err := b.server.Get(t.Context(), b.key(aliceLease).NamespacedName, lease); err != nil {
		t.Fatal(err)
	}
	lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(at(100)))
	if err := b.server.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	b.clock.Step(160 * time.Second)
	// What counts is when we saw it, not when others say that they wrote it.
	if after := b.reconcile(); after != 160*time.Second || len(b.writes) != 0 {
		t.Errorf("it comes back in %s and wrote %v, want 2m40s and nothing", after, b.writes)
	}
}

// TestLeasesCountByOurOwnClock: who writes the leases has another clock than we.
func TestLeasesCountByOurOwnClock(t *testing.T) {
	t.Parallel()
	cases := map[string]time.Duration{
		"the writer's clock is behind": -10 * time.Minute, "the writer's clock is ahead": 10 * time.Minute, "the clocks agree": 0,
	}
	for name, skew := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := aliceRecord()
			rec.RenewedAt = at(0).Add(skew)
			b := newBench(t, leaseOf(rec), builder.Node("n1").Cordoned().Obj(), leasedRequest("uid-1").Obj())
			if after := b.reconcile(); after != 160*time.Second {
				t.Errorf("it comes back in %s, want 2m40s", after)
			}
			b.clock.Step(100 * time.Second)
			// A renewal is only noted; nothing is enqueued.
			before, after := leaseOf(rec), leaseOf(rec)
			after.Spec.RenewTime = ptr.To(metav1.NewMicroTime(at(100).Add(skew)))
			after.ResourceVersion = ""
			if b.leaseEvents().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
				t.Error("a renewal enqueues its lease")
			}
			stored := &coordinationv1.Lease{}
			if err := b.server.Get(t.Context(), b.key(aliceLease).NamespacedName, stored); err != nil {
				t.Fatal(err)
			}
			stored.Spec.RenewTime = after.Spec.RenewTime
			if err := b.server.Update(t.Context(), stored); err != nil {
				t.Fatal(err)
			}
			b.clock.Step(60 * time.Second)
			if after := b.reconcile(); after != 100*time.Second || len(b.writes) != 0 {
				t.Errorf("it comes back in %s and wrote %v, want 1m40s and nothing", after, b.writes)
			}
			b.clock.Step(100 * time.Second)
			b.reconcile()
			if b.leaseExists() || len(b.requesters("uid-1")) != 0 {
				t.Errorf("lease exists: %t, requesters %v; want neither", b.leaseExists(), b.requesters("uid-1"))
			}
		})
	}
}

// TestLeasesOldRenewalIsOld: a new leader does not begin to count anew what is a day old.
func TestLeasesOldRenewalIsOld(t *testing.T) {
	t.Parallel()
	rec := aliceRecord()
	rec.RenewedAt = at(-24 * 3600)
	rec.Class = translate.ClassDrainHelper
	b := newBench(t, leaseOf(rec), builder.Node("n1").Cordoned().Obj(), leasedRequest("uid-1").Obj())
	b.reconcile()
	if b.leaseExists() {
		t.Error("the lease is still there")
	}
}

// TestLeasesRenewalThatWeHaveNotSeenWins: the cache shows the lease as expired,
// the server has a newer version.
func TestLeasesRenewalThatWeHaveNotSeenWins(t *testing.T) {
	t.Parallel()
	stale := leaseOf(aliceRecord())
	b := newBench(t, stale, builder.Node("n1").Cordoned().Obj(), leasedRequest("uid-1").Obj())
	b.Client = b.intercept(interceptor.NewClient(b.server, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if lease, ok := obj.(*coordinationv1.Lease); ok {
				leaseOf(aliceRecord()).DeepCopyInto(lease)
				lease.ResourceVersion = "1"
				return nil
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}))
	b.reconcile()
	b.clock.Step(160 * time.Second)
	if after := b.reconcile(); after != retryDelay {
		t.Errorf("it comes back in %s, want %s", after, retryDelay)
	}
	if !b.leaseExists() || len(b.requesters("uid-1")) != 1 {
		t.Errorf("lease exists: %t, requesters %v; want both", b.leaseExists(), b.requesters("uid-1"))
	}
}
