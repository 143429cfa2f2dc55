package vm

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// The table of KubeVirt's "Handling Eviction Requests", and what it leaves out.
func TestDecide(t *testing.T) {
	const (
		live     = v1alpha1.StrategyLiveMigrate
		possible = v1alpha1.StrategyLiveMigrateIfPossible
		external = v1alpha1.StrategyExternal
	)
	found := func(strategy string, migratable ternary, changes ...func(*input)) input {
		in := input{Facts: facts{Exists: true, Strategy: strategy, Migratable: migratable}}
		for _, change := range changes {
			change(&in)
		}
		return in
	}
	marked := func(in *input) { in.Facts.Evacuating = true }
	done := func(in *input) { in.Facts.Done = true }
	waits := func(in *input) { in.Facts.Wait = "not yet" }
	runs := func(in *input) { in.Facts.Unfinished = 1 }
	failed := func(in *input) { in.Facts.Failed = true }
	failures := func(n int) func(*input) { return func(in *input) { in.RetryLimit, in.Facts.Failures = 3, n } }
	overdue := func(in *input) { in.Overdue = true }

	cases := map[string]struct {
		in   input
		want step
	}{
		"None, migratable":                                                {found(v1alpha1.StrategyNone, yes), stepPass},
		"None, not migratable":                                            {found(v1alpha1.StrategyNone, no), stepPass},
		"LiveMigrate, migratable":                                         {found(live, yes), stepMark},
		"LiveMigrate, not migratable":                                     {found(live, no), stepRefuse},
		"LiveMigrateIfPossible, migratable":                               {found(possible, yes), stepMark},
		"LiveMigrateIfPossible, not migratable":                           {found(possible, no), stepPass},
		"External, migratable":                                            {found(external, yes), stepMark},
		"External, not migratable":                                        {found(external, no), stepMark},
		"External, migratability not known":                               {found(external, unknown), stepMark},
		"LiveMigrate, marked already":                                     {found(live, yes, marked), stepFollow},
		"LiveMigrateIfPossible, marked already":                           {found(possible, yes, marked), stepFollow},
		"External, marked already":                                        {found(external, no, marked), stepFollow},
		"G3: the workload is gone":                                        {input{}, stepPass},
		"G4: LiveMigrate, not known yet":                                  {found(live, unknown), stepWait},
		"G4: LiveMigrateIfPossible, not known yet":                        {found(possible, unknown), stepWait},
		"not known any more, but marked":                                  {found(live, unknown, marked), stepFollow},
		"G10: the target pod of a migration waits":                        {found(live, yes, waits), stepWait},
		"it has left the pod":                                             {found(live, yes, done), stepMoved},
		"it has left the pod and cannot migrate any more":                 {found(live, no, done), stepMoved},
		"it seems not migratable while it migrates":                       {found(possible, no, marked, runs), stepFollow},
		"it became not migratable before it migrates":                     {found(possible, no, marked), stepPass},
		"G7: the platform gave up":                                        {found(live, yes, marked, failed), stepGiveUp},
		"G7: it failed as often as it may":                                {found(live, yes, marked, failures(3)), stepGiveUp},
		"G7: and so it stays when the mark is taken back":                 {found(live, yes, failures(3)), stepGiveUp},
		"it failed, but may once more":                                    {found(live, yes, marked, failures(2)), stepFollow},
		"G7: it failed as often as it may, and one more is there already": {found(live, yes, marked, runs, failures(3)), stepGiveUp},
		"G7: it took longer than its deadline":                            {found(live, yes, marked, overdue), stepGiveUp},
		"it is done, if late":                                             {found(live, yes, done, overdue), stepMoved},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := decide(tc.in)
			if diff := cmp.Diff(tc.want.String(), got.Step.String()); diff != "" {
				t.Errorf("step (-want +got):\n%s", diff)
			}
			if got.Why == "" {
				t.Error("the verdict has no reason")
			}
		})
	}
}

func TestHold(t *testing.T) {
	cases := map[string]struct {
		policy   v1alpha1.OnFailure
		strategy string
		want     bool
	}{
		"LiveMigrate holds":                             {"", v1alpha1.StrategyLiveMigrate, true},
		"External holds":                                {"", v1alpha1.StrategyExternal, true},
		"LiveMigrateIfPossible does not":                {"", v1alpha1.StrategyLiveMigrateIfPossible, false},
		"Hold says so":                                  {v1alpha1.OnFailureHold, v1alpha1.StrategyLiveMigrateIfPossible, true},
		"Evict is the administrator's, for all of them": {v1alpha1.OnFailureEvict, v1alpha1.StrategyLiveMigrate, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := &policy{onFailure: tc.policy}
			if got := p.hold(tc.strategy); got != tc.want {
				t.Errorf("hold: want %t, got %t", tc.want, got)
			}
		})
	}
}
