package features

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGates(t *testing.T) {
	cases := map[string]struct {
		set       map[string]bool
		wantGuard bool
		wantErr   string
	}{
		"a gate has its default":             {wantGuard: true},
		"a gate can be switched off":         {set: map[string]bool{"Guard": false}, wantGuard: false},
		"a gate can be said to be as it is":  {set: map[string]bool{"Guard": true}, wantGuard: true},
		"a gate that does not exist is told": {set: map[string]bool{"Portcullis": false}, wantGuard: true, wantErr: `there is no feature gate "Portcullis"; there are EvacuationHooks, EvacuationPresets, EvictionBudgets, Guard, ManagedFailurePolicy, NativeAPI, Surge`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := Gates{Set: tc.set}
			if got := g.Enabled(Guard); got != tc.wantGuard {
				t.Errorf("Guard is %t, want %t", got, tc.wantGuard)
			}
			got := ""
			if err := g.Validate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.wantErr, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// Alpha features are off by default, all others on: their stage promises that. The one that is
// on needs the API server's own gate.
func TestTheDefaultFollowsTheStage(t *testing.T) {
	for _, name := range Names() {
		stage, on := Stage(name)
		if want := stage != "ALPHA" || name == string(NativeAPI); on != want {
			t.Errorf("%s is %s and by default %t", name, stage, on)
		}
	}
}
