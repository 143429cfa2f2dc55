package vm

import (
	"cmp"
	"slices"
	"time"
)

// Backoff between two migrations of one workload: KubeVirt's (kubevirt.md,
// section 9).
const (
	firstBackoff = 20 * time.Second
	lastBackoff  = 320 * time.Second
)

// limits bound the migrations of a policy.
type limits struct {
	PerCluster, PerNode, Retries int
}

// candidate is a marked workload.
type candidate struct {
	// Key identifies the evacuation.
	Key string
	// Workload is namespace and name.
	Workload string
	// Node is the one it would leave.
	Node string
	// Since is when its evacuation began.
	Since time.Time
	// Failures counts its failed migrations, LastFailure is when the last one ended.
	Failures    int
	LastFailure time.Time
}

// running is an unfinished migration, no matter who created it.
type running struct {
	Workload string
	// Node is empty if unknown; the migration still counts for the cluster.
	Node string
}

// schedule returns the candidates for which to create a migration now, oldest first,
// and when to call it again because a backoff ends; zero if none does. It is pure.
func schedule(candidates []candidate, unfinished []running, l limits, now time.Time) (create []string, wakeAt time.Time) {
	busy, perNode := map[string]bool{}, map[string]int{}
	for _, r := range unfinished {
		busy[r.Workload] = true
		perNode[r.Node]++
	}
	free := l.PerCluster - len(unfinished)
	sorted := slices.Clone(candidates)
	slices.SortFunc(sorted, func(a, b candidate) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Workload, b.Workload), cmp.Compare(a.Key, b.Key))
	})
	for _, c := range sorted {
		if busy[c.Workload] || c.Failures >= l.Retries {
			continue
		}
		if ready := c.LastFailure.Add(backoff(c.Failures)); c.Failures > 0 && now.Before(ready) {
			if wakeAt.IsZero() || ready.Before(wakeAt) {
				wakeAt = ready
			}
			continue
		}
		if free <= 0 || perNode[c.Node] >= l.PerNode {
			continue
		}
		create = append(create, c.Key)
		busy[c.Workload] = true // Two pods of one workload need one migration.
		perNode[c.Node]++
		free--
	}
	return create, wakeAt
}

// backoff is the pause after so many failures.
func backoff(failures int) time.Duration {
	pause := firstBackoff
	for range failures - 1 {
		if pause >= lastBackoff {
			break
		}
		pause *= 2
	}
	return min(pause, lastBackoff)
}
