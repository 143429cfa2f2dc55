package hook

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func at(after time.Duration) metav1.Time { return metav1.NewTime(noon.Add(after)) }

func TestStep(t *testing.T) {
	usual := rules{Generation: 1, Deadline: 10 * time.Minute, Retries: 1}
	goesOn := usual
	goesOn.Continue = true
	changed := usual
	changed.Generation = 2
	run := func(phase v1alpha1.HookPhase, attempt int32, start time.Duration) *v1alpha1.HookRun {
		return &v1alpha1.HookRun{Phase: phase, Attempt: attempt, FirstAttempt: 1, Generation: 1, StartTime: at(start)}
	}
	with := func(r *v1alpha1.HookRun, message string) v1alpha1.HookRun {
		r.Message = message
		return *r
	}
	cases := map[string]struct {
		in   input
		want decision
	}{
		"the first attempt begins when there is room": {
			input{Rules: usual, Acquired: true}, decision{Do: doRecord, Run: *run(v1alpha1.HookRunning, 1, 0)},
		},
		"without room it waits": {
			input{Rules: usual}, decision{Do: doWait, Message: "it waits until others have ended"},
		},
		"an attempt that runs is followed until its deadline": {
			input{Rules: usual, Run: run(v1alpha1.HookRunning, 1, -time.Minute), Work: work{State: stateRunning, Message: "Job x runs"}},
			decision{Do: doWork, WakeAt: noon.Add(9 * time.Minute), Message: "Job x runs"},
		},
		"success is recorded before it is told": {
			input{Rules: usual, Run: run(v1alpha1.HookRunning, 1, 0), Work: work{State: stateDone, Message: "all dumped"}},
			decision{Do: doRecord, Run: with(run(v1alpha1.HookSucceeded, 1, 0), "all dumped"), Result: resultSucceeded},
		},
		"success after the deadline is success": {
			input{Rules: usual, Run: run(v1alpha1.HookRunning, 1, -time.Hour), Work: work{State: stateDone}},
			decision{Do: doRecord, Run: *run(v1alpha1.HookSucceeded, 1, -time.Hour), Result: resultSucceeded},
		},
		"what succeeded hands over": {
			input{Rules: usual, Run: run(v1alpha1.HookSucceeded, 1, 0)}, decision{Do: doPass, Message: "it is done"},
		},
		"what succeeded says what was said last": {
			input{Rules: usual, Run: new(with(run(v1alpha1.HookSucceeded, 1, 0), "all dumped"))}, decision{Do: doPass, Message: "it is done: all dumped"},
		},
		"an attempt that failed is followed by another after a pause": {
			input{Rules: usual, Run: run(v1alpha1.HookRunning, 1, 0), Work: work{State: stateFailed, Message: "exit code 1"}},
			decision{Do: doRecord, Run: with(run(v1alpha1.HookRetrying, 1, 10*time.Second), "exit code 1"), Result: resultFailed},
		},
		"during the pause it waits": {
			input{Rules: usual, Run: run(v1alpha1.HookRetrying, 1, time.Second), Acquired: true},
			decision{Do: doWait, WakeAt: noon.Add(time.Second), Message: "attempt 1 of 2 failed, the next one follows: "},
		},
		"after the pause the next one begins": {
			input{Rules: usual, Run: run(v1alpha1.HookRetrying, 1, 0), Acquired: true}, decision{Do: doRecord, Run: *run(v1alpha1.HookRunning, 2, 0)},
		},
		"the last attempt that fails holds the pod": {
			input{Rules: usual, Run: run(v1alpha1.HookRunning, 2, 0), Work: work{State: stateFailed, Message: "exit code 1"}},
			decision{Do: doRecord, Run: with(run(v1alpha1.HookHeld, 2, 0), "exit code 1"), Result: resultFailed},
		},
		"or lets it go on": {
			input{Rules: goesOn, Run: run(v1alpha1.HookRunning, 2, 0), Work: work{State: stateFailed, Message: "exit code 1"}},
			decision{Do: doRecord, Run: with(run(v1alpha1.HookContinued, 2, 0), "exit code 1"), Result: resultFailed},
		},
		"what went on hands over and says so": {
			input{Rules: goesOn, Run: run(v1alpha1.HookContinued, 2, 0)}, decision{Do: doPass, Message: "it failed and the eviction continues: "},
		},
		"a failure that would repeat is not repeated": {
			input{Rules: usual, Run: run(v1alpha1.HookRunning, 1, 0), Work: work{State: stateFailed, Message: "invalid", Final: true}},
			decision{Do: doRecord, Run: with(run(v1alpha1.HookHeld, 1, 0), "invalid"), Result: resultFailed},
		},
		"an attempt that takes too long is stopped": {
			input{Rules: usual, Run: run(v1alpha1.HookRunning, 1, -10*time.Minute), Work: work{State: stateRunning, Message: "Job x runs"}},
			decision{
				Do: doRecord, Stop: true, Result: resultDeadline,
				Run: with(run(v1alpha1.HookRetrying, 1, 10*time.Second), "it took longer than 10m0s: Job x runs"),
			},
		},
		"an attempt that was lost does not count": {
			input{Rules: usual, Run: run(v1alpha1.HookRunning, 2, 0), Work: work{State: stateLost}},
			decision{Do: doRecord, Result: resultLost, Run: v1alpha1.HookRun{
				Phase: v1alpha1.HookRetrying, Attempt: 2, FirstAttempt: 2, Generation: 1, StartTime: at(10 * time.Second),
				Message: "the manager restarted or the hook was changed while it ran",
			}},
		},
		"a pod that is held stays": {
			input{Rules: usual, Run: run(v1alpha1.HookHeld, 2, 0), Acquired: true}, decision{Do: doHold},
		},
		"a changed hook begins anew, with another number": {
			input{Rules: changed, Run: run(v1alpha1.HookHeld, 2, 0), Acquired: true},
			decision{Do: doRecord, Run: v1alpha1.HookRun{Phase: v1alpha1.HookRunning, Attempt: 3, FirstAttempt: 3, Generation: 2, StartTime: at(0)}},
		},
		"an attempt of the hook before its change has all of the new attempts after it": {
			input{Rules: changed, Run: run(v1alpha1.HookRunning, 2, 0), Work: work{State: stateFailed, Message: "exit code 1", Final: true}},
			decision{Do: doRecord, Stop: true, Result: resultFailed, Run: v1alpha1.HookRun{
				Phase: v1alpha1.HookRetrying, Attempt: 2, FirstAttempt: 3, Generation: 2, StartTime: at(20 * time.Second), Message: "exit code 1",
			}},
		},
		"on a lost node an attempt that runs goes on": {
			input{Rules: usual, NodeLost: true, Run: run(v1alpha1.HookRunning, 1, -time.Minute), Work: work{State: stateRunning}},
			decision{Do: doWork, WakeAt: noon.Add(9 * time.Minute)},
		},
		"and if it fails no other one follows": {
			input{Rules: usual, NodeLost: true, Run: new(with(run(v1alpha1.HookRetrying, 1, time.Second), "connection refused")), Acquired: true},
			decision{Do: doPass, Message: "it failed and the node is lost, so the eviction continues: connection refused"},
		},
		"nor does it hold the pod": {
			input{Rules: usual, NodeLost: true, Run: new(with(run(v1alpha1.HookHeld, 2, 0), "connection refused"))},
			decision{Do: doPass, Message: "it failed and the node is lost, so the eviction continues: connection refused"},
		},
		"an undo that has begun ends the turn": {
			input{Rules: usual, Run: run(v1alpha1.HookUndoing, 1, 0), Acquired: true}, decision{Do: doWait, Message: "it is undone"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.in.Now = noon
			if diff := cmp.Diff(tc.want, step(tc.in)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever happens, a run of one generation ends or holds, after at most as many attempts
// as allowed plus those that were lost, and no attempt has the number of another.
func TestARunEnds(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		rules := rules{Generation: 1, Deadline: time.Duration(1+random.IntN(600)) * time.Second, Retries: random.Int32N(4), Continue: random.IntN(2) == 0}
		var run *v1alpha1.HookRun
		now, began, lost := noon, map[int32]bool{}, 0
		for i := 0; ; i++ {
			if i > 1000 {
				t.Fatalf("seed %d: it does not end: %+v", seed, run)
			}
			in := input{Rules: rules, Run: run, Now: now, Acquired: random.IntN(3) > 0}
			if run != nil && run.Phase == v1alpha1.HookRunning {
				in.Work = work{State: []state{stateRunning, stateRunning, stateFailed, stateLost}[random.IntN(4)]}
				if in.Work.State == stateLost && lost > 5 {
					in.Work.State = stateRunning
				}
			}
			d := step(in)
			if d.Do == doHold || d.Do == doPass {
				break
			}
			if d.Do == doRecord {
				if d.Result == resultLost {
					lost++
				}
				if d.Run.Phase == v1alpha1.HookRunning {
					if began[d.Run.Attempt] {
						t.Fatalf("seed %d: attempt %d begins twice", seed, d.Run.Attempt)
					}
					began[d.Run.Attempt] = true
				}
				run = &d.Run
				continue
			}
			now = now.Add(time.Duration(1+random.IntN(120)) * time.Second)
		}
		if most := int(rules.Retries) + 1 + lost; len(began) > most {
			t.Errorf("seed %d: %d attempts, want at most %d", seed, len(began), most)
		}
	}
}

func TestPausesGrow(t *testing.T) {
	var got []time.Duration
	for tries := range int32(8) {
		got = append(got, pause(tries))
	}
	want := []time.Duration{
		10 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
}
