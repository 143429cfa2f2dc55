package waiting

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFor(t *testing.T) {
	errSame := errors.New("2 of 3")
	cases := map[string]struct {
		// check is called with the time that has passed.
		check func(time.Duration) error
		want  string
		// after is how long it took, at least, and at most a second more.
		after time.Duration
	}{
		"it is there already": {
			check: func(time.Duration) error { return nil },
		},
		"it comes": {
			check: func(passed time.Duration) error {
				if passed < time.Minute {
					return errSame
				}
				return nil
			},
			after: time.Minute,
		},
		"it says the same for three minutes": {
			check: func(time.Duration) error { return errSame },
			want:  "wait for the pods: the same for 3m0s: 2 of 3",
			after: 3 * time.Minute,
		},
		"it says something new after two minutes, and comes after four": {
			check: func(passed time.Duration) error {
				if passed < 4*time.Minute {
					return fmt.Errorf("%d of 3", 1+passed/(2*time.Minute))
				}
				return nil
			},
			after: 4 * time.Minute,
		},
		"it will never come": {
			check: func(passed time.Duration) error {
				if passed < time.Second {
					return errSame
				}
				return fmt.Errorf("about a pod: %w", InVain(errors.New("it is gone")))
			},
			want:  "wait for the pods: it is gone",
			after: time.Second,
		},
		"it says something new each time": {
			check: func(passed time.Duration) error { return fmt.Errorf("at %s", passed.Truncate(time.Minute)) },
			want:  "wait for the pods: not within 15m0s: at 14m0s",
			after: 15 * time.Minute,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := For(t.Context(), "the pods", func(context.Context) error { return tc.check(time.Since(began)) })
				got := ""
				if err != nil {
					got = err.Error()
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("error (-want +got):\n%s", diff)
				}
				if took := time.Since(began); took < tc.after || took > tc.after+time.Second {
					t.Errorf("it took %s, want %s", took, tc.after)
				}
			})
		})
	}
}

func TestForEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := For(ctx, "the pods", func(context.Context) error {
		cancel()
		return errors.New("2 of 3")
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("want an error of the context, got %v", err)
	}
}
