package main

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor/interceptortest"
)

// process makes a worker that works for 10 minutes, as a new process would.
func process(t *testing.T, clock *testingclock.FakeClock) *worker {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return &worker{clock: clock, requests: fake.NewClientBuilder().WithScheme(scheme).Build(), work: 10 * time.Minute}
}

func begin(t *testing.T) (*interceptortest.Bench, *testingclock.FakeClock) {
	t.Helper()
	clock := testingclock.NewFakeClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	bench := interceptortest.New(t, process(t, clock), interceptortest.Options{
		Clock: clock,
		SDK:   interceptor.Options{Name: "failover.db.example.com"},
	})
	bench.Activate()
	return bench, clock
}

func TestItWorksAndHandsOver(t *testing.T) {
	bench, _ := begin(t)
	bench.Advance(10*time.Minute - time.Second)
	if report := bench.Report(); bench.Completed() || report.Message != "working" || report.ExpectedFinishTime == nil {
		t.Errorf("before its time: %+v", report)
	}
	bench.Advance(time.Second)
	if !bench.Completed() || bench.Report().Message != "done" {
		t.Errorf("after its time: %+v", bench.Report())
	}
}

func TestACrashCostsNoTime(t *testing.T) {
	bench, clock := begin(t)
	bench.Advance(6 * time.Minute)
	bench.Restart(process(t, clock))
	bench.Advance(4 * time.Minute)
	if !bench.Completed() {
		t.Errorf("10 minutes after its start: %+v", bench.Report())
	}
}

func TestItStopsWhenNobodyWantsTheEvictionAnyMore(t *testing.T) {
	bench, _ := begin(t)
	bench.Advance(time.Minute)
	bench.Cancel()
	bench.Advance(time.Hour)
	if bench.Completed() {
		t.Errorf("completed: %+v", bench.Report())
	}
	if calls := bench.Methods(); calls[len(calls)-1] != "Cancel" || slices.Index(calls, "Cancel") != len(calls)-1 {
		t.Errorf("calls: %v, want Cancel once, at the end", calls)
	}
}
