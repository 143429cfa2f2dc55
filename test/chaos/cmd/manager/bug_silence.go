//go:build unix && chaosbug

package main

import (
	"time"

	"k8s.io/client-go/rest"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
)

// A manager that skips interceptors who are at work: whatever it was told, a moment without
// a word counts as silence.
func init() {
	bugs = append(bugs, func(o *app.Options, _ *rest.Config) { o.Policy.HeartbeatDeadline = 100 * time.Millisecond })
}
