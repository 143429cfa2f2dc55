// Package gocommand runs the go command for tests and the demo, which build what they need by it.
package gocommand

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Env is the environment of a go command that may compile much: workspaces are not for it, and the
// compiler collects garbage less often, which takes a fifth of its CPU away for about 100 MiB per
// process. Somebody's own GOGC stays.
func Env() []string {
	env := append(os.Environ(), "GOWORK=off")
	if os.Getenv("GOGC") == "" {
		env = append(env, "GOGC=400")
	}
	return env
}

// Output runs the go command in a folder, the current one if empty, and returns what it prints,
// without space around it. An error has what it says to stderr.
func Output(ctx context.Context, folder string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir, command.Env = folder, Env()
	output, err := command.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("go %s: %w", args[0], errors.Join(err, ctx.Err()))
	}
	return strings.TrimSpace(string(output)), nil
}
