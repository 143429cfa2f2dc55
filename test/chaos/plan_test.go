package chaos

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestASeedAlwaysGivesTheSamePlan(t *testing.T) {
	for seed := range uint64(200) {
		if diff := cmp.Diff(MakePlan(seed), MakePlan(seed)); diff != "" {
			t.Fatalf("plan of seed %d (-first +second):\n%s", seed, diff)
		}
	}
	one, two := MakePlan(1), MakePlan(2)
	if one.String() == two.String() {
		t.Error("two seeds have the same plan")
	}
}

func TestTwoHundredSeedsHaveEverything(t *testing.T) {
	missing := map[string]bool{}
	for _, kind := range append([]FaultKind{KillManagers, RefuseWrites}, faultKinds...) {
		missing[string(kind)] = true
	}
	for _, kind := range AllTroubles {
		missing[string(kind)] = true
	}
	for _, write := range slices.Concat(refusedWrites, nativeWrites) {
		missing[string(write)] = true
	}
	for _, word := range []string{
		string(ModeFail), string(ModeNoGuard), string(ModeAlways), string(ModeIgnore), string(Plain), string(Surging), string(Intercepted), string(Machines),
		string(Works), string(Silent), string(Hangs), string(Crashes), string(Twice), string(Future), string(Liar), string(OffClock),
		string(Kubectl), string(Loop), string(Native), string(Maintained), string(Lifecycle), string(Zoned), string(Hooked), "stateful", "uncordon", "finale", "outage", "loss", "deadline", "hard", "forbids",
		"lifecycle", "ten responders", "responders and interceptors", "responders alone", "restless", "deletes", "lower than ours", "silent responder", string(Singleton), "windows", "by scale",
		string(AllAtOnce), string(HurriedLast), string(PatientLast), string(PatientFirst), string(metav1.StatusReasonForbidden),
	} {
		missing[word] = true
	}
	for seed := uint64(1); seed <= 200; seed++ {
		p := MakePlan(seed, AllTroubles)
		delete(missing, string(p.Mode))
		if p.Serves {
			delete(missing, "lifecycle")
		}
		if p.Finale {
			delete(missing, "finale")
		}
		if p.Rollout != nil && len(p.Rollout.Losses) > 0 {
			delete(missing, "loss")
		}
		if s := p.Singletons; s != nil && s.Windows {
			delete(missing, "windows")
		}
		if s := p.Singletons; s != nil && s.ByScale {
			delete(missing, "by scale")
		}
		for _, trouble := range p.Troubles {
			delete(missing, string(trouble.Kind))
			if trouble.Outage {
				delete(missing, "outage")
			}
		}
		for _, w := range p.Workloads {
			delete(missing, string(w.Kind))
			if w.Stateful {
				delete(missing, "stateful")
			}
			if n := len(w.Responders); n > maxResponders {
				delete(missing, "ten responders")
			} else if n > 0 && len(w.Interceptors) > 0 {
				delete(missing, "responders and interceptors")
			} else if n > 0 {
				delete(missing, "responders alone")
			}
			for _, r := range w.Responders {
				if r.Priority == v1alpha1.DefaultNativePriority && r.Domain == "example.net" {
					delete(missing, "lower than ours")
				}
				if r.Habit == Silent {
					delete(missing, "silent responder")
				}
			}
			for _, b := range w.Interceptors {
				delete(missing, string(b.Habit))
				if b.Forbids {
					delete(missing, "forbids")
				}
			}
		}
		for _, d := range p.Drains {
			delete(missing, string(d.Kind))
			delete(missing, string(d.Order))
			if d.To < Steps {
				delete(missing, "uncordon")
			}
			if d.Deadline > 0 {
				delete(missing, "deadline")
			}
			if d.Hard {
				delete(missing, "hard")
			}
			if d.Restless {
				delete(missing, "restless")
			}
			if d.Deletes {
				delete(missing, "deletes")
			}
		}
		for _, f := range p.Faults {
			delete(missing, string(f.Kind))
			delete(missing, string(f.Refusal.Write))
			delete(missing, string(f.Refusal.Reason))
		}
	}
	if diff := cmp.Diff(map[string]bool{}, missing); diff != "" {
		t.Errorf("missing in all plans (-want +got):\n%s", diff)
	}
}

func TestNothingHasTwoFaultsAtATime(t *testing.T) {
	for seed := range uint64(1000) {
		p := MakePlan(seed, AllTroubles)
		for i, f := range p.Faults {
			if f.At < 1 || f.Lasts < 1 || f.At >= Steps {
				t.Errorf("seed %d: fault %+v is not within the run", seed, f)
			}
			for _, other := range p.Faults[i+1:] {
				if f.meets(other) {
					t.Errorf("seed %d: %+v meets %+v", seed, f, other)
				}
			}
		}
	}
}

// What came later has dice of its own: whatever troubles there are, the rest of a plan
// stays as it was, and so do the other troubles.
func TestTroublesLeaveTheRestOfAPlanAsItWas(t *testing.T) {
	for seed := range uint64(300) {
		without, with := MakePlan(seed, []TroubleKind{}), MakePlan(seed, AllTroubles)
		if len(without.Troubles) > 0 {
			t.Fatalf("seed %d: troubles %v although none are wanted", seed, without.Troubles)
		}
		old := with
		old.Workloads = with.Workloads[:len(without.Workloads)]
		old.Faults = slices.DeleteFunc(slices.Clone(with.Faults), func(f Fault) bool { return f.Kind == KillManagers })
		old.Troubles, old.Finale = nil, without.Finale
		if diff := cmp.Diff(without, old, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d (-without troubles +with them):\n%s", seed, diff)
		}
		for _, trouble := range with.Troubles {
			alone := MakePlan(seed, []TroubleKind{trouble.Kind})
			if len(alone.Troubles) != 1 || (!trouble.Outage && !alone.Troubles[0].Outage && alone.Troubles[0] != trouble) {
				t.Fatalf("seed %d: alone %v, with the others %v", seed, alone.Troubles, trouble)
			}
		}
	}
}

// It is ended before everything is called off, by a run that waits for its faults, and its
// pauses are a part of what a run waits for in the end.
func TestAPlanHasOnePolicyEngineAtMost(t *testing.T) {
	for seed := range uint64(300) {
		p := MakePlan(seed)
		without := p
		without.Faults = slices.DeleteFunc(slices.Clone(p.Faults), func(f Fault) bool { return f.Kind == RefuseWrites })
		refusal := p.refusal()
		if n := len(p.Faults) - len(without.Faults); n > 1 || (n == 1) != (refusal != nil) {
			t.Fatalf("seed %d: %d policy engines, refusal %v", seed, n, refusal)
		}
		if refusal == nil {
			continue
		}
		if !p.writes(refusal.Write) {
			t.Errorf("seed %d: %s are refused, and there are none", seed, refusal.Write)
		}
		if p.patience() <= without.patience() {
			t.Errorf("seed %d: it has no time for pauses", seed)
		}
	}
}

// A control plane that does not serve lifecycle.k8s.io has nothing of it, and another one always
// has somebody who asks, and pods with responders.
func TestNativePlansHaveBothSides(t *testing.T) {
	for seed := range uint64(300) {
		p := MakePlan(seed)
		responders := slices.ContainsFunc(p.Workloads, func(w Workload) bool { return len(w.Responders) > 0 })
		asks := slices.ContainsFunc(p.Drains, func(d Drain) bool { return d.Kind == Lifecycle })
		if refusal := p.refusal(); p.Serves != responders || p.Serves != asks || refusal != nil && refusal.Write.native() && !p.Serves {
			t.Errorf("seed %d: lifecycle.k8s.io is served: %t, there are responders: %t, requesters: %t, refusal %v", seed, p.Serves, responders, asks, refusal)
		}
		for _, w := range p.Workloads {
			stuck := 0
			for _, r := range w.Responders {
				if r.Habit == Silent || r.Habit == Hangs {
					stuck++
				}
			}
			if len(w.Responders) > v1alpha1.MaxNativeResponders || stuck > 1 {
				t.Errorf("seed %d: %s has %d responders, %d of them silent", seed, w.Name, len(w.Responders), stuck)
			}
		}
	}
}
