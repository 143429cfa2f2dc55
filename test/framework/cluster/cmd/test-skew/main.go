// Command test-skew runs the e2e and the install tests on a release of Kubernetes, and writes
// down what has passed: the row of that release in the table of docs/operations/versions.md.
//
//	DRAWBRIDGE_KUBERNETES=oldest go run ./test/framework/cluster/cmd/test-skew --page=PAGE [ARGUMENTS OF go test]
//
// Each package is written down when it has passed. A run of a part of the tests, with
// arguments, writes nothing.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// packages are the tests that run on every release.
var packages = []string{"test/e2e", "test/e2e/install"}

func main() {
	page := flag.String("page", "", "page with the table; empty to write none")
	only := flag.String("only", "", "the one package to run, such as test/e2e/install; empty for all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *page, *only, flag.Args(), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "test-skew:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, page, only string, args []string, out io.Writer) error {
	version, err := cluster.Version()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Kubernetes %s\n", version)
	if only != "" && !slices.Contains(packages, only) {
		return fmt.Errorf("--only=%s: there are %q", only, packages)
	}
	var failed []error
	for _, name := range packages {
		if only != "" && only != name {
			continue
		}
		passed, err := test(ctx, name, args, out)
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("%s on Kubernetes %s: %w", name, version, err))
		case page == "":
		case len(args) > 0:
			fmt.Fprintf(out, "%s stays as it is: only a part was run\n", page)
		default:
			failed = append(failed, write(page, version, name, passed))
		}
	}
	return errors.Join(failed...)
}

// test runs the tests of a package and returns how many have passed.
func test(ctx context.Context, name string, args []string, out io.Writer) (passed int, err error) {
	command := exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-json", "-count=1", "-timeout=60m"}, args, []string{"./" + name})...)
	command.Stderr = os.Stderr
	events, err := command.StdoutPipe()
	if err != nil {
		return 0, fmt.Errorf("run the tests: %w", err)
	}
	if err := command.Start(); err != nil {
		return 0, fmt.Errorf("run the tests: %w", err)
	}
	passed, err = follow(events, out)
	return passed, errors.Join(err, command.Wait())
}

// event is what `go test -json` prints; see `go doc test2json`.
type event struct {
	Action, Test, Output string
}

// follow counts the tests that passed, subtests included. It prints what go test prints
// without -json.
func follow(events io.Reader, out io.Writer) (passed int, err error) {
	said := map[string][]string{}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return passed, nil
		}
		if err != nil {
			return 0, fmt.Errorf("read the events: %w", err)
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			fmt.Fprintf(out, "%s", line) // What does not compile is told so.
			continue
		}
		switch e.Action {
		case "output":
			if e.Test == "" && !strings.HasPrefix(e.Output, "PASS") {
				fmt.Fprint(out, e.Output)
			} else {
				said[e.Test] = append(said[e.Test], e.Output)
			}
		case "pass":
			if e.Test != "" {
				passed++
			}
			delete(said, e.Test)
		case "fail", "skip":
			fmt.Fprint(out, strings.Join(said[e.Test], ""))
			delete(said, e.Test)
		}
	}
}
