//go:build unix

// Command chaos drains nodes while everything around breaks, and says whether
// Drawbridge has kept its promises. Each run is drawn from its seed; to see a run
// again, give --seed. Several control planes can be at work at a time. It ends with the
// tables of docs/chaos.md, and exits with 1 when a promise was broken or a run could not
// be set up.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/drawbridge-dev/drawbridge/test/chaos"
)

type options struct {
	runs     int
	seed     uint64
	parallel int
	duration time.Duration
	tags     string
	manager  string
	out      string
	page     string
	troubles string
	verbose  bool
	native   bool
	single   bool
}

func main() {
	var o options
	flag.IntVar(&o.runs, "runs", 200, "how many runs, each with the next seed")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the first run")
	flag.IntVar(&o.parallel, "parallel", 1, "how many runs at a time, each on a control plane of its own")
	flag.DurationVar(&o.duration, "duration", 0, "begin no run after this time; 0 is no limit")
	flag.StringVar(&o.tags, "tags", "", "build tags of the manager")
	flag.StringVar(&o.manager, "manager", "", "file of a manager that was built from test/chaos/cmd/manager, instead of building one")
	flag.StringVar(&o.out, "out", "", "file that gets a line of JSON for each run; seeds that it has already are not run again, and count")
	flag.StringVar(&o.page, "page", "", "page that gets the tables, between the marks it has")
	flag.StringVar(&o.troubles, "troubles", "all", "kinds of troubles that plans may have, separated by commas; or all or none")
	flag.BoolVar(&o.native, "native", false, "leave out seeds whose plans have no native requesters and responders")
	flag.BoolVar(&o.single, "singletons", false, "leave out seeds whose plans have no singletons behind a budget that can never let them go")
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

// errBroken and errFailed say what the table says.
var (
	errBroken = errors.New("promises were broken, see above")
	errFailed = errors.New("runs could not be set up, see above")
)

func (o *options) run(ctx context.Context) (err error) {
	if o.parallel < 1 {
		return fmt.Errorf("--parallel must be at least 1, but is %d", o.parallel)
	}
	troubles, err := chaos.ParseTroubles(o.troubles)
	if err != nil {
		return fmt.Errorf("--troubles: %w", err)
	}
	begun := time.Now()
	series, err := chaos.OpenSeries(o.out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, series.Close()) }()
	folder, err := os.MkdirTemp("", "drawbridge-chaos-")
	if err != nil {
		return fmt.Errorf("create folder of the manager: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if o.manager == "" {
		if o.manager, err = chaos.Build(ctx, folder, o.tags); err != nil {
			return err
		}
	}
	p := &pool{options: o, allowed: troubles, series: series, begun: begun}
	err = p.work(ctx)

	total := chaos.TotalOf(series.Records)
	fmt.Printf("%s\nIt took %s, %d at a time.\n", &total, time.Since(begun).Round(time.Second), o.parallel)
	if o.page != "" {
		err = errors.Join(err, total.WritePage(o.page))
	}
	if total.Broken > 0 {
		err = errors.Join(err, errBroken)
	}
	if len(total.Failed) > 0 {
		err = errors.Join(err, errFailed)
	}
	return err
}
