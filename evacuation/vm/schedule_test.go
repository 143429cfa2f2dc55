package vm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

func TestSchedule(t *testing.T) {
	all := limits{PerCluster: 5, PerNode: 2, Retries: 3}
	one := func(key, node string, since int, changes ...func(*candidate)) candidate {
		c := candidate{Key: key, Workload: "ns/" + key, Node: node, Since: at(since)}
		for _, change := range changes {
			change(&c)
		}
		return c
	}
	failed := func(times, last int) func(*candidate) {
		return func(c *candidate) { c.Failures, c.LastFailure = times, at(last) }
	}
	of := func(workload string) func(*candidate) { return func(c *candidate) { c.Workload = workload } }
	cases := map[string]struct {
		candidates []candidate
		unfinished []running
		limits     limits
		want       []string
		wantWake   time.Time
	}{
		"nobody": {limits: all},
		"the oldest first, two of a node": {
			candidates: []candidate{one("c", "n1", 3), one("a", "n1", 1), one("b", "n1", 2), one("d", "n2", 4)},
			limits:     all, want: []string{"a", "b", "d"},
		},
		"equally old ones by name": {
			candidates: []candidate{one("b", "n1", 1), one("a", "n2", 1)},
			limits:     limits{PerCluster: 1, PerNode: 1, Retries: 1}, want: []string{"a"},
		},
		"those that run count for the cluster": {
			candidates: []candidate{one("a", "n1", 1), one("b", "n2", 2)},
			unfinished: []running{{"ns/x", "n3"}, {"ns/y", "n4"}, {"ns/z", "n5"}, {"ns/w", ""}},
			limits:     all, want: []string{"a"},
		},
		"and for their node": {
			candidates: []candidate{one("a", "n1", 1), one("b", "n2", 2)},
			unfinished: []running{{"ns/x", "n1"}, {"ns/y", "n1"}},
			limits:     all, want: []string{"b"},
		},
		"one migration of a workload at a time": {
			candidates: []candidate{one("a", "n1", 1)}, unfinished: []running{{"ns/a", "n1"}}, limits: all,
		},
		"one migration for two pods of a workload": {
			candidates: []candidate{one("a", "n1", 1, of("ns/vm")), one("b", "n2", 2, of("ns/vm"))}, limits: all, want: []string{"a"},
		},
		"20 s after the first failure": {
			candidates: []candidate{one("a", "n1", 1, failed(1, 81))}, limits: all, wantWake: at(101),
		},
		"and no longer": {
			candidates: []candidate{one("a", "n1", 1, failed(1, 80))}, limits: all, want: []string{"a"},
		},
		"one that waits holds up no other": {
			candidates: []candidate{one("a", "n1", 1, failed(2, 90)), one("b", "n1", 2, failed(1, 95)), one("c", "n1", 3)},
			limits:     all, want: []string{"c"}, wantWake: at(115),
		},
		"one that is given up is left alone": {
			candidates: []candidate{one("a", "n1", 1, failed(3, 0))}, limits: all,
		},
		"limits that were lowered": {
			candidates: []candidate{one("a", "n1", 1)}, unfinished: []running{{"ns/x", "n2"}, {"ns/y", "n3"}},
			limits: limits{PerCluster: 1, PerNode: 1, Retries: 1},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, wake := schedule(tc.candidates, tc.unfinished, tc.limits, at(100))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("create (-want +got):\n%s", diff)
			}
			if !wake.Equal(tc.wantWake) {
				t.Errorf("wake at: want %s, got %s", tc.wantWake, wake)
			}
		})
	}
}

// KubeVirt's: 20 s, doubling to 320 s (kubevirt.md, section 9).
func TestBackoff(t *testing.T) {
	var got []string
	for n := 1; n <= 7; n++ {
		got = append(got, backoff(n).String())
	}
	if diff := cmp.Diff([]string{"20s", "40s", "1m20s", "2m40s", "5m20s", "5m20s", "5m20s"}, got); diff != "" {
		t.Errorf("backoff (-want +got):\n%s", diff)
	}
}

// 50 marked workloads on six nodes, migrations that take and fail as they like:
// never more than 5 at once and 2 from one node, one at a time of a workload, and
// in the end everything is done or given up.
func TestScheduleKeepsTheLimits(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 7)) // It is to be repeatable.
		l := limits{PerCluster: 5, PerNode: 2, Retries: 4}
		waiting := map[string]candidate{}
		for i := range 50 {
			key := fmt.Sprintf("vm-%02d", i)
			waiting[key] = candidate{Key: key, Workload: "ns/" + key, Node: fmt.Sprintf("n%d", i%6), Since: at(i)}
		}
		type started struct {
			candidate
			ends time.Time
		}
		var runs []started
		moved, givenUp := 0, 0
		for now := at(100); moved+givenUp < 50; now = now.Add(5 * time.Second) {
			if now.After(epoch.Add(48 * time.Hour)) {
				t.Fatalf("seed %d: %d moved, %d given up, and nothing goes on", seed, moved, givenUp)
			}
			var still []started
			for _, r := range runs {
				switch {
				case now.Before(r.ends):
					still = append(still, r)
				case random.IntN(4) > 0:
					delete(waiting, r.Key)
					moved++
				default:
					c := waiting[r.Key]
					c.Failures, c.LastFailure = c.Failures+1, now
					waiting[r.Key] = c
					if c.Failures == l.Retries {
						givenUp++
					}
				}
			}
			runs = still
			var candidates []candidate
			for _, c := range waiting {
				candidates = append(candidates, c)
			}
			var unfinished []running
			for _, r := range runs {
				unfinished = append(unfinished, running{r.Workload, r.Node})
			}
			create, _ := schedule(candidates, unfinished, l, now)
			for _, key := range create {
				runs = append(runs, started{waiting[key], now.Add(time.Duration(random.IntN(120)) * time.Second)})
			}
			perNode, perWorkload := map[string]int{}, map[string]int{}
			for _, r := range runs {
				perNode[r.Node]++
				perWorkload[r.Workload]++
				if perNode[r.Node] > l.PerNode || perWorkload[r.Workload] > 1 {
					t.Fatalf("seed %d: %d from node %s, %d of %s", seed, perNode[r.Node], r.Node, perWorkload[r.Workload], r.Workload)
				}
			}
			if len(runs) > l.PerCluster {
				t.Fatalf("seed %d: %d at once", seed, len(runs))
			}
		}
	}
}
