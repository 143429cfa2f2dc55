package dashboard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
)

func testBackend(tell func(context.Context, string, string) (why.Story, error)) *backend {
	return &backend{clock: clock.RealClock{}, kept: map[string]told{}, tell: tell}
}

// However many pages are open, a pod's story is asked for every other second.
func TestStoriesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		b := testBackend(func(_ context.Context, namespace, pod string) (why.Story, error) {
			asked.Add(1)
			<-time.After(time.Second) // By the time of the bubble.
			return why.Story{Namespace: namespace, Pod: pod}, nil
		})
		ask := func() {
			var pages sync.WaitGroup
			for range 10 {
				pages.Go(func() {
					if s, err := b.Why(t.Context(), "shop", "db-0"); err != nil || s.Pod != "db-0" {
						t.Errorf("got %v, %v", s, err)
					}
				})
			}
			pages.Wait()
		}
		ask()
		ask()
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times, want once", n)
		}
		<-time.After(storyFresh)
		ask()
		if n := asked.Load(); n != 2 {
			t.Errorf("asked %d times, want twice", n)
		}
	})
}

// Whoever leaves first does not take the others along.
func TestALeavingPageDoesNotTakeTheOthersAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		may := make(chan struct{})
		b := testBackend(func(ctx context.Context, _, _ string) (why.Story, error) {
			<-may
			return why.Story{Pod: "db-0"}, ctx.Err()
		})
		leaving, leave := context.WithCancel(t.Context())
		var left, stayed error
		var pages sync.WaitGroup
		pages.Go(func() { _, left = b.Why(leaving, "shop", "db-0") })
		synctest.Wait()
		pages.Go(func() { _, stayed = b.Why(t.Context(), "shop", "db-0") })
		synctest.Wait()
		leave()
		synctest.Wait()
		close(may)
		pages.Wait()
		if !errors.Is(left, context.Canceled) || stayed != nil {
			t.Errorf("the one that left: %v; the other: %v", left, stayed)
		}
	})
}

func TestStoriesAreForgotten(t *testing.T) {
	b := testBackend(func(_ context.Context, _, pod string) (why.Story, error) { return why.Story{Pod: pod}, nil })
	for i := range 10 * maxStories {
		if _, err := b.Why(t.Context(), "shop", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(b.kept); n > maxStories {
		t.Errorf("%d stories are kept, want at most %d", n, maxStories)
	}
}
