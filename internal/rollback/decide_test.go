package rollback

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAnswersAreCompared(t *testing.T) {
	cases := map[string]struct {
		seen, live string
		older      bool
		newer      string
	}{
		"the store has gone on":                                   {"100", "101", false, "101"},
		"nothing was written":                                     {"100", "100", false, "100"},
		"the store went back":                                     {"101", "100", true, "101"},
		"more digits are newer, whatever they are":                {"999", "1000", false, "1000"},
		"fewer digits are older, whatever they are":               {"1000", "999", true, "1000"},
		"numbers that no integer of ours holds":                   {"99999999999999999999999999", "99999999999999999999999998", true, "99999999999999999999999999"},
		"the informer has seen nothing yet":                       {"", "100", false, "100"},
		"a list without a resource version is no answer":          {"100", "", false, "100"},
		"0 is no resource version":                                {"100", "0", false, "100"},
		"what is no number cannot be compared":                    {"b-2", "a-1", false, "a-1"},
		"an answer that is no number does not replace one":        {"100", "a-1", false, "100"},
		"a number with a zero before it is none of an API server": {"100", "0099", false, "100"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := reading{resource: "pods", seen: tc.seen, live: tc.live}
			if got := r.older(); got != tc.older {
				t.Errorf("older is %t, want %t", got, tc.older)
			}
			if got := newer(tc.seen, tc.live); got != tc.newer {
				t.Errorf("newer is %q, want %q", got, tc.newer)
			}
		})
	}
}

func TestOnlyTwoOldAnswersInARowAreBelieved(t *testing.T) {
	well, old := reading{"pods", "100", "105"}, reading{"pods", "100", "90"}
	otherWell, otherOld := reading{"evictionrequests", "100", "105"}, reading{"evictionrequests", "100", "90"}
	pods := map[string]bool{"pods": true}
	cases := map[string]struct {
		in   input
		want decision
	}{
		"all is well":                     {input{readings: []reading{well, otherWell}}, decision{again: period}},
		"the first old answer is doubted": {input{readings: []reading{old, otherWell}}, decision{doubted: pods, again: soon}},
		"the second one is believed":      {input{readings: []reading{old, otherWell}, doubted: pods}, decision{rolledBack: []reading{old}, doubted: pods, again: soon}},
		"a good answer ends the doubt":    {input{readings: []reading{well, otherWell}, doubted: pods}, decision{again: period}},
		"an old answer about another resource is no second one": {
			input{readings: []reading{well, otherOld}, doubted: pods}, decision{doubted: map[string]bool{"evictionrequests": true}, again: soon},
		},
		"no answer neither ends the doubt nor confirms it": {input{readings: []reading{otherWell}, doubted: pods, failed: true}, decision{doubted: pods, again: soon}},
		"the first old answer beside none is doubted":      {input{readings: []reading{old}, failed: true}, decision{doubted: pods, again: soon}},
		"an API server that does not answer is asked soon": {input{failed: true}, decision{again: soon}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.want.doubted == nil {
				tc.want.doubted = map[string]bool{}
			}
			if diff := cmp.Diff(tc.want, decide(tc.in), cmp.AllowUnexported(decision{}, reading{})); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}
