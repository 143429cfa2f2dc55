package why

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
)

// nativeSilence is how long a native responder may not report before that is worth mentioning, and
// Drawbridge itself between two reports about them.
const nativeSilence = 5 * time.Minute

// nativeEviction is for pods that somebody evicts by Kubernetes' own API, and nobody by ours.
func nativeEviction(c *podCase) (string, []string, bool) {
	if !turns.Runs(c.Eviction) || c.Request != nil && !v1alpha1.IsFinished(c.Request) {
		return "", nil, false
	}
	advice := []string{
		"Nothing: wait.",
		c.cancelCommand(),
	}
	all := turns.Of(c.Request, c.Eviction, c.Pod)
	i := slices.IndexFunc(all, func(t turns.Turn) bool { return t.State == turns.Active })
	switch {
	case i < 0:
		return "Kubernetes' own API was asked for the eviction (Eviction " + c.Eviction.Name + "), and nobody has its turn.",
			[]string{"If that stays, see who moves native Evictions: kubectl drawbridge doctor"}, true
	case all[i].Name == lifecyclev1alpha1.EvictionResponderImperativeEviction:
		return "All native responders had their turn, and the pod is evicted as soon as its budgets allow that" + saying(all[i].Message), advice, true
	}
	headline := fmt.Sprintf("Native responder %s (%d of %d) has its turn", all[i].Name, i+1, len(all))
	if at := all[i].Expected; at != nil && at.After(c.Now) {
		headline += " and expects to be done in " + duration.HumanDuration(at.Sub(c.Now))
	}
	return headline + saying(all[i].Message), advice, true
}

// silentResponder notes that a native responder does not report.
func silentResponder(c *podCase) []string {
	if !turns.Runs(c.Eviction) {
		return nil
	}
	for _, t := range turns.Of(c.Request, c.Eviction, c.Pod) {
		last := cmp.Or(t.Heard, t.Since)
		if t.State != turns.Active || !t.Native || t.Name == v1alpha1.NativeResponder || last == nil || c.Now.Sub(*last) < nativeSilence {
			continue
		}
		return []string{fmt.Sprintf("Native responder %s last reported %s. See whether it runs, and whether it may patch evictions/status; after 20 minutes of silence it is passed over.", t.Name, c.ago(*last))}
	}
	return nil
}
