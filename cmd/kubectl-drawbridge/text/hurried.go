package text

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Hurried puts how long an interceptor has before what it says; a deadline of zero is none.
func Hurried(message string, deadline, now time.Time) string {
	if deadline.IsZero() {
		return message
	}
	left := "no time left"
	if d := deadline.Sub(now); d > 0 {
		left = duration.HumanDuration(d.Round(time.Second)) + " left"
	}
	if message == "" {
		return left
	}
	return left + ": " + message
}
