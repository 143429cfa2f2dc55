package maintenance

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestEvictionOfARequest(t *testing.T) {
	const name = "a.example.com"
	activated := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	active := func() *builder.EvictionRequestWrapper {
		return builder.EvictionRequest("shop", "db-0", "uid-1").Requesters("drain.example.com").Interceptors(name).Active(name, activated)
	}
	cases := map[string]struct {
		er   *builder.EvictionRequestWrapper
		want Eviction
	}{
		"its interceptor has not reported yet": {
			active(), Eviction{State: v1alpha1.StateIntercepting, Interceptor: name, LastHeard: activated},
		},
		"it has reported": {
			active().Started(name, activated.Add(time.Minute)),
			Eviction{State: v1alpha1.StateIntercepting, Interceptor: name, Started: true, LastHeard: activated.Add(time.Minute)},
		},
		"it may be silent for two minutes, and reports each minute": {
			active().HeartbeatDeadline(name, 2*time.Minute),
			Eviction{State: v1alpha1.StateIntercepting, Interceptor: name, LastHeard: activated, SilentAfter: 90 * time.Second},
		},
		"it may be silent for a day, and blocks after half of it": {
			active().HeartbeatDeadline(name, 24*time.Hour),
			Eviction{State: v1alpha1.StateIntercepting, Interceptor: name, LastHeard: activated, SilentAfter: 12 * time.Hour},
		},
	}
	for title, tc := range cases {
		t.Run(title, func(t *testing.T) {
			if diff := cmp.Diff(&tc.want, evictionOf(tc.er.Obj())); diff != "" {
				t.Errorf("eviction (-want +got):\n%s", diff)
			}
		})
	}
}
