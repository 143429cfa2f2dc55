package interceptortest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor/interceptortest"
)

// flusher flushes the queue of a pod, which takes five minutes.
type flusher struct {
	clock clock.PassiveClock
	// flushing is when each flush was begun. It stands for the system that flushes.
	flushing map[string]time.Time
}

func (f *flusher) Evacuate(_ context.Context, t interceptor.Target) (interceptor.Progress, error) {
	begun, ok := f.flushing[t.Pod.Name]
	if !ok {
		begun = f.clock.Now()
		f.flushing[t.Pod.Name] = begun
	}
	finish := begun.Add(5 * time.Minute)
	if left := finish.Sub(f.clock.Now()); left > 0 {
		return interceptor.Progress{Message: "flushing", ExpectedFinishTime: finish, CheckAfter: left}, nil
	}
	return interceptor.Progress{Done: true, Message: "flushed"}, nil
}

func (f *flusher) Cancel(_ context.Context, t interceptor.Target) error {
	delete(f.flushing, t.Pod.Name)
	return nil
}

func Example() {
	t := &testing.T{} // In a test it is the test's own.
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	impl := &flusher{clock: clock, flushing: map[string]time.Time{}}
	b := interceptortest.New(t, impl, interceptortest.Options{Clock: clock})

	b.Activate()
	fmt.Println(b.Report().Message, "until", b.Report().ExpectedFinishTime.UTC().Format(time.TimeOnly))
	b.Advance(4 * time.Minute)
	fmt.Println("heartbeat at", b.Report().HeartbeatTime.UTC().Format(time.TimeOnly))
	b.Advance(time.Minute)
	fmt.Println(b.Report().Message, b.Completed())
	for _, event := range b.Events() {
		fmt.Println(event)
	}
	// Output:
	// flushing until 12:05:00
	// heartbeat at 12:03:00
	// flushed true
	// Normal EvacuationStarted: Interceptor interceptor.example.com has begun with pod pod-1: flushing
	// Normal EvacuationCompleted: Interceptor interceptor.example.com is done with pod pod-1: flushed
}

func ExampleBench_Cancel() {
	t := &testing.T{} // In a test it is the test's own.
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	impl := &flusher{clock: clock, flushing: map[string]time.Time{}}
	b := interceptortest.New(t, impl, interceptortest.Options{Clock: clock})

	b.Activate()
	b.Cancel()
	fmt.Println(b.Methods(), len(impl.flushing))
	// Output:
	// [Evacuate Cancel] 0
}
