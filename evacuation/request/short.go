package request

import (
	"fmt"
	"strings"
	"time"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/internal/events"
)

// noteShort records in the request itself who got, or would have got, less time than it
// needs.
func noteShort(er *v1alpha1.EvictionRequest, d process.Decision, now time.Time) {
	if len(d.ShortNotices) > 0 {
		noteMore(er, v1alpha1.ConditionShortNotice, v1alpha1.ReasonTooShort, shortMessage(er, d), d.ObservedGeneration, now)
	}
}

// shortMessage says who needs longer than which deadline leaves it.
func shortMessage(er *v1alpha1.EvictionRequest, d process.Decision) string {
	var told []string
	for _, short := range d.ShortNotices {
		and := "it begins nevertheless"
		if short.Skipped {
			and = "it is skipped"
		}
		// Rounded up: what has half a second does not have none.
		told = append(told, fmt.Sprintf("%s needs %s and has %s, because of %s: %s.",
			short.Name, short.Needs, (short.Has+time.Second-1).Truncate(time.Second), er.Status.DeadlineSource, and))
	}
	return strings.Join(told, " ")
}

// shortAnnouncements are the events about it.
func shortAnnouncements(after *v1alpha1.EvictionRequest, d process.Decision) []events.Event {
	if len(d.ShortNotices) == 0 {
		return nil
	}
	return []events.Event{events.ShortNotice(shortMessage(after, d))}
}
