package chaos

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// ofZone makes a pod one of the StatefulSet of a zone.
func ofZone(zone string, change ...func(*corev1.Pod)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels[builder.AppLabel] = "zone-" + zone
		for _, c := range change {
			c(p)
		}
	}
}

// evictedOf is the end of a pod of a zone by the eviction API, at that second.
func evictedOf(zone, name string, second float64) []PodSeen {
	return []PodSeen{
		{At: at(second), Pod: pod(name, ofZone(zone, letGo(at(second)), dying(at(second))))},
		{At: at(second + 0.1), Gone: true, Pod: pod(name, ofZone(zone, letGo(at(second))))},
	}
}

// deletedOf is the end of a pod that somebody deletes.
func deletedOf(zone, name string, second float64) []PodSeen {
	return []PodSeen{{At: at(second), Gone: true, Pod: pod(name, ofZone(zone))}}
}

// readyOf is a pod that is ready.
func readyOf(zone, name string, second float64) []PodSeen {
	return []PodSeen{{At: at(second), Pod: pod(name, ofZone(zone))}}
}

// missed is what comes to light after a gap.
func missed(events ...[]PodSeen) []PodSeen {
	all := slices.Concat(events...)
	for i := range all {
		all[i].Gap = true
	}
	return all
}

// zoned is a history of two zones with a pod each, to which that happens.
func zoned(events [][]PodSeen, change ...func(*History)) *History {
	h := &History{
		Plan: Plan{Mode: ModeFail, Rollout: &Rollout{}, Workloads: []Workload{
			{Name: "zone-a", Kind: Zoned, Zone: "a", Replicas: 1, MaxUnavailable: -1}, {Name: "zone-b", Kind: Zoned, Zone: "b", Replicas: 1, MaxUnavailable: -1},
		}},
		Deadline: deadline, Slack: 2 * grain,
		Pods: slices.Concat(append([][]PodSeen{readyOf("a", "a", 0), readyOf("b", "b", 0)}, events...)...),
	}
	for _, c := range change {
		c(h)
	}
	return h
}

// granted has a grant seen at that second.
func granted(name string, second float64) func(*History) {
	return func(h *History) {
		budget := &v1alpha1.EvictionBudget{}
		budget.Status.Grants = []v1alpha1.BudgetGrant{{PodUID: "uid-" + name}}
		h.EvictionBudgets = append(h.EvictionBudgets, EvictionBudgetSeen{At: at(second), Budget: budget})
	}
}

// turnOfBudgets is the only turn of the request for a pod, since that second; done is when it
// was completed, if it was.
func turnOfBudgets(name string, since, done float64) func(*History) {
	return func(h *History) {
		er := &v1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Name: "uid-" + name, UID: theRequest, CreationTimestamp: metav1.NewTime(at(since))}}
		names := []string{v1alpha1.BudgetInterceptor, v1alpha1.ImperativeEvictionInterceptor}
		er.Status.TargetInterceptors = []v1alpha1.Interceptor{{Name: names[0]}, {Name: names[1]}}
		er.Status.ActiveInterceptors = names[:1]
		h.Requests = append(h.Requests, RequestSeen{At: at(since), Request: er})
		if done > 0 {
			er = er.DeepCopy()
			er.Status.Interceptors = []v1alpha1.InterceptorStatus{{Name: names[0], CompletionTime: new(metav1.NewTime(at(done)))}}
			er.Status.ActiveInterceptors, er.Status.ProcessedInterceptors = names[1:], names[:1]
			h.Requests = append(h.Requests, RequestSeen{At: at(done), Request: er})
		}
	}
}

func TestCheckZones(t *testing.T) {
	late := staleness.Seconds() + 10 + 1
	outage := func(h *History) { h.Plan.Mode, h.Away = ModeIgnore, []Interval{{at(19), at(25)}} }
	cases := map[string]struct {
		history *History
		want    string // The promise that is broken.
		zoned   int
		unasked int
	}{
		"one zone after the other": {
			history: zoned([][]PodSeen{evictedOf("a", "a", 10), readyOf("a", "a2", 15), evictedOf("b", "b", 20)}), want: never, zoned: 2,
		},
		"two zones at a time": {
			history: zoned([][]PodSeen{evictedOf("a", "a", 10), evictedOf("b", "b", 20)}), want: PromiseZones, zoned: 2,
		},
		"the other zone has a pod that is not ready": {
			history: zoned([][]PodSeen{evictedOf("a", "a", 10), {{At: at(15), Pod: pod("a2", ofZone("a", func(p *corev1.Pod) { p.Status.Conditions = nil }))}}, evictedOf("b", "b", 20)}),
			want:    PromiseZones, zoned: 2,
		},
		"the other zone has one of its two pods": {
			history: zoned([][]PodSeen{readyOf("a", "a1", 1), evictedOf("a", "a", 10), evictedOf("b", "b", 20)}, func(h *History) { h.Plan.Workloads[0].Replicas = 2 }),
			want:    PromiseZones, zoned: 2,
		},
		"two pods of a zone at a time": {
			history: zoned([][]PodSeen{readyOf("a", "a1", 1), evictedOf("a", "a", 10), evictedOf("a", "a1", 11)}, func(h *History) { h.Plan.Workloads[0].Replicas = 2 }),
			want:    never, zoned: 2,
		},
		"without a rollout group": {
			history: zoned([][]PodSeen{evictedOf("a", "a", 10), evictedOf("b", "b", 20)}, func(h *History) { h.Plan.Rollout = nil }), want: never,
		},

		"somebody has deleted a pod of the other zone a moment ago": {
			history: zoned([][]PodSeen{deletedOf("a", "a", 10), evictedOf("b", "b", 11)}), want: never, zoned: 1,
		},
		"somebody has deleted a pod of the other zone long ago": {
			history: zoned([][]PodSeen{deletedOf("a", "a", 10), evictedOf("b", "b", late)}), want: PromiseZones, zoned: 1,
		},
		"somebody has deleted it long ago, but after the grant": {
			history: zoned([][]PodSeen{deletedOf("a", "a", 10), evictedOf("b", "b", late)}, granted("b", 9)), want: never, zoned: 1,
		},
		"somebody has deleted it long before the grant": {
			history: zoned([][]PodSeen{deletedOf("a", "a", 10), evictedOf("b", "b", late+5)}, granted("b", late)), want: PromiseZones, zoned: 1,
		},
		"somebody deletes a pod of the other zone afterwards": {
			history: zoned([][]PodSeen{evictedOf("a", "a", 10), deletedOf("b", "b", late)}), want: never, zoned: 1,
		},
		"a deleted pod is no excuse for two evictions": {
			history: zoned([][]PodSeen{readyOf("a", "a1", 1), deletedOf("a", "a1", 9), evictedOf("a", "a", 10), evictedOf("b", "b", 11)}, func(h *History) { h.Plan.Workloads[0].Replicas = 2 }),
			want:    PromiseZones, zoned: 2,
		},

		"the second one passed an outage": {
			history: zoned([][]PodSeen{evictedOf("a", "a", 10), evictedOf("b", "b", 20)}, outage), want: never, zoned: 2, unasked: 1,
		},
		"the second one passed an outage under failurePolicy Fail": {
			history: zoned([][]PodSeen{evictedOf("a", "a", 10), evictedOf("b", "b", 20)}, outage, mode(ModeFail)), want: PromiseZones, zoned: 2,
		},
		"the second one was granted in an outage": {
			history: zoned([][]PodSeen{evictedOf("a", "a", 10), evictedOf("b", "b", 20)}, outage, granted("b", 19)), want: PromiseZones, zoned: 2,
		},
		"the second one was guarded in an outage": {
			history: zoned([][]PodSeen{evictedOf("a", "a", 10), evictedOf("b", "b", 20)}, outage, func(h *History) { guarded(h.Pods[1].Pod) }), want: PromiseZones, zoned: 2,
		},

		"the budget was silent for the whole deadline": {
			history: zoned([][]PodSeen{evictedOf("a", "a", 10), evictedOf("b", "b", 20)}, turnOfBudgets("b", 11, 0)), want: never, zoned: 2, unasked: 1,
		},
		"the budget was silent for less": {
			history: zoned([][]PodSeen{evictedOf("a", "a", 10), evictedOf("b", "b", 20)}, turnOfBudgets("b", 15, 0)), want: PromiseZones, zoned: 2,
		},
		"the budget has let it go after a long wait": {
			history: zoned([][]PodSeen{evictedOf("a", "a", 10), evictedOf("b", "b", 20)}, turnOfBudgets("b", 11, 19)), want: PromiseZones, zoned: 2,
		},
		"a call by name strayed to the second one": {
			history: zoned([][]PodSeen{
				evictedOf("a", "a", 10), {{At: at(11), Pod: pod("b", ofZone("b", deleting))}, {At: at(12), Gone: true, Pod: pod("b", ofZone("b", deleting))}},
				readyOf("b", "b", 13), evictedOf("b", "b", 14),
			}, func(h *History) {
				for i := range h.Pods {
					if h.Pods[i].Pod.Name == "b" && h.Pods[i].At.After(at(12)) {
						h.Pods[i].Pod.UID = "uid-b2"
					}
				}
				h.Calls = []Call{{At: at(11.5), Name: "b", Code: 201}}
			}), want: never, zoned: 2, unasked: 1,
		},

		"what was missed had some order": {
			history: zoned([][]PodSeen{evictedOf("a", "a", 10), missed(evictedOf("b", "b", 20), readyOf("a", "a2", 20))}), want: never, zoned: 2,
		},
		"after a gap both zones are disrupted": {
			history: zoned([][]PodSeen{missed(evictedOf("b", "b", 20), evictedOf("a", "a", 20))}), want: PromiseZones, zoned: 2,
		},
		"the end was missed, and the log has an eviction": {
			history: zoned([][]PodSeen{evictedOf("a", "a", 10), missed(deletedOf("b", "b", 20))}, func(h *History) {
				h.Calls = []Call{{At: at(19), Name: "b", UID: "uid-b", Code: 201}}
			}), want: PromiseZones, zoned: 2,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := breaks(t, tc.history, tc.want)
			if diff := cmp.Diff([]int{tc.zoned, tc.unasked}, []int{v.Zoned, v.Unasked}); diff != "" {
				t.Errorf("of zones, and of those unasked (-want +got):\n%s", diff)
			}
		})
	}
}

// A plan has a rollout group or none, and what is lost of it is lost within the run.
func TestManyPlansHaveARolloutGroup(t *testing.T) {
	rollouts := 0
	for seed := range uint64(100) {
		p := MakePlan(seed, []TroubleKind{})
		zones := 0
		for _, w := range p.Workloads {
			if w.Zone != "" {
				zones++
			}
		}
		if p.Rollout == nil && zones > 0 || p.Rollout != nil && zones != len(zoneNames) {
			t.Errorf("seed %d: %d zones, rollout group %+v", seed, zones, p.Rollout)
		}
		if p.Rollout != nil {
			rollouts++
			for _, l := range p.Rollout.Losses {
				if l.At < 1 || l.At >= Steps {
					t.Errorf("seed %d: loss %+v is not within the run", seed, l)
				}
			}
		}
	}
	if rollouts < 40 {
		t.Errorf("%d of 100 plans have a rollout group", rollouts)
	}
}
