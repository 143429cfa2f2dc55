package request

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestMemoryKeepsTheFirstSighting(t *testing.T) {
	beating := func(at time.Duration) *v1alpha1.EvictionRequest {
		return planned().Heartbeat("a.example.com", t0.Add(at)).Obj()
	}
	type look struct {
		request *v1alpha1.EvictionRequest
		ended   bool
		at      time.Duration
		forget  bool
	}
	tests := map[string]struct {
		looks []look
		want  observation
	}{
		"the end is seen once": {
			looks: []look{{planned().Obj(), true, time.Minute, false}, {planned().Obj(), true, 2 * time.Minute, false}},
			want:  observation{endSeenAt: t0.Add(time.Minute)},
		},
		"an end that was none is forgotten": {
			looks: []look{{planned().Obj(), true, time.Minute, false}, {planned().Obj(), false, 2 * time.Minute, false}},
		},
		"an end from the future counts as now": {
			looks: []look{{planned().Obj(), true, time.Hour, false}, {planned().Obj(), true, time.Minute, false}},
			want:  observation{endSeenAt: t0.Add(time.Minute)},
		},
		"the same heartbeat is seen once": {
			looks: []look{{beating(0), false, time.Minute, false}, {beating(0), false, 2 * time.Minute, false}},
			want:  observation{heartbeatSeenAt: t0.Add(time.Minute)},
		},
		"another heartbeat is seen anew": {
			looks: []look{{beating(0), false, time.Minute, false}, {beating(time.Minute), false, 2 * time.Minute, false}},
			want:  observation{heartbeatSeenAt: t0.Add(2 * time.Minute)},
		},
		"a heartbeat from the future counts as now": {
			looks: []look{{beating(0), false, time.Hour, false}, {beating(0), false, time.Minute, false}},
			want:  observation{heartbeatSeenAt: t0.Add(time.Minute)},
		},
		"nobody active has no heartbeat": {
			looks: []look{{beating(0), false, time.Minute, false}, {newRequest().Obj(), false, 2 * time.Minute, false}},
		},
		"a later request of the same name starts anew": {
			looks: []look{{planned().Obj(), true, time.Minute, false}, {planned().UID("er-2").Obj(), true, 2 * time.Minute, false}},
			want:  observation{endSeenAt: t0.Add(2 * time.Minute)},
		},
		"what was forgotten is seen anew": {
			looks: []look{{planned().Obj(), true, time.Minute, true}, {planned().Obj(), true, 2 * time.Minute, false}},
			want:  observation{endSeenAt: t0.Add(2 * time.Minute)},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var m observed
			var got observation
			for _, l := range tc.looks {
				got = m.observe(l.request, l.ended, t0.Add(l.at))
				if l.forget {
					m.forget(types.NamespacedName{Namespace: l.request.Namespace, Name: l.request.Name})
				}
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(observation{})); diff != "" {
				t.Errorf("observation (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMemoryDoesNotGrow(t *testing.T) {
	var m observed
	for _, er := range []*v1alpha1.EvictionRequest{planned().Obj(), planned().Name("uid-2").Obj()} {
		m.observe(er, true, t0)
		m.forget(types.NamespacedName{Namespace: er.Namespace, Name: er.Name})
	}
	if len(m.requests) != 0 {
		t.Errorf("requests remembered: got %d, want 0", len(m.requests))
	}
}
