package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// The table is between these lines of the page.
const (
	tableBegins = "<!-- Written by `make test-skew`. -->"
	tableEnds   = "<!-- The end of the table. -->"
)

// notRun is the cell of a package that has not been run since the table is there.
const notRun = "not run"

// write puts the number of tests of a package into the table of the page.
func write(page, release, name string, passed int) error {
	content, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	changed, err := withCell(string(content), release, name, passed)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	if err := os.WriteFile(page, []byte(changed), 0o644); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// withCell is the page with the cell of a package, in the row of a release. Another patch of
// the same minor release begins its row anew. The newest comes first.
func withCell(content, release, name string, passed int) (string, error) {
	before, rest, found := strings.Cut(content, tableBegins+"\n")
	table, after, ends := strings.Cut(rest, tableEnds)
	column := slices.Index(packages, name)
	v, err := version.ParseGeneric(release)
	switch {
	case !found || !ends:
		return "", fmt.Errorf("there is no table between %q and %q", tableBegins, tableEnds)
	case err != nil:
		return "", fmt.Errorf("read the release: %w", err)
	case column < 0 || passed == 0:
		return "", fmt.Errorf("%d tests of %s have passed on %s: nothing to write down", passed, name, release)
	}
	rows := map[string][]string{} // By minor release.
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if v, err := version.ParseGeneric(cells[0]); err == nil && len(cells) == 1+len(packages) {
			rows[minor(v)] = cells
		}
	}
	row := rows[minor(v)]
	if len(row) == 0 || row[0] != release {
		row = append([]string{release}, slices.Repeat([]string{notRun}, len(packages))...)
	}
	row[1+column] = fmt.Sprintf("%d passed", passed)
	rows[minor(v)] = row

	var b strings.Builder
	b.WriteString(before + tableBegins + "\n| Kubernetes | `" + strings.Join(packages, "` | `") + "` |\n" + strings.Repeat("|---", 1+len(packages)) + "|\n")
	for _, name := range slices.SortedFunc(maps.Keys(rows), newestFirst) {
		b.WriteString("| " + strings.Join(rows[name], " | ") + " |\n")
	}
	b.WriteString(tableEnds + after)
	return b.String(), nil
}

func newestFirst(a, b string) int {
	if version.MustParseGeneric(a).LessThan(version.MustParseGeneric(b)) {
		return 1
	}
	return -1
}

// minor is 1.30 of v1.30.14.
func minor(v *version.Version) string { return fmt.Sprintf("%d.%d", v.Major(), v.Minor()) }
