package controllers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

func TestAWakerEnqueuesOnceTheControllerRuns(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC))
	queue := NewQueue(clock)("waker-test", FastBackoff())
	defer queue.ShutDown()
	var w Waker
	w.Wake(types.NamespacedName{Name: "early"}, 0)
	if err := w.Start(t.Context(), queue); err != nil {
		t.Fatalf("start: %v", err)
	}
	w.Wake(types.NamespacedName{Name: "later"}, time.Second)
	w.Wake(types.NamespacedName{Name: "later"}, time.Second)
	w.Wake(types.NamespacedName{Name: "now"}, 0)
	next := func() string {
		item, _ := queue.Get()
		queue.Done(item)
		return item.Name
	}
	if diff := cmp.Diff("now", next()); diff != "" || queue.Len() != 0 {
		t.Errorf("at once (-want +got), and %d more:\n%s", queue.Len(), diff)
	}
	// Two tickers belong to the queue itself.
	waiting.Eventually(t, "the timer of the later one", func(context.Context) error {
		if n := clock.Waiters(); n < 3 {
			return fmt.Errorf("%d waiters", n)
		}
		return nil
	})
	clock.Step(time.Second)
	if diff := cmp.Diff("later", next()); diff != "" || queue.Len() != 0 {
		t.Errorf("after a second (-want +got), and %d more:\n%s", queue.Len(), diff)
	}
}
