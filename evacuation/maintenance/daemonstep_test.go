package maintenance_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/maintenance"
)

func TestPodStepOfDaemonSets(t *testing.T) {
	type (
		daemon   = maintenance.Daemon
		decision = maintenance.PodDecision
		input    = maintenance.PodInput
	)
	const pending = maintenance.ClassPending
	refused := &maintenance.Block{Reason: v1alpha1.BlockEvictionRefused, Message: "a budget"}
	keeps := &maintenance.Block{Reason: v1alpha1.BlockEmptyDirData, Message: "m keeps it"}
	cases := map[string]struct {
		in   input
		want decision
	}{
		"it waits for its wave":     {input{Daemon: &daemon{}}, decision{Class: pending}},
		"it waits, and is kept":     {input{Daemon: &daemon{}, Kept: keeps}, decision{Class: pending, Block: keeps}},
		"it waits for the taint":    {input{Daemon: &daemon{Begun: true}}, decision{Class: pending}},
		"the taint of another wave": {input{Daemon: &daemon{Tainted: true}}, decision{Class: pending}},
		"it is evicted": {
			input{Daemon: &daemon{Begun: true, Tainted: true}},
			decision{Class: pending, Evict: true, WakeAt: noon.Add(5 * time.Second)},
		},
		"one that would be made again stays": {input{Daemon: &daemon{Begun: true, Tainted: true, Tolerates: true}}, decision{}},
		"it was evicted, and does not show it yet": {
			input{Daemon: &daemon{Begun: true, Tainted: true, Again: noon.Add(time.Second)}},
			decision{Class: pending, WakeAt: noon.Add(time.Second)},
		},
		"it was refused": {
			input{Daemon: &daemon{Begun: true, Tainted: true, Refusal: "a budget", Again: noon.Add(time.Second)}},
			decision{Class: pending, Block: refused, WakeAt: noon.Add(time.Second)},
		},
		"it was refused, and is evicted again": {
			input{Daemon: &daemon{Begun: true, Tainted: true, Refusal: "a budget", Again: noon}},
			decision{Class: pending, Block: refused, Evict: true, WakeAt: noon.Add(5 * time.Second)},
		},
		"it is going": {
			input{Daemon: &daemon{Begun: true, Tainted: true}, Deleting: true, DeletionTime: noon},
			decision{Class: pending, WakeAt: noon.Add(time.Minute)},
		},
		"it is going, and does not end": {
			input{Daemon: &daemon{Begun: true, Tainted: true}, Deleting: true, DeletionTime: noon.Add(-time.Minute)},
			decision{Class: pending, Block: &maintenance.Block{Reason: v1alpha1.BlockTerminating, Message: "its grace period is over, and it has not ended"}},
		},
		"it has ended":             {input{Daemon: &daemon{Begun: true, Tainted: true}, Terminal: true}, decision{}},
		"it has a condition of us": {input{Daemon: &daemon{Tolerates: true}, Request: &maintenance.Condition{True: true, Ours: true}}, decision{Request: maintenance.ChangeRemove}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.in.Skipped, tc.in.Policy, tc.in.Now = true, podPolicy, noon
			if diff := cmp.Diff(tc.want, maintenance.PodStep(tc.in), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever is known of it, a pod of a DaemonSet gets no request, and is evicted only if it would not
// be made again.
func TestNoPodOfADaemonSetIsEvictedInVain(t *testing.T) {
	for bits := range 1 << 6 {
		is := func(bit int) bool { return bits&(1<<bit) != 0 }
		in := maintenance.PodInput{Skipped: true, Deleting: is(0), Terminal: is(1), Now: noon, DeletionTime: noon, Policy: podPolicy, Daemon: &maintenance.Daemon{
			Begun: is(2), Tainted: is(3), Tolerates: is(4),
		}}
		if is(5) {
			in.Daemon.Again = noon.Add(time.Second)
		}
		d := maintenance.PodStep(in)
		want := is(2) && is(3) && !is(4) && !is(0) && !is(1) && !is(5)
		if d.Evict != want || len(d.Join) > 0 {
			t.Errorf("%+v of %+v: %+v", in.Daemon, in, d)
		}
		if d.Evict && !d.WakeAt.After(noon) {
			t.Errorf("%+v: it wakes at %s, without a pause", in.Daemon, d.WakeAt)
		}
	}
}
