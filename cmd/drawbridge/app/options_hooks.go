package app

import (
	"net/netip"
	"time"

	"github.com/spf13/pflag"
)

// HookOptions configure EvacuationHooks.
type HookOptions struct {
	// Enabled runs them.
	Enabled bool
	// MaxConcurrent is how many run at a time in the cluster, MaxPerNamespace in a
	// namespace, both 1 to maxHooks.
	MaxConcurrent, MaxPerNamespace int
	// MaxTotal is how long all attempts for a pod may take together.
	MaxTotal time.Duration
	// Exec allows commands in pods, HTTP requests.
	Exec, HTTP bool

	// Reachable are addresses that requests may go to although they are refused
	// otherwise. It has no flag: it is for tests, whose servers are on this machine.
	Reachable []netip.Prefix
}

// Bounds of HookOptions.
const (
	maxHooks        = 1000
	minHookMaxTotal = time.Minute
	maxHookMaxTotal = 7 * 24 * time.Hour
)

func defaultHookOptions() HookOptions {
	return HookOptions{Enabled: true, MaxConcurrent: 50, MaxPerNamespace: 5, MaxTotal: 24 * time.Hour, HTTP: true}
}

// addFlags adds the flags to fs. Their defaults are the current values.
func (o *HookOptions) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Enabled, "hooks", o.Enabled, "Run EvacuationHooks.")
	fs.IntVar(&o.MaxConcurrent, "hooks-max-concurrent", o.MaxConcurrent, "How many EvacuationHooks may run at the same time in the cluster.")
	fs.IntVar(&o.MaxPerNamespace, "hooks-max-concurrent-per-namespace", o.MaxPerNamespace, "How many EvacuationHooks may run at the same time in a namespace.")
	fs.DurationVar(&o.MaxTotal, "hooks-max-total", o.MaxTotal, "How long all attempts of an EvacuationHook for a pod may take together. Longer deadlines are shortened.")
	fs.BoolVar(&o.Exec, "hooks-exec", o.Exec, "Let EvacuationHooks run commands in the containers of pods. The manager needs the permission to create pods/exec.")
	fs.BoolVar(&o.HTTP, "hooks-http", o.HTTP, "Let EvacuationHooks send HTTP requests.")
}

// validate calls check for everything that must hold.
func (o *HookOptions) validate(check func(ok bool, format string, args ...any)) {
	check(o.MaxConcurrent >= 1 && o.MaxConcurrent <= maxHooks, "--hooks-max-concurrent must be between 1 and %d, not %d", maxHooks, o.MaxConcurrent)
	check(o.MaxPerNamespace >= 1 && o.MaxPerNamespace <= maxHooks, "--hooks-max-concurrent-per-namespace must be between 1 and %d, not %d", maxHooks, o.MaxPerNamespace)
	check(o.MaxTotal >= minHookMaxTotal && o.MaxTotal <= maxHookMaxTotal, "--hooks-max-total must be between %s and %s, not %s", minHookMaxTotal, maxHookMaxTotal, o.MaxTotal)
}
