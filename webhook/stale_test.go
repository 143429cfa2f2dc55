package webhook

import (
	"context"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// The cache shows a moment of the past. These are the cases in which that moment
// would have led us astray.

// bind makes the API server show the pod as it is after it was bound.
func (w *world) bind(pod *builder.PodWrapper) {
	w.t.Helper()
	bound := pod.ResourceVersion("").Obj()
	status := bound.Status
	if err := w.api.Update(context.Background(), bound); err != nil {
		w.t.Fatal(err)
	}
	bound.Status = status
	if err := w.api.Status().Update(context.Background(), bound); err != nil {
		w.t.Fatal(err)
	}
}

func TestThePodWasBoundBehindTheCachesBack(t *testing.T) {
	w := newWorld(t, db0().Node("").Phase(corev1.PodPending).Obj(), n1().Obj())
	w.bind(db0())
	w.wantAnswer(textAccepted)
	if w.lease() == nil {
		t.Error("there is no lease for the node the pod is on")
	}
	if request := w.request(); request == nil || request.Spec.Requesters[0].LeaseName != leaseN1 {
		t.Errorf("the request does not name lease %s: %+v", leaseN1, request)
	}
}

// TestExpiredLeaseNeverVanishes: the lease controller withdraws whoever names a
// lease that is not there. After an outage of ours all leases have run out, so
// there must be no moment without one when their requesters come back.
func TestExpiredLeaseNeverVanishes(t *testing.T) {
	w := draining(t, n1())
	w.clock.Step(160 * time.Second)
	w.failing(func(call string) error {
		if strings.HasPrefix(call, "delete Lease") {
			t.Errorf("API call %q", call)
		}
		return nil
	})
	w.wantAnswer(textAccepted)
	if !w.renewedAt().Equal(t0.Add(160 * time.Second)) {
		t.Errorf("renewed at %s", w.renewedAt())
	}
}

// TestTheLeaseWasWithdrawnRightAfterARenewal: our memory of a renewal must not
// outlive the lease, or the restarted request would name a lease that is gone.
func TestTheLeaseWasWithdrawnRightAfterARenewal(t *testing.T) {
	w := draining(t, n1().Cordoned())
	w.clock.Step(40 * time.Second)
	w.evict()
	w.renewAll()
	w.sync()
	w.wantAnswer(textAccepted)

	// Uncordoned long enough: the controller withdraws alice and cancels.
	if err := w.api.Delete(context.Background(), w.lease()); err != nil {
		t.Fatal(err)
	}
	request := w.request()
	request.Status = er().Canceled(v1alpha1.ReasonNoRequesters, w.clock.Now()).Status
	if err := w.api.Status().Update(context.Background(), request); err != nil {
		t.Fatal(err)
	}
	w.sync()
	w.clock.Step(time.Second)
	w.wantAnswer(textAccepted)
	if w.lease() == nil {
		t.Error("the restarted request names a lease that does not exist")
	}
}

func TestAReplacementIsSeenLiveBeforeItsCallerIsSentAway(t *testing.T) {
	left := builder.EvictionRequest("shop", "db-0", "uid-0").UID("er-0").NodeName("n1").Leased(alice, leaseN1).
		Evicted(v1alpha1.ReasonPodDeleted, t0)
	// The cache has not seen yet that the replacement was bound, to the next node
	// of a rolling drain.
	w := newWorld(t, left.Obj(), db0().Node("").Phase(corev1.PodPending).Obj(), builder.Node("n2").Cordoned().Obj(), leaseOfN1())
	w.bind(db0().Node("n2"))
	w.wantAnswer(textAccepted)
}

func TestARepeatedDenialOfAReplacementMakesNoAPICall(t *testing.T) {
	left := builder.EvictionRequest("shop", "db-0", "uid-0").UID("er-0").NodeName("n1").Leased(alice, leaseN1).
		Evicted(v1alpha1.ReasonPodDeleted, t0)
	w := newWorld(t, left.Obj(), db0().Node("n2").Obj(), builder.Node("n2").Obj(), leaseOfN1())
	w.handler.Replacement = ReplacementTooManyRequests
	for range 3 {
		w.wantAnswer(textMovedAway)
	}
	w.wantCalls()
}

func TestWhoEvictsInTheImperativeStageIsARequester(t *testing.T) {
	w := draining(t, n1().Cordoned())
	request := w.request()
	request.Status = er().Processed(interA, interB).Active(evictor, t0).Status
	if err := w.api.Status().Update(context.Background(), request); err != nil {
		t.Fatal(err)
	}
	w.sync()
	asBob := func(r *admissionv1.AdmissionRequest) { r.UserInfo.Username = "bob" }
	// The budget refuses both; when alice gives up, bob still wants the pod gone.
	w.wantAnswer("allowed", asBob)
	var names []string
	for _, r := range w.request().Spec.Requesters {
		names = append(names, r.Name)
	}
	if got := strings.Join(names, " "); got != alice+" bob.users.drawbridge.dev" {
		t.Errorf("requesters %s", got)
	}
	w.sync()
	w.calls()
	w.wantAnswer("allowed", asBob)
	w.wantCalls("get Pod db-0")
}

// textMovedAway is the denial of the guard's mode TooManyRequests.
const textMovedAway = "Eviction could not be coordinated yet: the pod already left its node and a replacement has its name, retry later"
