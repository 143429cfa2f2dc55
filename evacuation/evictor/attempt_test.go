package evictor

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/evacuation/evictor/answer"
)

func TestHowFailedAttemptsAreCounted(t *testing.T) {
	t.Parallel()
	first, now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC), time.Date(2026, 6, 1, 12, 5, 0, 0, time.UTC)
	cases := map[string]struct {
		last   Attempt
		stored int32
		want   Attempt
	}{
		"the first":                        {Attempt{At: now}, 0, Attempt{At: now, Retries: 1, Since: now}},
		"the first after a restart":        {Attempt{At: now}, 7, Attempt{At: now, Retries: 8, Since: now}},
		"the next":                         {Attempt{At: now, Retries: 3, Since: first}, 3, Attempt{At: now, Retries: 4, Since: first}},
		"the next, with none stored":       {Attempt{At: now, Retries: 3, Since: first}, 0, Attempt{At: now, Retries: 4, Since: first}},
		"as many as can be counted":        {Attempt{At: now, Since: first}, 1<<31 - 1, Attempt{At: now, Retries: 1<<31 - 1, Since: first}},
		"the next, with a count of others": {Attempt{At: now, Retries: 3, Since: first}, 5, Attempt{At: now, Retries: 6, Since: first}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.last.Fail(tc.stored)
			if diff := cmp.Diff(tc.want, tc.last, cmp.AllowUnexported(answer.Answer{})); diff != "" {
				t.Errorf("attempt (-want +got):\n%s", diff)
			}
		})
	}
}
