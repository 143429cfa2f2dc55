// Package skew decides which versions of Drawbridge's parts may run together. The rule is
// the one of docs/operations/versions.md, and only here: the version command, the doctor
// and the dashboard show what it says.
package skew

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// Versions of the parts of an installation, with or without a leading v. What is not known
// is empty, and is not compared.
type Versions struct {
	Plugin string
	// Manager is what runs, and Chart is what it was installed with.
	Manager string
	Chart   string
	// Definitions are the versions of the CustomResourceDefinitions, in any order; the same
	// one may come several times.
	Definitions []string
}

// Finding is a difference between two parts.
type Finding struct {
	// Supported differences are those of an upgrade that is not finished. Something may be
	// missing, but nothing is done wrong.
	Supported bool
	// What is different, and what that means.
	What string
	// Do says what to do about it.
	Do string
	// Definitions is their version, if the difference is theirs.
	Definitions string
}

func (f Finding) String() string { return f.What + ". " + f.Do }

const takeDefinitions = "Apply the CustomResourceDefinitions of the manager's version: those of its chart (crds.enabled=true), or its install-crds.yaml."

// Check compares the versions. Patch releases do not differ in what parts say to each
// other, so only major and minor count.
func Check(v Versions) []Finding {
	var findings []Finding
	definitions := "" // That are looked at.
	add := func(supported bool, do, format string, args ...any) {
		findings = append(findings, Finding{Supported: supported, What: fmt.Sprintf(format, args...), Do: do, Definitions: definitions})
	}
	plugin, manager, chart := parse(v.Plugin), parse(v.Manager), parse(v.Chart)

	if steps, known := between(plugin, manager); known && steps != 0 {
		than := "older than"
		if steps < 0 {
			than = "newer than"
		}
		add(near(steps), "Use the plugin of the manager's version.", "the manager (%s) is %s this plugin (%s): what only one of them knows is left out, or not done", v.Manager, than, v.Plugin)
	}
	if steps, known := between(chart, manager); known && steps != 0 {
		add(false, "Leave image.tag empty, or set it to a release of the chart's minor version.",
			"the chart is %s and runs a manager %s: its arguments and permissions are for another one", v.Chart, v.Manager)
	}
	seen := distinct(v.Definitions)
	for _, name := range seen {
		definitions = name
		definition := parse(name)
		// Without a manager to compare with, the plugin writes the objects, too.
		if manager == nil {
			if steps, known := between(plugin, definition); known && steps != 0 {
				add(near(steps), "Use the plugin of the version of the CustomResourceDefinitions.",
					"the CustomResourceDefinitions are of version %s, and this plugin of %s: the API server drops fields that they lack", name, v.Plugin)
			}
			continue
		}
		switch steps, known := between(definition, manager); {
		case !known || steps == 0:
		case steps == 1:
			add(true, "Finish the upgrade.", "the CustomResourceDefinitions are of version %s, and the manager of %s: they come first in an upgrade", name, v.Manager)
		case steps > 1:
			add(false, takeDefinitions, "the CustomResourceDefinitions are of version %s, more than one minor version newer than the manager (%s)", name, v.Manager)
		default:
			add(false, takeDefinitions, "the CustomResourceDefinitions are of version %s, older than the manager (%s): the API server drops fields that they lack", name, v.Manager)
		}
	}
	if definitions = ""; manager == nil && len(seen) > 1 {
		add(false, takeDefinitions, "the CustomResourceDefinitions are of several versions: %s", strings.Join(seen, ", "))
	}
	return findings
}

// parse returns nil for what is no release.
func parse(name string) *version.Version {
	v, err := version.ParseGeneric(name)
	// The go command calls a build without a tag v0.0.0-DATE-COMMIT.
	if err != nil || v.Major() == 0 && v.Minor() == 0 && v.Patch() == 0 {
		return nil
	}
	return v
}

// other stands for a number of minor versions that nobody knows: between two majors.
const other = 1000

// between is how many minor versions a is newer than b.
func between(a, b *version.Version) (steps int, known bool) {
	switch {
	case a == nil || b == nil:
		return 0, false
	case a.Major() > b.Major():
		return other, true
	case a.Major() < b.Major():
		return -other, true
	}
	return int(a.Minor()) - int(b.Minor()), true
}

// near reports whether two parts are at most one minor version apart.
func near(steps int) bool { return -1 <= steps && steps <= 1 }

// distinct are the versions of different minors, by their first name, in order.
func distinct(names []string) []string {
	var seen []string
	for _, name := range slices.Sorted(slices.Values(names)) {
		v := parse(name)
		if v != nil && !slices.ContainsFunc(seen, func(other string) bool {
			steps, _ := between(parse(other), v)
			return steps == 0
		}) {
			seen = append(seen, name)
		}
	}
	return seen
}
