package webhook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// renewAll does what is queued, as Start would.
func (w *world) renewAll() {
	for {
		select {
		case name := <-w.renewer.queue:
			w.renewer.renewQueued(context.Background(), name)
		default:
			return
		}
	}
}

func TestLeaseIsRenewedOncePerThird(t *testing.T) {
	w := draining(t, n1().Cordoned())
	// Two calls a second for ten minutes, seen by the cache at once.
	for range 1200 {
		w.clock.Step(500 * time.Millisecond)
		w.wantAnswer(textAccepted)
		w.renewAll()
		w.sync()
	}
	calls := w.calls()
	if len(calls) != 15 {
		t.Errorf("want 15 renewals in ten minutes, got %d: %v", len(calls), calls)
	}
	for _, c := range calls {
		if c != "patch Lease "+leaseN1 {
			t.Errorf("API call %q", c)
		}
	}
	if diff := cmp.Diff(map[string]float64{"success": 15}, w.counter("drawbridge_lease_renewals_total")); diff != "" {
		t.Errorf("renewals (-want +got):\n%s", diff)
	}
}

func TestCallsForOneLeaseAreCoalesced(t *testing.T) {
	w := draining(t, n1().Cordoned())
	w.clock.Step(40 * time.Second)
	for range 50 {
		w.evict()
	}
	w.wantCalls()
	w.renewAll()
	w.wantCalls("patch Lease " + leaseN1)
	if diff := cmp.Diff(t0.Add(40*time.Second), w.renewedAt()); diff != "" {
		t.Errorf("renewed at (-want +got):\n%s", diff)
	}
	w.evict() // The cache lags; our own memory does not.
	w.renewAll()
	w.wantCalls()
}

func TestAllowedCallsRenewToo(t *testing.T) {
	w := draining(t, n1().Cordoned())
	request := w.request()
	request.Status = er().Processed(interA, interB).Active(evictor, t0).Status
	if err := w.api.Status().Update(context.Background(), request); err != nil {
		t.Fatal(err)
	}
	w.sync()
	w.clock.Step(time.Minute)
	w.wantAnswer("allowed")
	w.renewAll()
	w.wantCalls("get Pod db-0", "patch Lease "+leaseN1)
}

func TestDryRunDoesNotRenew(t *testing.T) {
	w := draining(t, n1().Cordoned())
	w.clock.Step(time.Minute)
	w.evict(raw(`{"deleteOptions":{"dryRun":["All"]}}`))
	w.renewAll()
	w.wantCalls()
}

func TestFailedRenewalPauses(t *testing.T) {
	w := draining(t, n1().Cordoned())
	w.clock.Step(time.Minute)
	w.failing(func(call string) error {
		if strings.HasPrefix(call, "patch") {
			return errors.New("overloaded")
		}
		return nil
	})
	for range 10 {
		w.evict()
		w.renewAll()
	}
	w.wantCalls("patch Lease " + leaseN1)
	w.failing(nil)
	w.clock.Step(renewalPause)
	w.evict()
	w.renewAll()
	w.wantCalls("patch Lease " + leaseN1)
	if diff := cmp.Diff(map[string]float64{"error": 1, "success": 1}, w.counter("drawbridge_lease_renewals_total")); diff != "" {
		t.Errorf("renewals (-want +got):\n%s", diff)
	}
}

func TestRenewerRunsUntilItIsStopped(t *testing.T) {
	w := draining(t, n1().Cordoned())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.renewer.Start(ctx) }()
	w.clock.Step(time.Minute)
	w.evict()
	waiting.Eventually(t, "the renewal", func(context.Context) error {
		if renewals := w.counter("drawbridge_lease_renewals_total"); renewals["success"] != 1 {
			return fmt.Errorf("renewals %v", renewals)
		}
		return nil
	})
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Start returned %v", err)
	}
	if w.renewer.NeedLeaderElection() {
		t.Error("every replica answers calls, so every replica renews")
	}
}

func TestFullQueueDoesNotBlock(t *testing.T) {
	w := newWorld(t)
	for i := range maxQueued + 10 {
		w.renewer.enqueue(translate.LeaseName(alice, string(rune(i))), call().Caller)
	}
	if len(w.renewer.queue) != maxQueued || len(w.renewer.heard) != maxQueued {
		t.Errorf("queue %d, heard %d", len(w.renewer.queue), len(w.renewer.heard))
	}
}

func TestRenewalIsForOneLeaseObject(t *testing.T) {
	lease := leaseOfN1()
	lease.UID = "lease-1"
	rec, err := translate.DecodeLease(lease)
	if err != nil {
		t.Fatal(err)
	}
	kubectl := translate.Voice{Class: translate.ClassKubectl, TTL: 2 * time.Minute, HeardAt: t0.Add(time.Minute)}
	other := translate.Voice{Class: translate.ClassDescheduler, TTL: time.Hour, HeardAt: t0.Add(time.Minute)}
	marked := rec.Hear(kubectl, rec.Display)
	marked.Markers = []string{"deleting", "unschedulable"}
	cases := map[string]struct {
		rec     translate.LeaseRecord
		version string
		want    string
	}{
		"its time": {rec.Hear(kubectl, rec.Display), "", `{"metadata":{"uid":"lease-1"},"spec":{"renewTime":"2026-09-01T12:01:00.000000Z"}}`},
		"its time and markers": {marked, "", `{"metadata":{"annotations":{"drawbridge.dev/node-markers":"deleting,unschedulable"},"uid":"lease-1"},` +
			`"spec":{"renewTime":"2026-09-01T12:01:00.000000Z"}}`},
		"another tool was heard": {rec.Hear(other, "descheduler (alice)"), "7", `{"metadata":{"annotations":{"drawbridge.dev/caller-class":"descheduler",` +
			`"drawbridge.dev/other-callers":"kubectl/120@2026-09-01T12:00:00.000000Z"},"resourceVersion":"7","uid":"lease-1"},` +
			`"spec":{"holderIdentity":"descheduler (alice)","leaseDurationSeconds":3600,"renewTime":"2026-09-01T12:01:00.000000Z"}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			patch, err := renewalPatch(lease, tc.rec, tc.version)
			if err != nil {
				t.Fatal(err)
			}
			got, err := patch.Data(nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCallsWithoutMarkersAreSeenInTime(t *testing.T) {
	w := draining(t, n1().Cordoned())
	if err := w.api.Update(context.Background(), n1().Obj()); err != nil {
		t.Fatal(err)
	}
	w.sync()
	for range 12 {
		w.clock.Step(5 * time.Second)
		w.wantAnswer(textAccepted)
		w.renewAll()
		w.sync()
	}
	w.wantCalls("patch Lease "+leaseN1, "patch Lease "+leaseN1, "patch Lease "+leaseN1)
}

func TestRenewalOfAnotherReplicaIsEnough(t *testing.T) {
	w := draining(t, n1().Cordoned())
	w.clock.Step(time.Minute)
	w.evict()
	lease := w.lease()
	lease.Spec.RenewTime.Time = w.clock.Now()
	if err := w.api.Update(context.Background(), lease); err != nil {
		t.Fatal(err)
	}
	w.sync()
	w.renewAll()
	w.wantCalls()
}
