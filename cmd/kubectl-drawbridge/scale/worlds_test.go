package scale

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// In random worlds, no choice that Kubernetes could be made to take violates the constraints
// less. In worlds as small as these, that is so even if the choices are not all tried.
func TestNoChoiceIsBetter(t *testing.T) {
	for name, limit := range map[string]int{"all choices are tried": searchLimit, "only exchanges are": 0} {
		t.Run(name, func(t *testing.T) { noChoiceIsBetter(t, limit) })
	}
}

func noChoiceIsBetter(t *testing.T, limit int) {
	t.Helper()
	violated := 0
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := randomWorld(random)
		plan, err := decide(w.Input, limit)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		going := map[string]bool{}
		for _, l := range plan.Going {
			going[l.Pod.Name] = true
		}
		if len(going) != len(w.Pods)-w.Wanted {
			t.Fatalf("seed %d: %d of %d pods go, want %d to stay", seed, len(going), len(w.Pods), w.Wanted)
		}
		got := violation(w, going)
		best, by := got, going
		for choice := range 1 << len(w.Pods) {
			other := map[string]bool{}
			for i, pod := range w.Pods {
				if choice&(1<<i) != 0 {
					other[pod.Name] = true
				}
			}
			if len(other) == len(going) && possible(w, other) {
				if v := violation(w, other); slices.Compare(v[:], best[:]) < 0 {
					best, by = v, other
				}
			}
		}
		if !possible(w, going) {
			t.Errorf("seed %d: Kubernetes would not take %v", seed, slices.Sorted(maps.Keys(going)))
		}
		if best != got {
			t.Errorf("seed %d: %v go, which violates by %v (hard, soft); %v violates by %v", seed, slices.Sorted(maps.Keys(going)), got, slices.Sorted(maps.Keys(by)), best)
		}
		if plan.Unproven && (limit > 0 || got == [2]int{}) {
			t.Errorf("seed %d: it is called unproven, with a violation by %v", seed, got)
		}
		if got[0] > 0 {
			violated++
		}
	}
	if violated == 0 || violated > 2000 {
		t.Errorf("a hard constraint is violated in %d of 3000 worlds: the worlds do not show anything", violated)
	}
}

// randomWorld has up to nine pods on up to six nodes in three zones, and up to three
// constraints.
func randomWorld(random *rand.Rand) *world {
	keys := []string{corev1.LabelTopologyZone, corev1.LabelHostname, "rack"}
	random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	var constraints []corev1.TopologySpreadConstraint
	for i := range 1 + random.IntN(3) {
		when := corev1.DoNotSchedule
		if random.IntN(3) == 0 {
			when = corev1.ScheduleAnyway
		}
		constraints = append(constraints, over(keys[i], 1+random.Int32N(2), when))
	}
	w := newWorld(constraints...)
	for i := range 2 + random.IntN(5) {
		w.node(fmt.Sprintf("%c%d", 'a'+random.IntN(3), i), min(random.IntN(4), 9-len(w.Pods)))
	}
	for len(w.Pods) < 2 {
		w.node(fmt.Sprintf("d%d", len(w.Pods)), 1)
	}
	for _, node := range w.Nodes {
		if random.IntN(10) > 0 {
			node.Labels["rack"] = fmt.Sprint(random.IntN(2))
		}
	}
	for _, pod := range w.Pods {
		if random.IntN(6) == 0 {
			unready(pod)
		}
	}
	w.Wanted = random.IntN(len(w.Pods))
	return w
}

// possible reports whether Kubernetes could be made to take these pods by their cost: no
// pod that is Ready goes before one that is not.
func possible(w *world, going map[string]bool) bool {
	readyGoes, unreadyStays := false, false
	for _, pod := range w.Pods {
		ready := pod.Status.Conditions[0].Status == corev1.ConditionTrue
		readyGoes = readyGoes || ready && going[pod.Name]
		unreadyStays = unreadyStays || !ready && !going[pod.Name]
	}
	return !readyGoes || !unreadyStays
}

// violation is by how many pods hard and soft constraints are violated, counted afresh.
func violation(w *world, going map[string]bool) (v [2]int) {
	for _, c := range w.Template.Spec.TopologySpreadConstraints {
		n := map[string]int{}
		at := map[string]string{}
		for _, node := range w.Nodes {
			all := true
			for _, other := range w.Template.Spec.TopologySpreadConstraints {
				if _, ok := node.Labels[other.TopologyKey]; !ok && other.WhenUnsatisfiable == c.WhenUnsatisfiable {
					all = false
				}
			}
			if all {
				at[node.Name] = node.Labels[c.TopologyKey]
				n[node.Labels[c.TopologyKey]] += 0
			}
		}
		for _, pod := range w.Pods {
			if domain, ok := at[pod.Spec.NodeName]; ok && !going[pod.Name] {
				n[domain]++
			}
		}
		if len(n) == 0 {
			continue
		}
		counts := slices.Collect(maps.Values(n))
		by := max(0, slices.Max(counts)-slices.Min(counts)-int(c.MaxSkew))
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			v[0] += by
		} else {
			v[1] += by
		}
	}
	return v
}
