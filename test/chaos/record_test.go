package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A series is continued where it was interrupted, even in the middle of a line, and the
// tables are those of all its runs.
func TestASeriesGoesOnWhereItWasInterrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "series")
	one, two := MakePlan(1), MakePlan(2)
	write := func(records ...Record) {
		t.Helper()
		s, err := OpenSeries(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if err := s.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write(NewRecord(&one, Verdict{Requests: 3}), Record{Seed: 2, Failure: "no room"})
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(content, `{"seed":`...), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := OpenSeries(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]bool{true, false, false}, []bool{s.Has(1), s.Has(2), s.Has(3)}); diff != "" {
		t.Errorf("seeds that were run (-want +got):\n%s", diff)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	write(NewRecord(&two, Verdict{Requests: 4, Violations: []Violation{{PromiseEnd, "it", "does not"}}}), Record{Seed: 3, Failure: "no room"})
	s, err = OpenSeries(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	total := TotalOf(s.Records)
	got := []any{total.Runs, total.Broken, total.Seeds, total.Failed, total.Sum.Requests}
	if diff := cmp.Diff([]any{2, 1, []uint64{2}, []uint64{3}, 7}, got); diff != "" {
		t.Errorf("runs, broken ones, their seeds, failed ones and requests (-want +got):\n%s", diff)
	}
}

func TestTheTablesArePutIntoTheirPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	page := "before\n" + pageBegin + "old\n" + pageEnd + "after\n"
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	total := TotalOf([]Record{{Seed: 7, Mode: ModeFail}})
	if err := total.WritePage(path); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := "before\n" + pageBegin + total.String() + "\n" + pageEnd + "after\n"; string(got) != want {
		t.Errorf("page (-want +got):\n%s", cmp.Diff(want, string(got)))
	}
	if !strings.Contains(total.String(), "| runs | 1 |") {
		t.Errorf("tables:\n%s", &total)
	}
	if err := os.WriteFile(path, []byte("before\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := total.WritePage(path); err == nil {
		t.Error("a page without a place was written")
	}
}
