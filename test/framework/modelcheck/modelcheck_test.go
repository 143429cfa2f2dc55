package modelcheck

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var errBroken = errors.New("broken")

// puzzle is the one of two jugs, of three and five litres.
type puzzle struct{ small, large int }

func pour(s puzzle, to func(Move[puzzle])) {
	small := min(s.small, 5-s.large)
	large := min(s.large, 3-s.small)
	for _, m := range []Move[puzzle]{
		{Label: "fill small", To: puzzle{3, s.large}, Own: true},
		{Label: "fill large", To: puzzle{s.small, 5}, Own: true},
		{Label: "empty small", To: puzzle{0, s.large}, Own: true},
		{Label: "empty large", To: puzzle{s.small, 0}, Own: true},
		{Label: "small into large", To: puzzle{s.small - small, s.large + small}, Own: true},
		{Label: "large into small", To: puzzle{s.small + large, s.large - large}, Own: true},
	} {
		to(m)
	}
}

func TestRun(t *testing.T) {
	four := []string{"fill large", "large into small", "empty small", "large into small", "fill large", "large into small"}
	tests := map[string]struct {
		change    func(*Model[puzzle])
		want      Result
		wantErr   error
		wantSteps []string
	}{
		"all states are visited once": {
			want: Result{States: 16, Moves: 96, Depth: 7},
		},
		"a bad state is reached on the shortest way": {
			change: func(m *Model[puzzle]) {
				m.Check = func(s puzzle) error {
					if s.large == 4 {
						return errBroken
					}
					return nil
				}
			},
			wantErr: errBroken, wantSteps: four,
		},
		"a bad move is the last of its trace": {
			change: func(m *Model[puzzle]) {
				m.Moves = func(s puzzle, to func(Move[puzzle])) {
					pour(s, func(move Move[puzzle]) {
						if s.large == 5 && move.Label == "empty large" {
							move.Wrong = errBroken
						}
						to(move)
					})
				}
			},
			wantErr: errBroken, wantSteps: []string{"fill large", "empty large"},
		},
		"a state with no way to the goal is stuck": {
			change: func(m *Model[puzzle]) {
				m.Goal = func(s puzzle) bool { return s.small == 1 }
				m.Moves = func(s puzzle, to func(Move[puzzle])) {
					if s.large < 5 {
						pour(s, to)
					}
				}
			},
			wantErr: ErrStuck, wantSteps: []string{"fill large"},
		},
		"a way that needs help is none": {
			change: func(m *Model[puzzle]) {
				m.Goal = func(s puzzle) bool { return s.large == 4 }
				m.Moves = func(s puzzle, to func(Move[puzzle])) {
					pour(s, func(move Move[puzzle]) { move.Own = false; to(move) })
				}
			},
			wantErr: ErrStuck,
		},
		"a goal within reach of all is fine": {
			change: func(m *Model[puzzle]) { m.Goal = func(s puzzle) bool { return s.large == 4 } },
			want:   Result{States: 16, Moves: 96, Depth: 7},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := Model[puzzle]{Start: []puzzle{{}}, Moves: pour}
			if tt.change != nil {
				tt.change(&m)
			}
			got, err := Run(m)
			if !errors.Is(err, tt.wantErr) {
				t.Fatalf("want error %v, got %v", tt.wantErr, err)
			}
			if err == nil {
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("result (-want +got):\n%s", diff)
				}
				return
			}
			var violation *Violation
			if !errors.As(err, &violation) {
				t.Fatalf("no violation: %v", err)
			}
			if diff := cmp.Diff(tt.wantSteps, violation.Steps); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMoreStatesThanTheLimitAreAnError(t *testing.T) {
	_, err := Run(Model[puzzle]{Start: []puzzle{{}}, Moves: pour, Limit: 15})
	if want := "more than 15 states: make the model smaller or raise the limit"; fmt.Sprint(err) != want {
		t.Errorf("want %q, got %v", want, err)
	}
}
