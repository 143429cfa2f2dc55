package chaos

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
	for _, kind := range faultKinds {
		missing[string(kind)] = true
	}
	for _, word := range []string{
		string(ModeFail), string(ModeNoGuard), string(ModeAlways), string(ModeIgnore), string(Plain), string(Surging), string(Intercepted), string(Machines),
		string(Works), string(Silent), string(Hangs), string(Crashes), string(Twice), string(Future), string(Liar),
		string(Kubectl), string(Loop), string(Native), string(Maintained), "stateful", "uncordon",
	} {
		missing[word] = true
	}
	for seed := uint64(1); seed <= 200; seed++ {
		p := MakePlan(seed)
		delete(missing, string(p.Mode))
		for _, w := range p.Workloads {
			delete(missing, string(w.Kind))
			if w.Stateful {
				delete(missing, "stateful")
			}
			for _, b := range w.Interceptors {
				delete(missing, string(b.Habit))
			}
		}
		for _, d := range p.Drains {
			delete(missing, string(d.Kind))
			if d.To < Steps {
				delete(missing, "uncordon")
			}
		}
		for _, f := range p.Faults {
			delete(missing, string(f.Kind))
		}
	}
	if diff := cmp.Diff(map[string]bool{}, missing); diff != "" {
		t.Errorf("missing in all plans (-want +got):\n%s", diff)
	}
}

func TestNothingHasTwoFaultsAtATime(t *testing.T) {
	for seed := range uint64(1000) {
		p := MakePlan(seed)
		for i, f := range p.Faults {
			if f.At < 1 || f.Lasts < 1 || f.At >= Steps {
				t.Errorf("seed %d: fault %+v is not within the run", seed, f)
			}
			for _, other := range p.Faults[i+1:] {
				if f.target() == other.target() && f.At <= other.At+other.Lasts && other.At <= f.At+f.Lasts {
					t.Errorf("seed %d: %+v meets %+v", seed, f, other)
				}
			}
		}
	}
}
