//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// row measures something and adds its lines to the table.
type row struct {
	name    string
	measure func(ctx context.Context, e *env) error
	// logs: it reads the request log, which slows the API server down.
	logs bool
	// alone: it has a control plane of its own.
	alone bool
	// apart: it is measured only if --rows names it.
	apart bool
}

// rows in the order of the table. Those without logs that are not alone share a control plane, which
// memory leaves full of pods.
var rows = []row{
	{name: "evictions", measure: measureEvictions},
	{name: "denials", measure: measureDenials},
	{name: "admission", measure: measureAdmission},
	{name: "repeated", measure: measureRepeated},
	{name: "requests", measure: measureRequests},
	{name: "status", measure: measureStatus, apart: true},
	{name: "growth", measure: measureGrowth},
	{name: "budget", measure: measureBudget},
	{name: "drain", measure: measureDrain},
	{name: "maintenance", measure: measureMaintenance},
	{name: "memory", measure: measureMemory},
	{name: "hotloop", measure: measureHotLoop, logs: true},
	{name: "writes", measure: measureWrites, logs: true},
	{name: "hooks", measure: measureHooks, logs: true},
	{name: "scale", measure: measureScale, alone: true},
}

func rowNames() []string {
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
	}
	return names
}

func run(ctx context.Context, s settings) error {
	t := &table{}
	about := ""
	var failed []error
	for _, plane := range []row{{}, {logs: true}, {alone: true}} {
		wanted := slices.DeleteFunc(slices.Clone(rows), func(r row) bool {
			return r.logs != plane.logs || r.alone != plane.alone || (len(s.rows) > 0 || r.apart) && !slices.Contains(s.rows, r.name)
		})
		if len(wanted) == 0 {
			continue
		}
		// What was measured is worth its time, whatever became of the rest.
		of, err := runRows(ctx, s, t, plane, wanted)
		failed = append(failed, err)
		about = cmp.Or(about, of)
	}
	fmt.Printf("\n%s\n%s", about, t.markdown())
	if s.page != "" && about != "" {
		failed = append(failed, t.write(s.page, about))
	}
	return errors.Join(failed...)
}

func runRows(ctx context.Context, s settings, t *table, plane row, wanted []row) (about string, err error) {
	fmt.Println("Starting a control plane.")
	e, stop, err := newEnv(ctx, s, t, plane)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, stop()) }()
	version, err := e.kube.Discovery().ServerVersion()
	if err != nil {
		return "", fmt.Errorf("ask for the version: %w", err)
	}
	for _, r := range wanted {
		begun := time.Now()
		fmt.Printf("%s:\n", r.name)
		e.row = r.name
		if err := r.measure(ctx, e); err != nil {
			t.add(line{what: "row " + r.name + " and what comes after it", ours: "**failed**"})
			return machine(version.GitVersion, s), fmt.Errorf("%s: %w", r.name, err)
		}
		fmt.Printf("  (%s)\n", time.Since(begun).Round(time.Second))
	}
	return machine(version.GitVersion, s), nil
}

// size is the first number, or the second with --quick.
func (e *env) size(full, quick int) int {
	if e.quick {
		return quick
	}
	return full
}

// alternate measures each side once per round, in turn, the order changing from
// round to round, and returns what each measured.
func alternate[T any](ctx context.Context, rounds int, sides ...func(context.Context) (T, error)) ([][]T, error) {
	got := make([][]T, len(sides))
	for round := range rounds {
		for i := range sides {
			side := (i + round) % len(sides)
			value, err := sides[side](ctx)
			if err != nil {
				return nil, err
			}
			got[side] = append(got[side], value)
		}
	}
	return got, nil
}
