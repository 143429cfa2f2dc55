//go:build unix

package native

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/evacuation/native/charge"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/clock"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// Each responder costs at most three writes: its two reports, and the one of ours that ends its
// turn and begins the next. The responder of our own interceptors costs as many.
func TestWritesOfEachResponder(t *testing.T) {
	shareManager(t)
	namespace, node := placed(t)
	names := []string{in(namespace, migrate), in(namespace, save)}
	for _, name := range names {
		startResponder(t, name, time.Second)
	}
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(names...).Interceptors(in(namespace, ours)).Obj())
	mark := kube.RequestLog().Mark()
	r := wants(t, pod)
	intercepts(t, pod, in(namespace, ours))
	gone(t, pod)
	waitWish(t, r, evicted)
	logged, err := kube.RequestLog().Since(t.Context(), mark)
	if err != nil {
		t.Fatal(err)
	}
	writes := logged.Where(func(r cluster.Request) bool {
		return r.Namespace == namespace && r.Group == lifecyclev1alpha1.GroupName && r.Writes() && r.Code < http.StatusBadRequest
	})
	counts := map[string]int{}
	for _, w := range writes {
		var who string
		switch {
		case w.User == account():
			who = "ours"
		case strings.HasPrefix(w.User, namespace):
			who = "the programs"
		default: // The test, which asks.
			continue
		}
		counts[fmt.Sprintf("%s: %s %s/%s", who, w.Verb, w.Resource, w.Subresource)]++
	}
	want := map[string]int{
		// The plan, the end of each turn, and the end.
		"ours: create evictions/": 1, "ours: update evictions/status": 5, "ours: update evictionrequests/status": 2,
		// drawbridge.dev/interceptors twice, the evictor once.
		"ours: patch evictions/status": 3, "the programs: patch evictions/status": 4,
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("writes (-want +got):\n%s\n%s", diff, writes)
	}
}

// How the controllers write (A.10).
func TestNative_A10(t *testing.T) {
	t.Run("N80, N81 what responders have said stays, and stays theirs", func(t *testing.T) {
		shareManager(t)
		namespace, node := placed(t)
		name := in(namespace, migrate)
		startResponder(t, name, time.Second)
		pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(name).Obj())
		wants(t, pod)
		gone(t, pod)
		e := waitEviction(t, pod, "evicted", isEvicted)
		if r := e.Status.Responders; len(r) != 2 || r[0].Message == nil || *r[0].Message != "done" || r[0].CompletionTime == nil || r[0].HeartbeatTime == nil {
			t.Errorf("reports %+v", r)
		}
		got := map[string][]string{}
		for _, entry := range e.ManagedFields {
			for _, path := range owned(t, entry) {
				if fields, found := strings.CutPrefix(path, `.status.responders[name="`+name+`"]`); found && fields != "" {
					got[entry.Manager] = append(got[entry.Manager], fields)
				}
			}
		}
		want := map[string][]string{
			charge.Manager: {".name", ".startTime"},
			name:           {".completionTime", ".expectedCompletionTime", ".heartbeatTime", ".message", ".name"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("fields of the responder by their owners (-want +got):\n%s", diff)
		}
	})
}

// owned are the paths of an entry of managedFields, sorted.
func owned(t *testing.T, entry metav1.ManagedFieldsEntry) (paths []string) {
	t.Helper()
	set := &fieldpath.Set{}
	if err := set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
		t.Fatal(err)
	}
	set.Iterate(func(p fieldpath.Path) { paths = append(paths, p.String()) })
	slices.Sort(paths)
	return paths
}

// A write that was decided before a responder has reported is refused by the server, and made
// again from what is stored.
func TestNative_A10_Stale(t *testing.T) {
	meantime := &beforeWrite{}
	inst.ForTest(t, manager.Options{
		Wrap:   meantime.wrap,
		Change: func(o *app.Options) { o.Policy.StartupGrace = time.Second },
	})
	t.Run("N82 a responder reports while its turn is taken away", func(t *testing.T) {
		namespace, node := placed(t)
		name := in(namespace, migrate)
		pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(name).Obj())
		wants(t, pod)
		e := waitEviction(t, pod, "in the hands of its responder", turnOf(name))
		// Right before the write that passes it over, it says that it is still at work.
		spoke := meantime.once("/namespaces/"+namespace+"/evictions/"+e.Name+"/status", func(ctx context.Context) error {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(e), e); err != nil {
				return err
			}
			r := &e.Status.Responders[slices.IndexFunc(e.Status.Responders, func(r lifecyclev1alpha1.ResponderStatus) bool { return r.Name == name })]
			r.HeartbeatTime, r.Message = new(metav1.Now()), new("still at work")
			return admin.Status().Update(ctx, e)
		})
		if err := kube.Age(t.Context(), e, 20*time.Minute); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-spoke:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(cluster.Patience):
			t.Fatal("it was not to be passed over")
		}
		e = waitEviction(t, pod, "in the same hands", func(e *lifecyclev1alpha1.Eviction) bool {
			return turnOf(name)(e) && e.Status.Responders[0].Message != nil
		})
		lives(t, pod)
		completes(t, pod, name)
		gone(t, pod)
		e = waitEviction(t, pod, "evicted", isEvicted)
		if diff := cmp.Diff("pod-1-db-0: "+name+"=Completed "+evictor+"=Completed"+evicted, says(e)); diff != "" {
			t.Errorf("Eviction (-want +got):\n%s", diff)
		}
	})
}

// beforeWrite does something right before a write of the manager is sent.
type beforeWrite struct {
	mu   sync.Mutex
	path string
	what func(context.Context)
}

// once sets what to do before the next PUT of a path, and returns what became of it.
func (b *beforeWrite) once(path string, what func(context.Context) error) <-chan error {
	done := make(chan error, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.path, b.what = path, func(ctx context.Context) { done <- what(ctx) }
	return done
}

func (b *beforeWrite) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		b.mu.Lock()
		what := b.what
		if what == nil || r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, b.path) {
			what = nil
		} else {
			b.what = nil
		}
		b.mu.Unlock()
		if what != nil {
			what(r.Context())
		}
		return next.RoundTrip(r)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A clock of ours that is a minute ahead: the server refuses our times. That is told, nobody loses
// a turn, and the next leader, whose clock is right, goes on.
func TestRefusedForAWrongClock(t *testing.T) {
	ahead := clock.New()
	ahead.Advance(time.Minute)
	m := inst.ForTest(t, manager.Options{Clock: ahead})
	t.Run("N78 our clock is ahead of the server's", func(t *testing.T) {
		namespace, node := placed(t)
		name := in(namespace, migrate)
		pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(name).Obj())
		wants(t, pod)
		note := waitEvent(t, pod, events.ReasonRefusedBy+string(refused.Invalid))
		if !strings.Contains(note, refused.NativeEviction.Doing()) || !strings.Contains(note, "startTime") {
			t.Errorf("the event says: %s", note)
		}
		lives(t, pod)
		m.StopFor(t)
		inst.ForTest(t, manager.Options{})
		waitEviction(t, pod, "in the hands of its responder", turnOf(name))
		completes(t, pod, name)
		gone(t, pod)
	})
}
