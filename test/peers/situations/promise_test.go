//go:build unix

package situations

import (
	"testing"
	"time"

	"github.com/drawbridge-dev/drawbridge/test/peers/records"
)

func TestWhatBreaksAPromise(t *testing.T) {
	intercepted := situation{needs: time.Second}
	restarted := situation{needs: time.Second, middle: restart}
	for name, tc := range map[string]struct {
		situation situation
		result    records.Result
		broken    bool
	}{
		"a plain pod that is evicted":                        {situation{}, records.Result{Evicted: 1}, false},
		"a prepared pod that is evicted":                     {intercepted, records.Result{Prepared: true, Evicted: 1}, false},
		"a pod that goes with its node":                      {intercepted, records.Result{Deleted: 1}, false},
		"a pod that stays":                                   {intercepted, records.Result{Refused: true}, false},
		"an interceptor that is canceled with its tool":      {restarted, records.Result{Canceled: true, Prepared: true, Evicted: 1}, false},
		"a pod that is evicted without its interceptor":      {intercepted, records.Result{Evicted: 1}, true},
		"a successor that is evicted as well":                {intercepted, records.Result{Prepared: true, Evicted: 2}, true},
		"an interceptor that is canceled by itself":          {intercepted, records.Result{Canceled: true, Prepared: true, Evicted: 1}, true},
		"a pod that is evicted although no budget allows it": {situation{with: stays}, records.Result{Evicted: 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := broken(tc.situation, &tc.result); (got != "") != tc.broken {
				t.Errorf("%q, want one: %t", got, tc.broken)
			}
		})
	}
}
