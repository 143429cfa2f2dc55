//go:build unix

package main

import (
	"k8s.io/client-go/rest"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
)

// bugs are those of this build, which the observer must notice. There are none without the build
// tags of the files bug_*.go.
var bugs []func(*app.Options, *rest.Config)
