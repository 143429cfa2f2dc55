package grant

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseWindow(t *testing.T) {
	const badZone = ` is not known: use a name of the IANA database, for example Europe/Berlin`
	cases := map[string]struct {
		schedule, timeZone string
		// want is the error, or the next start after noon.
		want string
	}{
		"five fields":                       {"0 22 * * MON-FRI", "Europe/Berlin", "2026-11-23T22:00:00+01:00"},
		"no time zone is UTC":               {"0 22 * * *", "", "2026-11-23T22:00:00Z"},
		"numbers, lists, ranges, steps":     {"*/20 1,3 * * 0,6", "UTC", "2026-11-28T01:00:00Z"},
		"Sunday is 0 and 7":                 {"0 0 * * 7", "UTC", "2026-11-29T00:00:00Z"},
		"ranges over midnight":              {"0 22-2 * * *", "UTC", "2026-11-23T22:00:00Z"},
		"a question mark is a star":         {"0 0 ? * MON", "UTC", "2026-11-30T00:00:00Z"},
		"a day of the month or of the week": {"0 0 1 * SAT", "UTC", "2026-11-28T00:00:00Z"},
		"the same, the other way":           {"0 0 25 * SAT", "UTC", "2026-11-25T00:00:00Z"},
		"a day that few years have":         {"0 0 29 2 *", "UTC", "2028-02-29T00:00:00Z"},

		"a day that no year has":        {"0 0 30 2 *", "UTC", `schedule "0 0 30 2 *" never comes: no month has that day`},
		"a day that none of them has":   {"0 0 31 2,4,6,9,11 *", "UTC", `schedule "0 0 31 2,4,6,9,11 *" never comes: no month has that day`},
		"a minute that no hour has":     {"60 * * * *", "UTC", `schedule "60 * * * *" cannot be read: end of range (60) above maximum (59): "60"`},
		"an hour that no day has":       {"0 24 * * *", "UTC", `schedule "0 24 * * *" cannot be read: end of range (24) above maximum (23): "24"`},
		"four fields":                   {"0 22 * *", "UTC", `schedule "0 22 * *" cannot be read: expected exactly 5 fields, found 4: [0 22 * *]`},
		"seconds":                       {"0 0 22 * * *", "UTC", `schedule "0 0 22 * * *" cannot be read: expected exactly 5 fields, found 6: [0 0 22 * * *]`},
		"nothing":                       {"", "UTC", `schedule "" cannot be read: empty spec string`},
		"an empty entry":                {"0 1,,2 * * *", "UTC", `schedule "0 1,,2 * * *" cannot be read: something is missing at a comma of "1,,2"`},
		"no entry":                      {", * * * *", "UTC", `schedule ", * * * *" cannot be read: something is missing at a comma of ","`},
		"a name":                        {"@daily", "UTC", `schedule "@daily" cannot be read: parser does not accept descriptors: "@daily"`},
		"an interval":                   {"@every 1h", "UTC", `schedule "@every 1h" cannot be read: parser does not accept descriptors: "@every 1h"`},
		"a time zone in front":          {"TZ=UTC 0 0 * * *", "UTC", `schedule "TZ=UTC 0 0 * * *" has a time zone: use timeZone instead`},
		"the other time zone in front":  {"CRON_TZ=UTC 0 0 * * *", "UTC", `schedule "CRON_TZ=UTC 0 0 * * *" has a time zone: use timeZone instead`},
		"a zone that does not exist":    {"0 0 * * *", "Europe/Berln", `time zone "Europe/Berln"` + badZone},
		"a path":                        {"0 0 * * *", "../UTC", `time zone "../UTC"` + badZone},
		"the zone of the machine":       {"0 0 * * *", "Local", `time zone "Local"` + badZone},
		"the same, by its other name":   {"0 0 * * *", "localtime", `time zone "localtime"` + badZone},
		"an offset":                     {"0 0 * * *", "UTC+1", `time zone "UTC+1"` + badZone},
		"the last day, in another form": {"0 0 L * *", "UTC", `schedule "0 0 L * *" cannot be read: extended day-of-month syntax requires DomL option (for L, L-n) or DomW option (for nW, LW) to be enabled`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w, err := ParseWindow(tc.schedule, tc.timeZone, time.Hour)
			got := fmt.Sprint(err)
			if err == nil {
				got = w.next(noon).Format(time.RFC3339)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("window (-want +got):\n%s", diff)
			}
		})
	}
}

// spec is what a window says.
type spec struct {
	schedule, timeZone string
	duration           time.Duration
}

func windows(tb testing.TB, specs ...spec) (ws Windows) {
	tb.Helper()
	for _, s := range specs {
		w, err := ParseWindow(s.schedule, s.timeZone, s.duration)
		if err != nil {
			tb.Fatal(err)
		}
		ws = append(ws, w)
	}
	return ws
}

func clock(tb testing.TB, s string) time.Time {
	tb.Helper()
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		tb.Fatal(err)
	}
	return at
}

// openings of some windows, by the times when they are asked for.
func openings(t *testing.T, ws Windows, times ...string) (all []string) {
	t.Helper()
	for _, now := range times {
		o, open, err := ws.At(clock(t, now))
		is := map[bool]string{true: "open", false: "next"}[open]
		if err != nil {
			is = err.Error()
		}
		all = append(all, fmt.Sprintf("%s %s - %s", is, o.Start.Format(time.RFC3339), o.End.Format(time.RFC3339)))
	}
	return all
}

func TestAt(t *testing.T) {
	night := spec{"0 22 * * *", "UTC", 6 * time.Hour}
	cases := map[string]struct {
		windows []spec
		now     string
		want    string
	}{
		"before":          {[]spec{night}, "2026-11-23T21:59:59Z", "next 2026-11-23T22:00:00Z - 2026-11-24T04:00:00Z"},
		"at its start":    {[]spec{night}, "2026-11-23T22:00:00Z", "open 2026-11-23T22:00:00Z - 2026-11-24T04:00:00Z"},
		"over midnight":   {[]spec{night}, "2026-11-24T03:59:59Z", "open 2026-11-23T22:00:00Z - 2026-11-24T04:00:00Z"},
		"at its end":      {[]spec{night}, "2026-11-24T04:00:00Z", "next 2026-11-24T22:00:00Z - 2026-11-25T04:00:00Z"},
		"part of seconds": {[]spec{night}, "2026-11-23T21:59:59.5Z", "next 2026-11-23T22:00:00Z - 2026-11-24T04:00:00Z"},
		"in its own zone": {
			[]spec{{"0 22 * * *", "America/New_York", time.Hour}}, "2026-11-24T02:00:00Z", "next 2026-11-23T22:00:00-05:00 - 2026-11-23T23:00:00-05:00",
		},
		"two that overlap are one, in the first": {
			[]spec{night, {"0 2 * * *", "UTC", 6 * time.Hour}}, "2026-11-23T23:00:00Z", "open 2026-11-23T22:00:00Z - 2026-11-24T08:00:00Z",
		},
		"and in the second": {
			[]spec{night, {"0 2 * * *", "UTC", 6 * time.Hour}}, "2026-11-24T07:00:00Z", "open 2026-11-23T22:00:00Z - 2026-11-24T08:00:00Z",
		},
		"and before": {
			[]spec{night, {"0 2 * * *", "UTC", 6 * time.Hour}}, "2026-11-24T08:00:00Z", "next 2026-11-24T22:00:00Z - 2026-11-25T08:00:00Z",
		},
		"two that touch are one": {
			[]spec{{"0 4 * * *", "UTC", time.Hour}, night}, "2026-11-24T04:00:00Z", "open 2026-11-23T22:00:00Z - 2026-11-24T05:00:00Z",
		},
		"two with a minute between are two": {
			[]spec{{"1 4 * * *", "UTC", time.Hour}, night}, "2026-11-24T04:00:00Z", "next 2026-11-24T04:01:00Z - 2026-11-24T05:01:00Z",
		},
		"one within another": {
			[]spec{{"0 23 * * *", "UTC", time.Hour}, night}, "2026-11-23T23:30:00Z", "open 2026-11-23T22:00:00Z - 2026-11-24T04:00:00Z",
		},
		"one that overlaps itself": {
			[]spec{{"0 22,23 * * *", "UTC", 2 * time.Hour}}, "2026-11-24T00:30:00Z", "open 2026-11-23T22:00:00Z - 2026-11-24T01:00:00Z",
		},
		"a week's days that touch": {
			[]spec{{"0 0 * * MON-FRI", "UTC", 24 * time.Hour}}, "2026-11-25T12:00:00Z", "open 2026-11-23T00:00:00Z - 2026-11-28T00:00:00Z",
		},
		"the next of two": {
			[]spec{night, {"0 20 * * *", "UTC", time.Hour}}, "2026-11-23T12:00:00Z", "next 2026-11-23T20:00:00Z - 2026-11-23T21:00:00Z",
		},
		"a leap day": {
			[]spec{{"0 12 29 2 *", "UTC", time.Hour}}, "2026-11-23T12:00:00Z", "next 2028-02-29T12:00:00Z - 2028-02-29T13:00:00Z",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff([]string{tc.want}, openings(t, windows(t, tc.windows...), tc.now)); diff != "" {
				t.Errorf("opening (-want +got):\n%s", diff)
			}
		})
	}
}

// What comes no more does not keep others from opening.
func TestAtWithoutANextOne(t *testing.T) {
	ended := Window{schedule: ended{}, duration: time.Hour, location: time.UTC}
	if _, open, err := (Windows{ended}).At(noon); open || err == nil || err.Error() != "no window opens any more" {
		t.Errorf("open %t, error %v", open, err)
	}
	ws := append(windows(t, spec{"0 22 * * *", "UTC", time.Hour}), ended)
	want := []string{"next 2026-11-23T22:00:00Z - 2026-11-23T23:00:00Z"}
	if diff := cmp.Diff(want, openings(t, ws, "2026-11-23T12:00:00Z")); diff != "" {
		t.Errorf("opening (-want +got):\n%s", diff)
	}
}

// A window that is open all the time is so now, from some time before until some time after.
func TestDenseWindows(t *testing.T) {
	for name, specs := range map[string][]spec{
		"every minute for a week": {{"* * * * *", "Europe/Berlin", 168 * time.Hour}},
		"every minute":            {{"* * * * *", "UTC", time.Minute}},
		"every day":               {{"0 0 * * *", "Australia/Lord_Howe", 25 * time.Hour}},
		"sixteen of them": func() (all []spec) {
			for range 16 {
				all = append(all, spec{"* * * * *", "America/New_York", 168 * time.Hour})
			}
			return all
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			ws := windows(t, specs...)
			o, open, err := ws.At(noon)
			if err != nil || !open || o.Start.After(noon) || !o.End.After(noon) {
				t.Errorf("open %t from %s to %s, error %v", open, o.Start, o.End, err)
			}
		})
	}
}

// randomWindow is a window and how to say of a clock whether it is a start.
func randomWindow(random *rand.Rand) (spec, func(wall time.Time) bool) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kathmandu", "Africa/Casablanca"}
	field := func(low, high, most int) (string, map[int]bool) {
		of := map[int]bool{}
		var entries []string
		for range 1 + random.IntN(most) {
			n := low + random.IntN(high-low+1)
			of[n] = true
			entries = append(entries, fmt.Sprint(n))
		}
		return strings.Join(entries, ","), of
	}
	every := func(of map[int]bool) bool { return of == nil }
	s := spec{timeZone: zones[random.IntN(len(zones))]}
	minutes, minute := field(0, 59, 3)
	hours, hour := field(0, 23, 3)
	if random.IntN(2) == 0 {
		hours, hour = field(0, 4, 3) // When clocks change.
	}
	days, day, weekdays, weekday := "*", map[int]bool(nil), "*", map[int]bool(nil)
	if random.IntN(3) == 0 {
		days, day = field(1, 28, 8)
	}
	if random.IntN(3) == 0 {
		weekdays, weekday = field(0, 6, 3)
	}
	s.schedule = strings.Join([]string{minutes, hours, days, "*", weekdays}, " ")
	s.duration = []time.Duration{time.Minute, 20 * time.Minute, time.Hour, 3 * time.Hour, 24 * time.Hour, 50 * time.Hour}[random.IntN(6)]
	onDay := func(wall time.Time) bool {
		inDay, inWeek := every(day) || day[wall.Day()], every(weekday) || weekday[int(wall.Weekday())]
		if every(day) || every(weekday) {
			return inDay && inWeek
		}
		return inDay || inWeek
	}
	return s, func(wall time.Time) bool { return minute[wall.Minute()] && hour[wall.Hour()] && onDay(wall) }
}

// starts are all in some days, found minute by minute: a clock shows one, or goes past one.
func starts(t *testing.T, timeZone string, is func(time.Time) bool, from time.Time, days int) (all []time.Time) {
	t.Helper()
	location, err := time.LoadLocation(timeZone)
	if err != nil {
		t.Fatal(err)
	}
	before := wallClock(from.Add(-time.Minute).In(location))
	for at := from; at.Before(from.AddDate(0, 0, days)); at = at.Add(time.Minute) {
		wall := wallClock(at.In(location))
		here := is(wall)
		for skipped := before.Add(time.Minute); skipped.Before(wall); skipped = skipped.Add(time.Minute) {
			here = here || is(skipped)
		}
		if here {
			all = append(all, at)
		}
		before = wall
	}
	return all
}

// Whatever the schedules are, at every moment it is known whether one is open, since when
// and until when, also where clocks change.
func TestAtAgreesWithClocks(t *testing.T) {
	// The changes of 2026, of Sao Paulo in 2018, at midnight, and of Casablanca.
	around := []string{
		"2026-03-29T00:00:00Z", "2026-10-25T00:00:00Z", "2026-03-08T06:00:00Z", "2026-11-01T06:00:00Z", "2026-04-04T15:00:00Z", "2026-10-03T15:00:00Z",
		"2018-11-04T03:00:00Z", "2018-02-18T02:00:00Z", "2026-02-15T02:00:00Z", "2026-03-22T02:00:00Z", "2028-02-29T00:00:00Z",
	}
	const days, margin = 16, 6
	open := 0
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 7))
		from := clock(t, around[random.IntN(len(around))]).AddDate(0, 0, -days/2)
		var ws Windows
		var specs []spec
		isOpen := make([]bool, days*24*60)
		for range 1 + random.IntN(3) {
			s, is := randomWindow(random)
			specs = append(specs, s)
			ws = append(ws, windows(t, s)...)
			for _, start := range starts(t, s.timeZone, is, from, days) {
				first := int(start.Sub(from) / time.Minute)
				for m := first; m < min(first+int(s.duration/time.Minute), len(isOpen)); m++ {
					isOpen[m] = true
				}
			}
		}
		for range 20 {
			// Far enough from both ends for all that is open or comes next.
			at := margin*24*60 + random.IntN((days-2*margin)*24*60)
			got, gotOpen, err := ws.At(from.Add(time.Duration(at) * time.Minute))
			if err != nil {
				t.Fatalf("seed %d, %+v: %v", seed, specs, err)
			}
			first := at
			for !isOpen[first] && first < len(isOpen)-1 {
				first++
			}
			for first > 0 && isOpen[first-1] {
				first--
			}
			end := max(first, at)
			for end < len(isOpen) && isOpen[end] {
				end++
			}
			if !isOpen[first] || first == 0 || end == len(isOpen) {
				continue // It is beyond the days that were looked at.
			}
			if isOpen[at] {
				open++
			}
			want := Opening{Start: from.Add(time.Duration(first) * time.Minute), End: from.Add(time.Duration(end) * time.Minute)}
			if gotOpen != isOpen[at] || !got.Start.Equal(want.Start) || !got.End.Equal(want.End) {
				t.Fatalf("seed %d, %+v, %s:\nwant %t from %s to %s\n got %t from %s to %s", seed, specs, from.Add(time.Duration(at)*time.Minute),
					isOpen[at], want.Start, want.End, gotOpen, got.Start.UTC(), got.End.UTC())
			}
		}
	}
	if open < 150 {
		t.Errorf("only %d moments were in a window", open)
	}
}
