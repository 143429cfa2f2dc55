package rollback

import (
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

const (
	// period is how often is read if all is well.
	period = 5 * time.Second
	// soon is the pause before a reading that confirms a doubt, and while the API server
	// does not answer: it may come back with another store, whose resource versions grow
	// from then on and hide it in the end.
	soon = time.Second
)

// reading is what was seen of a resource, and what the API server answered afterwards.
type reading struct{ resource, seen, live string }

// older reports whether the answer is older than what was seen. What is no resource version
// of an etcd, or none at all, cannot be compared.
func (r reading) older() bool {
	order, err := resourceversion.CompareResourceVersion(r.live, r.seen)
	return err == nil && order < 0
}

// newer is the newer one of two resource versions, or the one that can be compared.
func newer(a, b string) string {
	if order, err := resourceversion.CompareResourceVersion(a, b); err == nil {
		if order < 0 {
			return b
		}
		return a
	}
	if _, err := resourceversion.CompareResourceVersion(a, a); err != nil {
		return b
	}
	return a
}

// input is one round of readings.
type input struct {
	readings []reading
	// failed: some resource could not be read.
	failed bool
	// doubted are the resources whose reading before this one was too old.
	doubted map[string]bool
}

// decision is what follows.
type decision struct {
	// rolledBack are resources whose readings were too old twice.
	rolledBack []reading
	doubted    map[string]bool
	// again is the pause before the next round.
	again time.Duration
}

// decide doubts the first answer that is too old, and believes the second one: a false
// alarm would end a manager that is well.
func decide(in input) decision {
	d := decision{doubted: map[string]bool{}, again: period}
	for resource := range in.doubted {
		d.doubted[resource] = true // Unless it was read again, below.
	}
	for _, r := range in.readings {
		switch {
		case !r.older():
			delete(d.doubted, r.resource)
		case in.doubted[r.resource]:
			d.rolledBack = append(d.rolledBack, r)
		default:
			d.doubted[r.resource] = true
		}
	}
	if in.failed || len(d.doubted) > 0 {
		d.again = soon
	}
	return d
}
