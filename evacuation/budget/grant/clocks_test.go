package grant

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What a schedule means on the days when clocks change: a start that the clock goes past is
// at the moment of the change, and one that it shows twice is twice.
func TestClocksChange(t *testing.T) {
	cases := map[string]struct {
		schedule, timeZone, after string
		want                      []string
	}{
		"Berlin, forward, in the hour that is not": {
			"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"},
		},
		"Berlin, forward, at its beginning": {
			"0 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"},
		},
		"Berlin, forward, at its end": {
			"0 3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T03:00:00+02:00", "2026-03-30T03:00:00+02:00"},
		},
		"Berlin, forward, many in it are one": {
			"*/20 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-29T03:20:00+02:00", "2026-03-29T03:40:00+02:00", "2026-03-30T02:00:00+02:00"},
		},
		"Berlin, back, in the hour that is twice": {
			"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00"},
		},
		"Berlin, back, at its end": {
			"0 3 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"2026-10-25T03:00:00+01:00", "2026-10-26T03:00:00+01:00"},
		},
		"Berlin, back, every half an hour": {
			"*/30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:00:00+01:00"},
		},
		"New York, forward": {
			"30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", []string{"2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"},
		},
		"New York, back": {
			"30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z",
			[]string{"2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00", "2026-11-02T01:30:00-05:00"},
		},
		"Lord Howe, forward by half an hour, in it": {
			"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", []string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"},
		},
		"Lord Howe, forward, later on that day": {
			"0 3 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", []string{"2026-10-04T03:00:00+11:00", "2026-10-05T03:00:00+11:00"},
		},
		"Lord Howe, back by half an hour, in it": {
			"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z",
			[]string{"2026-04-05T01:45:00+11:00", "2026-04-05T01:45:00+10:30", "2026-04-06T01:45:00+10:30"},
		},
		"Lord Howe, back, later on that day": {
			"0 2 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", []string{"2026-04-05T02:00:00+10:30", "2026-04-06T02:00:00+10:30"},
		},
		"Sao Paulo, forward at midnight": {
			"0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", []string{"2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"},
		},
		"Apia, a day that is not": {
			"0 12 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", []string{"2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := windows(t, spec{tc.schedule, tc.timeZone, time.Hour})[0]
			var got []string
			for at := clock(t, tc.after); len(got) < len(tc.want); {
				at = w.next(at)
				got = append(got, at.Format(time.RFC3339))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("starts (-want +got):\n%s", diff)
			}
		})
	}
}

// A window lasts as long as it says, whatever the clock shows at its end.
func TestWindowsOverAChange(t *testing.T) {
	night := spec{"0 22 * * *", "Europe/Berlin", 6 * time.Hour}
	cases := map[string]struct {
		window spec
		times  []string
		want   []string
	}{
		"the night when clocks go forward": {
			night, []string{"2026-03-29T02:59:59Z", "2026-03-29T03:00:00Z"},
			[]string{"open 2026-03-28T22:00:00+01:00 - 2026-03-29T05:00:00+02:00", "next 2026-03-29T22:00:00+02:00 - 2026-03-30T04:00:00+02:00"},
		},
		"the night when they go back": {
			night, []string{"2026-10-25T01:59:59Z", "2026-10-25T02:00:00Z"},
			[]string{"open 2026-10-24T22:00:00+02:00 - 2026-10-25T03:00:00+01:00", "next 2026-10-25T22:00:00+01:00 - 2026-10-26T04:00:00+01:00"},
		},
		"an hour that is twice is one opening of two": {
			spec{"0 2 * * *", "Europe/Berlin", time.Hour}, []string{"2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"},
			[]string{"open 2026-10-25T02:00:00+02:00 - 2026-10-25T03:00:00+01:00", "open 2026-10-25T02:00:00+02:00 - 2026-10-25T03:00:00+01:00"},
		},
		"half of it is two openings": {
			spec{"0 2 * * *", "Europe/Berlin", 30 * time.Minute}, []string{"2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z"},
			[]string{
				"open 2026-10-25T02:00:00+02:00 - 2026-10-25T02:30:00+02:00", "next 2026-10-25T02:00:00+01:00 - 2026-10-25T02:30:00+01:00",
				"open 2026-10-25T02:00:00+01:00 - 2026-10-25T02:30:00+01:00",
			},
		},
		"an hour that is not is the one after it": {
			spec{"0 2 * * *", "Europe/Berlin", time.Hour}, []string{"2026-03-29T00:59:59Z", "2026-03-29T01:00:00Z"},
			[]string{"next 2026-03-29T03:00:00+02:00 - 2026-03-29T04:00:00+02:00", "open 2026-03-29T03:00:00+02:00 - 2026-03-29T04:00:00+02:00"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, openings(t, windows(t, tc.window), tc.times...)); diff != "" {
				t.Errorf("openings (-want +got):\n%s", diff)
			}
		})
	}
}
