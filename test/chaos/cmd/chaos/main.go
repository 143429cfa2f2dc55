//go:build unix

// Command chaos drains nodes while everything around breaks, and says whether
// Drawbridge has kept its promises. Each run is drawn from its seed; to see a run
// again, give --seed. It exits with 1 when a promise was broken.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/drawbridge-dev/drawbridge/test/chaos"
	"github.com/drawbridge-dev/drawbridge/test/cluster"
)

// runsPerCluster bounds how long the log of an API server becomes.
const runsPerCluster = 15

type options struct {
	runs     int
	seed     uint64
	duration time.Duration
	tags     string
	verbose  bool
}

func main() {
	var o options
	flag.IntVar(&o.runs, "runs", 200, "how many runs, each with the next seed")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the first run")
	flag.DurationVar(&o.duration, "duration", 0, "begin no run after this time; 0 is no limit")
	flag.StringVar(&o.tags, "tags", "", "build tags of the manager")
	flag.BoolVar(&o.verbose, "v", false, "print plan and timeline of every run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1) //nolint:gocritic // Everything started was ended by run.
	}
}

// errBroken says that a promise was.
var errBroken = errors.New("promises were broken, see above")

func (o *options) run(ctx context.Context) error {
	begun := time.Now()
	total := chaos.Total{}
	var err error
	for err == nil && total.Runs < o.runs && !o.over(begun) && ctx.Err() == nil {
		err = o.batch(ctx, &total, begun)
	}
	fmt.Printf("\n%s\nIt took %s.\n", &total, time.Since(begun).Round(time.Second))
	if total.Broken > 0 {
		err = errors.Join(err, errBroken)
	}
	return err
}

func (o *options) over(begun time.Time) bool { return o.duration > 0 && time.Since(begun) > o.duration }

// batch are runs on one control plane.
func (o *options) batch(ctx context.Context, total *chaos.Total, begun time.Time) (err error) {
	c, err := cluster.Start(ctx, chaos.ClusterOptions())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
	w, err := chaos.NewWorld(ctx, c, o.tags)
	if err != nil {
		return err
	}
	for range runsPerCluster {
		if total.Runs == o.runs || o.over(begun) || ctx.Err() != nil {
			return nil
		}
		if err := o.one(ctx, w, o.seed+uint64(total.Runs), total); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) one(ctx context.Context, w *chaos.World, seed uint64, total *chaos.Total) error {
	started := time.Now()
	plan := chaos.MakePlan(seed)
	h, err := w.Run(ctx, plan)
	if h == nil {
		kept, keepErr := w.Cluster.KeepLogs(fmt.Sprintf("seed-%d", seed))
		fmt.Printf("seed %d: the run failed; logs are in %s\n", seed, kept)
		return errors.Join(err, keepErr)
	}
	verdict := chaos.Check(h)
	total.Add(plan, verdict)
	fmt.Printf("seed %d: %s (%s, %d faults, %.0f s)\n", seed, verdict, plan.Mode, len(plan.Faults), time.Since(started).Seconds())
	if len(verdict.Violations) == 0 && !o.verbose {
		return err
	}
	for _, violation := range verdict.Violations {
		fmt.Printf("  BROKEN: %s\n", violation)
	}
	kept, keepErr := w.Cluster.KeepLogs(fmt.Sprintf("seed-%d", seed))
	timeline := filepath.Join(kept, "timeline.txt")
	writeErr := os.WriteFile(timeline, []byte(plan.String()+h.Timeline()), 0o600)
	fmt.Printf("%s  The timeline is %s, beside the logs. Again: make chaos ARGS='--runs=1 --seed=%d'\n", &plan, timeline, seed)
	return errors.Join(err, keepErr, writeErr)
}
