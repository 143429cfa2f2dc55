package preemption

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func notFound(name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "objects"}, name)
}

// deletes has seen a decision about the pods a and b, both of the budget web, which allows two.
func deletes(t *testing.T, priority int32, live ...client.Object) (*Deletes, *reader, *testingclock.FakeClock) {
	t.Helper()
	v, clock := newTestView(false, priorityClass("low", "1000"), web(2, "1"), pod("a").Priority("low", 1).Obj(), pod("b").Priority("low", 1).Obj())
	recent := NewRecentDecisions(clock)
	in := Input{Preemptor: preemptor(priority), Candidates: []Candidate{{Node: "node-1", Victims: []Victim{uidOnly("a"), uidOnly("b")}}}}
	v.gather(&in, nil)
	recent.remember(in.Preemptor, Decide(in))
	r := &reader{t: t, objects: map[string]client.Object{}}
	for _, object := range live {
		r.objects[fmt.Sprintf("%T %s", object, object.GetName())] = object
	}
	return &Deletes{View: v, Recent: recent, Live: r}, r, clock
}

func TestCheckDeletion(t *testing.T) {
	a, b := pod("a").Obj(), pod("b").Obj()
	cases := map[string]struct {
		priority int32
		uid      types.UID
		live     []client.Object
		change   func(*View)
		want     Verdict
		calls    []string
	}{
		"a pod that no decision covers": {priority: 999, uid: "uid-other", want: VerdictNotCovered},
		"the budget has not changed": {
			priority: 999, live: []client.Object{web(2, "1"), a, b}, want: VerdictAllowed, calls: []string{"*v1.PodDisruptionBudget web"},
		},
		"it has changed before our cache knows": {
			priority: 999, live: []client.Object{web(1, "2"), a, b}, want: VerdictRefused,
			calls: []string{"*v1.PodDisruptionBudget web", "*v1.Pod a", "*v1.Pod b"},
		},
		"it has changed because the other one was deleted before our cache knows": {
			priority: 999, live: []client.Object{web(1, "2"), a}, want: VerdictAllowed,
			calls: []string{"*v1.PodDisruptionBudget web", "*v1.Pod a", "*v1.Pod b"},
		},
		"the other one has a successor of its name": {
			priority: 999, live: []client.Object{web(1, "2"), a, pod("b").UID("uid-b-2").Obj()}, want: VerdictAllowed,
			calls: []string{"*v1.PodDisruptionBudget web", "*v1.Pod a", "*v1.Pod b"},
		},
		"the other one is gone, as our cache knows": {
			priority: 999, live: []client.Object{web(1, "2"), a}, change: func(v *View) { v.removePod(b) },
			want: VerdictAllowed, calls: []string{"*v1.PodDisruptionBudget web"},
		},
		"the budget is gone": {
			priority: 999, live: []client.Object{a, b}, want: VerdictAllowed, calls: []string{"*v1.PodDisruptionBudget web"},
		},
		"the preemptor may violate it": {
			priority: 1000, live: []client.Object{web(0, "2"), a, b}, want: VerdictAllowed, calls: []string{"*v1.PodDisruptionBudget web"},
		},
		"the pod itself is gone": {
			priority: 999, live: []client.Object{web(0, "2"), b}, change: func(v *View) { v.removePod(a) },
			want: VerdictAllowed, calls: []string{"*v1.PodDisruptionBudget web"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d, r, _ := deletes(t, tc.priority, tc.live...)
			if tc.change != nil {
				tc.change(d.View)
			}
			if tc.uid == "" {
				tc.uid = "uid-a"
			}
			got, _, err := d.Check(t.Context(), tc.uid)
			if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.calls, r.calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

func TestADeletionIsAllowedIfTheAPIServerDoesNotAnswer(t *testing.T) {
	d, r, _ := deletes(t, 999)
	r.err = errors.New("no route")
	verdict, _, err := d.Check(t.Context(), "uid-a")
	if verdict != VerdictUnsure || err == nil {
		t.Errorf("verdict %s, error %v", verdict, err)
	}
}

func TestADecisionIsForgotten(t *testing.T) {
	d, _, clock := deletes(t, 999, web(0, "2"), pod("a").Obj(), pod("b").Obj())
	check := func(want Verdict) {
		t.Helper()
		if got, _, err := d.Check(t.Context(), "uid-a"); got != want || err != nil {
			t.Errorf("verdict %s, want %s; error %v", got, want, err)
		}
	}
	clock.Step(rememberFor - time.Nanosecond)
	check(VerdictRefused)
	clock.Step(time.Nanosecond)
	check(VerdictNotCovered)
	if l := d.Recent; len(l.covers) != 0 || len(l.decisions) != 0 || l.victims != 0 {
		t.Errorf("the recent decisions keep %d covers, %d decisions, %d victims", len(l.covers), len(l.decisions), l.victims)
	}
}

func TestTheLedgerIsBounded(t *testing.T) {
	l := NewRecentDecisions(testingclock.NewFakeClock(t0))
	decision := func(prefix string, n int) Decision {
		candidate := &Candidate{Node: prefix}
		for i := range n {
			candidate.Victims = append(candidate.Victims, victim(fmt.Sprintf("%s-%d", prefix, i)))
		}
		return Decision{Kept: []*Candidate{candidate}}
	}
	l.remember(preemptor(1), decision("first", 10))
	l.remember(preemptor(1), Decision{Kept: []*Candidate{{Node: "n", Victims: []Victim{with(victim("x"), withoutValue)}}}})
	l.remember(preemptor(1), decision("second", maxRemembered))
	if l.victims != maxRemembered || len(l.covering("uid-first-1")) != 0 || len(l.covering("uid-second-1")) != 1 || len(l.covering("uid-x")) != 0 {
		t.Errorf("it keeps %d victims", l.victims)
	}
	l.remember(preemptor(1), decision("third", maxRemembered+1)) // More than there is room for.
	if l.victims != 0 || len(l.covers) != 0 {
		t.Errorf("it keeps %d victims, %d covers", l.victims, len(l.covers))
	}
}
