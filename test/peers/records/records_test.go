package records

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestAResultInWords(t *testing.T) {
	for want, result := range map[string]Result{
		"evicted":                                {Order: []string{Subject}, Evicted: 1},
		"refused, prepared, evicted":             {Order: []string{Neighbor, Subject}, Refused: true, Prepared: true, Evicted: 1},
		"refused, replaced, evicted":             {Order: []string{Subject}, Refused: true, Replaced: true, Evicted: 1},
		"refused, **deleted**":                   {Order: []string{Subject}, Refused: true, Deleted: 1},
		"refused, prepared, **evicted 3 times**": {Order: []string{Subject}, Refused: true, Prepared: true, Evicted: 3},
		"refused, stays":                         {Order: []string{Neighbor}, Refused: true},
		"refused, canceled, stays":               {Order: []string{}, Refused: true, Canceled: true},
		"not possible: it asks once":             {Impossible: "it asks once"},
	} {
		if diff := cmp.Diff(want, result.String()); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", result, diff)
		}
	}
}

// A row that somebody typed, or changed, is not what the records say.
func TestThePageHasWhatTheRecordsSay(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile("../../../docs/guides/callers.md")
	if err != nil {
		t.Fatal(err)
	}
	written, err := Page(string(content), all)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(written, string(content)); diff != "" {
		t.Errorf("docs/guides/callers.md (-records +page); `go run ./test/peers/records/gen` writes it:\n%s", diff)
	}
	for _, r := range all {
		if len(r.Situations) != 10 || r.Version == "" || r.Date == "" {
			t.Errorf("the record of %s is not whole: %d situations, version %q, date %q", r.Peer, len(r.Situations), r.Version, r.Date)
		}
	}
}

func TestARecordOfAnotherName(t *testing.T) {
	_, err := read(fstest.MapFS{"data/a.json": {Data: []byte(`{"peer":"b"}`)}})
	if err == nil || !strings.Contains(err.Error(), "data/b.json") {
		t.Errorf("want an error that says where it belongs, got %v", err)
	}
}

func TestAPageWithoutMarks(t *testing.T) {
	if _, err := Page("# Page\n", nil); err == nil {
		t.Error("want an error")
	}
}
