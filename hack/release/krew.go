package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// wrapper is kubectl for validate-krew-manifest, which lets it install the plugin for each
// platform: krew takes the archive that was just made, as nothing is published yet.
const wrapper = `#!/bin/sh
shift # krew
extension=tar.gz
if [ "$KREW_OS" = windows ]; then extension=zip; fi
exec '%[1]s' "$@" --archive='%[2]s'_"$KREW_OS"_"$KREW_ARCH.$extension"
`

// validateKrew lets krew itself judge its manifest, and install what it names.
func (r release) validateKrew(ctx context.Context, scratch string) error {
	krew, err := r.krewTool(ctx, "krew")
	if err != nil {
		return err
	}
	validate, err := r.krewTool(ctx, "validate-krew-manifest")
	if err != nil {
		return err
	}
	bin := filepath.Join(scratch, "krew")
	if err := os.Mkdir(bin, 0o700); err != nil {
		return fmt.Errorf("make a folder for krew: %w", err)
	}
	script := fmt.Sprintf(wrapper, krew, filepath.Join(r.output, "kubectl-drawbridge_"+r.version))
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte(script), 0o700); err != nil { //nolint:gosec // It is a program.
		return fmt.Errorf("write a kubectl for krew: %w", err)
	}
	env := []string{"PATH=" + bin + string(filepath.ListSeparator) + os.Getenv("PATH")}
	return r.command(ctx, r.root, env, validate, "-manifest="+filepath.Join(r.output, "krew", "drawbridge.yaml"))
}

// krewTool is where a program of krew is. -n builds it and prints that, instead of running it.
func (r release) krewTool(ctx context.Context, name string) (string, error) {
	command := exec.CommandContext(ctx, "go", "tool", "-modfile=go.tools.krew.mod", "-n", name)
	command.Dir, command.Stderr = r.root, os.Stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("build %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}
