package budget

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/budget/grant"
	"github.com/drawbridge-dev/drawbridge/internal/disruption"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// The exploration of every order in which singletons of one EvictionBudget go in spite of their
// PodDisruptionBudget: explore_singles_world_test.go has the world, explore_singles_decisions_test.go
// what is decided in it, explore_singles_moves_test.go what happens, explore_singles_test.go runs it
// all.
//
// What is decided, gathered and recorded is done by the product's own functions. What is read
// and written, and in which order, is repeated here after Exhausted.Consent and runner.decide.

var (
	errTwoSingles    = errors.New("a singleton is deleted, and another one that was deleted before is not back")
	errOtherUnready  = errors.New("a singleton is deleted while another one is not ready")
	errSingleClosed  = errors.New("a singleton is deleted outside of the windows")
	errSingleEarly   = errors.New("a singleton is deleted before it was refused for long enough")
	errSingleConsent = errors.New("a singleton is deleted, and consent had been withdrawn before anybody asked")
)

const maxSingles, maxLeaders = 3, 2

// singlePhase is what a pod is doing.
type singlePhase uint8

const (
	singleUp singlePhase = iota
	singleUnready
	singleLeaving
	singleAbsent
)

// singleTurn is how far its request is.
type singleTurn uint8

const (
	singleUnwanted singleTurn = iota
	// singleWaits for the EvictionBudget.
	singleWaits
	// singleRefused by the PodDisruptionBudget just now, and singleDue for long enough.
	singleRefused
	singleDue
)

// single is the place of a pod.
type single struct {
	Phase singlePhase
	Turn  singleTurn
	// Held: its request ended less than onItsWay ago, with the record that it goes.
	Held bool
	// Flying: its deletion is on its way. Out: it was deleted so, and is not back.
	Flying, Out bool
}

func (p single) there() bool { return p.Phase == singleUp || p.Phase == singleUnready }

// singleRecord is what is on record of a place.
type singleRecord struct {
	// Granted is the pod, and Marked if it goes in spite of the PodDisruptionBudget.
	Granted, Marked bool
	// Left and LeftMarked are the same of the pod before it.
	Left, LeftMarked bool
}

// gone turns the record of a pod into that of the pod before.
func (r *singleRecord) gone() {
	*r = singleRecord{Left: r.Left || r.Granted, LeftMarked: r.LeftMarked || r.Marked}
}

// singleBudget is the EvictionBudget.
type singleBudget struct {
	Records   [maxSingles]singleRecord
	Withdrawn bool
}

// singleStage is how far a manager is with an answer.
type singleStage uint8

const (
	singleIdle singleStage = iota
	// singleDecided: it has read everything, and the pod may go.
	singleDecided
	// singleRecorded: that is on record.
	singleRecorded
	// singleCalling: it waits for the answer to the deletion.
	singleCalling
)

// singleManager is one that decides, or believes that it still may.
type singleManager struct {
	Stage singleStage
	Pod   uint8
	// Marked: the record was there when it read the budget. Withdrawn: there was no consent any
	// more when it began. Gone: its pod is gone since.
	Marked, Withdrawn, Gone bool
	// Stale: somebody has written the budget since it read it.
	Stale bool
	// Memory is what it has read; it is empty while that does not matter.
	Memory singleBudget
}

// singleChances is what may still happen so many times.
type singleChances struct {
	// Cancels of requests, Faults of pods, Crashes of managers, Refusals of deletions, and Hangs:
	// the answer to a deletion is lost, or comes too late.
	Cancels, Faults, Crashes, Refusals, Hangs uint8
	// Closes: the window does. Withdraws: the author of the budget takes consent back.
	Closes, Withdraws uint8
}

// singlesWorld is a state.
type singlesWorld struct {
	Places   [maxSingles]single
	Budget   singleBudget
	Managers [maxLeaders]singleManager
	// Expected and Healthy are what the disruption controller has counted.
	Expected, Healthy uint8
	Closed            bool
	// Behind is the place, from 1 on, that the caches show as it was. WasOld: they show the pod
	// before.
	Behind uint8
	Was    singlePhase
	WasOld bool
	Left   singleChances
}

// singlesScope bounds an exploration.
type singlesScope struct {
	count, leaders int
	// shared: the pods are of one StatefulSet, not each of its own. integer: minAvailable is all
	// of them, as a number; else maxUnavailable is 0.
	shared, integer bool
	// lags: caches and the disruption controller are behind.
	lags bool
	singleChances
}

// singlesParts are what a mistake replaces.
type singlesParts struct {
	step   func(grant.Input) grant.Decision
	decide func(disruption.Exhausted) disruption.Consent
	// reads: the budget is read again before each answer. marksFirst: that a pod goes is recorded
	// before it is deleted, and versions: with the resourceVersion. looks: pods, windows and time
	// are looked at again then. lasts: the record outlasts the request.
	reads, marksFirst, versions, looks, lasts bool
}

func productSingles() singlesParts {
	return singlesParts{
		step: grant.Step, decide: disruption.Exhausted.Decide,
		reads: true, marksFirst: true, versions: true, looks: true, lasts: true,
	}
}

// singles explores. What was decided before is remembered.
type singles struct {
	singlesScope
	singlesParts
	rules    *compiled
	found    map[string]found
	made     map[singlePod]*corev1.Pod
	steps    map[singlesWorld]singlesStep
	consents map[singlesAsked]bool
}

type singlePod struct {
	uid   types.UID
	phase singlePhase
}

// singlesStep is what a manager records and tells.
type singlesStep struct {
	budget singleBudget
	told   [maxSingles]bool
}

// singlesAsked is a question; again: it was answered before.
type singlesAsked struct {
	world singlesWorld
	place int
	again bool
}

func newSingles(s singlesScope, p singlesParts) *singles {
	b := builder.EvictionBudget(shop, "zones", "app", "ring").UID("budget-zones").Generation(1).MaxUnavailable("100%").
		Window("0 12 * * *", time.Hour).Exhausted(time.Minute)
	x := &singles{
		singlesScope: s, singlesParts: p, rules: compile(b.Obj()), found: map[string]found{},
		made: map[singlePod]*corev1.Pod{}, steps: map[singlesWorld]singlesStep{}, consents: map[singlesAsked]bool{},
	}
	expected := 1
	if s.shared {
		expected = s.count
	}
	for i := range s.count {
		owner := s.owner(i)
		x.found[owner.UID] = found{owner: owner, expected: expected, known: true}
	}
	return x
}

// start is a world in which all pods are wanted gone.
func (x *singles) start() singlesWorld {
	w := singlesWorld{Left: x.singleChances}
	for i := range x.count {
		w.Places[i].Turn = singleWaits
	}
	return x.counted(w)
}

// counted is the world after the disruption controller has looked at it.
func (x *singles) counted(w singlesWorld) singlesWorld {
	w.Expected, w.Healthy = 0, 0
	for _, p := range w.Places[:x.count] {
		if p.Phase != singleAbsent {
			w.Expected++
		}
		if p.Phase == singleUp {
			w.Healthy++
		}
	}
	if x.shared && !x.integer && w.Expected > 0 {
		w.Expected = uint8(x.count)
	}
	return w
}

func (x *singles) now(w singlesWorld) time.Time {
	if w.Closed {
		return noon.Add(2 * time.Hour)
	}
	return noon
}

func (s singlesScope) owner(i int) v1alpha1.BudgetOwner {
	if s.shared {
		i = 0
	}
	name := fmt.Sprintf("ring-%d", i)
	return v1alpha1.BudgetOwner{APIVersion: "apps/v1", Kind: "StatefulSet", Name: name, UID: "set-" + name}
}

func singleUID(i int) types.UID { return types.UID(fmt.Sprintf("uid-%d", i)) }
func leftUID(i int) types.UID   { return types.UID(fmt.Sprintf("left-%d", i)) }

func requestOf(pod types.UID) types.UID { return "er-" + pod }

func (x *singles) pod(i int, uid types.UID, phase singlePhase) *corev1.Pod {
	key := singlePod{uid, phase}
	if pod := x.made[key]; pod != nil {
		return pod
	}
	owner := x.owner(i)
	pod := builder.Pod(shop, string(uid)).UID(uid).Label("app", "ring").
		Owner(metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: types.UID(owner.UID), Controller: ptr.To(true)}).Obj()
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))}
	switch phase {
	case singleUnready:
		ready.Status = corev1.ConditionFalse
	case singleLeaving:
		pod.DeletionTimestamp = &metav1.Time{Time: noon}
	case singleUp, singleAbsent:
	}
	pod.Status.Conditions = []corev1.PodCondition{ready}
	x.made[key] = pod
	return pod
}

// live are the pods as the API server has them.
func (x *singles) live(w singlesWorld) (all []*corev1.Pod) {
	for i, p := range w.Places[:x.count] {
		if p.Phase != singleAbsent {
			all = append(all, x.pod(i, singleUID(i), p.Phase))
		}
	}
	return all
}

// cached is the pod of a place as the caches have it.
func (w singlesWorld) cached(i int) (types.UID, singlePhase) {
	switch {
	case int(w.Behind) != i+1:
		return singleUID(i), w.Places[i].Phase
	case w.WasOld:
		return leftUID(i), w.Was
	}
	return singleUID(i), w.Was
}

// pdb is the PodDisruptionBudget with what was counted last.
func (x *singles) pdb(w singlesWorld) *policyv1.PodDisruptionBudget {
	b, desired := builder.Budget(shop, pdbName).Selects("app", "ring"), int32(w.Expected)
	if x.integer {
		b.MinAvailable(strconv.Itoa(x.count))
		desired = int32(x.count)
	} else {
		b.MaxUnavailable("0")
	}
	pdb := b.Obj()
	pdb.Status = policyv1.PodDisruptionBudgetStatus{ExpectedPods: int32(w.Expected), CurrentHealthy: int32(w.Healthy), DesiredHealthy: desired}
	return pdb
}
