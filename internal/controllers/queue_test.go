package controllers

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	_ "sigs.k8s.io/controller-runtime/pkg/controller" // Its packages set the provider of the workqueue_* metrics.
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

func TestDelaysObeyTheInjectedClock(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC))
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Minute, time.Hour)
	queue := NewQueue(clock)("controllers-test", limiter)
	defer queue.ShutDown()
	item := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "uid-1"}}

	tests := []struct {
		name  string
		add   func()
		delay time.Duration
	}{
		{"a delayed item", func() { queue.AddAfter(item, 20*time.Minute) }, 20 * time.Minute},
		{"a rate limited item", func() { queue.AddRateLimited(item) }, time.Minute},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			tc.add()
			clock.Step(tc.delay - time.Second)
			if n := queue.Len(); n != 0 {
				t.Fatalf("queue length one second early: got %d, want 0", n)
			}
			clock.Step(time.Second)
			got := make(chan reconcile.Request)
			go func() {
				r, _ := queue.Get()
				got <- r
			}()
			select {
			case r := <-got:
				if r != item {
					t.Fatalf("item: got %v, want %v", r, item)
				}
			case <-time.After(waiting.Patience):
				t.Fatal("the item was not ready at its time")
			}
			queue.Done(item)
		})
	}
}

func TestTheQueueReportsUnderItsName(t *testing.T) {
	queue := NewQueue(testingclock.NewFakeClock(time.Unix(0, 0)))("controllers-named", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	queue.Add(reconcile.Request{})

	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatalf("gather metrics: %v", err)
	}
	found := map[string]bool{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "name" && label.GetValue() == "controllers-named" {
					found[family.GetName()] = true
				}
			}
		}
	}
	for _, name := range []string{
		"workqueue_depth", "workqueue_adds_total", "workqueue_queue_duration_seconds",
		"workqueue_work_duration_seconds", "workqueue_unfinished_work_seconds", "workqueue_retries_total",
	} {
		if !found[name] {
			t.Errorf("%s has no series with the queue's name", name)
		}
	}
}
