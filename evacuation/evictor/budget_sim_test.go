package evictor

import (
	"container/heap"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/evacuation/evictor/answer"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// simulation plays many pods behind one budget against a server that admits a few
// disruptions at a time, in virtual time: workers, answers, watch events and
// timers all have their delays, and events can overtake answers. It drives
// Step and budgetQueue as the Evictor does.
type simulation struct {
	t      *testing.T
	random *rand.Rand
	now    time.Time
	agenda simAgenda
	serial int

	// The server.
	allowed   int32
	disrupted map[string]bool
	recovery  time.Duration
	calls     int
	refusals  int

	// The evictor.
	policy  Policy
	budgets *budgetQueue
	pods    map[types.NamespacedName]*simPod
	queue   []types.NamespacedName
	queued  map[types.NamespacedName]bool
	idle    int
	// lastEvent keeps the events of the budget in order.
	lastEvent time.Time
}

type simPod struct {
	name     string
	age      int
	state    PodState
	evicted  bool // on the server
	item     Report
	last     Attempt
	busy     bool
	triggers []translate.Trigger
}

func newSimulation(t *testing.T, seed uint64, pods int, allowed int32, recovery time.Duration) *simulation {
	t.Helper()
	s := &simulation{
		t: t, random: rand.New(rand.NewPCG(seed, 1)), now: at(0), allowed: allowed, recovery: recovery,
		disrupted: map[string]bool{}, policy: DefaultPolicy(), budgets: newBudgetQueue(),
		pods: map[types.NamespacedName]*simPod{}, queued: map[types.NamespacedName]bool{}, idle: 10,
	}
	s.budgets.Observe(s.status())
	for n := range pods {
		s.pods[requestKey(n)] = &simPod{name: fmt.Sprintf("pod-%d", n), age: n, state: PodRunning}
		s.add(requestKey(n))
	}
	return s
}

// delay is a random time below the limit.
func (s *simulation) delay(limit time.Duration) time.Duration {
	return time.Duration(s.random.Int64N(int64(limit)))
}

// after runs something later.
func (s *simulation) after(d time.Duration, do func()) {
	s.serial++
	heap.Push(&s.agenda, simEntry{s.now.Add(d), s.serial, do})
}

// run plays until nothing is left to do for pods that live.
func (s *simulation) run(limit time.Duration) {
	for len(s.agenda) > 0 {
		next := heap.Pop(&s.agenda).(simEntry)
		s.now = next.at
		if s.now.Sub(at(0)) > limit {
			return
		}
		next.do()
	}
}

// status is the budget's present state.
func (s *simulation) status() *policyv1.PodDisruptionBudget {
	return testBudget("web", s.allowed, mapKeys(s.disrupted)...)
}

func mapKeys(m map[string]bool) []string {
	var keys []string
	for k := range maps.Keys(m) {
		keys = append(keys, k)
	}
	return keys
}

// publish sends the budget's state to the evictor's watch, in order.
func (s *simulation) publish() {
	pdb := s.status()
	when := s.now.Add(s.delay(50 * time.Millisecond))
	if when.Before(s.lastEvent) {
		when = s.lastEvent
	}
	s.lastEvent = when
	s.after(when.Sub(s.now), func() { s.addAll(s.budgets.Observe(pdb)) })
}

// evict is the server's eviction handler.
func (s *simulation) evict(pod *simPod, key types.NamespacedName) error {
	s.calls++
	if s.allowed == 0 {
		s.refusals++
		return builder.BlockedAnswer()
	}
	s.allowed--
	s.disrupted[pod.name] = true
	pod.evicted = true
	s.publish()
	s.after(s.delay(50*time.Millisecond), func() { pod.state = PodTerminating; s.add(key) })
	s.after(s.recovery+s.delay(time.Second), func() {
		delete(s.disrupted, pod.name)
		s.allowed++
		s.publish()
	})
	return nil
}

func (s *simulation) add(key types.NamespacedName) {
	if s.queued[key] {
		return
	}
	s.queued[key] = true
	s.queue = append(s.queue, key)
	s.after(0, s.work)
}

func (s *simulation) addAll(keys []types.NamespacedName) {
	for _, key := range keys {
		s.add(key)
	}
}

// work lets an idle worker take the next key that is not being worked on.
func (s *simulation) work() {
	for i, key := range s.queue {
		if s.idle == 0 {
			return
		}
		if s.pods[key].busy {
			continue
		}
		s.queue = append(s.queue[:i:i], s.queue[i+1:]...)
		delete(s.queued, key)
		s.reconcile(key)
		s.after(0, s.work)
		return
	}
}

func (s *simulation) input(key types.NamespacedName, pod *simPod) Input {
	return Input{
		Pod: pod.state, Item: pod.item, Last: pod.last,
		Woken: s.budgets.Woken(key), Behind: s.budgets.Behind(key, s.policy.TimerPlaces),
	}
}

// reconcile does what Evictor.Reconcile does.
func (s *simulation) reconcile(key types.NamespacedName) {
	pod := s.pods[key]
	if pod.state != PodRunning {
		s.addAll(s.budgets.Forget(key))
	}
	d := Step(s.input(key, pod), s.now, s.policy)
	if d.Action != Call {
		s.settle(key, pod, d)
		return
	}
	if pod.evicted {
		s.t.Errorf("%s is evicted twice", pod.name)
	}
	pod.triggers = append(pod.triggers, d.Trigger)
	pod.busy, s.idle = true, s.idle-1
	names := s.budgets.Begin(key, pod.name, webLabels, at(pod.age))
	s.after(s.delay(10*time.Millisecond), func() {
		refusal := answer.Classify(s.evict(pod, key), len(names))
		s.after(s.delay(10*time.Millisecond), func() {
			pod.last = Attempt{At: s.now, Answer: refusal, Budgets: names, Retries: pod.last.Retries, Since: pod.last.Since}
			outcome := budgetAccepted
			if refusal.Result.Failed() {
				pod.last.Fail(pod.item.Retries)
				outcome = budgetRefused
			}
			s.addAll(s.budgets.End(key, outcome))
			pod.busy, s.idle = false, s.idle+1
			in := s.input(key, pod)
			in.Woken = false
			s.settle(key, pod, Step(in, s.now, s.policy))
			s.after(0, s.work)
		})
	})
}

func (s *simulation) settle(key types.NamespacedName, pod *simPod, d Decision) {
	if d.Report != nil {
		pod.item = *d.Report
	}
	if !d.WakeAt.IsZero() && pod.state == PodRunning {
		s.after(d.WakeAt.Sub(s.now), func() { s.add(key) })
	}
}

// TestBudgetStampede counts the calls that many pods behind one budget cost in
// all: a small multiple of the pods, however long it takes (it must not be one
// each per disruption allowed, nor one each per 15 min).
func TestBudgetStampede(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		pods     int
		allowed  int32
		recovery time.Duration
	}{
		"1000 pods, one at a time, at once":           {1000, 1, 0},
		"1000 pods, one at a time, after 30 s":        {1000, 1, 30 * time.Second},
		"300 pods, one at a time, after 5 min":        {300, 1, 5 * time.Minute},
		"1000 pods, 50 at a time, after 30 s":         {1000, 50, 30 * time.Second},
		"300 pods, none at first, then one at a time": {300, 0, 30 * time.Second},
	}
	for name, tc := range cases {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) {
				t.Parallel()
				s := newSimulation(t, seed, tc.pods, tc.allowed, tc.recovery)
				if tc.allowed == 0 {
					s.after(time.Hour, func() { s.allowed = 1; s.publish() })
				}
				s.run(200 * time.Hour)
				last := map[translate.Trigger]int{}
				for key, pod := range s.pods {
					if !pod.evicted {
						t.Fatalf("%s is still there", key)
					}
					last[pod.triggers[len(pod.triggers)-1]]++
				}
				t.Logf("%d calls for %d pods, %d refused, in %s; triggers of the successful ones: %v",
					s.calls, tc.pods, s.refusals, s.now.Sub(at(0)).Round(time.Second), last)
				// Apart from the pods only the time it takes counts, and slowly: the
				// timers of the first few places, one call each per 15 min once the
				// backoff has grown, which takes 8 calls.
				limit := 3*tc.pods + s.policy.TimerPlaces*(8+int(s.now.Sub(at(0))/s.policy.BackoffMax))
				if s.calls > limit {
					t.Errorf("%d calls for %d pods, want at most %d", s.calls, tc.pods, limit)
				}
				if waited := tc.pods - last[translate.TriggerFirst]; last[translate.TriggerBudget] < waited*9/10 {
					t.Errorf("%d of %d that waited were woken by the budget, want nine in ten", last[translate.TriggerBudget], waited)
				}
			})
		}
	}
}

// TestBudgetEventsLost makes sure that the timers alone finish the work when no
// event of the budget ever arrives.
func TestBudgetEventsLost(t *testing.T) {
	t.Parallel()
	s := newSimulation(t, 1, 30, 0, time.Second)
	s.after(time.Minute, func() { s.allowed = 30 }) // Nothing is published.
	s.run(24 * time.Hour)
	for key, pod := range s.pods {
		if !pod.evicted {
			t.Fatalf("%s is still there", key)
		}
	}
}

type simEntry struct {
	at     time.Time
	serial int
	do     func()
}

// simAgenda implements heap.Interface.
type simAgenda []simEntry

func (a *simAgenda) Len() int { return len(*a) }

func (a *simAgenda) Less(i, j int) bool {
	x, y := (*a)[i], (*a)[j]
	if !x.at.Equal(y.at) {
		return x.at.Before(y.at)
	}
	return x.serial < y.serial
}

func (a *simAgenda) Swap(i, j int) { (*a)[i], (*a)[j] = (*a)[j], (*a)[i] }

func (a *simAgenda) Push(x any) { *a = append(*a, x.(simEntry)) }

func (a *simAgenda) Pop() any {
	old := *a
	e := old[len(old)-1]
	*a = old[:len(old)-1]
	return e
}
