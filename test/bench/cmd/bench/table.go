//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// line is one line of the table.
type line struct {
	what, ours, theirs, ratio, goal string
	// met says whether the goal is met; nil if there is none.
	met *bool
}

// table is what the benchmark comes to.
type table struct {
	lines []line
}

// header are the columns.
var header = []string{"What", "Drawbridge", "Compared with", "Ratio", "Goal", "Met"}

func (t *table) add(l line) {
	t.lines = append(t.lines, l)
	fmt.Println("  " + strings.Join(l.cells(), " | "))
}

func (l line) cells() []string {
	met := ""
	if l.met != nil {
		met = map[bool]string{true: "yes", false: "**no**"}[*l.met]
	}
	return []string{l.what, l.ours, l.theirs, l.ratio, l.goal, met}
}

// markdown is the table with its columns lined up.
func (t *table) markdown() string {
	rows := [][]string{header}
	for _, l := range t.lines {
		rows = append(rows, l.cells())
	}
	width := make([]int, len(header))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	rule := make([]string, len(header))
	for i := range rule {
		rule[i] = strings.Repeat("-", width[i])
	}
	rows = slices.Insert(rows, 1, rule)
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			b.WriteString("| " + cell + strings.Repeat(" ", width[i]-len([]rune(cell))) + " ")
		}
		b.WriteString("|\n")
	}
	return b.String()
}

// Marks of the page between which the table stands.
const (
	pageBegin = "<!-- table: written by make bench -->\n"
	pageEnd   = "<!-- end of table -->\n"
)

// write puts the table and the machine between the marks of a page.
func (t *table) write(page string, about string) error {
	content, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("read page: %w", err)
	}
	begin, end := bytes.Index(content, []byte(pageBegin)), bytes.Index(content, []byte(pageEnd))
	if begin < 0 || end < begin {
		return fmt.Errorf("page %s has no line %q with %q after it", page, strings.TrimSpace(pageBegin), strings.TrimSpace(pageEnd))
	}
	fresh := slices.Concat(content[:begin], []byte(pageBegin+"\n"+about+"\n"+t.markdown()+"\n"), content[end:])
	if err := os.WriteFile(page, fresh, 0o644); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// median of at least one value.
func median[T float64 | time.Duration](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// spread tells the median of at least one value and, if there are more, the least and the
// most.
func spread[T float64 | time.Duration](values []T, tell func(T) string) string {
	if len(values) == 1 {
		return tell(values[0])
	}
	return fmt.Sprintf("%s (%s to %s)", tell(median(values)), tell(slices.Min(values)), tell(slices.Max(values)))
}

// percentile of at least one value, of 0 to 100.
func percentile(values []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)*p/100, len(sorted)-1)]
}

// ratioOf compares two medians.
func ratioOf(ours, theirs float64) string { return fmt.Sprintf("%.2f", ours/theirs) }

func perSecond(rate float64) string { return fmt.Sprintf("%.0f/s", rate) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func millis(d time.Duration) string { return fmt.Sprintf("%.0f ms", float64(d)/1e6) }

// hundredths are milliseconds to the hundredth, for what takes few.
func hundredths(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }

func mebi(bytes float64) string { return fmt.Sprintf("%.1f MiB", bytes/(1<<20)) }
