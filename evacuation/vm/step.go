package vm

import (
	"fmt"
	"time"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// ternary is a condition that may not be known.
type ternary int

const (
	unknown ternary = iota
	yes
	no
)

// facts are what is known about a pod's workload. The zero value means that there is no
// workload.
type facts struct {
	// Exists: there is a workload of that name, with the UID of the pod's owner.
	Exists bool
	// Strategy is one of the four.
	Strategy   string
	Migratable ternary
	// Wait says why the evacuation must not begin yet; empty if it may.
	Wait string
	// Evacuating: it is marked for this pod.
	Evacuating bool
	// Done: it has left the pod.
	Done bool
	// Failed: the platform has given up.
	Failed bool
	// NoReturn: the platform can no longer undo it.
	NoReturn bool
	// Unfinished and Failures count the migrations that were made to evacuate it, the
	// latter since the turn began.
	Unfinished, Failures int

	ETA     time.Time
	Message string
}

// input is everything that a verdict depends on.
type input struct {
	Facts facts
	// RetryLimit is how many migrations may fail; 0 if the policy says nothing about
	// migrations.
	RetryLimit int
	// Overdue: the evacuation has taken longer than its deadline.
	Overdue bool
}

// step is what to do about a pod.
type step int

const (
	// stepPass: there is nothing to do for the pod; its eviction may proceed.
	stepPass step = iota + 1
	// stepRefuse: it must not be evicted, and an evacuation could not help.
	stepRefuse
	// stepWait: it is not known yet, or too early.
	stepWait
	// stepMark: mark the workload.
	stepMark
	// stepFollow: the workload is marked; follow the evacuation.
	stepFollow
	// stepMoved: the workload has left the pod.
	stepMoved
	// stepGiveUp: the evacuation has finally failed.
	stepGiveUp
)

func (s step) String() string {
	return [...]string{"", "Pass", "Refuse", "Wait", "Mark", "Follow", "Moved", "GiveUp"}[s]
}

// verdict is a step and the reason for it, for people.
type verdict struct {
	Step step
	// Why is one line that depends on the state alone.
	Why string
}

// decide is the table of KubeVirt's "Handling Eviction Requests", for any
// platform. It is pure.
func decide(in input) verdict {
	f := in.Facts
	switch {
	case !f.Exists:
		return verdict{stepPass, "the workload does not exist any more"}
	case f.Strategy == v1alpha1.StrategyNone:
		return verdict{stepPass, "the strategy is None"}
	case f.Done:
		return verdict{stepMoved, "the workload has left the pod"}
	case f.Strategy != v1alpha1.StrategyExternal && f.Migratable == no && f.Unfinished == 0:
		// While a migration runs, it may only seem not migratable.
		if f.Strategy == v1alpha1.StrategyLiveMigrateIfPossible {
			return verdict{stepPass, "the strategy is LiveMigrateIfPossible and the workload is not migratable"}
		}
		return verdict{stepRefuse, "the strategy is LiveMigrate and the workload is not migratable"}
	case f.Failed:
		return verdict{stepGiveUp, "the platform says that the evacuation failed"}
	case in.RetryLimit > 0 && f.Failures >= in.RetryLimit:
		// A waiting next migration does not count: a platform may always have one, and it
		// would exceed the allowed tries.
		return verdict{stepGiveUp, fmt.Sprintf("%d migrations failed", f.Failures)}
	case in.Overdue:
		return verdict{stepGiveUp, "the evacuation has taken longer than its deadline"}
	case f.Evacuating:
		return verdict{stepFollow, "the workload is being evacuated"}
	case f.Strategy != v1alpha1.StrategyExternal && f.Migratable == unknown:
		return verdict{stepWait, "it is not known yet whether the workload is migratable"}
	case f.Wait != "":
		return verdict{stepWait, f.Wait}
	default:
		return verdict{stepMark, "the workload is to be evacuated"}
	}
}
