//go:build unix

package main

import (
	"fmt"
	"time"
)

// addScale compares the two sizes.
func (e *env) addScale(small, large atScale) {
	lots := func(d time.Duration) float64 { return d.Seconds() }
	inSeconds := func(s float64) string { return fmt.Sprintf("%.1f s", s) }
	inMillis := func(s float64) string { return fmt.Sprintf("%.2f ms", 1e3*s) }
	number := func(n float64) string { return fmt.Sprintf("%.0f", n) }
	pods := func(what string, a, b float64, tell func(float64) string) line {
		return grown(what, "pods", a, b, small.size.pods, large.size.pods, tell)
	}
	one := func(what string, a, b time.Duration) line { return grown(what, "", lots(a), lots(b), 1, 1, inMillis) }

	e.table.add(line{
		what: fmt.Sprintf("resident memory with %d pods, %d nodes, %d running requests", large.size.pods, large.size.nodes, large.size.requests),
		ours: mebi(large.resident), theirs: mebi(small.resident) + " with a tenth", goal: "<= 450 MiB", met: new(large.resident <= 450<<20),
	})
	waiters := func(what string, a, b float64, tell func(float64) string) line {
		return grown(what, "waiters", a, b, small.size.waiters, large.size.waiters, tell)
	}
	nodes := func(what string, a, b float64, tell func(float64) string) line {
		return grown(what, "nodes", a, b, small.size.maintained, large.size.maintained, tell)
	}
	for _, l := range []line{
		pods("resident memory as it grows", small.resident, large.resident, mebi),
		pods("from start to ready", lots(small.ready), lots(large.ready), inSeconds),
		pods("CPU of the manager until then", lots(small.readyCPU), lots(large.readyCPU), inSeconds),
		pods("from the end of a leader to the first move of the next", lots(small.move), lots(large.move), inSeconds),
		pods("CPU at rest", small.rest, large.rest, func(share float64) string { return fmt.Sprintf("%.2f%%", 100*share) }),
		one("denied review over TLS, p50", small.denied.p50, large.denied.p50),
		one("denied review over TLS, p99", small.denied.p99, large.denied.p99),
		one("CPU of the manager for it", small.denied.cpu, large.denied.cpu),
		one("allowed review over TLS, p50", small.allowed.p50, large.allowed.p50),
		one("allowed review over TLS, p99", small.allowed.p99, large.allowed.p99),
		one("CPU of the manager for it", small.allowed.cpu, large.allowed.cpu),
		one("CPU of the manager for a change of one pod", small.event, large.event),
		waiters("budget freed for many to the first eviction", lots(small.budget), lots(large.budget), inSeconds),
		waiters("API requests of the manager then, in 10 s", small.budgetRequests, large.budgetRequests, number),
		waiters("CPU of the manager then, in 10 s", lots(small.budgetCPU), lots(large.budgetCPU), inSeconds),
		nodes("NodeMaintenance until all are drained", lots(small.drained), lots(large.drained), inSeconds),
		nodes("its status at its largest, bytes", float64(small.statusBytes), float64(large.statusBytes), number),
		nodes("our writes of its status", float64(small.statusWrites), float64(large.statusWrites), number),
	} {
		e.table.add(l)
	}
}
