// Command gen writes what is made from the table of the labels and annotations.
package main

import (
	"fmt"
	"os"

	"github.com/drawbridge-dev/drawbridge/internal/keys"
)

// file is written when gen runs in the root of the module.
const file = "charts/drawbridge/files/keys.json"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	chart, err := keys.ChartFile()
	if err != nil {
		return err
	}
	for path, content := range map[string][]byte{file: chart, keys.Page: keys.ReferencePage()} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return nil
}
