//go:build unix

package ha

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// load calls evictions from several callers until stop is called, and tells how many
// calls there were and which failed. A call fails when its answer is not the
// webhook's 429.
type load struct {
	cancel   context.CancelFunc
	group    sync.WaitGroup
	calls    atomic.Int64
	mu       sync.Mutex
	failures []string
}

// callers of a load, and how often each calls.
const (
	callers   = 4
	callEvery = 20 * time.Millisecond
)

func startLoad(t *testing.T, pods ...*corev1.Pod) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel}
	for i := range callers {
		l.group.Go(func() {
			pace := time.NewTicker(callEvery)
			defer pace.Stop()
			for n := i; ctx.Err() == nil; n++ {
				select {
				case <-ctx.Done():
					return
				case <-pace.C:
				}
				err := evict(ctx, pods[n%len(pods)], false)
				if ctx.Err() != nil {
					return
				}
				l.calls.Add(1)
				if !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, "EvictionRequestInProgress") {
					l.mu.Lock()
					l.failures = append(l.failures, fmt.Sprintf("%s: %v", time.Now().Format(time.StampMilli), err))
					l.mu.Unlock()
				}
			}
		})
	}
	t.Cleanup(cancel)
	return l
}

// stop ends the load; no call may have failed.
func (l *load) stop(t *testing.T) {
	t.Helper()
	l.cancel()
	l.group.Wait()
	t.Logf("%d calls, %d failed", l.calls.Load(), len(l.failures))
	if l.calls.Load() == 0 {
		t.Error("nothing was called")
	}
	for i, failure := range l.failures {
		if i == 5 {
			t.Errorf("and %d more", len(l.failures)-i)
			break
		}
		t.Errorf("a call failed: %s", failure)
	}
}

// taken waits until a leader has looked at the request for the pod, and returns how
// long after the given instant that was.
func taken(t *testing.T, pod *corev1.Pod, since time.Time) time.Duration {
	t.Helper()
	eventually(t, "a leader to take the request for "+pod.Name, func(ctx context.Context) error {
		er := &v1alpha1.EvictionRequest{}
		if err := admin.Get(ctx, v1alpha1.RequestKey(pod), er); err != nil {
			return err
		}
		if len(er.Status.ActiveInterceptors) == 0 {
			return errors.New("nobody has looked at it")
		}
		return nil
	})
	return time.Since(since)
}

// A leader that is told to stop hands over at once, one that is killed when its lease
// has run out. The other replica answers evictions all the time.
func TestTheOtherReplicaTakesOver(t *testing.T) {
	inst := installed(t, nil)
	s := inst.NewService(t)
	replicas := []*manager.Process{s.Replica(t), s.Replica(t)}
	namespace := kube.Namespace(t)
	held := intercepted(t, namespace, "held")
	handOver := func(name string, end func(*manager.Process)) (remains *manager.Process) {
		leads, other := leader(t, replicas...)
		l := startLoad(t, held)
		pod := intercepted(t, namespace, "moved-"+name)
		since := time.Now()
		end(leads)
		// The request is made by the replica that is left, and nobody leads.
		eventually(t, "the eviction to be answered", func(ctx context.Context) error {
			if err := evict(ctx, pod, false); !apierrors.IsTooManyRequests(err) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
		t.Logf("%s: the controllers go on after %s", name, taken(t, pod, since).Round(10*time.Millisecond))
		if name == "stopped" {
			l.stop(t) // A call that is on its way to a process that is killed is lost.
		} else {
			l.cancel()
			l.group.Wait()
			t.Logf("%s: %d calls, %d of them failed at that instant", name, l.calls.Load(), len(l.failures))
		}
		return other
	}
	other := handOver("stopped", func(p *manager.Process) { stop(t, p) })
	replicas = []*manager.Process{other, s.Replica(t)}
	handOver("killed", func(p *manager.Process) {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
}

// In a rolling update two versions run side by side. They share everything through the
// API, so they may differ in flags and gates. Nobody notices.
func TestARollingUpdateLosesNoCall(t *testing.T) {
	inst := installed(t, nil)
	s := inst.NewService(t)
	old := []string{"--surge=false", "--feature-gates=Surge=false", "--descheduler-mark-in-progress=false", "--heartbeat-deadline=1h"}
	before := []*manager.Process{s.Replica(t, old...), s.Replica(t, old...)}
	namespace := kube.Namespace(t)
	held := intercepted(t, namespace, "held")
	l := startLoad(t, held)
	taken(t, held, time.Now())
	for _, p := range before {
		s.Replica(t)
		stop(t, p)
		pod := intercepted(t, namespace, "next-"+fmt.Sprint(l.calls.Load()))
		if err := evict(t.Context(), pod, false); !apierrors.IsTooManyRequests(err) {
			t.Errorf("got %v, want 429", err)
		}
		taken(t, pod, time.Now())
	}
	l.stop(t)
	er := &v1alpha1.EvictionRequest{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: string(held.UID)}, er); err != nil {
		t.Fatal(err)
	}
	if active := er.Status.ActiveInterceptors; len(active) != 1 || active[0] != "nobody.example.com" {
		t.Errorf("the request that the replicas of before began is at %v", active)
	}
}
