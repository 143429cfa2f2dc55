package page

import (
	"time"
)

const day = 24 * time.Hour

// roundSteps are the distances of marks on an axis that people count in.
var roundSteps = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 7 * day, 14 * day, 30 * day, 90 * day, 365 * day,
}

// roundStep is the smallest round step of which at most so many fit into a span; a multiple of a
// year if no other is long enough.
func roundStep(span time.Duration, most int) time.Duration {
	for _, step := range roundSteps {
		if span/step < time.Duration(most) {
			return step
		}
	}
	longest := roundSteps[len(roundSteps)-1]
	return (span / time.Duration(most)).Truncate(longest) + longest
}

// roundTimes are the round times from one time to another, in the time zone of the first, at most
// so many.
func roundTimes(from, to time.Time, most int) []time.Time {
	step := roundStep(to.Sub(from), most)
	var all []time.Time
	for at := roundDown(from, step); !at.After(to); at = at.Add(step) {
		if !at.Before(from) {
			all = append(all, at)
		}
	}
	return all[:min(len(all), most)]
}

// roundDown is the last multiple of a step up to a time. Days begin at midnight in its time zone.
func roundDown(t time.Time, step time.Duration) time.Time {
	_, offset := t.Zone()
	zone := time.Duration(offset) * time.Second
	return t.Add(zone).Truncate(step).Add(-zone)
}

// roundUp is the first multiple of a step from a time on.
func roundUp(t time.Time, step time.Duration) time.Time {
	if down := roundDown(t, step); down.Before(t) {
		return down.Add(step)
	}
	return roundDown(t, step)
}

// axisText is a time on an axis of that span: no longer than it has to be.
func axisText(t time.Time, span, step time.Duration) string {
	switch {
	case step >= day:
		return t.Format("2 Jan")
	case span > day:
		return t.Format("2 Jan 15:04")
	case step < time.Minute:
		return t.Format(time.TimeOnly)
	default:
		return t.Format("15:04")
	}
}
