package app

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/dynamic"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drawbridge-dev/drawbridge/evacuation/deadline"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// DeadlineOptions configure from what the deadlines of callers are learnt.
type DeadlineOptions struct {
	// Sources are the kinds that say when a node goes, by translate.DeadlineKind.Option.
	Sources []string
	// Taints say how long after a taint its node goes, as KEY=DURATION.
	Taints []string
	// Patience says how long callers of a class wait, as a duration, from their first call
	// for a node.
	Patience map[string]string
}

// defaultDeadlineOptions are the flags' defaults. AWS promises two minutes ("Spot Instance
// interruption notices"), and its Node Termination Handler sets that taint.
func defaultDeadlineOptions() DeadlineOptions {
	return DeadlineOptions{Sources: deadlineSources(), Taints: []string{"aws-node-termination-handler/spot-itn=2m"}}
}

// Bounds of a duration that is counted from a taint or a first call.
const (
	minPatience = time.Second
	maxPatience = 7 * 24 * time.Hour
)

func deadlineSources() []string {
	var names []string
	for _, of := range translate.DeadlineKinds() {
		names = append(names, of.Option)
	}
	return names
}

// addFlags adds the flags to fs. Their defaults are the current values.
func (d *DeadlineOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&d.Sources, "deadline-source", d.Sources, "Learn from the objects of these tools when a node goes: "+strings.Join(deadlineSources(), ", ")+"; may be repeated.")
	fs.StringSliceVar(&d.Taints, "taint-deadline", d.Taints, "How long after a taint its node goes, as KEY=DURATION; may be repeated.")
	fs.StringToStringVar(&d.Patience, "caller-patience", d.Patience, "How long legacy callers of a class wait for the pods of a node, as CLASS=DURATION; may be repeated.")
}

// validate calls check for everything that must hold.
func (d *DeadlineOptions) validate(check func(ok bool, format string, args ...any)) {
	for _, name := range d.Sources {
		check(slices.Contains(deadlineSources(), name), "--deadline-source must be one of %s, not %q", strings.Join(deadlineSources(), ", "), name)
	}
	_, problems := d.sources()
	for _, problem := range problems {
		check(false, "%s", problem)
	}
}

// sources parses the options and returns what is wrong with them.
func (d *DeadlineOptions) sources() (sources deadline.Sources, problems []string) {
	sources = deadline.Sources{Kinds: d.Sources, Taints: map[string]time.Duration{}, Patience: map[translate.CallerClass]time.Duration{}}
	parse := func(flag, key, value string) time.Duration {
		long, err := time.ParseDuration(value)
		if err != nil || long < minPatience || long > maxPatience {
			problems = append(problems, fmt.Sprintf("%s of %s must be a duration from %s to %s, not %q", flag, key, minPatience, maxPatience, value))
		}
		return long
	}
	for _, taint := range d.Taints {
		key, after, _ := strings.Cut(taint, "=")
		sources.Taints[key] = parse("--taint-deadline", key, after)
	}
	for _, class := range slices.Sorted(maps.Keys(d.Patience)) {
		if !slices.Contains(translate.CallerClasses(), translate.CallerClass(class)) {
			problems = append(problems, fmt.Sprintf("--caller-patience: %q is no class of callers", class))
			continue
		}
		sources.Patience[translate.CallerClass(class)] = parse("--caller-patience", class, d.Patience[class])
	}
	return sources, problems
}

// newDeadlines makes the book of deadlines, which runs with the controller of requests.
func newDeadlines(mgr ctrl.Manager, o Options) (*deadline.Book, error) {
	dynamicClient, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make dynamic client: %w", err)
	}
	sources, _ := o.Deadlines.sources() // Validated before.
	return &deadline.Book{
		Sources: sources, Cache: mgr.GetCache(), Live: mgr.GetAPIReader(), Dynamic: dynamicClient, Mapper: mgr.GetRESTMapper(),
		Clock: o.Clock, Log: mgr.GetLogger().WithName("deadlines"), Namespace: o.Namespace,
	}, nil
}
