//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/drawbridge-dev/drawbridge/test/chaos"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

const (
	// runsPerCluster bounds how long the log of an API server becomes.
	runsPerCluster = 15
	// tries is how often a run is set up. A machine with too much to do lets one fail.
	tries = 2
)

// pool works off the seeds on several control planes.
type pool struct {
	*options
	allowed []chaos.TroubleKind
	begun   time.Time

	mu     sync.Mutex // Guards what follows, and keeps the lines of a run together.
	series *chaos.Series
	taken  int
	err    error
}

// work runs all seeds. Error: records cannot be kept; what happens in a run is none.
func (p *pool) work(ctx context.Context) error {
	var group sync.WaitGroup
	for range p.parallel {
		group.Go(func() { p.worker(ctx) })
	}
	group.Wait()
	return p.err
}

// next is the next seed to run.
func (p *pool) next(ctx context.Context) (uint64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.taken < p.runs && ctx.Err() == nil && p.err == nil && (p.duration == 0 || time.Since(p.begun) < p.duration) {
		seed := p.seed + uint64(p.taken)
		p.taken++
		plan := p.plan(seed)
		if !p.series.Has(seed) && (!p.native || plan.Serves) && (!p.single || plan.Singletons != nil) {
			return seed, true
		}
	}
	return 0, false
}

// worker runs one seed after the other, on a new control plane now and then, and after
// each failure.
func (p *pool) worker(ctx context.Context) {
	var w *chaos.World
	runs := 0
	stop := func() {
		if w == nil {
			return
		}
		if err := w.Cluster.Stop(context.WithoutCancel(ctx)); err != nil {
			fmt.Fprintln(os.Stderr, "chaos: stop control plane:", err)
		}
		w = nil
	}
	defer stop()
	for seed, ok := p.next(ctx); ok; seed, ok = p.next(ctx) {
		native := p.plan(seed).Serves
		if w != nil && w.Serves() != native {
			stop()
		}
		for try := 1; ; try++ {
			var err error
			done := false
			if w == nil {
				w, err = p.start(ctx, native)
				runs = 0
			}
			if err == nil {
				runs++
				done, err = p.one(ctx, w, seed)
			}
			if err != nil || runs == runsPerCluster {
				stop()
			}
			if err != nil {
				fmt.Fprintf(os.Stderr, "chaos: seed %d: %v\n", seed, err)
			}
			if done || ctx.Err() != nil {
				break
			}
			if try == tries {
				p.keep(chaos.Record{Seed: seed, Failure: err.Error()})
				break
			}
		}
	}
}

func (p *pool) start(ctx context.Context, native bool) (*chaos.World, error) {
	c, err := cluster.Start(ctx, chaos.ClusterOptions(native))
	if err != nil {
		return nil, err
	}
	w, err := chaos.NewWorld(ctx, c, p.manager)
	if err != nil {
		return nil, errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
	}
	return w, nil
}

func (p *pool) plan(seed uint64) chaos.Plan { return chaos.MakePlan(seed, p.allowed) }

func (p *pool) keep(r chaos.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = errors.Join(p.err, p.series.Add(r))
}

// one runs a seed and tells of it. Error: the control plane is not fit for another run;
// nothing was proved unless it is done.
func (p *pool) one(ctx context.Context, w *chaos.World, seed uint64) (done bool, err error) {
	started := time.Now()
	plan := p.plan(seed)
	h, err := w.Run(ctx, plan)
	if ctx.Err() != nil {
		return false, err
	}
	if h == nil {
		kept, keepErr := w.Cluster.KeepLogs(fmt.Sprintf("seed-%d", seed))
		return false, errors.Join(fmt.Errorf("it could not be run, logs are in %s: %w", kept, err), keepErr)
	}
	verdict := chaos.Check(h)
	record := chaos.NewRecord(&plan, verdict)
	record.Seconds = time.Since(started).Seconds()
	if len(verdict.Violations) > 0 || p.verbose {
		var keepErr error
		record.Logs, keepErr = keepRun(w, h)
		err = errors.Join(err, keepErr)
	}
	p.keep(record)
	p.tell(&plan, &record)
	return true, err
}

// keepRun keeps logs and timeline of a run.
func keepRun(w *chaos.World, h *chaos.History) (string, error) {
	kept, err := w.Cluster.KeepLogs(fmt.Sprintf("seed-%d", h.Plan.Seed))
	if err != nil {
		return kept, err
	}
	return kept, os.WriteFile(filepath.Join(kept, "timeline.txt"), []byte(h.Plan.String()+h.Timeline()), 0o600)
}

func (p *pool) tell(plan *chaos.Plan, r *chaos.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Printf("seed %d: %s (%s, %d faults, %.0f s)\n", r.Seed, r.Verdict, plan.Mode, len(plan.Faults), r.Seconds)
	for _, violation := range r.Verdict.Violations {
		fmt.Printf("  BROKEN: %s\n", violation)
	}
	if r.Logs != "" {
		fmt.Printf("%s  The timeline is %s, beside the logs. Again: make chaos ARGS='--runs=1 --seed=%d --troubles=%q'\n", plan, filepath.Join(r.Logs, "timeline.txt"), r.Seed, p.troubles)
	}
}
