package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// standIn is the go command of a rehearsal: instead of compiling a program for another platform,
// which takes minutes, it copies one that is there already.
const standIn = `#!/bin/sh
[ "$1" = build ] || exec go "$@"
while [ $# -gt 1 ]; do
	[ "$1" != -o ] || exec cp '%[1]s' "$2"
	shift
done
echo "go build without -o FILE: GoReleaser calls it in another way now" >&2
exit 1
`

// rehearse makes the archives and the manifest for krew of .goreleaser.yaml, with stand-ins for the
// programs, and lets krew judge and install them. What it makes is thrown away.
func rehearse(ctx context.Context, root string) (err error) {
	r := release{version: "v0.0.0-rehearsal.1"}
	if r.root, err = filepath.Abs(root); err != nil {
		return fmt.Errorf("find the folder: %w", err)
	}
	if r.time, err = commitTime(ctx, r.root); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "drawbridge-rehearsal-")
	if err != nil {
		return fmt.Errorf("make a folder for the rehearsal: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	r.output, r.compiler = filepath.Join(scratch, "output"), filepath.Join(scratch, "go")
	// goreleaser builds this program first.
	script := fmt.Sprintf(standIn, filepath.Join(scratch, "bin", sbomProgram))
	if err := os.WriteFile(r.compiler, []byte(script), 0o700); err != nil { //nolint:gosec // It is a program.
		return fmt.Errorf("write the stand-in for go: %w", err)
	}
	if _, err := r.goreleaser(ctx, scratch); err != nil {
		return err
	}
	return r.validateKrew(ctx, scratch)
}
