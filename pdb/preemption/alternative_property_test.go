package preemption

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// On nodes at random, what is chosen keeps the promises; and where it is said that others
// do not free as much, no set of pods does.
func TestOtherVictimsOnRandomNodes(t *testing.T) {
	found, refused := 0, 0
	for seed := range uint64(15_000) {
		in := randomNode(rand.New(rand.NewPCG(seed, 8)))
		other, why := Alternative(in)
		if why == "other pods of lower priority do not free as much" {
			refused++
			if set := in.anySet(t); set != nil {
				t.Errorf("seed %d: %v would do, but: %s", seed, victimNames(set), why)
			}
		}
		if why == "" {
			found++
			in.promises(t, seed, &other)
		}
		if t.Failed() {
			return
		}
	}
	if found < 500 || refused < 500 {
		t.Errorf("%d found and %d not: too few to say anything", found, refused)
	}
}

func randomNode(random *rand.Rand) AlternativeInput {
	budgets := []*Budget{named("b0", 0), named("b1", 1), named("b2", 2)}
	in := AlternativeInput{Preemptor: preemptor(999), Candidate: Candidate{Node: "node-1"}, Now: t0, Charges: map[*Budget]int32{}}
	in.Charges[budgets[2]] = random.Int32N(2)
	for i := range 3 + random.IntN(6) {
		o := nodePod(fmt.Sprint("pod-", i), 100*(8+random.Int32N(3)), fmt.Sprintf("%dm", 100*(1+random.IntN(5))))
		requesting(corev1.ResourceMemory, fmt.Sprintf("%dMi", 100*random.IntN(4)))(&o)
		if random.IntN(3) == 0 {
			guarded(&o)
		}
		if at := random.IntN(4); at < len(budgets) {
			of(budgets[at])(&o)
		}
		if random.IntN(8) == 0 {
			withHostPort(o.Object)
		}
		o.Free, o.Ready = random.IntN(10) == 0, random.IntN(10) != 0
		in.NodePods = append(in.NodePods, o)
		if random.IntN(3) == 0 && priorityOf(o.Object) < in.Preemptor.Priority {
			in.Candidate.Victims = append(in.Candidate.Victims, o.Victim)
		}
	}
	return in
}

// promises checks all that must hold of other victims.
func (in *AlternativeInput) promises(t *testing.T, seed uint64, other *Candidate) {
	t.Helper()
	bad := func(format string, args ...any) {
		t.Errorf("seed %d: instead of %v, %v: %s", seed, victimNames(in.Candidate.Victims), victimNames(other.Victims), fmt.Sprintf(format, args...))
	}
	if _, dropped := in.check(other.Victims); dropped {
		bad("a budget is violated that must not be")
	}
	spared, need, freed := in.exchange(other)
	if !covers(freed, need) {
		bad("they free %v, not %v", freed, need)
	}
	for _, o := range spared {
		if !o.guarded(&in.Preemptor) || entangled(o.Object) != "" {
			bad("%s should not be spared", o.Name)
		}
	}
	for i := range other.Victims {
		o := in.nodePod(other.Victims[i].UID)
		if i > 0 && priorityOf(o.Object) > priorityOf(in.nodePod(other.Victims[i-1].UID).Object) {
			bad("%s comes too late", o.Name)
		}
		if find(in.Candidate.Victims, o.UID) != nil {
			continue
		}
		if o.guarded(&in.Preemptor) || o.Free || entangled(o.Object) != "" || priorityOf(o.Object) >= in.Preemptor.Priority {
			bad("%s must not go", o.Name)
		}
		if covers(without(freed, frees(o.Object)), need) {
			bad("%s need not go", o.Name)
		}
	}
	if got := violations(other.Victims, in.Charges); got != other.Violations {
		bad("%d violations, not %d", got, other.Violations)
	}
}

// exchange returns who is spared, what they occupy, and what is freed in their place.
func (in *AlternativeInput) exchange(other *Candidate) (spared []*NodePod, need, freed corev1.ResourceList) {
	need, freed = corev1.ResourceList{}, corev1.ResourceList{}
	for i := range in.NodePods {
		o := &in.NodePods[i]
		was, is := find(in.Candidate.Victims, o.UID) != nil, find(other.Victims, o.UID) != nil
		if was && !is {
			spared = append(spared, o)
			add(need, occupies(o.Object))
		}
		if is && !was {
			add(freed, frees(o.Object))
		}
	}
	return spared, need, freed
}

// anySet returns some pods that would do, nil if there are none. It tries them all.
func (in *AlternativeInput) anySet(t *testing.T) []Victim {
	t.Helper()
	rest, protected, why := in.split()
	if why != "" {
		t.Fatal(why)
	}
	need := corev1.ResourceList{}
	for _, o := range protected {
		add(need, occupies(o.Object))
	}
	for set := range 1 << len(in.NodePods) {
		freed := corev1.ResourceList{}
		var others []Victim
		for i := range in.NodePods {
			o := &in.NodePods[i]
			if set&(1<<i) == 0 {
				continue
			}
			if o.Free || o.guarded(&in.Preemptor) || entangled(o.Object) != "" || priorityOf(o.Object) >= in.Preemptor.Priority || find(in.Candidate.Victims, o.UID) != nil {
				others = nil
				break
			}
			others = append(others, o.Victim)
			add(freed, frees(o.Object))
		}
		if others == nil || !covers(freed, need) {
			continue
		}
		if _, dropped := in.check(slices.Concat(rest, others)); !dropped {
			return others
		}
	}
	return nil
}
