// Package features has the feature gates of the manager, with their stages:
//
//   - Alpha: off unless asked for; may change or go without notice. NativeAPI is on: it does
//     something only where the API server serves an API that is off by default twice, by the
//     feature gate EvictionRequestAPI and by --runtime-config, and that is the consent.
//   - Beta: on unless switched off; goes or changes only with a word in the changelog.
//   - GA: on, and the gate does nothing any more.
//
// A gate is consent to a stage, and the way to disable a harmful feature. The values of
// the chart say where and how a feature is used; the manager refuses to start if they use
// a feature whose gate is off.
package features

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/component-base/featuregate"
)

// The gates.
const (
	// Guard is the protection of intercepted pods by PodDisruptionBudgets (--guard).
	Guard featuregate.Feature = "Guard"
	// Surge is the interceptor surge.drawbridge.dev (--surge).
	Surge featuregate.Feature = "Surge"
	// EvacuationPresets are EvacuationPolicies and registrations that the manager creates
	// (--evacuation-preset).
	EvacuationPresets featuregate.Feature = "EvacuationPresets"
	// EvacuationHooks are interceptors that are a page of YAML (--hooks).
	EvacuationHooks featuregate.Feature = "EvacuationHooks"
	// EvictionBudgets say how many pods may be evicted at a time, and when (--budgets).
	EvictionBudgets featuregate.Feature = "EvictionBudgets"
	// ManagedFailurePolicy manages the failure policy of the eviction webhook: Ignore
	// until a call has proven that we are reached, then the wanted policy. Without it,
	// the administrator manages the policy.
	ManagedFailurePolicy featuregate.Feature = "ManagedFailurePolicy"
	// NativeAPI joins lifecycle.k8s.io to ours where the API server serves it
	// (--native-controllers). Without it, that counts as Off.
	NativeAPI featuregate.Feature = "NativeAPI"
)

// defaults are the stages of all gates.
var defaults = map[featuregate.Feature]featuregate.FeatureSpec{
	Guard:                {Default: true, PreRelease: featuregate.Beta},
	Surge:                {Default: true, PreRelease: featuregate.Beta},
	EvacuationHooks:      {Default: true, PreRelease: featuregate.Beta},
	EvictionBudgets:      {Default: true, PreRelease: featuregate.Beta},
	EvacuationPresets:    {Default: true, PreRelease: featuregate.Beta},
	ManagedFailurePolicy: {Default: true, PreRelease: featuregate.Beta},
	// On where the API server serves it: see the stages above.
	NativeAPI: {Default: true, PreRelease: featuregate.Alpha},
}

// Gates are the gates of one manager. The zero value has all defaults.
type Gates struct {
	// Set are the gates that differ from their default.
	Set map[string]bool
}

// Enabled reports whether a feature is on.
func (g Gates) Enabled(feature featuregate.Feature) bool {
	if on, ok := g.Set[string(feature)]; ok {
		return on
	}
	return defaults[feature].Default
}

// Validate refuses gates that do not exist, and those of features that cannot be
// switched any more.
func (g Gates) Validate() error {
	gate := featuregate.NewFeatureGate()
	if err := gate.Add(defaults); err != nil {
		return fmt.Errorf("add feature gates: %w", err)
	}
	for name := range g.Set {
		if _, ok := defaults[featuregate.Feature(name)]; !ok {
			return fmt.Errorf("there is no feature gate %q; there are %s", name, strings.Join(Names(), ", "))
		}
	}
	if err := gate.SetFromMap(g.Set); err != nil {
		return fmt.Errorf("set feature gates: %w", err)
	}
	return nil
}

// Names are all gates, sorted.
func Names() []string {
	var names []string
	for name := range defaults {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

// Stage is the stage of a gate, and whether it is on by default.
func Stage(name string) (stage string, on bool) {
	spec := defaults[featuregate.Feature(name)]
	return string(spec.PreRelease), spec.Default
}
