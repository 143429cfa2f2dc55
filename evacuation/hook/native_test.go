package hook

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/hook/httpcall"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/waitfor"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const dumpKey = "db.example.com/dump"

// listed finds the Evictions of a namespace.
type listed struct{ client.Reader }

func (l listed) EvictionsOf(ctx context.Context, pod types.NamespacedName) (found []*lifecyclev1alpha1.Eviction, err error) {
	var list lifecyclev1alpha1.EvictionList
	err = l.List(ctx, &list, client.InNamespace(pod.Namespace))
	for i := range list.Items {
		if string(list.Items[i].Spec.Target.Pod.UID) == pod.Name {
			found = append(found, &list.Items[i])
		}
	}
	return found, err
}

func (listed) Notify(func(types.NamespacedName)) {}

// nativeWorld has an Eviction in which it is the turn of a key, and no EvictionRequest.
type nativeWorld struct {
	t      *testing.T
	client client.WithWatch
	clock  *clocktesting.FakeClock
	runner *runner
}

func newNativeWorld(t *testing.T, hooks ...*v1alpha1.EvacuationHook) *nativeWorld {
	t.Helper()
	w := &nativeWorld{t: t, clock: clocktesting.NewFakeClock(noon)}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "ledger-0", UID: "pod-uid"}, Spec: corev1.PodSpec{NodeName: "node-1"}}
	e := &lifecyclev1alpha1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pod-1-ledger-0", UID: "eviction-uid"}}
	e.Spec.Target.Pod = &lifecyclev1alpha1.EvictionPodReference{Name: "ledger-0", UID: "pod-uid"}
	e.Status.TargetResponders = []lifecyclev1alpha1.TargetResponder{{Name: dumpKey, State: lifecyclev1alpha1.ResponderStateActive}}
	e.Status.Responders = []lifecyclev1alpha1.ResponderStatus{{Name: dumpKey, StartTime: &metav1.Time{Time: noon}}}
	all := fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithObjects(pod, e).
		WithStatusSubresource(&v1alpha1.EvacuationHook{}, &batchv1.Job{}, &lifecyclev1alpha1.Eviction{}).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(client.Object) []string { return nil }).
		WithIndex(&corev1.Event{}, "reason", func(client.Object) []string { return nil })
	for _, hook := range hooks {
		all.WithObjects(hook)
	}
	w.client = all.Build()
	w.restart()
	return w
}

// restart makes a manager that knows only what stands in the API.
func (w *nativeWorld) restart() { w.restartWith(listed{w.client}) }

func (w *nativeWorld) restartWith(native NativeEvictions) {
	w.t.Helper()
	w.runner = newRunner(w.client, w.client, Options{
		Clock: w.clock, Metrics: metrics.NewHooks(prometheus.NewRegistry()), Bounds: Bounds{MaxTotal: 24 * time.Hour},
		MaxConcurrent: 1, MaxPerNamespace: 1, HTTP: &httpcall.Client{}, Watches: &waitfor.Watches{}, Recorder: eventsclient.NewFakeRecorder(1000),
		Native: native,
	})
	if err := w.runner.sweepOnce(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// look lets the manager look at the pod some times.
func (w *nativeWorld) look(times int) {
	w.t.Helper()
	for range times {
		if _, err := w.runner.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "pod-uid"}}); err != nil {
			w.t.Fatal(err)
		}
		w.clock.Step(5 * time.Second)
	}
}

func (w *nativeWorld) eviction() *lifecyclev1alpha1.Eviction {
	w.t.Helper()
	e := &lifecyclev1alpha1.Eviction{}
	if err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: "shop", Name: "pod-1-ledger-0"}, e); err != nil {
		w.t.Fatal(err)
	}
	return e
}

// ends the Eviction, with a state of its responder.
func (w *nativeWorld) ends(condition lifecyclev1alpha1.EvictionConditionType, state lifecyclev1alpha1.ResponderStateType) {
	w.t.Helper()
	e := w.eviction()
	e.Status.TargetResponders[0].State = state
	e.Status.Conditions = []metav1.Condition{{Type: string(condition), Status: metav1.ConditionTrue, Reason: "Over", LastTransitionTime: metav1.NewTime(noon)}}
	if err := w.client.Status().Update(w.t.Context(), e); err != nil {
		w.t.Fatal(err)
	}
}

// jobs are the owners of the Jobs by their names.
func (w *nativeWorld) jobs() map[string]string {
	w.t.Helper()
	var list batchv1.JobList
	if err := w.client.List(w.t.Context(), &list); err != nil {
		w.t.Fatal(err)
	}
	owners := map[string]string{}
	for i := range list.Items {
		for _, o := range list.Items[i].OwnerReferences {
			owners[list.Items[i].Name] = o.APIVersion + " " + o.Kind + " " + o.Name + " " + string(o.UID)
		}
	}
	return owners
}

func (w *nativeWorld) runs(hook string) []v1alpha1.HookRun {
	w.t.Helper()
	found := &v1alpha1.EvacuationHook{}
	if err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: "shop", Name: hook}, found); err != nil {
		w.t.Fatal(err)
	}
	return found.Status.Runs
}

func waitHook(name, key string) *v1alpha1.EvacuationHook {
	hook := builder.EvacuationHook("shop", name).NativeKey(key).Obj()
	hook.UID = types.UID("uid-of-" + name)
	return hook
}

func TestAHookAnswersNatively(t *testing.T) {
	w := newNativeWorld(t, waitHook("dump", dumpKey))
	w.look(3)
	report := w.eviction().Status.Responders[0]
	if report.CompletionTime == nil || !report.StartTime.Time.Equal(noon) {
		t.Errorf("report %+v, want a completed one with the controller's start", report)
	}
	runs := w.runs("dump")
	if len(runs) != 1 || runs[0].Eviction != "pod-1-ledger-0" || runs[0].RequestUID != "eviction-uid" || runs[0].Request != "pod-uid" || runs[0].Phase != v1alpha1.HookSucceeded {
		t.Errorf("runs %+v", runs)
	}
	w.ends(lifecyclev1alpha1.EvictionConditionTargetEvicted, lifecyclev1alpha1.ResponderStateCompleted)
	w.look(1)
	if err := w.runner.sweepOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if runs := w.runs("dump"); len(runs) > 0 {
		t.Errorf("runs of an Eviction that is over: %+v", runs)
	}
}

func TestWhichHookAnswersNatively(t *testing.T) {
	cases := map[string]struct {
		hooks []*v1alpha1.EvacuationHook
		want  map[string]int
	}{
		"none has the key":             {[]*v1alpha1.EvacuationHook{waitHook("a", "db.example.com/other"), waitHook("b", "")}, map[string]int{"a": 0, "b": 0}},
		"two have it: the first one":   {[]*v1alpha1.EvacuationHook{waitHook("b", dumpKey), waitHook("a", dumpKey)}, map[string]int{"a": 1, "b": 0}},
		"one of another namespace not": {[]*v1alpha1.EvacuationHook{builder.EvacuationHook("depot", "a").NativeKey(dumpKey).Obj(), waitHook("b", dumpKey)}, map[string]int{"b": 1}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newNativeWorld(t, tc.hooks...)
			w.look(3)
			got := map[string]int{}
			for hook := range tc.want {
				got[hook] = len(w.runs(hook))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("runs (-want +got):\n%s", diff)
			}
		})
	}
}

// A native eviction that is canceled is undone like any other, also by another manager.
func TestANativeRunIsCanceled(t *testing.T) {
	const eviction, hook = "lifecycle.k8s.io/v1alpha1 Eviction pod-1-ledger-0 eviction-uid", "drawbridge.dev/v1alpha1 EvacuationHook dump uid-of-dump"
	cases := map[string]func(*nativeWorld){
		"in the turn": func(w *nativeWorld) {
			w.ends(lifecyclev1alpha1.EvictionConditionFailed, lifecyclev1alpha1.ResponderStateCanceled)
		},
		"while no manager ran": func(w *nativeWorld) {
			w.ends(lifecyclev1alpha1.EvictionConditionFailed, lifecyclev1alpha1.ResponderStateCanceled)
			w.restart()
		},
		"by its deletion while no manager ran": func(w *nativeWorld) {
			if err := w.client.Delete(w.t.Context(), w.eviction()); err != nil {
				w.t.Fatal(err)
			}
			w.restart()
		},
	}
	cases["by an administrator who has switched the native API off"] = func(w *nativeWorld) { w.restartWith(nil) }
	for name, callOff := range cases {
		t.Run(name, func(t *testing.T) {
			from := jobHook()
			from.Namespace, from.Name, from.UID, from.Generation, from.Spec.NativeKey = "shop", "dump", "uid-of-dump", 1, dumpKey
			w := newNativeWorld(t, from)
			w.look(2)
			name, undo := v1alpha1.HookJobName("dump", "eviction-uid", 1), v1alpha1.HookJobName("dump-undo", "eviction-uid", 1)
			if diff := cmp.Diff(map[string]string{name: eviction}, w.jobs()); diff != "" {
				t.Fatalf("owners of Jobs in the turn (-want +got):\n%s", diff)
			}
			if w.eviction().Status.Responders[0].HeartbeatTime == nil {
				t.Error("it has not reported")
			}
			callOff(w)
			w.look(6)
			if diff := cmp.Diff(map[string]string{undo: hook}, w.jobs()); diff != "" {
				t.Errorf("owners of Jobs afterwards (-want +got):\n%s", diff)
			}
		})
	}
}
