package interceptor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"
)

// The native API comes and goes with a feature gate of the API server.
func TestANativeControllerRunsWhileItsAPIIsServed(t *testing.T) {
	t.Parallel()
	const (
		no = iota
		yes
		unknown
	)
	answers := []int{no, unknown, yes, yes, unknown, no, no, yes, yes, yes}
	happened := make(chan string, 2*len(answers))
	asked := make(chan struct{})
	clock := testingclock.NewFakeClock(at(0))
	fails := true
	n := &nativeRunner{
		key: ourKey, clock: clock,
		served: func(ctx context.Context) (bool, error) {
			answer := answers[0]
			answers = answers[1:]
			select {
			case asked <- struct{}{}:
			case <-ctx.Done():
			}
			if answer == unknown {
				return false, errors.New("the API server is away")
			}
			return answer == yes, nil
		},
		run: func(ctx context.Context) error {
			happened <- "run"
			if fails {
				fails = false
				context.AfterFunc(ctx, func() { happened <- "fail" }) // Once it has ended.
				return errors.New("no permission")
			}
			<-ctx.Done()
			happened <- "end"
			return nil
		},
		forget: func(context.Context) { happened <- "forget" },
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- n.Start(ctx) }()
	next := func(want ...string) {
		t.Helper()
		select {
		case <-asked:
		case <-time.After(time.Minute):
			t.Fatal("it does not ask")
		}
		var got []string
		for range want {
			select {
			case what := <-happened:
				got = append(got, what)
			case <-time.After(time.Minute):
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("after an answer (-want +got):\n%s", diff)
		}
		clock.Step(nativeCheck)
	}
	next()              // It is not served,
	next()              // or unknown.
	next("run", "fail") // It is served, but there is something else.
	next("run")
	next() // It goes on while the server is away.
	next("end", "forget")
	next()
	next("run")
	next()
	stop()
	if err := <-ended; err != nil {
		t.Errorf("it ends with %v", err)
	}
	if last := <-happened; last != "end" || len(happened) > 0 {
		t.Errorf("at the end: %s, and %d more", last, len(happened))
	}
}
