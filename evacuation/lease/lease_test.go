package lease

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

const requesterName = "alice.users.drawbridge.dev"

// aliceRecord is kubectl's record, renewed at the start of the tests, of a node
// that was cordoned.
func aliceRecord() translate.LeaseRecord {
	return translate.LeaseRecord{
		Requester: requesterName, Node: "n1", Display: "kubectl (alice)", Class: translate.ClassKubectl,
		TTL: 2 * time.Minute, RenewedAt: at(0), Markers: []string{translate.MarkerUnschedulable},
	}
}

var aliceLease = translate.LeaseName(requesterName, "n1")

func leaseOf(rec translate.LeaseRecord) *coordinationv1.Lease {
	lease := translate.EncodeLease(rec, "drawbridge-system")
	lease.UID = "lease-1"
	return lease
}

func TestLeaseStep(t *testing.T) {
	t.Parallel()
	cordoned := translate.NodeView{Known: true, Markers: []string{translate.MarkerUnschedulable}}
	uncordoned := translate.NodeView{Known: true}
	longAgo := at(-100000)
	helper := aliceRecord()
	helper.Class = translate.ClassDrainHelper
	heard := func(second int) translate.LeaseRecord {
		rec := aliceRecord()
		rec.RenewedAt = at(second)
		return rec
	}
	cases := map[string]struct {
		rec       translate.LeaseRecord
		node      translate.NodeView
		since     time.Time
		startedAt time.Time
		now       time.Time
		want      decision
	}{
		"alive until it runs out": {
			rec: aliceRecord(), node: cordoned, startedAt: longAgo, now: at(1),
			want: decision{wakeAt: at(160)},
		},
		"alive one second before": {
			rec: aliceRecord(), node: cordoned, startedAt: longAgo, now: at(159),
			want: decision{wakeAt: at(160)},
		},
		"expired": {
			rec: aliceRecord(), node: cordoned, startedAt: longAgo, now: at(160),
			want: decision{verdict: withdrawExpired},
		},
		"a controller is silent while its cordon stands": {
			rec: helper, node: cordoned, startedAt: longAgo, now: at(1000),
			want: decision{wakeAt: at(24 * 3600)},
		},
		"a controller is silent, and nobody takes its cordon away": {
			rec: helper, node: cordoned, startedAt: longAgo, now: at(24 * 3600),
			want: decision{verdict: withdrawExpired},
		},
		"a controller is silent, and takes its cordon away": {
			rec: helper, node: uncordoned, startedAt: longAgo, now: at(1000),
			want: decision{markersGoneSince: at(1000), wakeAt: at(1060)},
		},
		"a controller took its cordon away a minute ago": {
			rec: helper, node: uncordoned, since: at(1000), startedAt: longAgo, now: at(1060),
			want: decision{verdict: withdrawMarkersGone, markersGoneSince: at(1000)},
		},
		"our own outage never counts as silence": {
			rec: aliceRecord(), node: cordoned, startedAt: at(100), now: at(399),
			want: decision{wakeAt: at(400)},
		},
		"after the grace it does": {
			rec: aliceRecord(), node: cordoned, startedAt: at(100), now: at(400),
			want: decision{verdict: withdrawExpired},
		},
		"an uncordon counts even then": {
			rec: aliceRecord(), node: uncordoned, since: at(150), startedAt: at(100), now: at(210),
			want: decision{verdict: withdrawMarkersGone, markersGoneSince: at(150)},
		},
		"the debounce begins even then": {
			rec: aliceRecord(), node: uncordoned, startedAt: at(100), now: at(150),
			want: decision{markersGoneSince: at(150), wakeAt: at(210)},
		},
		"markers gone, seen for the first time": {
			rec: aliceRecord(), node: uncordoned, startedAt: at(0), now: at(10),
			want: decision{markersGoneSince: at(10), wakeAt: at(70)},
		},
		"markers gone, not long enough": {
			rec: aliceRecord(), node: uncordoned, since: at(10), startedAt: at(0), now: at(69),
			want: decision{markersGoneSince: at(10), wakeAt: at(70)},
		},
		"markers gone for the debounce": {
			rec: aliceRecord(), node: uncordoned, since: at(10), startedAt: at(0), now: at(70),
			want: decision{verdict: withdrawMarkersGone, markersGoneSince: at(10)},
		},
		"markers gone for the debounce, but the caller goes on": {
			rec: heard(50), node: uncordoned, since: at(10), startedAt: at(0), now: at(70),
			want: decision{markersGoneSince: at(10), wakeAt: at(110)},
		},
		"markers gone, and the caller has stopped since": {
			rec: heard(50), node: uncordoned, since: at(10), startedAt: at(0), now: at(110),
			want: decision{verdict: withdrawMarkersGone, markersGoneSince: at(10)},
		},
		"markers back": {
			rec: aliceRecord(), node: cordoned, since: at(10), startedAt: longAgo, now: at(70),
			want: decision{wakeAt: at(160)},
		},
		"the lease runs out during the debounce": {
			rec: aliceRecord(), node: uncordoned, since: at(140), startedAt: longAgo, now: at(150),
			want: decision{markersGoneSince: at(140), wakeAt: at(160)},
		},
		"a clock that was set back starts the debounce again": {
			rec: aliceRecord(), node: uncordoned, since: at(5000), startedAt: at(0), now: at(10),
			want: decision{markersGoneSince: at(10), wakeAt: at(70)},
		},
		"a node nobody has looked at proves nothing": {
			rec: aliceRecord(), startedAt: longAgo, now: at(10),
			want: decision{wakeAt: at(160)},
		},
		"a node that is gone needs nothing": {
			rec: aliceRecord(), node: translate.NodeView{Known: true, Gone: true}, startedAt: longAgo, now: at(10),
			want: decision{wakeAt: at(160)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := step(tc.rec, tc.node, tc.since, tc.startedAt, tc.now, DefaultPolicy())
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(decision{})); diff != "" {
				t.Errorf("step (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLeasesUncordon(t *testing.T) {
	t.Parallel()
	b := newBench(t, leaseOf(aliceRecord()), builder.Node("n1").Obj(), leasedRequest("uid-1").Obj())
	if after := b.reconcile(); after != time.Minute || len(b.writes) != 0 {
		t.Fatalf("it comes back in %s and wrote %v, want 1m and nothing", after, b.writes)
	}
	b.clock.Step(59 * time.Second)
	if after := b.reconcile(); after != time.Second || len(b.writes) != 0 {
		t.Fatalf("it comes back in %s and wrote %v, want 1s and nothing", after, b.writes)
	}
	b.clock.Step(time.Second)
	b.reconcile()
	if b.leaseExists() || len(b.requesters("uid-1")) != 0 {
		t.Errorf("lease exists: %t, requesters %v; want neither", b.leaseExists(), b.requesters("uid-1"))
	}
	want := []string{"EvictionRequest RequesterWithdrawn: Requester alice.users.drawbridge.dev (kubectl (alice)) was removed: " +
		"node n1 is not drained any more (unschedulable gone for 1m0s)."}
	if diff := cmp.Diff(want, b.log.Events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestLeasesLaggingNodeCacheIsNoUncordon: the cache has not seen the cordon.
func TestLeasesLaggingNodeCacheIsNoUncordon(t *testing.T) {
	t.Parallel()
	b := newBench(t, leaseOf(aliceRecord()), builder.Node("n1").Cordoned().Obj(), leasedRequest("uid-1").Obj())
	b.Client = b.intercept(interceptor.NewClient(b.server, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if node, ok := obj.(*corev1.Node); ok {
				builder.Node("n1").Obj().DeepCopyInto(node)
				return nil
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}))
	b.reconcile()
	b.clock.Step(time.Minute)
	if after := b.reconcile(); after != time.Minute || len(b.writes) != 0 {
		t.Errorf("it comes back in %s and wrote %v, want 1m and nothing", after, b.writes)
	}
}

func TestLeasesDebounceStartsAfreshWithAnotherLease(t *testing.T) {
	t.Parallel()
	b := newBench(t, leaseOf(aliceRecord()), builder.Node("n1").Obj(), leasedRequest("uid-1").Obj())
	b.reconcile()
	old := leaseOf(aliceRecord())
	if err := b.server.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	fresh := leaseOf(aliceRecord())
	fresh.UID = "lease-2"
	if err := b.server.Create(t.Context(), fresh); err != nil {
		t.Fatal(err)
	}
	b.clock.Step(50 * time.Second)
	if after := b.reconcile(); after != time.Minute {
		t.Errorf("it comes back in %s, want 1m", after)
	}
}

func TestLeasesMissingLease(t *testing.T) {
	t.Parallel()
	b := newBench(t, builder.Node("n1").Cordoned().Obj(), leasedRequest("uid-1").Obj())
	b.reconcile()
	if got := b.requesters("uid-1"); len(got) != 0 {
		t.Errorf("requesters are %v, want none", got)
	}
	want := []string{"EvictionRequest RequesterExpired: Requester alice.users.drawbridge.dev was removed: its lease " + aliceLease + " does not exist."}
	if diff := cmp.Diff(want, b.log.Events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestLeasesLeaseThatOurCacheDoesNotHave: it was made a moment ago.
func TestLeasesLeaseThatOurCacheDoesNotHave(t *testing.T) {
	t.Parallel()
	b := newBench(t, leaseOf(aliceRecord()), builder.Node("n1").Cordoned().Obj(), leasedRequest("uid-1").Obj())
	b.Client = b.intercept(newServer(t, builder.Node("n1").Cordoned().Obj(), leasedRequest("uid-1").Obj()))
	if after := b.reconcile(); after != 160*time.Second || len(b.writes) != 0 {
		t.Errorf("it comes back in %s and wrote %v, want 2m40s and nothing", after, b.writes)
	}
}

func TestLeasesForeignLeaseIsNotDeleted(t *testing.T) {
	t.Parallel()
	foreign := leaseOf(aliceRecord())
	foreign.Labels, foreign.Annotations = nil, nil
	b := newBench(t, foreign, leasedRequest("uid-1").Obj())
	b.reconcile()
	b.clock.Step(160 * time.Second)
	b.reconcile()
	if !b.leaseExists() || len(b.requesters("uid-1")) != 0 {
		t.Errorf("lease exists: %t, requesters %v; want the lease and no requester", b.leaseExists(), b.requesters("uid-1"))
	}
}

func TestLeasesUnusedLeaseIsCollected(t *testing.T) {
	t.Parallel()
	b := newBench(t, leaseOf(aliceRecord()))
	b.reconcile()
	b.clock.Step(160 * time.Second)
	b.reconcile()
	if b.leaseExists() || len(b.log.Events) != 0 {
		t.Errorf("lease exists: %t, events %v; want neither", b.leaseExists(), b.log.Events)
	}
}

func TestLeasesDamagedLeaseIsJudgedByItsRenewal(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		damage func(*coordinationv1.Lease)
		alive  time.Duration
	}{
		"no annotations": {func(l *coordinationv1.Lease) { l.Annotations = nil }, 160 * time.Second},
		"no duration":    {func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil }, 800 * time.Second},
		"no renewal":     {func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil; l.CreationTimestamp.Time = at(60) }, 160 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lease := leaseOf(aliceRecord())
			tc.damage(lease)
			b := newBench(t, lease, leasedRequest("uid-1").Obj())
			if after := b.reconcile(); after != tc.alive {
				t.Errorf("it comes back in %s, want %s", after, tc.alive)
			}
			b.clock.Step(tc.alive)
			b.reconcile()
			if got := b.requesters("uid-1"); len(got) != 0 {
				t.Errorf("requesters are %v, want none", got)
			}
		})
	}
}

// TestLeasesSetBackByHand: somebody ends a requester by making its lease old.
func TestLeasesSetBackByHand(t *testing.T) {
	t.Parallel()
	b := newBench(t, leaseOf(aliceRecord()), leasedRequest("uid-1").Obj())
	b.reconcile()
	lease := &coordinationv1.Lease{}
	if err := b.server.Get(t.Context(), b.key(aliceLease).NamespacedName, lease); err != nil {
		t.Fatal(err)
	}
	lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(at(-7200)))
	if err := b.server.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	if b.leaseExists() || len(b.requesters("uid-1")) != 0 {
		t.Errorf("lease exists: %t, requesters %v; want neither", b.leaseExists(), b.requesters("uid-1"))
	}
}
