package webhook

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// draining is a world in which alice's first call was answered at t0.
func draining(t *testing.T, node *builder.NodeWrapper) *world {
	t.Helper()
	w := newWorld(t, db0().Obj(), node.Obj())
	w.evict()
	w.sync()
	w.calls()
	return w
}

func (w *world) renewedAt() time.Time {
	w.t.Helper()
	lease := w.lease()
	if lease == nil {
		w.t.Fatal("there is no lease")
	}
	return lease.Spec.RenewTime.UTC()
}

func TestMarkersThatAppearAreAdded(t *testing.T) {
	cases := map[string]struct {
		before, after *builder.NodeWrapper
		passed        time.Duration
		want          []string
	}{
		"a cordon after the first call is recorded at once": {n1(), n1().Cordoned(), 11 * time.Second, []string{"unschedulable"}},
		"a second marker, too":                              {n1().Cordoned(), n1().Cordoned().Taint("medik8s.io/drain", "", "NoSchedule"), 11 * time.Second, []string{"medik8s.io/drain", "unschedulable"}},
		"a marker that is gone stays recorded":              {n1().Cordoned(), n1(), 40 * time.Second, []string{"unschedulable"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := draining(t, tc.before)
			node := tc.after.Obj()
			if err := w.api.Update(context.Background(), node); err != nil {
				t.Fatal(err)
			}
			w.sync()
			w.clock.Step(tc.passed)
			w.evict()
			w.renewAll()
			record, err := translate.DecodeLease(w.lease())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, record.Markers); diff != "" {
				t.Errorf("markers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExpiredLeaseStartsAfresh(t *testing.T) {
	w := draining(t, n1())
	old := w.lease()
	old.Labels["old"] = "yes"
	if err := w.api.Update(context.Background(), old); err != nil {
		t.Fatal(err)
	}
	w.sync()
	w.clock.Step(160 * time.Second)
	w.wantAnswer(textAccepted)
	w.wantCalls("get Node n1", "create Lease "+leaseN1, "get Lease "+leaseN1, "update Lease "+leaseN1, "apply EvictionRequest ")
	if w.lease().Labels["old"] != "" || !w.renewedAt().Equal(t0.Add(160*time.Second)) {
		t.Errorf("not like a new lease: %+v", w.lease())
	}
}

// Two replicas get the first calls after a lease has run out, in the same millisecond. Each
// finds it, and one is slower.
func TestTheSlowerOfTwoReplicasUsesTheLeaseOfTheOther(t *testing.T) {
	for name, meanwhile := range map[string]struct {
		change func(*world) error
		calls  []string
	}{
		"which has written it": {func(w *world) error {
			rec := translate.LeaseRecord{Requester: alice, Node: "n1", Class: translate.ClassKubectl, TTL: 2 * time.Minute, RenewedAt: w.clock.Now()}
			lease := translate.EncodeLease(rec, ownNamespace)
			lease.ResourceVersion = w.lease().ResourceVersion
			return w.api.Update(context.Background(), lease)
		}, []string{"get Lease " + leaseN1}},
		"which has deleted it": {func(w *world) error { return w.api.Delete(context.Background(), w.lease()) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := draining(t, n1())
			w.clock.Step(160 * time.Second)
			var err error
			w.failing(func(call string) error {
				if call == "update Lease "+leaseN1 {
					w.fail = nil
					err = meanwhile.change(w)
				}
				return nil
			})
			w.wantAnswer(textAccepted)
			if err != nil {
				t.Fatal(err)
			}
			w.wantCalls(slices.Concat([]string{"get Node n1", "create Lease " + leaseN1, "get Lease " + leaseN1, "update Lease " + leaseN1,
				"create Lease " + leaseN1}, meanwhile.calls, []string{"apply EvictionRequest "})...)
			if !w.renewedAt().Equal(t0.Add(160 * time.Second)) {
				t.Errorf("renewed at %s", w.renewedAt())
			}
		})
	}
}

func TestVanishedLeaseIsMadeAnew(t *testing.T) {
	w := draining(t, n1())
	if err := w.api.Delete(context.Background(), w.lease()); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(time.Minute)
	t.Run("a renewal that finds none forgets it", func(t *testing.T) {
		w.evict() // The cache still shows it.
		w.renewAll()
		if w.lease() != nil {
			t.Error("the renewal brought the lease back")
		}
		if diff := cmp.Diff(map[string]float64{"gone": 1}, w.counter("drawbridge_lease_renewals_total")); diff != "" {
			t.Errorf("renewals (-want +got):\n%s", diff)
		}
	})
	w.sync()
	w.calls()
	w.wantAnswer(textAccepted)
	w.wantCalls("get Node n1", "create Lease "+leaseN1, "apply EvictionRequest ")
}

func TestLeaseOfAnotherReplicaIsUsed(t *testing.T) {
	lease := translate.EncodeLease(translate.LeaseRecord{Requester: alice, Node: "n1", Class: translate.ClassKubectl, TTL: 2 * time.Minute, RenewedAt: t0}, ownNamespace)
	w := newWorld(t, db0().Obj(), n1().Obj())
	if err := w.api.Create(context.Background(), lease); err != nil {
		t.Fatal(err)
	}
	w.wantAnswer(textAccepted)
	w.wantCalls("get Node n1", "create Lease "+leaseN1, "get Lease "+leaseN1, "apply EvictionRequest ")
}

func TestGracePeriodIsNeverShortened(t *testing.T) {
	w := newWorld(t, db0().Obj(), n1().Obj())
	w.evict(raw(`{"deleteOptions":{"gracePeriodSeconds":90}}`))
	w.sync()
	w.clock.Step(time.Hour) // The lease is dead, so the entry is written again.
	w.evict(raw(`{"deleteOptions":{"gracePeriodSeconds":10}}`))
	if got := deref(w.request().Spec.Requesters[0].GracePeriodSeconds); got != 90 {
		t.Errorf("grace period is %d s", got)
	}
}

func TestThePodsOwnGracePeriodIsNotShortened(t *testing.T) {
	w := newWorld(t, db0().GracePeriod(45).Obj(), n1().Obj())
	given := func() *int64 { return w.request().Spec.Requesters[0].GracePeriodSeconds }
	w.evict(raw(`{"deleteOptions":{"gracePeriodSeconds":0}}`))
	w.sync()
	w.evict() // Leaves it to the pod.
	w.sync()
	if got := given(); got != nil {
		t.Errorf("after a call that leaves it to the pod, the grace period is %d s", *got)
	}
	w.evict(raw(`{"deleteOptions":{"gracePeriodSeconds":0}}`))
	w.sync()
	if got := given(); got != nil {
		t.Errorf("after a later call that wants none, the grace period is %d s", *got)
	}
	w.evict(raw(`{"deleteOptions":{"gracePeriodSeconds":60}}`))
	if got := deref(given()); got != 60 {
		t.Errorf("after a call that wants more than the pod's own, the grace period is %d s", got)
	}
}

// under makes the call one of another tool under alice's name.
func under(manager string) func(*admissionv1.AdmissionRequest) {
	return raw(`{"metadata":{"managedFields":[{"manager":"` + manager + `"}]}}`)
}

func TestEachToolOfAUserHasItsOwnPatience(t *testing.T) {
	w := draining(t, n1().Cordoned())
	w.wantAnswer(textAccepted, under("descheduler")) // It asks once.
	w.sync()
	record, err := translate.DecodeLease(w.lease())
	if err != nil {
		t.Fatal(err)
	}
	want := translate.LeaseRecord{
		Requester: alice, Node: "n1", Display: "descheduler (alice)", Class: translate.ClassDescheduler, TTL: time.Hour, RenewedAt: t0,
		Others:  []translate.Voice{{Class: translate.ClassKubectl, TTL: 2 * time.Minute, HeardAt: t0}},
		Markers: []string{"unschedulable"},
	}
	if diff := cmp.Diff(want, record); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	w.calls()
	// kubectl goes on under the same name, and takes nothing from it.
	for range 60 {
		w.clock.Step(10 * time.Second)
		w.evict()
		w.renewAll()
		w.sync()
	}
	if record, err = translate.DecodeLease(w.lease()); err != nil {
		t.Fatal(err)
	}
	if voice, ok := record.Voice(translate.ClassDescheduler); !ok || !voice.HeardAt.Equal(t0) || record.Class != translate.ClassKubectl {
		t.Errorf("want kubectl and what is known of the descheduler, got %+v", record)
	}
	if n := len(w.calls()); n > 20 {
		t.Errorf("%d API calls in ten minutes", n)
	}
}

func TestAControllersLeaseLivesAsLongAsItsMarker(t *testing.T) {
	w := newWorld(t, db0().Obj(), n1().Cordoned().Obj())
	nmo := under("node-maintenance-operator")
	w.wantAnswer(textAccepted, nmo)
	w.sync()
	w.calls()
	// With eight nodes it comes back after four minutes, which is more than its time.
	w.clock.Step(4 * time.Minute)
	w.wantAnswer(textAccepted, nmo)
	w.renewAll()
	w.wantCalls("patch Lease " + leaseN1)
}
