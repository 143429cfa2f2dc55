package grant

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // Images may have no time zones.

	"github.com/netresearch/go-cron"
)

// Window opens at the times of a schedule, each time for the same duration.
type Window struct {
	schedule cron.Schedule
	duration time.Duration
	location *time.Location
}

// Opening is one time that windows are open, from Start to before End.
type Opening struct{ Start, End time.Time }

// parser reads cron's five fields and nothing else: no descriptors, and no time zone, which
// has a field of its own. As for a CronJob, a day of the month or a day of the week is
// enough if both are given.
var parser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.DowOrDom)

// ParseWindow reads a window. The time zone is a name of the IANA database. A schedule that
// never comes is an error, as one is that cannot be read.
//
// When clocks go forward, a start that the day does not have is at the moment of the
// change; when they go back, a start that the day has twice is at both.
func ParseWindow(schedule, timeZone string, duration time.Duration) (Window, error) {
	location, err := time.LoadLocation(timeZone)
	if err != nil || timeZone == "Local" || timeZone == "localtime" { // Those of the machine.
		return Window{}, fmt.Errorf("time zone %q is not known: use a name of the IANA database, for example Europe/Berlin", timeZone)
	}
	if strings.Contains(schedule, "=") {
		return Window{}, fmt.Errorf("schedule %q has a time zone: use timeZone instead", schedule)
	}
	for _, field := range strings.Fields(schedule) {
		if slices.Contains(strings.Split(field, ","), "") {
			return Window{}, fmt.Errorf("schedule %q cannot be read: something is missing at a comma of %q", schedule, field)
		}
	}
	parsed, err := parser.Parse(schedule)
	if err != nil {
		return Window{}, fmt.Errorf("schedule %q cannot be read: %w", schedule, err)
	}
	w := Window{schedule: parsed, duration: duration, location: location}
	// The date does not matter: the parser looks some years ahead.
	if w.next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return Window{}, fmt.Errorf("schedule %q never comes: no month has that day", schedule)
	}
	return w, nil
}

// next start after a time; zero if there is none.
//
// The schedule is only asked about clocks that never change: where the change is not one of
// whole hours, it passes over the starts of that day.
func (w Window) next(after time.Time) time.Time {
	after = after.In(w.location)
	for from := wallClock(after); ; {
		wall := w.schedule.Next(from)
		if wall.IsZero() {
			return time.Time{}
		}
		start := after.Add(wall.Sub(wallClock(after)))
		_, change := after.ZoneBounds()
		if change.IsZero() || start.Before(change) {
			return start
		}
		if wall.Before(wallClock(change)) {
			return change // The clock goes past it.
		}
		after, from = change, wallClock(change).Add(-time.Second)
	}
}

// wallClock is what a clock shows at a time, as a time in UTC.
func wallClock(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// Windows are several, which may overlap.
type Windows []Window

// maxStarts limits how far overlapping windows are followed to say when they open and close.
const maxStarts = 2000

// errNever is for windows of schedules that come no more.
var errNever = errors.New("no window opens any more")

// At returns the opening at a time and true, or the next one and false. Openings that
// overlap or touch are one; its start and its end are bounds if there are very many.
func (ws Windows) At(now time.Time) (o Opening, open bool, err error) {
	for _, w := range ws {
		// The first start that is still open, else the next one.
		start := w.next(now.Add(-w.duration))
		if start.IsZero() {
			continue
		}
		if o.Start.IsZero() || start.Before(o.Start) {
			o = Opening{Start: start, End: start.Add(w.duration)}
		}
	}
	if o.Start.IsZero() {
		return Opening{}, false, errNever
	}
	starts := 0
	for longer := true; longer && starts < maxStarts; {
		longer = false
		for _, w := range ws {
			// The last start before the end: each but it is within the opening.
			for s := w.next(o.End.Add(-w.duration)); !s.IsZero() && !s.After(o.End) && starts < maxStarts; s = w.next(s) {
				starts++
				if end := s.Add(w.duration); end.After(o.End) {
					o.End, longer = end, true
				}
			}
		}
	}
	for longer := true; longer && starts < maxStarts; {
		longer = false
		for _, w := range ws {
			starts++
			// The first start that is open until the opening, or longer.
			if s := w.next(o.Start.Add(-w.duration - 1)); !s.IsZero() && s.Before(o.Start) {
				o.Start, longer = s, true
			}
		}
	}
	return o, !now.Before(o.Start), nil
}
