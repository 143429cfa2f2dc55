package budget

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/internal/disruption"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// hanging is an API server that answers no read.
type hanging struct{ client.Reader }

func (hanging) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hanging) List(ctx context.Context, _ client.ObjectList, _ ...client.ListOption) error {
	<-ctx.Done()
	return ctx.Err()
}

// hung is a manager that has granted the evictions of two pods, and gets no answer any more. What it
// does is timed by the clock of the bubble.
func hung(t *testing.T) (w *world, asks func(pod int) (disruption.Consent, error), r *runner) {
	t.Helper()
	w, first, second := exhausted(t, nil)
	r = w.exhausting(first, second)
	r.live, r.clock = hanging{}, clock.RealClock{}
	asks = func(i int) (disruption.Consent, error) {
		pod := w.pod("a", i, "")
		er := builder.EvictionRequest(shop, pod.Name, pod.UID).UID("er-" + pod.UID).Obj()
		return (&Exhausted{r}).Consent(t.Context(), er, pod, pdbName, time.Time{}, func() { t.Error("a pod is deleted") })
	}
	return w, asks, r
}

// took is how long something takes, to the second.
func took(do func()) time.Duration {
	begun := time.Now()
	do()
	return time.Since(begun).Round(time.Second)
}

// While the API server does not answer a decision about a namespace, no other decision about it holds
// a worker for long: others need them.
func TestADecisionThatTakesLongHoldsUpNoOtherNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, asks, r := hung(t)
		first := make(chan time.Duration)
		go func() {
			first <- took(func() {
				if c, err := asks(0); err == nil || c.Deletes {
					t.Errorf("the first: %+v, %v", c, err)
				}
			})
		}()
		synctest.Wait()
		budget := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: shop, Name: "zones"}}
		for i, want := range []time.Duration{patience, 0, 0} {
			got := took(func() {
				if c, err := asks(1); err != nil || c.Deletes || !c.Waits {
					t.Errorf("the second, time %d: %+v, %v", i, c, err)
				}
			})
			if got != want {
				t.Errorf("time %d: the evictor waits %s, want %s", i, got, want)
			}
		}
		if got := took(func() {
			if result, err := r.Reconcile(t.Context(), budget); err != nil || result.RequeueAfter != time.Second {
				t.Errorf("a decision: %+v, %v", result, err)
			}
		}); got != 0 {
			t.Errorf("a decision waits %s", got)
		}
		for _, request := range r.state.space(shop).requests {
			request.answer = answer{} // As at the beginning of its turn.
		}
		if got := took(func() {
			if p, err := w.turn(r, w.pod("a", 1, "")); err != nil || p.CheckAfter != soon {
				t.Errorf("a turn: %+v, %v", p, err)
			}
		}); got != 0 {
			t.Errorf("a turn waits %s", got)
		}
		if got := <-first; got != consentTimeout {
			t.Errorf("the first takes %s, want %s", got, consentTimeout)
		}
	})
}

// A read without an answer ends by itself, long before the reconciliation would.
func TestADecisionWithoutAnAnswerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, r := hung(t)
		for _, e := range r.state.space(shop).budgets {
			r.state.lost(e)
		}
		if got := took(func() {
			if _, err := r.decide(t.Context(), types.NamespacedName{Namespace: shop, Name: "zones"}); err == nil {
				t.Error("decided without an answer")
			}
		}); got != callTimeout {
			t.Errorf("it takes %s, want %s", got, callTimeout)
		}
	})
}

// Whoever came first decides first, and one after the other.
func TestDecisionsFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSequence()
		var order []int
		for i := range 20 {
			go func() {
				if err := s.begin(t.Context(), clock.RealClock{}); err != nil {
					t.Errorf("decision %d: %v", i, err)
					return
				}
				defer s.end()
				order = append(order, i)
				<-time.After(50 * time.Millisecond) // Of the bubble's time.
			}()
			synctest.Wait()
		}
		<-time.After(time.Minute)
		for i, got := range order {
			if got != i {
				t.Fatalf("order %v", order)
			}
		}
		if len(order) != 20 || s.since.Load() != nil {
			t.Errorf("order %v, the last since %v", order, s.since.Load())
		}
	})
}

// lists records what is listed.
type lists struct {
	client.Reader
	selectors []string
}

func (l *lists) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(options)
	l.selectors = append(l.selectors, o.Namespace+" "+o.LabelSelector.String())
	return l.Reader.List(ctx, list, options...)
}

// A decision lists no pods that the PodDisruptionBudget does not select.
func TestConsentListsThePodsOfTheBudgetOnly(t *testing.T) {
	w, first, second := exhausted(t, nil)
	r := w.exhausting(first, second)
	l := &lists{Reader: r.live}
	r.live = l
	if c, err := w.consent(r, first); err != nil || !c.Deletes {
		t.Fatalf("%+v, %v", c, err)
	}
	if diff := cmp.Diff([]string{"shop app=ring", "shop app=ring"}, l.selectors); diff != "" {
		t.Errorf("lists (-want +got):\n%s", diff)
	}
}

// A pod whose EvictionBudgets do not consent waits for no decision.
func TestWithoutConsentNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, asks, r := hung(t)
		if err := r.state.space(shop).deciding.begin(t.Context(), r.clock); err != nil {
			t.Fatal(err)
		}
		for _, e := range r.state.space(shop).budgets {
			e.evicts = false
		}
		if got := took(func() {
			if c, err := asks(0); err != nil || c.Waits || c.Deletes {
				t.Errorf("%+v, %v", c, err)
			}
		}); got != 0 {
			t.Errorf("it waits %s", got)
		}
	})
}
