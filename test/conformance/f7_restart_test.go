package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
	"github.com/drawbridge-dev/drawbridge/test/framework/clock"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// F7: the state is in the API.
func TestConformance_F7_Restart(t *testing.T) {
	fullWay := []string{"", "[a]", "a [b]", "a b [IE]", "a b IE Evicted"}

	t.Run("75 a manager that lives for one write gets there all the same", func(t *testing.T) {
		for name, mode := range map[string]crashMode{
			"the answer to it is lost":                crashAfterFirst,
			"it dies when it is about to write again": crashBeforeSecond,
		} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, nil)
				tr := w.request(t, w.pod(t, "web", interceptorA, interceptorB))
				shared := clock.New()
				lives := 0
				ended := func() bool { return len(w.get(t, tr.ObjectKey).Status.Conditions) > 0 }
				for ; !ended(); lives++ {
					if lives == 20 {
						t.Fatalf("after %d lives: %q", lives, tr.turns(t))
					}
					crash := &crash{mode: mode, armed: make(chan struct{}), crashed: make(chan struct{})}
					w.mgr = startManager(t, manager.Options{Clock: shared, Wrap: crash.wrap})
					close(crash.armed)
					await(t, "the crash, or the end", func(context.Context) error {
						select {
						case <-crash.crashed:
							return nil
						default:
						}
						if ended() {
							return nil
						}
						if mode == crashBeforeSecond {
							w.workOn(t, tr.ObjectKey)
						}
						return errors.New("not yet")
					})
					w.mgr.Kill()
					w.workOn(t, tr.ObjectKey) // Whether there is a manager or not.
				}
				if diff := cmp.Diff(fullWay, tr.turns(t)); diff != "" {
					t.Errorf("turns (-want +got):\n%s", diff)
				}
				if lives < len(fullWay)-1 {
					t.Errorf("%d lives for %d steps: the managers did more than they could", lives, len(fullWay)-1)
				}
			})
		}
	})
	t.Run("75 a restart changes nothing at any stage", func(t *testing.T) {
		w := newWorld(t, startManager(t, manager.Options{}))
		w.hold(t)
		restarts := 0
		// restart stops and kills the manager in turn, and does something while nobody
		// is there.
		restart := func(meanwhile func()) {
			t.Helper()
			if restarts++; restarts%2 == 0 {
				w.mgr.Kill()
			} else {
				stopManager(t, w.mgr)
			}
			meanwhile()
			w.mgr = startManager(t, manager.Options{Clock: w.mgr.Clock})
		}
		var tr *trace
		restart(func() { tr = w.request(t, w.pod(t, "web", interceptorA, interceptorB)) })
		w.untilActive(t, tr.ObjectKey, interceptorA)
		restart(func() { w.report(t, tr.ObjectKey, beats(interceptorA, w.now())) })
		if er := w.sync(t, tr.ObjectKey); progress(er) != "[a]" {
			t.Errorf("after a heartbeat: %s", progress(er))
		}
		restart(func() { w.report(t, tr.ObjectKey, completes(interceptorA, w.now())) })
		w.untilActive(t, tr.ObjectKey, interceptorB)
		w.report(t, tr.ObjectKey, completes(interceptorB, w.now()))
		w.untilActive(t, tr.ObjectKey, imperative)
		restart(func() {
			if err := w.admin.DeleteAllOf(t.Context(), budgetOf(w), client.InNamespace(w.ns)); err != nil {
				t.Fatal(err)
			}
		})
		w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)
		restart(func() {})
		w.sync(t, tr.ObjectKey)
		if diff := cmp.Diff(fullWay, tr.turns(t)); diff != "" {
			t.Errorf("turns (-want +got):\n%s", diff)
		}
	})
	t.Run("75 a restart does not give a silent interceptor its 20 minutes anew", func(t *testing.T) {
		w := newWorld(t, startManager(t, manager.Options{}))
		tr := w.request(t, w.pod(t, "web", interceptorA, interceptorB))
		since := w.untilActive(t, tr.ObjectKey, interceptorA).Status.ActivationTime.Time
		w.advanceTo(since.Add(10 * time.Minute))
		w.mgr.Kill()
		w.mgr = startManager(t, manager.Options{Clock: w.mgr.Clock})
		w.handsOver(t, tr, since.Add(deadline), interceptorB)
	})
	t.Run("75 an outage of the manager is no silence of the interceptor", func(t *testing.T) {
		w := newWorld(t, startManager(t, manager.Options{}))
		tr := w.request(t, w.pod(t, "web", interceptorA, interceptorB))
		w.untilActive(t, tr.ObjectKey, interceptorA)
		w.mgr.Kill()
		w.mgr.Clock.Advance(3 * time.Hour)
		before := w.mgr.Clock.Now()
		w.mgr = startManager(t, manager.Options{Clock: w.mgr.Clock})
		after := w.mgr.Clock.Now()

		w.advanceTo(before.Add(startupGrace - 15*time.Second))
		if er := w.sync(t, tr.ObjectKey); progress(er) != "[a]" {
			t.Errorf("within the grace after the start: %s", progress(er))
		}
		w.advanceTo(after.Add(startupGrace))
		er := w.untilActive(t, tr.ObjectKey, interceptorB)
		if got, earliest := er.Status.ActivationTime.Time, before.Add(startupGrace).Truncate(time.Second); got.Before(earliest) {
			t.Errorf("passed over at %s, not before %s", got, earliest)
		}
	})
}

// workOn lets the active interceptor complete, if it is not imperative-eviction.k8s.io.
func (w *world) workOn(t *testing.T, key client.ObjectKey) {
	t.Helper()
	er := w.get(t, key)
	if len(er.Status.ActiveInterceptors) == 0 || er.Status.ActiveInterceptors[0] == imperative {
		return
	}
	err := w.tryReport(t, key, report(er.Status.ActiveInterceptors[0], func(r *v1alpha1.InterceptorStatus) {
		if r.CompletionTime == nil {
			r.CompletionTime = w.in(0)
		}
	}))
	if err != nil && !apierrors.IsInvalid(err) { // Its turn may have ended meanwhile.
		t.Fatalf("report: %v", err)
	}
}

// crashMode is how long a manager lives.
type crashMode int

const (
	// crashAfterFirst: its first write reaches the API server, the answer is lost.
	crashAfterFirst crashMode = iota
	// crashBeforeSecond: it hears the answer, and its second write does not get out.
	crashBeforeSecond
)

// crash is a transport that cuts its manager off. Only writes to requests and
// evictions count. They are held up until the manager counts as started.
type crash struct {
	mode    crashMode
	armed   chan struct{}
	crashed chan struct{}

	mu     sync.Mutex
	writes int
}

var errCrashed = errors.New("this manager has crashed")

func (c *crash) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		select {
		case <-c.crashed:
			return nil, errCrashed
		default:
		}
		if !writesProgress(req) {
			return next.RoundTrip(req)
		}
		select {
		case <-c.armed:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
		c.mu.Lock() // One write at a time, so that none is on its way when it crashes.
		defer c.mu.Unlock()
		c.writes++
		if c.writes > 1 {
			if c.mode == crashBeforeSecond && c.writes == 2 {
				close(c.crashed)
			}
			return nil, errCrashed
		}
		resp, err := next.RoundTrip(req)
		if c.mode != crashAfterFirst || err != nil {
			return resp, err
		}
		close(c.crashed)
		return nil, errors.Join(errCrashed, resp.Body.Close())
	})
}

func writesProgress(req *http.Request) bool {
	if strings.Contains(req.URL.Path, "/"+failurepolicy.ProbePod+"/") {
		return false // The manager asks whether its webhook is reached.
	}
	return req.Method != http.MethodGet &&
		(strings.Contains(req.URL.Path, "/evictionrequests/") || strings.HasSuffix(req.URL.Path, "/eviction"))
}

// F7: any order of events. What must hold at any time is checked by the traces.
func TestConformance_F7_AnyOrder(t *testing.T) {
	t.Run("66, 67, 75 in any order of events one interceptor after the other is active, and all requests end", func(t *testing.T) {
		const (
			requests = 8
			steps    = 160
		)
		seed := uint64(time.Now().UnixNano())
		random := rand.New(rand.NewPCG(seed, 0))
		t.Logf("seed %d", seed)
		forEver := func(o *app.Options) { o.Policy.StartupGrace, o.Retention = 0, 0 }
		w := newWorld(t, startManager(t, manager.Options{Change: forEver}))
		w.hold(t)
		var pods []*corev1.Pod
		var traces []*trace
		for i := range requests {
			pods = append(pods, w.pod(t, fmt.Sprintf("web-%d", i), interceptorA, interceptorB, interceptorC))
			traces = append(traces, w.request(t, pods[i]))
		}

		for step := range steps {
			i := random.IntN(requests)
			w.randomStep(t, random, pods[i], traces[i].ObjectKey)
			if step%40 == 39 {
				w.mgr.Kill()
				w.mgr = startManager(t, manager.Options{Clock: w.mgr.Clock, Change: forEver})
			}
		}

		if err := w.admin.DeleteAllOf(t.Context(), budgetOf(w), client.InNamespace(w.ns)); err != nil {
			t.Fatal(err)
		}
		var ends []string
		for _, tr := range traces {
			w.until(t, tr.ObjectKey, "the request to end", func(er *v1alpha1.EvictionRequest) bool {
				w.advanceTo(w.now().Add(time.Minute)) // By silence, if nothing else.
				return len(er.Status.Conditions) > 0
			})
			turns := tr.turns(t)
			ends = append(ends, turns[len(turns)-1])
		}
		slices.Sort(ends)
		t.Logf("%q", ends)
	})
}

// randomStep is one thing that can happen to a request or its pod. What the API
// refuses has not happened.
func (w *world) randomStep(t *testing.T, random *rand.Rand, pod *corev1.Pod, key client.ObjectKey) {
	t.Helper()
	er := w.get(t, key)
	anybody := []string{interceptorA, interceptorB, interceptorC}[random.IntN(3)]
	// Also in the name of imperative-eviction.k8s.io, which keeps its turn all the same.
	if len(er.Status.ActiveInterceptors) > 0 && random.IntN(4) > 0 {
		anybody = er.Status.ActiveInterceptors[0]
	}
	var err error
	switch n := random.IntN(100); {
	case n < 30:
		err = w.tryReport(t, key, beats(anybody, w.now()))
	case n < 50:
		err = w.tryReport(t, key, completes(anybody, w.now()))
	case n < 60:
		err = w.tryReport(t, key, completes(anybody, w.now()), beats(anybody, w.now()))
	case n < 75:
		w.advanceTo(w.now().Add(time.Duration(random.IntN(8)) * time.Minute))
	case n < 85:
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, n)
		err = w.admin.Patch(t.Context(), pod.DeepCopy(), client.RawPatch("application/merge-patch+json", patch))
	case n < 93:
		requester := fmt.Sprintf("r%d.example.com", n)
		er.Spec.Requesters = append(er.Spec.Requesters, v1alpha1.Requester{Name: requester})
		err = w.admin.Update(t.Context(), er)
	case n < 97 && len(er.Spec.Requesters) > 1:
		er.Spec.Requesters = er.Spec.Requesters[1:]
		err = w.admin.Update(t.Context(), er)
	case n < 98:
		er.Spec.Requesters = nil
		err = w.admin.Update(t.Context(), er)
	case n < 99:
		err = w.admin.Delete(t.Context(), pod.DeepCopy())
	}
	if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		t.Fatalf("a step failed: %v", err)
	}
}
