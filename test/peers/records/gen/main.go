// Command gen writes the tables of docs/guides/callers.md from the records of real programs.
package main

import (
	"fmt"
	"os"

	"github.com/drawbridge-dev/drawbridge/test/peers/records"
)

const page = "docs/guides/callers.md"

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "gen: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	all, err := records.All()
	if err != nil {
		return err
	}
	content, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("read page: %w", err)
	}
	written, err := records.Page(string(content), all)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(written), 0o600)
}
