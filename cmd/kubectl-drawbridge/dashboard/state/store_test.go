package state

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// streamless are funcs of a fake, which cannot stream lists, as old API servers cannot.
func streamless(funcs interceptor.Funcs) interceptor.Funcs {
	next := funcs.Watch
	funcs.Watch = func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) (watch.Interface, error) {
		with := (&client.ListOptions{}).ApplyOptions(o)
		switch {
		case with.Raw != nil && with.Raw.SendInitialEvents != nil:
			return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
		case next != nil:
			return next(ctx, c, list, o...)
		default:
			return c.Watch(ctx, list, o...)
		}
	}
	return funcs
}

// started is a store of a cluster that is only lists and watches; how real ones break is shown
// in a browser, by the tests of the dashboard.
func started(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) (*Store, client.WithWatch) {
	t.Helper()
	cluster := fake.NewClientBuilder().WithScheme(cli.Scheme).WithStatusSubresource(&v1alpha1.EvictionRequest{}).WithObjects(objects...).Build()
	s := newStore(clock.RealClock{}, interceptor.NewClient(cluster, streamless(funcs)), func(context.Context) cli.Installation { return cli.Installation{Version: "0.1.0"} })
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, cluster
}

// What the manager does not look at does not count here, either. Where the API has gone, that is said.
func TestNativeEvictionsCountAsForTheManager(t *testing.T) {
	objects := []client.Object{
		builder.Pod("shop", "db-0").UID("db-0").Node("node-1").Obj(), builder.NativeEviction("shop", "db-0", "db-0").Responders("a.example.com/a").Obj(),
	}
	for name, tc := range map[string]struct {
		off  bool
		err  error
		want int
		gap  string
	}{
		"an Eviction":              {want: 1},
		"one that does not count":  {off: true},
		"one that is gone":         {err: apierrors.NewNotFound(schema.GroupResource{}, ""), gap: "the API server does not serve them any more."},
		"one that you may not see": {err: apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no")), gap: "you may not list and watch them: forbidden: no."},
		"neither of both":          {off: true, err: apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))},
	} {
		t.Run(name, func(t *testing.T) {
			c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(cli.Scheme).WithObjects(objects...).Build(), streamless(interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
					if _, ok := list.(*lifecyclev1alpha1.EvictionList); ok && tc.err != nil {
						return tc.err
					}
					return c.List(ctx, list, o...)
				},
			}))
			s := newStore(clock.RealClock{}, c, func(context.Context) cli.Installation { return cli.Installation{Version: "0.1.0", NativeOff: tc.off} })
			s.followNative()
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			now := until(t, s, "complete", func(s *Snapshot) bool { return s.Installed.Version != "" && len(s.Pods) == 1 })
			var gaps []string
			for _, g := range now.Gaps {
				gaps = append(gaps, g.Why)
			}
			if len(now.ProcessesByNode["node-1"]) != tc.want || strings.Join(gaps, " ") != tc.gap {
				t.Errorf("%d evictions, gaps %q; want %d and %q", len(now.ProcessesByNode["node-1"]), gaps, tc.want, tc.gap)
			}
		})
	}
}

// What differs is decided in package skew. Here it is only shown.
func TestAPluginOfAnotherVersionIsAGap(t *testing.T) {
	s, _ := started(t, interceptor.Funcs{})
	s.plugin = "v0.2.0"
	// The kinds are gaps, too, until the first list of each has come.
	now := until(t, s, "about the versions alone", func(s *Snapshot) bool { return len(s.Gaps) == 1 && s.Gaps[0].Resource == "versions" })
	want := []Gap{{Resource: "versions", Why: "the manager (0.1.0) is older than this plugin (v0.2.0): what only one of them knows is left out, or not done. Use the plugin of the manager's version."}}
	if diff := cmp.Diff(want, now.Gaps); diff != "" {
		t.Errorf("gaps (-want +got):\n%s", diff)
	}
}

// until waits for a snapshot with what is wanted. The test's own deadline ends it.
func until(t *testing.T, s *Store, what string, holds func(*Snapshot) bool) *Snapshot {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		now := s.Snapshot()
		if holds(now) {
			return now
		}
		if ctx.Err() != nil {
			t.Fatalf("no snapshot is %s: %+v", what, now.Gaps)
		}
		s.Wait(ctx, now.Version)
		if again := s.Snapshot(); again.Version == now.Version { // It is not fresh yet.
			select {
			case <-ctx.Done():
			case <-time.After(fresh):
			}
		}
	}
}

func TestASnapshotFollowsTheCluster(t *testing.T) {
	s, cluster := started(t, interceptor.Funcs{}, builder.Node("node-1").Obj(), builder.Pod("shop", "db-0").UID("db-0").Node("node-1").Obj())
	before := until(t, s, "complete", func(s *Snapshot) bool { return len(s.Gaps) == 0 && len(s.Pods) == 1 })
	er := builder.EvictionRequest("shop", "db-0", "db-0").UID("er").Obj() // Its controller has not looked at it.
	if err := cluster.Create(t.Context(), er); err != nil {
		t.Fatal(err)
	}
	now := until(t, s, "with a request", func(s *Snapshot) bool { return len(s.ProcessesByNode["node-1"]) == 1 })
	if now.Version <= before.Version {
		t.Errorf("the version was %d and is %d", before.Version, now.Version)
	}
	if len(before.Requests) != 0 {
		t.Error("the snapshot before has changed")
	}
	if now.ProcessByPod["db-0"].Request == nil || now.PodByUID["db-0"] == nil || now.NodeByName["node-1"] == nil {
		t.Errorf("something is not found: %+v", now)
	}
	if err := cluster.Delete(t.Context(), er); err != nil {
		t.Fatal(err)
	}
	until(t, s, "without a request", func(s *Snapshot) bool { return len(s.ProcessesByNode["node-1"]) == 0 })
}

// The request has only the last heartbeat; a time line needs all of them, for as long as the
// request is there.
func TestHeartbeatsAreKept(t *testing.T) {
	const name = "copy.example.com"
	beat := func(n int) time.Time { return time.Date(2026, 11, 23, 12, n, 0, 0, time.UTC) }
	request := builder.EvictionRequest("shop", "db-0", "db-0").UID("er").Interceptors(name).Started(name, beat(0))
	s, cluster := started(t, interceptor.Funcs{}, request.Obj())
	key := HeartbeatKey{Request: "er", Interceptor: name}
	count := func(n int) func(*Snapshot) bool { return func(s *Snapshot) bool { return len(s.Heartbeats[key]) == n } }
	until(t, s, "with one heartbeat", count(1))
	for i, at := range []time.Time{beat(1), beat(1), beat(0), beat(2)} {
		er := &v1alpha1.EvictionRequest{}
		if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(request.Obj()), er); err != nil {
			t.Fatal(err)
		}
		er.Status.Interceptors[0].HeartbeatTime = &metav1.Time{Time: at}
		er.Status.Interceptors[0].Message = fmt.Sprint(i)
		if err := cluster.Status().Update(t.Context(), er); err != nil {
			t.Fatal(err)
		}
		until(t, s, "new", func(s *Snapshot) bool {
			return len(s.Requests) == 1 && s.Requests[0].Status.Interceptors[0].Message == fmt.Sprint(i)
		})
	}
	var got []string
	for _, at := range s.Snapshot().Heartbeats[key] {
		got = append(got, at.UTC().Format(time.TimeOnly))
	}
	if diff := cmp.Diff([]string{"12:00:00", "12:01:00", "12:02:00"}, got); diff != "" {
		t.Errorf("heartbeats (-want +got):\n%s", diff)
	}
	if err := cluster.Delete(t.Context(), request.Obj()); err != nil {
		t.Fatal(err)
	}
	until(t, s, "without heartbeats", count(0))
}

func TestWhatCannotBeReadIsAGap(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
	cases := map[string]struct {
		err  error
		says string
	}{
		"no right":                     {forbidden, "you may not list and watch them"},
		"a cluster without Drawbridge": {apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, ""), "Drawbridge is not installed, or is older than this plugin"},
		"a login that has run out":     {apierrors.NewUnauthorized("x"), "sign in, and start the dashboard again"},
		"an API server that is slow":   {apierrors.NewTimeoutError("x", 1), "does not respond in time"},
		"an API server that is away":   {errors.New("dial tcp: <refused>"), "cannot be reached; retrying: dial tcp: <refused>."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := started(t, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
					if _, ok := list.(*corev1.NodeList); ok {
						return tc.err
					}
					return c.List(ctx, list, o...)
				},
				Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) (watch.Interface, error) {
					if _, ok := list.(*corev1.NodeList); ok {
						return nil, tc.err
					}
					return c.Watch(ctx, list, o...)
				},
			}, builder.Pod("shop", "db-0").UID("db-0").Node("node-1").Obj())
			now := s.Snapshot()
			if len(now.Gaps) != 1 || now.Gaps[0].Resource != "nodes" || !strings.Contains(now.Gaps[0].Why, tc.says) || !now.Gaps[0].Since.IsZero() {
				t.Errorf("want one gap that says %q, got %+v", tc.says, now.Gaps)
			}
			if len(now.PodsByNode["node-1"]) != 1 {
				t.Error("what can be read is not shown")
			}
		})
	}
}

// What was read stays when a watch breaks, with the time since when it is old; and all is well
// again afterwards.
func TestABrokenWatchIsAGapUntilItIsBack(t *testing.T) {
	var broken atomic.Bool
	var mayEnd atomic.Pointer[watch.Interface]
	s, cluster := started(t, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if _, ok := list.(*corev1.NodeList); ok && broken.Load() {
				return errors.New("connection refused")
			}
			return c.List(ctx, list, o...)
		},
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) (watch.Interface, error) {
			_, nodes := list.(*corev1.NodeList)
			if nodes && broken.Load() {
				return nil, errors.New("connection refused")
			}
			w, err := c.Watch(ctx, list, o...)
			if nodes && err == nil {
				mayEnd.Store(&w)
			}
			return w, err
		},
	}, builder.Node("node-1").Obj())
	until(t, s, "complete", func(s *Snapshot) bool { return len(s.Gaps) == 0 && len(s.Nodes) == 1 && mayEnd.Load() != nil })
	broken.Store(true)
	(*mayEnd.Load()).Stop()
	now := until(t, s, "with a gap", func(s *Snapshot) bool { return len(s.Gaps) == 1 })
	if len(now.Nodes) != 1 || now.Gaps[0].Since.IsZero() {
		t.Errorf("want the node, and since when it is old: %d nodes, %+v", len(now.Nodes), now.Gaps)
	}
	broken.Store(false)
	if err := cluster.Create(t.Context(), builder.Node("node-2").Obj()); err != nil {
		t.Fatal(err)
	}
	until(t, s, "complete again", func(s *Snapshot) bool { return len(s.Gaps) == 0 && len(s.Nodes) == 2 })
}

// What a browser cannot see needs no memory.
func TestLargeFieldsAreNotKept(t *testing.T) {
	pod := builder.Pod("shop", "db-0").UID("db-0").Node("node-1").Obj()
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "secret"}}}}
	if _, err := slim(pod); err != nil {
		t.Fatal(err)
	}
	if len(pod.ManagedFields) != 0 || len(pod.Spec.Containers) != 1 || len(pod.Spec.Containers[0].Env) != 0 {
		t.Errorf("kept: %+v", pod)
	}
}

// Client-go hides that a connection was closed at once: it returns a watch without events.
func TestAProxyWithoutItsServerIsAGap(t *testing.T) {
	s, _ := started(t, interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) (watch.Interface, error) {
			if _, ok := list.(*corev1.NodeList); ok {
				return watch.NewEmptyWatch(), nil
			}
			return c.Watch(ctx, list, o...)
		},
	}, builder.Node("node-1").Obj())
	now := until(t, s, "with a gap", func(s *Snapshot) bool { return len(s.Gaps) == 1 && len(s.Nodes) == 1 })
	if !strings.Contains(now.Gaps[0].Why, "closed without an answer") {
		t.Errorf("it says %q", now.Gaps[0].Why)
	}
}

// A snapshot of the cluster of the issue; there are at most four a second.
func BenchmarkSnapshot(b *testing.B) {
	var objects []client.Object
	for i := range 500 {
		objects = append(objects, builder.Node(fmt.Sprintf("node-%03d", i)).Obj())
	}
	for i := range 20_000 {
		name := fmt.Sprintf("pod-%05d", i)
		objects = append(objects, builder.Pod("shop", name).UID(types.UID(name)).Node(fmt.Sprintf("node-%03d", i%500)).Obj())
		if i%10 == 0 {
			objects = append(objects, builder.EvictionRequest("shop", name, types.UID(name)).NodeName(fmt.Sprintf("node-%03d", i%500)).Obj())
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		NewSnapshot(time.Unix(0, 0), objects...)
	}
}
