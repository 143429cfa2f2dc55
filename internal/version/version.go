// Package version says which release a program is of.
package version

import "runtime/debug"

// Development is what a program is called that is of no release.
const Development = "development"

// version is set by the linker, for releases:
// -ldflags='-X github.com/drawbridge-dev/drawbridge/internal/version.version=v1.2.3'.
var version string

// Get returns the version of this program, such as v1.2.3: of the release, or of the module if
// `go install` has built it. Otherwise it is [Development].
func Get() string {
	info, ok := debug.ReadBuildInfo()
	return of(version, info, ok)
}

func of(linked string, info *debug.BuildInfo, ok bool) string {
	switch {
	case linked != "":
		return linked
	case ok && info.Main.Version != "" && info.Main.Version != "(devel)":
		return info.Main.Version
	}
	return Development
}
