package scale

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

var start = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// world is a ReplicaSet whose pods are named after their place: a1-0 is the first on node
// a1, which is in zone a. Each pod is older than the next one.
type world struct{ Input }

func newWorld(constraints ...corev1.TopologySpreadConstraint) *world {
	w := &world{}
	w.Template.Labels = map[string]string{"app": "web"}
	w.Template.Spec.TopologySpreadConstraints = constraints
	w.Requested = map[types.UID]bool{}
	return w
}

func over(key string, maxSkew int32, when corev1.UnsatisfiableConstraintAction) corev1.TopologySpreadConstraint {
	return corev1.TopologySpreadConstraint{
		TopologyKey: key, MaxSkew: maxSkew, WhenUnsatisfiable: when,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}
}

func zones(maxSkew int32) corev1.TopologySpreadConstraint {
	return over(corev1.LabelTopologyZone, maxSkew, corev1.DoNotSchedule)
}

// node adds a node with n pods, each changed as given.
func (w *world) node(name string, n int, change ...func(*builder.PodWrapper)) *world {
	node := builder.Node(name).Obj()
	node.Labels[corev1.LabelTopologyZone] = name[:1]
	w.Nodes = append(w.Nodes, node)
	for i := range n {
		pod := builder.Pod("shop", fmt.Sprintf("%s-%d", name, i)).Node(name).Label("app", "web").Ready().UID(types.UID(fmt.Sprintf("%s-%d", name, i)))
		pod.CreationTimestamp = metav1.NewTime(start.Add(time.Duration(len(w.Pods)) * time.Minute))
		for _, f := range change {
			f(pod)
		}
		w.Pods = append(w.Pods, pod.Obj())
	}
	return w
}

// pod changes a pod.
func (w *world) pod(name string, change func(*corev1.Pod)) *world {
	change(w.Pods[slices.IndexFunc(w.Pods, func(p *corev1.Pod) bool { return p.Name == name })])
	return w
}

func (w *world) cordon(name string) *world {
	w.Nodes[slices.IndexFunc(w.Nodes, func(n *corev1.Node) bool { return n.Name == name })].Spec.Unschedulable = true
	return w
}

func (w *world) request(name string) *world {
	w.Requested[types.UID(name)] = true
	return w
}

func costs(value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{corev1.PodDeletionCost: value}
	}
}

func unready(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }

// says is a plan in words: who goes, and each constraint before and after.
func says(p Plan) (going []string, spreads []string) {
	for _, l := range p.Going {
		going = append(going, l.Pod.Name+": "+l.Why)
	}
	for _, s := range p.Spreads {
		var before, after []string
		for _, d := range s.Domains {
			before, after = append(before, fmt.Sprint(d.Now)), append(after, fmt.Sprint(d.After))
		}
		spreads = append(spreads, strings.Join(before, "-")+" to "+strings.Join(after, "-"))
	}
	return going, spreads
}

func TestDecide(t *testing.T) {
	soft := over(corev1.LabelHostname, 1, corev1.ScheduleAnyway)
	cases := map[string]struct {
		world   *world
		wanted  int
		going   []string
		spreads []string
	}{
		"nine pods over three zones become six, two in each": {
			newWorld(zones(1)).node("a", 3).node("b", 3).node("c", 3), 6,
			[]string{"c-2: c has 3, the most; 3 on its node", "b-2: b has 3, the most; 3 on its node", "a-2: a has 3, the most; 3 on its node"},
			[]string{"3-3-3 to 2-2-2"},
		},
		"the fullest zone loses most": {
			newWorld(zones(1)).node("a", 5).node("b", 2).node("c", 2), 6,
			[]string{"a-4: a has 5, the most; 5 on its node", "a-3: a has 4, the most; 5 on its node", "a-2: a has 3, the most; 5 on its node"},
			[]string{"5-2-2 to 2-2-2"},
		},
		"they are as even as possible, even if the constraint would allow more": {
			newWorld(zones(5)).node("a1", 1).node("a2", 1).node("a3", 1).node("b", 2), 4, []string{"a3-0: a has 3, the most"}, []string{"3-2 to 2-2"},
		},
		"what is not Ready goes first, and the others make up for it": {
			newWorld(zones(1)).node("a", 3).node("b", 3).node("c", 3).pod("a-0", unready), 6,
			[]string{"a-0: it is not Ready: Kubernetes takes such pods before all others", "c-2: c has 3, the most; 3 on its node", "b-2: b has 3, the most; 3 on its node"},
			[]string{"3-3-3 to 2-2-2"},
		},
		"among equals, the one on a cordoned node": {
			newWorld(zones(1)).node("a1", 2).node("a2", 1).node("b1", 2).cordon("a2"), 4,
			[]string{"a2-0: a has 3, the most; its node is unschedulable"}, []string{"3-2 to 2-2"},
		},
		"among equals, the one whose eviction is requested": {
			newWorld(zones(1)).node("a", 3).node("b", 2).request("a-0"), 4,
			[]string{"a-0: a has 3, the most; its eviction is requested; 3 on its node"}, []string{"3-2 to 2-2"},
		},
		"a requested eviction does not count more than balance": {
			newWorld(zones(1)).node("a", 3).node("b", 2).request("b-0"), 4,
			[]string{"a-2: a has 3, the most; 3 on its node"}, []string{"3-2 to 2-2"},
		},
		"among equals, the one of the lowest deletion cost": {
			newWorld(zones(1)).node("a", 3).node("b", 2).pod("a-1", costs("-5")), 4,
			[]string{"a-1: a has 3, the most; its deletion cost is -5; 3 on its node"}, []string{"3-2 to 2-2"},
		},
		"a zone without pods counts": {
			newWorld(zones(1)).node("a", 2).node("b", 2).node("c", 0), 2,
			[]string{"b-1: b has 2, the most; 2 on its node", "a-1: a has 2, the most; 2 on its node"}, []string{"2-2-0 to 1-1-0"},
		},
		"nodes without the key do not count": {
			newWorld(over("rack", 1, corev1.DoNotSchedule)).node("a", 2).node("b", 2), 3,
			[]string{"b-1: 2 on its node"}, []string{" to "},
		},
		"a hard constraint is above the others": {
			newWorld(zones(1), soft).node("a1", 3).node("b1", 1).node("b2", 1).node("b3", 1), 4,
			[]string{"a1-2: a has 3, the most; 3 on its node", "b3-0: b has 3, the most"}, []string{"3-3 to 2-2", "3-1-1-1 to 2-1-1-0"},
		},
		"the second constraint decides where the first leaves it open": {
			newWorld(zones(1), soft).node("a1", 1).node("a2", 2).node("b1", 2).node("b2", 1), 4,
			[]string{"b1-1: b has 3, the most; 2 on its node", "a2-1: a has 3, the most; 2 on its node"}, []string{"3-3 to 2-2", "1-2-2-1 to 1-1-1-1"},
		},
		"a killed attempt is taken up again": {
			newWorld(zones(1)).node("a", 3).node("b", 3).pod("a-0", costs("-2147483648")).pod("b-0", costs("-2147483648")), 4,
			[]string{"b-0: its deletion cost is -2147483648 already: Kubernetes takes such pods before all others", "a-0: its deletion cost is -2147483648 already: Kubernetes takes such pods before all others"},
			[]string{"3-3 to 2-2"},
		},
		"none stays": {newWorld(zones(1)).node("a", 1).node("b", 1), 0, []string{"b-0: all go", "a-0: all go"}, []string{"1-1 to 0-0"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.world.Wanted = tc.wanted
			plan, err := Decide(tc.world.Input)
			if err != nil {
				t.Fatal(err)
			}
			going, spreads := says(plan)
			if diff := cmp.Diff(tc.going, going); diff != "" {
				t.Errorf("pods that go (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.spreads, spreads); diff != "" {
				t.Errorf("domains (-want +got):\n%s", diff)
			}
		})
	}
}

// What counts for a constraint is what counts for the scheduler.
func TestWhatCounts(t *testing.T) {
	other := builder.Pod("shop", "other").Node("b").Label("app", "web").Ready()
	cases := map[string]struct {
		change func(w *world, c *corev1.TopologySpreadConstraint)
		want   []string
	}{
		"pods of others that the selector selects": {func(w *world, _ *corev1.TopologySpreadConstraint) { w.Others = []*corev1.Pod{other.Obj()} }, []string{"a 3, b 3, c 2", "skew 1"}},
		"no pods of others that it does not": {func(w *world, _ *corev1.TopologySpreadConstraint) {
			w.Others = []*corev1.Pod{other.Clone().Label("app", "db").Obj()}
		}, []string{"a 3, b 2, c 2", "skew 1"}},
		"no pods that are being deleted": {func(w *world, _ *corev1.TopologySpreadConstraint) {
			w.Others = []*corev1.Pod{other.Clone().Deleting(start).Obj()}
		}, []string{"a 3, b 2, c 2", "skew 1"}},
		"no pods of another version, with the key of the version": {func(w *world, c *corev1.TopologySpreadConstraint) {
			c.MatchLabelKeys, w.Template.Labels["pod-template-hash"] = []string{"pod-template-hash"}, "2"
			for _, pod := range w.Pods {
				pod.Labels["pod-template-hash"] = "2"
			}
			w.Others = []*corev1.Pod{other.Clone().Label("pod-template-hash", "1").Obj()}
		}, []string{"a 3, b 2, c 2", "skew 1"}},
		"nodes that the pods may not go to do not": {func(w *world, _ *corev1.TopologySpreadConstraint) {
			w.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
			w.Nodes[0].Labels["disk"], w.Nodes[1].Labels["disk"] = "ssd", "ssd"
		}, []string{"a 3, b 2", "skew 1"}},
		"unless the constraint ignores that": {func(w *world, c *corev1.TopologySpreadConstraint) {
			w.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
			c.NodeAffinityPolicy = ptr.To(corev1.NodeInclusionPolicyIgnore)
		}, []string{"a 3, b 2, c 2", "skew 1"}},
		"nodes with taints do": {func(w *world, _ *corev1.TopologySpreadConstraint) {
			w.Nodes[2].Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}
		}, []string{"a 3, b 2, c 2", "skew 1"}},
		"unless the constraint honors taints": {func(w *world, c *corev1.TopologySpreadConstraint) {
			w.Nodes[2].Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}
			c.NodeTaintsPolicy = ptr.To(corev1.NodeInclusionPolicyHonor)
		}, []string{"a 3, b 2", "skew 1"}},
		"fewer domains than there must be count from none": {func(_ *world, c *corev1.TopologySpreadConstraint) { c.MinDomains = ptr.To[int32](4) }, []string{"a 3, b 2, c 2", "skew 3"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(zones(1)).node("a", 3).node("b", 2).node("c", 2)
			w.Wanted = 6
			tc.change(w, &w.Template.Spec.TopologySpreadConstraints[0])
			plan, err := Decide(w.Input)
			if err != nil {
				t.Fatal(err)
			}
			var domains []string
			for _, d := range plan.Spreads[0].Domains {
				domains = append(domains, fmt.Sprintf("%s %d", d.Name, d.Now))
			}
			if diff := cmp.Diff(tc.want, []string{strings.Join(domains, ", "), fmt.Sprintf("skew %d", plan.Spreads[0].SkewNow)}); diff != "" {
				t.Errorf("counted before (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatCannotBeDecided(t *testing.T) {
	cases := map[string]struct {
		world  *world
		wanted int
		want   string
	}{
		"as many as there are":   {newWorld(zones(1)).node("a", 2), 2, "there are 2 pods, which cannot become 2 by taking some away"},
		"fewer than none":        {newWorld(zones(1)).node("a", 2), -1, "there are 2 pods, which cannot become -1 by taking some away"},
		"more have no cost left": {newWorld(zones(1)).node("a", 3).pod("a-0", costs("-2147483648")).pod("a-1", costs("-2147483648")), 2, "2 pods have the deletion cost -2147483648 already, and only 1 more would go, so no other cost tells which: remove the annotation controller.kubernetes.io/pod-deletion-cost from those that are to stay, first of all from a-0"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.world.Wanted = tc.wanted
			_, err := Decide(tc.world.Input)
			if err == nil {
				t.Fatal("want an error")
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}
