package request

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestAccount(t *testing.T) {
	turn := func(from, to process.State) []process.Transition {
		return []process.Transition{{Name: "a.example.com", From: from, To: to}}
	}
	cases := map[string]struct {
		before   process.Outcome
		decision process.Decision
		skipped  string // the interceptor that a person has skipped
		want     []string
	}{
		"nothing happened": {},
		"the first interceptor is activated": {
			decision: process.Decision{Transitions: turn(process.Inactive, process.Active)},
		},
		"an interceptor completed and the next one is activated": {
			decision: process.Decision{Transitions: []process.Transition{
				{Name: "a.example.com", From: process.Active, To: process.Completed},
				{Name: "b.example.com", From: process.Inactive, To: process.Active},
			}},
			want: []string{"turn completed"},
		},
		"a person skipped the first of two interceptors that ended": {
			decision: process.Decision{Transitions: []process.Transition{
				{Name: "a.example.com", From: process.Active, To: process.Completed},
				{Name: "b.example.com", From: process.Active, To: process.Completed},
			}},
			skipped: "a.example.com",
			want:    []string{"turn skipped", "turn completed"},
		},
		"an interceptor fell silent": {
			decision: process.Decision{Transitions: turn(process.Active, process.Interrupted)},
			want:     []string{"turn timed_out"},
		},
		"the node is lost": {
			decision: process.Decision{PassedOver: []string{"a.example.com", "b.example.com"}, Transitions: []process.Transition{
				{Name: "a.example.com", From: process.Active, To: process.Interrupted},
				{Name: "b.example.com", From: process.Inactive, To: process.Interrupted},
			}},
			want: []string{"turn node_lost", "turn node_lost"},
		},
		"the pod ended in an interceptor's turn": {
			decision: process.Decision{
				Transitions: turn(process.Active, process.Interrupted), Outcome: process.OutcomeEvicted, Cause: process.TargetDeleted,
			},
			want: []string{"turn cut_short", "finished evicted 1m0s"},
		},
		"the last requester went away": {
			decision: process.Decision{
				Transitions: turn(process.Active, process.Canceled), Outcome: process.OutcomeCanceled, Cause: process.NoIntent,
			},
			want: []string{"turn canceled", "finished canceled 1m0s"},
		},
		"there was no such pod": {
			decision: process.Decision{Outcome: process.OutcomeCanceled, Cause: process.TargetNotFound},
			want:     []string{"finished refused 1m0s"},
		},
		"it had ended before": {
			before:   process.OutcomeEvicted,
			decision: process.Decision{Outcome: process.OutcomeEvicted, Cause: process.TargetDeleted},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			m := &metricsLog{}
			er := builder.EvictionRequest("shop", "db-0", "uid-1").Interceptors("a.example.com", "b.example.com").Obj()
			for i := range er.Status.Interceptors {
				if er.Status.Interceptors[i].Name == tc.skipped {
					er.Status.Interceptors[i].SkippedBy = "alice"
				}
			}
			account(m, er, process.Snapshot{Outcome: tc.before, CreatedAt: created}, tc.decision, "", created.Add(time.Minute))
			if diff := cmp.Diff(tc.want, m.told); diff != "" {
				t.Errorf("metrics were told (-want +got):\n%s", diff)
			}
		})
	}
}

func (m *metricsLog) TurnEnded(result string) { m.told = append(m.told, "turn "+result) }

func (m *metricsLog) DeadlineEnded(result string) { m.told = append(m.told, "deadline "+result) }

func (m *metricsLog) Finished(outcome string, took time.Duration) {
	m.told = append(m.told, fmt.Sprintf("finished %s %s", outcome, took))
}
