package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/test/framework/gocommand"
)

// mutation is one mistake.
type mutation struct {
	// File is relative to the module. Find stands in it exactly once.
	File    string `json:"file"`
	Find    string `json:"find"`
	Replace string `json:"replace"`
	// Tests is the package whose tests should find it, such as ./translate, and Run those of
	// them that are enough; all if it is empty.
	Tests string `json:"tests"`
	Run   string `json:"run,omitempty"`
	// Says is what the mutated program does wrong, in a sentence.
	Says string `json:"says"`
}

// verdict is how a mutation ended.
type verdict string

const (
	found       verdict = "found"
	notFound    verdict = "NOT FOUND"
	noProgram   verdict = "does not compile"
	testsFail   verdict = "tests fail without it"
	couldNotRun verdict = "could not run"
)

// result of one run of tests.
type result struct {
	verdict verdict
	// by is the first test that failed.
	by string
	// output is what the compiler or the go command said.
	output string
}

func read(path string) ([]mutation, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the list: %w", err)
	}
	var all []mutation
	if err := yaml.UnmarshalStrict(content, &all); err != nil {
		return nil, fmt.Errorf("read the list %s: %w", path, err)
	}
	return all, nil
}

// apply returns the mutated file.
func (m mutation) apply(root string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return nil, fmt.Errorf("update the list: %w", err)
	}
	if n := bytes.Count(content, []byte(m.Find)); n != 1 || m.Find == m.Replace {
		return nil, fmt.Errorf("update the list: in %s this stands %d times and not once, or is replaced by itself: %q", m.File, n, m.Find)
	}
	return bytes.Replace(content, []byte(m.Find), []byte(m.Replace), 1), nil
}

// mutated runs the tests of a mutation with it.
func (o options) mutated(ctx context.Context, m mutation) result {
	folder, err := os.MkdirTemp("", "drawbridge-mutation-")
	if err != nil {
		return result{verdict: couldNotRun, output: err.Error()}
	}
	overlay, err := o.overlay(folder, m)
	r := result{verdict: couldNotRun}
	if err == nil {
		r = o.run(ctx, m, overlay)
	}
	if err = errors.Join(err, os.RemoveAll(folder)); err != nil {
		return result{verdict: couldNotRun, output: err.Error()}
	}
	return r
}

// overlay writes the mutated file to a folder, and what tells the go command of it.
func (o options) overlay(folder string, m mutation) (string, error) {
	content, err := m.apply(o.root)
	if err != nil {
		return "", err
	}
	of, err := filepath.Abs(filepath.Join(o.root, m.File))
	if err != nil {
		return "", fmt.Errorf("find %s: %w", m.File, err)
	}
	instead := filepath.Join(folder, filepath.Base(m.File))
	says, err := json.Marshal(map[string]map[string]string{"Replace": {of: instead}})
	if err != nil {
		return "", fmt.Errorf("encode the overlay: %w", err)
	}
	overlay := filepath.Join(folder, "overlay.json")
	if err := errors.Join(os.WriteFile(instead, content, 0o600), os.WriteFile(overlay, says, 0o600)); err != nil {
		return "", fmt.Errorf("write the mutated file: %w", err)
	}
	return overlay, nil
}

// run runs tests, with an overlay if there is one. One that hangs has failed.
func (o options) run(ctx context.Context, m mutation, overlay string) result {
	args := []string{"test", "-json", "-vet=off", "-ldflags=-w -linkmode=internal", "-timeout=5m", "-failfast"}
	if overlay != "" {
		args = append(args, "-overlay="+overlay, "-count=1")
	}
	if m.Run != "" {
		args = append(args, "-run="+m.Run)
	}
	command := exec.CommandContext(ctx, "go", append(args, m.Tests)...)
	command.Dir, command.Env = o.root, gocommand.Env()
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	r := judge(stdout.Bytes(), err == nil)
	if r.verdict != found {
		r.output += stderr.String()
	}
	return r
}

// event is one line of go test -json.
type event struct{ Action, Test, Output, FailedBuild string }

// judge reads what go test -json has printed. Only there a program that cannot be built differs
// from a test that fails.
func judge(printed []byte, passed bool) result {
	r := result{verdict: couldNotRun}
	failed := false
	lines := bufio.NewScanner(bytes.NewReader(printed))
	lines.Buffer(nil, len(printed)+1)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // The go command's own.
		}
		switch {
		case e.Action == "build-output":
			r.output += e.Output
		case e.Action == "build-fail", e.FailedBuild != "":
			r.verdict = noProgram
		case e.Action == "fail":
			failed = true
			if name, _, _ := strings.Cut(e.Test, "/"); r.by == "" {
				r.by = name
			}
		}
	}
	switch {
	case r.verdict == noProgram:
	case passed:
		r.verdict = notFound
	case failed:
		r.verdict = found
	}
	return r
}
