package page

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestTheTimelinesAxisHasRoundTimes(t *testing.T) {
	india := time.FixedZone("IST", 5*3600+1800)
	at := func(clock string) time.Time {
		parsed, err := time.Parse(time.DateTime, "2026-11-23 "+clock)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	cases := map[string]struct {
		from, to time.Time
		want     []string
	}{
		"no time at all":             {at("12:00:01"), at("12:00:01"), []string{"12:00:01"}},
		"seconds":                    {at("11:59:58"), at("12:00:03"), []string{"11:59:58", "11:59:59", "12:00:00", "12:00:01", "12:00:02", "12:00:03"}},
		"four minutes":               {at("11:56:23"), at("12:00:21"), []string{"11:57", "11:58", "11:59", "12:00"}},
		"six minutes":                {at("11:54:23"), at("12:00:21"), []string{"11:55", "11:56", "11:57", "11:58", "11:59", "12:00"}},
		"a quarter of an hour":       {at("11:46:23"), at("12:01:21"), []string{"11:50", "11:55", "12:00"}},
		"an hour":                    {at("11:01:00"), at("12:01:21"), []string{"11:10", "11:20", "11:30", "11:40", "11:50", "12:00"}},
		"a night":                    {at("01:01:00"), at("11:01:21"), []string{"02:00", "04:00", "06:00", "08:00", "10:00"}},
		"some days":                  {at("12:00:00"), at("12:00:00").AddDate(0, 0, 4), []string{"24 Nov", "25 Nov", "26 Nov", "27 Nov"}},
		"a day and a half":           {at("01:00:00"), at("13:00:00").AddDate(0, 0, 1), []string{"23 Nov 06:00", "23 Nov 12:00", "23 Nov 18:00", "24 Nov 00:00", "24 Nov 06:00", "24 Nov 12:00"}},
		"whole hours of a time zone": {at("01:10:00").In(india), at("04:10:00").In(india), []string{"07:00", "07:30", "08:00", "08:30", "09:00", "09:30"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			span := tc.to.Sub(tc.from)
			var got []string
			for _, at := range roundTimes(tc.from, tc.to, marks) {
				got = append(got, axisText(at, span, roundStep(span, marks)))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("times (-want +got):\n%s", diff)
			}
		})
	}
	for _, span := range []time.Duration{0, time.Second, 59 * time.Second, 50 * time.Hour, 400 * day, 40000 * day} {
		if got := len(roundTimes(noon, noon.Add(span), marks)); got > marks {
			t.Errorf("%s: %d times, want at most %d", span, got, marks)
		}
	}
}

// Whatever the times are, the drawing stays within its bounds, and the past can be seen.
func TestTheTimelineStaysInItsBounds(t *testing.T) {
	cases := map[string][]lane{
		"nothing":                      nil,
		"a turn of no length":          {{began: noon, Turns: []turn{{From: noon, To: noon}}}},
		"expected in a year":           {{began: before(time.Minute), Turns: []turn{{From: before(time.Minute), To: noon, Open: true, Expected: noon.AddDate(1, 0, 0)}}}},
		"began a year ago":             {{began: noon.AddDate(-1, 0, 0), Turns: []turn{{From: noon.AddDate(-1, 0, 0), To: noon, Open: true}}}},
		"cut off in a year":            {{began: before(time.Minute), Turns: []turn{{From: before(time.Minute), To: noon, Open: true, Deadline: noon.AddDate(1, 0, 0)}}}},
		"a clock that is ahead":        {{began: noon.Add(time.Hour), Turns: []turn{{From: noon.Add(time.Hour), To: noon.Add(2 * time.Hour), Ticks: []time.Time{noon.Add(time.Hour)}}}}},
		"an end before the beginning":  {{began: noon, Turns: []turn{{From: noon, To: before(time.Hour)}}}},
		"a turn before the request":    {{began: before(time.Minute), Turns: []turn{{From: before(time.Hour), To: before(time.Minute)}}}},
		"heartbeats of another moment": {{began: before(time.Minute), Turns: []turn{{From: before(time.Minute), To: noon, Open: true, Ticks: []time.Time{before(time.Hour), noon.Add(time.Hour), before(time.Second)}}}}},
	}
	for name, lanes := range cases {
		for _, back := range []time.Duration{0, 10 * time.Minute, time.Hour} {
			t.Run(fmt.Sprintf("%s, %s back", name, back), func(t *testing.T) {
				w := windowOf(lanes, back, noon)
				if w.From.After(noon) || !w.To.After(noon) {
					t.Fatalf("the window is %+v", w)
				}
				inside := func(what string, x percent) {
					t.Helper()
					if x < 0 || x > 100.5 {
						t.Errorf("%s is at %s", what, x)
					}
				}
				axis := axisOf(w, lanes)
				for _, m := range append(axis.Marks, axis.Lines...) {
					inside(m.Text, m.X)
				}
				for _, l := range lanes {
					for _, b := range w.row(l).Bars {
						inside("a turn", b.X)
						inside("its end", b.After)
						if b.Width <= 0 || b.Expected < 0 {
							t.Errorf("a turn is %+v", b)
						}
						for _, x := range b.Ticks {
							inside("a heartbeat", x)
						}
					}
				}
			})
		}
	}
	lanes := cases["expected in a year"]
	w := windowOf(lanes, 0, noon)
	if b := w.row(lanes[0]).Bars[0]; b.Width < 50 {
		t.Errorf("what is expected leaves %s for what was", b.Width)
	}
	if end := axisOf(w, lanes).Lines[1]; !end.Beyond || end.Text != "expected end 23 Nov 12:00" {
		t.Errorf("the expected end, which is beyond, is %+v", end)
	}
}

// What ended is drawn in the same place for some time, and is not sent again.
func TestTheTimelineMovesOnInSteps(t *testing.T) {
	lanes := []lane{{began: before(20 * time.Minute), Turns: []turn{{From: before(19 * time.Minute), To: before(10 * time.Minute)}}}}
	seen := map[percent]bool{}
	const seconds = 60
	for i := range seconds {
		seen[windowOf(lanes, 0, noon.Add(time.Duration(i)*time.Second)).row(lanes[0]).Bars[0].Width] = true
	}
	if len(seen) > 3 {
		t.Errorf("within %d s the bar had %d widths", seconds, len(seen))
	}
}

// A bar says who has the turn and how long, where there is room.
func TestTheTimelineNamesItsBars(t *testing.T) {
	l := lane{began: before(10 * time.Minute), Turns: []turn{
		{Interceptor: first, From: before(10 * time.Minute), To: before(5 * time.Minute)},
		{Interceptor: "short.example.com", From: before(5 * time.Minute), To: before(5*time.Minute - time.Second)},
		{Interceptor: second, From: before(4 * time.Minute), To: noon, Open: true, Expected: noon.Add(2 * time.Minute)},
	}}
	type words struct {
		Name, Took string
		Inside     bool
	}
	var got []words
	for _, b := range windowOf([]lane{l}, 0, noon).row(l).Bars {
		got = append(got, words{b.Name, b.Took, b.Inside})
	}
	if diff := cmp.Diff([]words{{first, "5m", true}, {"", "", false}, {second, "4m", true}}, got); diff != "" {
		t.Errorf("bars (-want +got):\n%s", diff)
	}
	l.Turns = l.Turns[:2]
	if bars := windowOf([]lane{l}, 0, noon).row(l).Bars; bars[1].Took != "1s" || bars[1].Inside {
		t.Errorf("a short last turn is %+v", bars[1])
	}
}

// crowded is a node with one blocked pod, one that is in progress, and many that have left, each
// a minute after the one before.
func crowded(finished int) *state.Snapshot {
	objects := []client.Object{
		builder.Node("node-1").Obj(),
		builder.EvictionRequest("shop", "a", "a").UID("a").Created(before(5*time.Minute)).NodeName("node-1").Observed().Requesters("r.example.com").
			Interceptors(first).Active(first, before(4*time.Minute)).Deadline("spot.example.com", noon.Add(time.Minute)).Obj(),
		builder.EvictionRequest("shop", "b", "b").UID("b").Created(before(2*time.Minute)).NodeName("node-1").Observed().Requesters("r.example.com").
			Interceptors().Active(v1alpha1.ImperativeEvictionInterceptor, before(2*time.Minute)).Refused(3, "quorum").Obj(),
	}
	for i := range finished {
		name := fmt.Sprintf("gone-%02d", i)
		began := before(time.Duration(i+2) * time.Minute)
		objects = append(objects, builder.EvictionRequest("shop", name, types.UID(name)).UID(types.UID(name)).Created(began).NodeName("node-1").Observed().
			Requesters("r.example.com").Interceptors(first).Processed(first).Started(first, began).Completed(first, began.Add(time.Minute)).
			Evicted("PodDeleted", began.Add(time.Minute)).Obj())
	}
	return state.NewSnapshot(noon, objects...)
}

// Lanes are grouped by their states, and many that have finished are folded.
func TestTheTimelineIsGroupedByState(t *testing.T) {
	for finished, want := range map[int]string{0: "", fewFinished: "div", fewFinished + 1: "details"} {
		content, err := render(t, "/nodes/{node}", Request{Snapshot: crowded(finished), Values: map[string]string{"node": "node-1"}})
		if err != nil {
			t.Fatal(err)
		}
		var groups []string
		element := ""
		for _, e := range elementsOf(t, content) {
			for _, a := range e.Attr {
				if a.Key == "class" && a.Val == "lane-group" {
					groups = append(groups, e.FirstChild.FirstChild.Data)
				}
				if a.Key == "id" && a.Val == "lanes-finished" {
					element = e.Data
				}
			}
		}
		all := []string{"Blocked (1)", "In progress (1)"}
		if finished > 0 {
			all = append(all, fmt.Sprintf("Finished (%d)", finished))
		}
		if diff := cmp.Diff(all, groups); diff != "" || element != want {
			t.Errorf("%d finished: they are in <%s>, want <%s>; groups (-want +got):\n%s", finished, element, want, diff)
		}
	}
}

func TestTheTimelineHasRanges(t *testing.T) {
	cases := map[string]struct {
		query    string
		has, not []string
	}{
		"all":                   {"", []string{"gone-00", "gone-19", "Finished (20)", "now", "deadline 12:01:00"}, []string{"before this range", "There is no range"}},
		"ten minutes":           {"range=10m&pods=1", []string{"gone-08", "Finished (10)", "10 more finished before this range."}, []string{"gone-19"}},
		"an hour":               {"range=1h", []string{"gone-19", "Finished (20)"}, []string{"before this range"}},
		"one that is not known": {"range=<b>3w", []string{`There is no range "<b>3w"; it can be 1h, 10m.`, "gone-19"}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			query, err := url.ParseQuery(tc.query)
			if err != nil {
				t.Fatal(err)
			}
			content, err := render(t, "/nodes/{node}", Request{Snapshot: crowded(20), Query: query, Values: map[string]string{"node": "node-1"}})
			if err != nil {
				t.Fatal(err)
			}
			wantWords(t, content, tc.has, tc.not)
		})
	}
	query := url.Values{"range": {"1h"}, "lanes": {"2"}, "pods": {"3"}}
	want := []link{{"?pods=3", "All", false}, {"?pods=3&range=1h", "Last hour", true}, {"?pods=3&range=10m", "Last 10 minutes", false}}
	if diff := cmp.Diff(want, linksOf(query, "range", "1h", ranges, "lanes")); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
}
