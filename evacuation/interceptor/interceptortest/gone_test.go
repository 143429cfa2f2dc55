package interceptortest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
)

// marker leaves a mark outside of the pod, as a load balancer has it.
type marker struct {
	marks  map[string]bool
	refuse int
}

func (m *marker) Evacuate(_ context.Context, t interceptor.Target) (interceptor.Progress, error) {
	m.marks[t.Pod.Name] = true
	return interceptor.Progress{Message: "marked"}, nil
}

// cleaner takes it away when the pod is gone.
type cleaner struct{ *marker }

func (m cleaner) Gone(_ context.Context, t interceptor.Target) error {
	if m.refuse--; m.refuse >= 0 {
		return errors.New("the load balancer does not answer")
	}
	delete(m.marks, t.Pod.Name)
	return nil
}

// careful goes back, too, when it is canceled.
type careful struct{ cleaner }

func (m careful) Cancel(_ context.Context, t interceptor.Target) error {
	delete(m.marks, t.Pod.Name)
	return nil
}

// Whoever has marked something outside of the pod can take it away, however the turn
// ends.
func TestGoneIsCalledWhenThePodEndsInTheTurn(t *testing.T) {
	t.Parallel()
	const pod = "pod-1"
	type maker func(*marker) interceptor.Interceptor
	cleans := func(m *marker) interceptor.Interceptor { return cleaner{m} }
	goesBack := func(m *marker) interceptor.Interceptor { return careful{cleaner{m}} }
	cases := map[string]struct {
		impl   maker
		refuse int
		ends   func(b *Bench, again func())
		want   []string
		left   bool
	}{
		"the pod is gone":                   {impl: cleans, ends: func(b *Bench, _ func()) { b.PodEnds() }, want: []string{"Evacuate", "Gone"}},
		"one who can cancel is called, too": {impl: goesBack, ends: func(b *Bench, _ func()) { b.PodEnds() }, want: []string{"Evacuate", "Gone"}},
		"it is called until it succeeds": {impl: cleans, refuse: 2, ends: func(b *Bench, _ func()) {
			b.PodEnds()
			b.Advance(time.Minute)
		}, want: []string{"Evacuate", "Gone", "Gone", "Gone"}},
		"and not again": {impl: cleans, ends: func(b *Bench, _ func()) {
			b.PodEnds()
			b.Changed()
			b.Advance(time.Hour)
			b.Delete()
		}, want: []string{"Evacuate", "Gone"}},
		"a new process calls it once more": {impl: cleans, ends: func(b *Bench, again func()) {
			b.PodEnds()
			again()
		}, want: []string{"Evacuate", "Gone", "Gone"}},
		"the pod ended while no process ran": {impl: cleans, ends: func(b *Bench, again func()) {
			b.server.evicted()
			again()
		}, want: []string{"Evacuate", "Gone"}},
		"the request is deleted, and there is no way back": {impl: cleans, ends: func(b *Bench, _ func()) { b.Delete() }, want: []string{"Evacuate", "Gone"}},
		"the request is deleted, and it goes back":         {impl: goesBack, ends: func(b *Bench, _ func()) { b.Delete() }, want: []string{"Evacuate", "Cancel"}},
		"it is canceled": {impl: goesBack, ends: func(b *Bench, _ func()) { b.Cancel() }, want: []string{"Evacuate", "Cancel"}},
		"passed over, and the pod ends later": {impl: goesBack, ends: func(b *Bench, _ func()) {
			b.PassOver()
			b.PodEnds()
		}, want: []string{"Evacuate", "Cancel"}},
		"one that leaves nothing is not called": {impl: func(m *marker) interceptor.Interceptor { return m }, ends: func(b *Bench, _ func()) { b.PodEnds() }, want: []string{"Evacuate"}, left: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &marker{marks: map[string]bool{}, refuse: tc.refuse}
			b := New(t, tc.impl(m), Options{})
			b.Activate()
			tc.ends(b, func() { b.Restart(tc.impl(m)) })
			if diff := cmp.Diff(tc.want, b.Methods()); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if m.marks[pod] != tc.left {
				t.Errorf("the mark is left: %t, want %t", m.marks[pod], tc.left)
			}
			if last := b.Calls()[len(b.Calls())-1]; last.Target.Pod.Name != pod || last.Target.PodUID == "" {
				t.Errorf("the last call was about %+v", last.Target)
			}
		})
	}
}
