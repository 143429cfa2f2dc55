// Command mutations shows that the tests find mistakes: it makes them, one at a time, and runs
// the tests of the package that should notice.
//
// The mistakes are in mutations.yaml. Each is one text in one file of the product, and what stands
// there instead. The sources are never changed: the go command is told to read another file
// (-overlay). It fails if the tests pass with a mistake, and if a mistake is no program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/utils/clock"
)

func main() {
	o := options{root: ".", out: os.Stdout, clock: clock.RealClock{}}
	flag.StringVar(&o.list, "list", "test/mutations/mutations.yaml", "the list of mutations")
	flag.StringVar(&o.only, "only", "", "make only those in files whose path has this in it")
	flag.BoolVar(&o.check, "check", false, "only check that each text stands exactly once in its file")
	flag.BoolVar(&o.unmutated, "unmutated", true, "first run the tests without any mutation, which have to pass")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := o.do(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutations:", err)
		os.Exit(1)
	}
}

type options struct {
	// root is the folder of the module.
	root, list, only string
	check, unmutated bool
	out              io.Writer
	clock            clock.PassiveClock
}

// row is one line of the table.
type row struct {
	mutation mutation
	result   result
	took     time.Duration
}

func (o options) do(ctx context.Context) error {
	all, err := read(o.list)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(m mutation) bool { return !strings.Contains(m.File, o.only) })
	if len(all) == 0 {
		return fmt.Errorf("no mutation is in a file whose path has %q in it", o.only)
	}
	stale := o.stale(all)
	if o.check || stale != nil {
		return stale
	}
	// One package after the other, so that what they all need is compiled once.
	slices.SortStableFunc(all, func(a, b mutation) int { return strings.Compare(a.Tests, b.Tests) })
	var rows []row
	for i := 0; i < len(all) && ctx.Err() == nil; {
		of := all[i:]
		if end := slices.IndexFunc(of, func(m mutation) bool { return m.Tests != of[0].Tests }); end >= 0 {
			of = of[:end]
		}
		rows = append(rows, o.ofPackage(ctx, of)...)
		i += len(of)
	}
	return errors.Join(o.table(rows), ctx.Err())
}

// stale says which texts do not stand exactly once in their files.
func (o options) stale(all []mutation) error {
	var errs []error
	for _, m := range all {
		if _, err := m.apply(o.root); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ofPackage makes the mutations that the tests of one package should find.
func (o options) ofPackage(ctx context.Context, of []mutation) (rows []row) {
	if o.unmutated {
		if r := o.run(ctx, mutation{Tests: of[0].Tests, Run: runOf(of)}, ""); r.verdict != notFound {
			r.verdict = testsFail
			for _, m := range of {
				rows = append(rows, o.tell(row{mutation: m, result: r}))
			}
			return rows
		}
	}
	for _, m := range of {
		if ctx.Err() != nil {
			return rows
		}
		began := o.clock.Now()
		rows = append(rows, o.tell(row{m, o.mutated(ctx, m), o.clock.Since(began)}))
	}
	return rows
}

// runOf is the -run of all tests that the mutations need.
func runOf(of []mutation) string {
	var patterns []string
	for _, m := range of {
		if m.Run == "" {
			return "" // All of them.
		}
		patterns = append(patterns, m.Run)
	}
	slices.Sort(patterns)
	return strings.Join(slices.Compact(patterns), "|")
}

// tell prints how one ended, as the others take a while.
func (o options) tell(r row) row {
	fmt.Fprintf(o.out, "%s: %s (%s)\n", r.mutation.File, r.result.verdict, r.took.Round(time.Second/10))
	if r.result.verdict != found {
		fmt.Fprintf(o.out, "  %s\n  %s\n", r.mutation.Says, strings.ReplaceAll(strings.TrimSpace(r.result.output), "\n", "\n  "))
	}
	return r
}

// table prints all of them, and fails unless all were found.
func (o options) table(rows []row) error {
	missed := 0
	table := tabwriter.NewWriter(o.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nRESULT\tFILE\tFOUND BY\tWHAT IS WRONG")
	for _, r := range rows {
		if r.result.verdict != found {
			missed++
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.result.verdict, r.mutation.File, r.result.by, r.mutation.Says)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d mutations are not found by the tests", missed, len(rows))
	}
	return nil
}
