package app

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/drawbridge-dev/drawbridge/translate"
)

// Bounds of --caller-silence. Calls renew a lease three times within it. The known
// callers pause for seconds to minutes.
const (
	minCallerSilence = 30 * time.Second
	maxCallerSilence = 24 * time.Hour
)

// callerSilence parses the option and returns what is wrong with it.
func (o *Options) callerSilence() (silence map[translate.CallerClass]time.Duration, problems []string) {
	silence = map[translate.CallerClass]time.Duration{}
	for _, class := range slices.Sorted(maps.Keys(o.CallerSilence)) {
		value := o.CallerSilence[class]
		long, err := time.ParseDuration(value)
		switch {
		case !slices.Contains(translate.CallerClasses(), translate.CallerClass(class)):
			problems = append(problems, fmt.Sprintf("--caller-silence: %q is no class of callers", class))
		case err != nil || long < minCallerSilence || long > maxCallerSilence || long%time.Second != 0:
			problems = append(problems, fmt.Sprintf("--caller-silence of %s must be a duration in whole seconds from %s to %s, not %q", class, minCallerSilence, maxCallerSilence, value))
		default:
			silence[translate.CallerClass(class)] = long
		}
	}
	return silence, problems
}
