package interceptor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor/interceptortest"
)

// A requester that does not wait leaves all interceptors the same moment.
func TestSDKSavesWhatItCan(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		do func(*interceptortest.Bench)
		// fails is how often Save fails.
		fails int
		// saves is how long each call of Save is told to have.
		saves   []time.Duration
		methods []string
	}{
		"it waits for its turn":                   {do: func(b *interceptortest.Bench) { b.Hard(10 * time.Second); b.Changed() }, saves: []time.Duration{10 * time.Second}},
		"it fails at first":                       {do: func(b *interceptortest.Bench) { b.Hard(time.Minute); b.Advance(time.Minute) }, fails: 1, saves: []time.Duration{time.Minute, time.Minute}},
		"somebody else has a deadline":            {do: func(b *interceptortest.Bench) { b.Hurry(10 * time.Second) }},
		"it has its turn":                         {do: func(b *interceptortest.Bench) { b.Activate(); b.Hard(10 * time.Second) }, methods: []string{"Evacuate", "Evacuate"}},
		"it has had its turn":                     {do: func(b *interceptortest.Bench) { b.Activate(); b.PassOver(); b.Hard(10 * time.Second) }, methods: []string{"Evacuate", "Cancel"}},
		"it gets its turn nevertheless":           {do: func(b *interceptortest.Bench) { b.Hard(10 * time.Second); b.Activate() }, saves: []time.Duration{10 * time.Second}, methods: []string{"Evacuate"}},
		"the request is deleted afterwards":       {do: func(b *interceptortest.Bench) { b.Hard(10 * time.Second); b.Delete() }, saves: []time.Duration{10 * time.Second}},
		"the request is canceled before its turn": {do: func(b *interceptortest.Bench) { b.Cancel(); b.Changed() }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var saves []time.Duration
			options := interceptortest.Options{}
			options.SDK.Save = func(ctx context.Context, target interceptor.Target) error {
				saves = append(saves, target.Deadline.Sub(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
				if _, bounded := ctx.Deadline(); !bounded {
					t.Error("Save is not bounded")
				}
				if len(saves) <= tc.fails {
					return errors.New("the disk is full")
				}
				return nil
			}
			b := interceptortest.New(t, &undoing{scripted: scripted{progress: working("copying")}}, options)
			tc.do(b)
			if diff := cmp.Diff(tc.saves, saves); diff != "" {
				t.Errorf("time in calls of Save (-want +got):\n%s", diff)
			}
			wantMethods(t, b, tc.methods...)
		})
	}
}
