package conformance

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// F4 time rules, those that need no clock.
func TestConformance_F4(t *testing.T) {
	ns := kube.Namespace(t)
	c := asDrawbridge(t)
	started := append([]change{}, append(aIsActive, times(at(0), at(0), nil))...)
	completed := append([]change{}, append(started, times(at(0), at(0), at(5)))...)

	cases := map[string]writeCase{
		"42 a heartbeat earlier than the stored one is refused": {
			given: started, write: times(at(0), at(-1), nil), want: "heartbeatTime cannot be earlier than the stored one",
		},
		"42 a heartbeat much earlier than the stored one is refused": {
			given: started, write: times(at(0), at(-3600), nil), want: "heartbeatTime cannot be earlier than the stored one",
		},
		"43 a heartbeat 59 s after the stored one is refused": {
			given: started, write: times(at(0), at(59), nil), want: "heartbeatTime must be at least 60 seconds after the stored one",
		},
		"43 a heartbeat 1 s after the stored one is refused": {
			given: started, write: times(at(0), at(1), nil), want: "heartbeatTime must be at least 60 seconds after the stored one",
		},
		"43 a heartbeat 60 s after the stored one is accepted": {
			given: started, write: times(at(0), at(60), nil), want: accepted,
		},
		"43 a message without a new heartbeat is accepted": {
			given: started, write: report(interceptorA, func(r *v1alpha1.InterceptorStatus) { r.Message = "half way" }), want: accepted,
		},
		"44 a first heartbeat without startTime is refused": {
			given: aIsActive, write: times(nil, at(0), nil), want: "startTime must be set together with the first heartbeatTime",
		},
		"45 startTime without a first heartbeat is refused": {
			given: aIsActive, write: times(at(0), nil, nil), want: "heartbeatTime must be set together with startTime",
		},
		"44, 45 both together are accepted": {
			given: aIsActive, write: times(at(0), at(0), nil), want: accepted,
		},
		"45 who declines sets only completionTime": {
			given: aIsActive, write: times(nil, nil, at(0)), want: accepted,
		},
		"49 startTime cannot change": {
			given: started, write: times(at(1), at(0), nil), want: "startTime is immutable once set",
		},
		"49 startTime cannot be unset": {
			given: started, write: times(nil, at(0), nil), want: "startTime",
		},
		"49 heartbeatTime cannot be unset": {
			given: started, write: times(at(0), nil, nil), want: "heartbeatTime cannot be unset",
		},
		"49 startTime and heartbeatTime cannot be unset together": {
			given: started, write: times(nil, nil, nil), want: "heartbeatTime cannot be unset",
		},
		"49 completionTime cannot change": {
			given: completed, write: times(at(0), at(0), at(6)), want: "completionTime is immutable once set",
		},
		"49 completionTime cannot be unset": {
			given: completed, write: times(at(0), at(0), nil), want: "completionTime is immutable once set",
		},
		"48 expectedFinishTime can change and go": {
			given: append([]change{}, append(started, report(interceptorA, func(r *v1alpha1.InterceptorStatus) { r.ExpectedFinishTime = at(3600) }))...),
			write: report(interceptorA, func(r *v1alpha1.InterceptorStatus) { r.ExpectedFinishTime = nil }), want: accepted,
		},
		"a negative number of retries is refused": {
			given: aIsActive, write: report(interceptorA, func(r *v1alpha1.InterceptorStatus) { r.Retries = -1 }), want: "retries",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { tc.run(t, c, ns, true) })
	}
}

// times sets the times in the item of interceptor A.
func times(start, heartbeat, completion *metav1.Time) change {
	return report(interceptorA, func(r *v1alpha1.InterceptorStatus) {
		r.StartTime, r.HeartbeatTime, r.CompletionTime = start, heartbeat, completion
	})
}
