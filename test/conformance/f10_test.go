package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// The two requesters of the KEP's examples.
const (
	nodeDrain    = "nodemaintenance.disruption-management.org"
	descheduling = "descheduling.avalanche.io"
)

// cordon makes a node unschedulable, or schedulable again.
func (w *world) cordon(t *testing.T, node string, unschedulable bool) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, unschedulable))
	object := &corev1.Node{}
	object.Name = node
	if err := w.admin.Patch(t.Context(), object, patch); err != nil {
		t.Fatalf("cordon: %v", err)
	}
}

// addNode adds a node only for this test, with a label that its pods select.
func (w *world) addNode(t *testing.T) string {
	t.Helper()
	names, err := kube.AddNodes(t.Context(), 1, func(node *corev1.Node) { node.Labels["test"] = w.ns })
	if err != nil {
		t.Fatal(err)
	}
	return names[0]
}

// onOwnNodes restricts a pod to the nodes of addNode.
func (w *world) onOwnNodes(pod *builder.PodWrapper) *builder.PodWrapper {
	return pod.NodeSelector("test", w.ns)
}

// F10: the flows of the KEP (000:L647-713), each from its first step to its last.
func TestConformance_F10(t *testing.T) {
	mgr := startManager(t, manager.Options{Change: longCompletionGrace})

	t.Run("98 two requesters, one changes its mind, two actors", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, mgr)
		node := w.addNode(t)
		pod := w.createPod(t, w.onOwnNodes(builder.Pod(w.ns, "p-1")).Interceptors(interceptorB, interceptorA).Obj())
		drainer := w.newRequester(t, "drainer", nodeDrain)
		descheduler := w.newRequester(t, "descheduler", descheduling)
		tr := follow(t, keyOf(pod))

		w.cordon(t, node, true)
		drainer.apply(t, pod, true)
		if err := descheduler.create(t, pod); !apierrors.IsAlreadyExists(err) {
			t.Errorf("create by the second requester: %v, want AlreadyExists", err)
		}
		descheduler.apply(t, pod, true)
		w.untilActive(t, tr.ObjectKey, interceptorB)
		w.report(t, tr.ObjectKey, beats(interceptorB, w.now()))
		before := w.until(t, tr.ObjectKey, "both requesters to be seen", func(er *v1alpha1.EvictionRequest) bool {
			return er.Generation == 2 && er.Status.ObservedGeneration == 2
		})

		w.cordon(t, node, false)
		drainer.apply(t, pod, false)
		after := w.until(t, tr.ObjectKey, "the change to be seen", func(er *v1alpha1.EvictionRequest) bool {
			return er.Status.ObservedGeneration == 3
		})
		if diff := cmp.Diff([]string{descheduling}, requestersOf(after)); diff != "" {
			t.Errorf("requesters (-want +got):\n%s", diff)
		}
		want, got := before.Status.DeepCopy(), after.Status.DeepCopy()
		want.ObservedGeneration = 3
		want.Summary, got.Summary = nil, nil // Columns for people; they count the requesters.
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}

		w.report(t, tr.ObjectKey, completes(interceptorB, w.now()))
		w.untilActive(t, tr.ObjectKey, interceptorA)
		w.deletePod(t, pod)
		w.report(t, tr.ObjectKey, completes(interceptorA, w.now()))
		er := w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)
		if diff := cmp.Diff([]string{"", "[b]", "b [a]", "b a Evicted"}, tr.turns(t)); diff != "" {
			t.Errorf("turns (-want +got):\n%s", diff)
		}
		w.neverEvicted(t, pod)
		if err := descheduler.client.Delete(t.Context(), er); err != nil {
			t.Fatalf("delete by the remaining requester: %v", err)
		}
		waitGone(t, w.admin, er)
	})
	t.Run("99 the only requester changes its mind", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, mgr)
		node := w.addNode(t)
		pod := w.createPod(t, w.onOwnNodes(builder.Pod(w.ns, "p-1")).Interceptors(interceptorB, interceptorA).Obj())
		drainer := w.newRequester(t, "drainer", nodeDrain)
		actor := w.startInterceptor(t, interceptorB, awaitTimeout)
		tr := follow(t, keyOf(pod))

		w.cordon(t, node, true)
		drainer.apply(t, pod, true)
		waitLine(t, actor, "started")
		w.cordon(t, node, false)
		drainer.apply(t, pod, false)
		waitLine(t, actor, "stopping, because the request is Canceled (NoRequesters)")

		er := w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionCanceled)
		if len(er.Status.ActiveInterceptors) != 0 {
			t.Errorf("active are %v, want nobody", er.Status.ActiveInterceptors)
		}
		if item := v1alpha1.ReportOf(er, interceptorB); item.CompletionTime != nil {
			t.Errorf("the actor has completed all the same: %+v", item)
		}
		if diff := cmp.Diff([]string{"", "[b]", "b Canceled"}, tr.turns(t)); diff != "" {
			t.Errorf("turns (-want +got):\n%s", diff)
		}
		w.lives(t, pod)
		w.neverEvicted(t, pod)
	})
	t.Run("100 a second requester joins, and its entry stays", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, mgr)
		pod := w.pod(t, "p-1", interceptorA)
		drainer := w.newRequester(t, "drainer", nodeDrain)
		descheduler := w.newRequester(t, "descheduler", descheduling)
		drainer.apply(t, pod, true)
		if err := descheduler.create(t, pod); !apierrors.IsAlreadyExists(err) {
			t.Fatalf("create by the second requester: %v, want AlreadyExists", err)
		}
		descheduler.apply(t, pod, true)
		for range 2 {
			drainer.apply(t, pod, true)
		}
		got := requestersOf(w.get(t, keyOf(pod)))
		slices.Sort(got)
		if diff := cmp.Diff([]string{descheduling, nodeDrain}, got); diff != "" {
			t.Errorf("requesters (-want +got):\n%s", diff)
		}
	})
	t.Run("102 without an interceptor the pod is evicted", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, mgr)
		pod := w.pod(t, "web")
		tr := w.request(t, pod)
		w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)
		w.gone(t, pod)
		if len(w.evictionsOf(t, pod)) == 0 {
			t.Error("nobody has asked for its eviction")
		}
	})
}

// F10: the interceptors are not there, or the controller is not.
func TestConformance_F10_Absent(t *testing.T) {
	mgr := startManager(t, manager.Options{Change: noStartupGrace})
	t.Run("102 when the interceptors stop responding the pod is evicted", func(t *testing.T) {
		w := newWorld(t, mgr)
		pod := w.pod(t, "web", interceptorA, interceptorB)
		tr := w.request(t, pod)
		w.untilActive(t, tr.ObjectKey, interceptorA)
		w.report(t, tr.ObjectKey, beats(interceptorA, w.now())) // And then it stops.
		w.advanceTo(w.now().Add(deadline))
		since := w.untilActive(t, tr.ObjectKey, interceptorB).Status.ActivationTime.Time
		w.neverEvicted(t, pod)
		w.advanceTo(since.Add(deadline)) // This one never begins.
		w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)
		w.gone(t, pod)
		if diff := cmp.Diff([]string{"", "[a]", "a [b]", "a b [IE]", "a b IE Evicted"}, tr.turns(t)); diff != "" {
			t.Errorf("turns (-want +got):\n%s", diff)
		}
	})
	t.Run("103 without the controller pods stay, with it they go", func(t *testing.T) {
		w := newWorld(t, mgr)
		pod := w.deployment(t, builder.Deployment(w.ns, "web"))[0]
		budget := w.blockWeb(t)
		tr := w.request(t, &pod)
		w.untilRetries(t, tr.ObjectKey, 1)
		if got := seriesOf(ownMetrics(t, mgr), tr.ObjectKey)["imperative_evictions"]; got != 1 {
			t.Errorf("imperative_evictions is %v, want 1", got)
		}
		intercepted := w.pod(t, "intercepted", interceptorA)
		second := w.request(t, intercepted)
		w.untilActive(t, second.ObjectKey, interceptorA)

		stopManager(t, mgr)
		off, stopped := newWorldIn(w), time.Now()
		if err := w.admin.Delete(t.Context(), budget); err != nil {
			t.Fatal(err)
		}
		late := w.pod(t, "late")
		third := w.request(t, late)
		w.report(t, second.ObjectKey, completes(interceptorA, w.now()))
		// The rest of the control plane goes on and has seen all of that.
		w.deployment(t, builder.Deployment(w.ns, "other"))
		for _, pod := range []*corev1.Pod{&pod, intercepted, late} {
			w.lives(t, pod)
		}
		for tr, want := range map[*trace]string{tr: "[IE]", second: "[a]", third: ""} {
			if got := progress(w.get(t, tr.ObjectKey)); got != want {
				t.Errorf("progress of %s is %q, want %q", tr.Name, got, want)
			}
		}
		// What was still under way when it stopped is answered later, or cut off with an error
		// of the server's. The API server's clock is this machine's.
		answered := func(r cluster.Request) bool {
			return r.Writes() && r.Code < http.StatusInternalServerError && r.Time.After(stopped)
		}
		if requests := off.asked(t, answered); len(requests) > 0 {
			t.Errorf("the manager is still there:\n%s", requests)
		}

		w.mgr = startManager(t, manager.Options{Clock: mgr.Clock})
		for tr, want := range map[*trace][]string{
			tr:     {"", "[IE]", "IE Evicted"},
			second: {"", "[a]", "a [IE]", "a IE Evicted"},
			third:  {"", "[IE]", "IE Evicted"},
		} {
			w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)
			if diff := cmp.Diff(want, tr.turns(t)); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
		}
		for _, pod := range []*corev1.Pod{&pod, intercepted, late} {
			w.gone(t, pod)
		}
	})
}

// newWorldIn is the same namespace with a log that begins now.
func newWorldIn(w *world) *world {
	now := *w
	now.mark = kube.RequestLog().Mark()
	return &now
}
