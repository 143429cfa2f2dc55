//go:build unix && chaosbug

package main

import (
	"time"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
)

// sabotage makes a manager that skips interceptors who are at work: whatever it was
// told, a moment without a word counts as silence. The observer must notice.
func sabotage(o *app.Options) { o.Policy.HeartbeatDeadline = 100 * time.Millisecond }
