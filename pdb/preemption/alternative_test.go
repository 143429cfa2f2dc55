package preemption

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// nodePod is a pod of node-1 that has run for an hour.
func nodePod(name string, priority int32, cpu string, change ...func(*NodePod)) NodePod {
	object := pod(name).Priority("class", priority).CPU(cpu).Obj()
	object.Status.StartTime = &metav1.Time{Time: t0.Add(-time.Hour)}
	o := NodePod{Victim: with(victim(name), withoutValue), Object: object}
	o.NodeName = "node-1"
	for _, c := range change {
		c(&o)
	}
	return o
}

// guarded gives it a value of 1000.
func guarded(o *NodePod) { o.Value = victim("").Value }

func of(budgets ...*Budget) func(*NodePod) {
	return func(o *NodePod) { o.Budgets = budgets }
}

func object(change func(*corev1.Pod)) func(*NodePod) {
	return func(o *NodePod) { change(o.Object) }
}

func requesting(name corev1.ResourceName, quantity string) func(*NodePod) {
	return object(func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests[name] = amount(quantity) })
}

func TestAlternative(t *testing.T) {
	none, spent, one, two := named("none", 0), named("spent", 0), named("one", 1), named("two", 2)
	protected := nodePod("protected", 100, "1", guarded, of(none))
	other := nodePod("other", 200, "1", of(spent))
	tests := map[string]struct {
		priority   int32 // 999 if it is 0.
		entangled  string
		victims    []string // The scheduler's; "protected" if there are none.
		nodePods   []NodePod
		charges    map[*Budget]int32
		want       []string
		violations int64
		why        string
	}{
		"another one of the same size goes": {
			nodePods: []NodePod{protected, other}, want: []string{"other"}, violations: 1,
		},
		"no violation is counted where there is none": {
			nodePods: []NodePod{protected, nodePod("other", 200, "1", of(one))}, want: []string{"other"},
		},
		"a disruption that its budget does not count yet makes it one": {
			nodePods: []NodePod{protected, nodePod("other", 200, "1", of(one))}, charges: map[*Budget]int32{one: 1}, want: []string{"other"}, violations: 1,
		},
		"the other victims stay, the most important first": {
			victims:  []string{"protected", "low"},
			nodePods: []NodePod{nodePod("low", 50, "1"), protected, other},
			want:     []string{"other", "low"}, violations: 1,
		},
		"only as many of a budget are spared as must be": {
			victims:  []string{"a", "b"},
			nodePods: []NodePod{nodePod("a", 100, "1", guarded, of(one)), nodePod("b", 100, "1", guarded, of(one)), other},
			want:     []string{"other", "b"}, violations: 1,
		},
		"two protected ones need two others": {
			victims: []string{"protected", "second"},
			nodePods: []NodePod{
				protected, nodePod("second", 100, "1", guarded, of(none)), other, nodePod("other-2", 200, "1", of(spent)),
			},
			want: []string{"other", "other-2"}, violations: 2,
		},
		"the less important goes": {
			nodePods: []NodePod{protected, nodePod("more", 300, "1"), nodePod("less", 200, "1"), nodePod("most", 400, "1")}, want: []string{"less"},
		},
		"of equally important ones the younger": {
			nodePods: []NodePod{protected, nodePod("younger", 200, "1", object(func(p *corev1.Pod) {
				p.Status.StartTime = &metav1.Time{Time: t0.Add(-time.Minute)}
			})), other},
			want: []string{"younger"},
		},
		"one whose budget allows it before one whose budget does not": {
			nodePods: []NodePod{protected, nodePod("spent", 100, "1", of(spent)), nodePod("one", 300, "1", of(one))}, want: []string{"one"},
		},
		"one large instead of two small ones": {
			nodePods: []NodePod{protected, nodePod("small-1", 200, "500m"), nodePod("large", 200, "1"), nodePod("small-2", 200, "500m")}, want: []string{"large"},
		},
		"two small ones where they are the less important": {
			nodePods: []NodePod{protected, nodePod("small-1", 200, "500m"), nodePod("large", 300, "1"), nodePod("small-2", 200, "500m")},
			want:     []string{"small-1", "small-2"},
		},
		"a single large one does not make place for two pods": {
			victims:  []string{"protected", "second"},
			nodePods: []NodePod{protected, nodePod("second", 100, "1", guarded, of(none)), nodePod("large", 200, "2")},
			why:      "other pods of lower priority do not free as much",
		},
		"the other one is smaller": {
			nodePods: []NodePod{protected, nodePod("other", 200, "999m")}, why: "other pods of lower priority do not free as much",
		},
		"the other one is smaller in something else": {
			nodePods: []NodePod{nodePod("protected", 100, "1", guarded, of(none), requesting(corev1.ResourceMemory, "1Gi")), other},
			why:      "other pods of lower priority do not free as much",
		},
		"the other one frees what the protected one requests, which is made smaller but is not yet": {
			nodePods: []NodePod{nodePod("protected", 100, "1", guarded, of(none), object(beingMadeSmaller)), other},
			why:      "other pods of lower priority do not free as much",
		},
		"the other one is being made smaller": {
			nodePods: []NodePod{protected, nodePod("other", 200, "500m", object(beingMadeSmaller))},
			why:      "other pods of lower priority do not free as much",
		},
		"the other one has no device": {
			nodePods: []NodePod{nodePod("protected", 100, "1", guarded, of(none), requesting("example.com/gpu", "1")), other},
			why:      "other pods of lower priority do not free as much",
		},
		"the other one has one, too": {
			nodePods: []NodePod{
				nodePod("protected", 100, "1", guarded, of(none), requesting("example.com/gpu", "1")),
				nodePod("other", 200, "1", requesting("example.com/gpu", "2")),
			},
			want: []string{"other"},
		},
		"the preemptor's own priority is not below its own": {
			nodePods: []NodePod{protected, nodePod("other", 999, "1")}, why: "other pods of lower priority do not free as much",
		},
		"the other one is protected, too": {
			nodePods: []NodePod{protected, nodePod("other", 200, "1", guarded, of(none))}, why: "other pods of lower priority do not free as much",
		},
		"the other one has a value, and its budget allows it": {
			// The scheduler would have taken it.
			nodePods: []NodePod{protected, nodePod("other", 200, "1", guarded, of(one))}, why: "other pods of lower priority do not free as much",
		},
		"the other one would use up the budget of a victim that is protected": {
			victims:  []string{"protected", "second"},
			nodePods: []NodePod{protected, nodePod("second", 100, "1", guarded, of(one)), nodePod("other", 200, "1", of(one))},
			why:      "other pods of lower priority do not free as much",
		},
		"two others would do so together": {
			victims: []string{"protected", "second"},
			nodePods: []NodePod{
				protected, nodePod("second", 100, "1", guarded, of(two)), nodePod("small-1", 200, "500m", of(two)), nodePod("small-2", 200, "500m", of(two)),
			},
			why: "the others together would violate a budget as well",
		},
		"the other one is on its way out": {
			nodePods: []NodePod{protected, nodePod("other", 200, "1", func(o *NodePod) { o.Free = true })},
			why:      "other pods of lower priority do not free as much",
		},
		"the other one goes for somebody else": {
			nodePods: []NodePod{protected, nodePod("other", 200, "1", object(func(p *corev1.Pod) {
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
			}))},
			why: "other pods of lower priority do not free as much",
		},
		"the other one has only just begun": {
			nodePods: []NodePod{protected, nodePod("other", 200, "1", object(func(p *corev1.Pod) {
				p.Status.StartTime = &metav1.Time{Time: t0.Add(-settled + time.Nanosecond)}
			}))},
			why: "other pods of lower priority do not free as much",
		},
		"the other one runs on another node": {
			nodePods: []NodePod{protected, nodePod("other", 200, "1", func(o *NodePod) { o.NodeName = "node-2" })},
			why:      "other pods of lower priority do not free as much",
		},
		"the other one is of the kubelet": {
			nodePods: []NodePod{protected, nodePod("other", 200, "1", object(func(p *corev1.Pod) {
				p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
			}))},
			why: "other pods of lower priority do not free as much",
		},
		"the other one has the guard": {
			nodePods: []NodePod{protected, nodePod("other", 200, "1", object(func(p *corev1.Pod) { p.Labels[v1alpha1.GuardLabel] = v1alpha1.GuardClosed }))},
			why:      "other pods of lower priority do not free as much",
		},
		"the other one has interceptors": {
			nodePods: []NodePod{protected, nodePod("other", 200, "1", object(func(p *corev1.Pod) {
				p.Annotations = map[string]string{v1alpha1.InterceptorsAnnotation: "a.example.com"}
			}))},
			why: "other pods of lower priority do not free as much",
		},
		"the other one has native responders": {
			nodePods: []NodePod{protected, nodePod("other", 200, "1", object(func(p *corev1.Pod) {
				p.Spec.EvictionResponders = []corev1.EvictionResponder{{Name: "acme.example.com/migrate", Priority: new(int32(10000))}}
			}))},
			why: "other pods of lower priority do not free as much",
		},
		"the other one has a host port": {
			nodePods: []NodePod{protected, nodePod("other", 200, "1", object(withHostPort))}, why: "other pods of lower priority do not free as much",
		},
		"the protected one has a host port": {
			nodePods: []NodePod{nodePod("protected", 100, "1", guarded, of(none), object(withHostPort)), other}, why: "shop/protected has a host port",
		},
		"the preemptor has affinity": {
			entangled: "pod affinity", nodePods: []NodePod{protected, other}, why: "the preemptor has pod affinity",
		},
		"a victim that is gone comes last": {
			nodePods: []NodePod{protected, other}, victims: []string{"protected", "gone"}, want: []string{"other", "gone"}, violations: 1,
		},
		"the preemptor may violate the budget by now": {
			priority: 1000, nodePods: []NodePod{protected, other}, why: "nobody is protected there by now",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := alternativeInput(tc.nodePods, tc.victims...)
			in.Charges = tc.charges
			if tc.priority != 0 {
				in.Preemptor.Priority = tc.priority
			}
			in.Preemptor.Entangled = tc.entangled
			got, why := Alternative(in)
			if diff := cmp.Diff(tc.why, why); diff != "" {
				t.Errorf("why not (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, victimNames(got.Victims)); diff != "" {
				t.Errorf("victims (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.violations, got.Violations); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAVictimThatIsNotKnownIsNotReplaced(t *testing.T) {
	protected := nodePod("protected", 100, "1", guarded, of(named("none", 0)))
	in := alternativeInput([]NodePod{protected, nodePod("other", 200, "1")})
	in.NodePods = in.NodePods[1:]
	if _, why := Alternative(in); why != "victim uid-protected is not known" {
		t.Errorf("why not: %q", why)
	}
	in.Candidate.Victims[0].Unknown = true
	if _, why := Alternative(in); why != "victim uid-protected is not known" {
		t.Errorf("why not: %q", why)
	}
}

// alternativeInput is about node-1 with these victims. One that is no nodePod is gone.
func alternativeInput(nodePods []NodePod, victims ...string) AlternativeInput {
	if len(victims) == 0 {
		victims = []string{"protected"}
	}
	in := AlternativeInput{Preemptor: preemptor(999), Candidate: Candidate{Node: "node-1", Violations: 7}, NodePods: nodePods, Now: t0}
	for _, name := range victims {
		v := Victim{Pod: victim(name).Pod, Unknown: true}
		for i := range nodePods {
			if nodePods[i].Name == name {
				v = nodePods[i].Victim
			}
		}
		in.Candidate.Victims = append(in.Candidate.Victims, v)
	}
	return in
}

func victimNames(victims []Victim) []string {
	var names []string
	for i := range victims {
		names = append(names, victims[i].Name)
	}
	return names
}

func withHostPort(p *corev1.Pod) {
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
}
