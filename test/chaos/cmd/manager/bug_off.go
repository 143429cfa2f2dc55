//go:build unix && !chaosbug

package main

import "github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"

// sabotage leaves the manager as it is: see bug_on.go.
func sabotage(*app.Options) {}
