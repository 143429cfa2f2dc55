// Command gen writes docs/conformance.md and docs/conformance-native.md. Run it from the root of the project.
package main

import (
	"fmt"
	"os"

	"github.com/drawbridge-dev/drawbridge/test/conformance/statements"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	all, err := statements.All()
	if err != nil {
		return err
	}
	tests, err := statements.Tests("test/conformance", "test/e2e")
	if err != nil {
		return err
	}
	if err := os.WriteFile("docs/conformance.md", []byte(statements.Page(all, tests)), 0o644); err != nil {
		return err
	}
	native, err := statements.Native()
	if err != nil {
		return err
	}
	cases, err := statements.Cases()
	if err != nil {
		return err
	}
	if tests, err = statements.NativeTests("."); err != nil {
		return err
	}
	return os.WriteFile("docs/conformance-native.md", []byte(statements.NativePage(native, cases, tests)), 0o644)
}
