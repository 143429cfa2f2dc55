package vm

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/preflight"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

// Between an old policy and a new one, or under a registration that selects more
// than the policy covers, nobody has said that the pod may go.
func TestAPodThatNoPolicyCoversIsNotLetThrough(t *testing.T) {
	w := newWorld(t, []runtime.Object{machine("None", "True", "n1")}, []client.Object{launcherPod()})
	w.load(preset(t, "kubevirt-hotplug"))
	for title, ask := range map[string]preflight.Interceptor{
		"the webhook": w.store.Preflight("kubevirt.drawbridge.dev"), "the guard": w.store.CachedPreflight("kubevirt.drawbridge.dev"),
	} {
		if got, err := ask.Preflight(t.Context(), launcherPod()); err != nil || got.Outcome != preflight.Proceed {
			t.Errorf("%s: want Proceed, got %s, %v", title, got.Outcome, err)
		}
	}
	if got, err := w.interceptor().Evacuate(t.Context(), target()); !errors.Is(err, errNotCovered) {
		t.Errorf("the interceptor: want it to be silent, got %+v, %v", got, err)
	}
	if err := w.interceptor().Cancel(t.Context(), target()); err != nil {
		t.Errorf("a cancel that nobody can do: %v", err)
	}
}

// An API that does not answer is no reason to be silent, or the pod would be handed
// on and the machine never marked.
func TestAnOutageOfThePlatformIsNoSilence(t *testing.T) {
	outages := map[string]error{
		"its webhook is down":        apierrors.NewInternalError(errors.New("failed calling webhook")),
		"its API is not available":   apierrors.NewServiceUnavailable("down"),
		"it is not reached":          errBroken,
		"it sheds load":              apierrors.NewTooManyRequests("slow down", 1),
		"the patch always conflicts": apierrors.NewConflict(machines.GroupResource(), "vm", errBroken),
	}
	for title, outage := range outages {
		for _, verb := range []string{"patch", "get"} {
			t.Run(title+", "+verb, func(t *testing.T) {
				w := kubevirtWorld(t, machine("LiveMigrate", "True", "n1"))
				w.answer("patch", nil, outage)
				if verb == "get" { // What ends it rests on a live look.
					w.answer("get", nil, outage)
				}
				got, err := w.interceptor().Evacuate(t.Context(), target())
				if err != nil || got.Done || got.CheckAfter == 0 || !strings.HasPrefix(got.Message, "The evacuation waits: ") {
					t.Errorf("got %+v, %v", got, err)
				}
				if _, held := w.store.Held(launcherPod()); !held {
					t.Error("the guard does not hold")
				}
			})
		}
	}
}

// The mark of a machine without annotations must not cost those that somebody has
// added since it was looked at.
func TestG5AnnotationsThatAppearMeanwhileAreKept(t *testing.T) {
	callers := func(a *policyInterceptor) *policyInterceptor {
		a.callers = func(context.Context, types.NamespacedName) []string { return []string{"descheduler"} }
		return a
	}
	bare := machine("LiveMigrate", "True", "n1")
	w := newWorld(t, []runtime.Object{bare}, []client.Object{launcherPod()})
	p := preset(t, "kubevirt")
	w.load(p)
	// Memory shows the machine as it was; the API server has it with an annotation.
	annotated := machine("LiveMigrate", "True", "n1", set(map[string]any{"example.com/any": "thing"}, "metadata", "annotations"))
	frozen := w.store.kinds.of[machineKind]
	frozen.stop()
	w.update(annotated)
	if _, err := callers(w.interceptor()).Evacuate(t.Context(), target()); err != nil {
		t.Fatal(err)
	}
	now, err := w.store.kinds.live(t.Context(), w.store.all()[0].needs[machineKind], client.ObjectKey{Namespace: "ns", Name: "vm"})
	if err != nil {
		t.Fatal(err)
	}
	if got := now.GetAnnotations(); got["example.com/any"] != "thing" || got["kubevirt.io/eviction-source"] != "descheduler" {
		t.Errorf("annotations: %v", got)
	}
}

// What changes in an object and is not read wakes nobody.
func TestOnlyWhatIsReadWakes(t *testing.T) {
	w := newWorld(t, []runtime.Object{machine("LiveMigrate", "True", "n1")}, []client.Object{launcherPod()})
	var seen atomic.Int64
	changed := make(chan string, 10)
	w.store.kinds.changed = func(_ schema.GroupVersionKind, u *unstructured.Unstructured) {
		seen.Add(1)
		changed <- u.GetResourceVersion()
	}
	w.load(preset(t, "kubevirt"))
	<-changed // It is there.
	update := func(version string, changes ...func(*unstructured.Unstructured)) {
		changes = append(changes, set(version, "metadata", "resourceVersion"))
		w.update(machine("LiveMigrate", "True", "n1", changes...))
	}
	update("8", set("4Gi", "status", "memory"), set("host", "spec", "hostname"))
	update("9", set("n2", "status", "nodeName"))
	if got := <-changed; got != "9" || seen.Load() != 2 {
		t.Errorf("want two looks, the last at version 9, got %d, at %s", seen.Load(), got)
	}
}

// What is remembered of a request goes with it.
func TestTheEndOfAnEvacuationIsForgotten(t *testing.T) {
	w := kubevirtWorld(t, moved())
	if _, err := w.interceptor().Evacuate(t.Context(), target()); err != nil {
		t.Fatal(err)
	}
	d := &dispatcher{store: w.store, client: w.store.Client, live: w.store.Client, clock: w.clock, recorder: func(string) eventsclient.EventRecorder { return w.events }, metrics: metrics.NewVM(prometheus.NewRegistry()), callers: noCallers}
	if len(w.store.ends.of) != 1 {
		t.Fatalf("ends: %v", w.store.ends.of)
	}
	if _, err := d.Reconcile(t.Context(), reconcile.Request{NamespacedName: target().Request}); err != nil {
		t.Fatal(err)
	}
	if len(w.store.ends.of) != 0 {
		t.Errorf("it is still remembered: %v", w.store.ends.of)
	}
}

// A pod whose machine is not there is not the pod of another machine of that name.
func TestG3ThePodsOwnerIsCheckedByUID(t *testing.T) {
	other := launcherPod()
	other.OwnerReferences = []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: "vm", UID: "another"}}
	for title, tc := range map[string]struct {
		pod  *corev1.Pod
		want preflight.Outcome
	}{
		"the machine of the pod":       {launcherPod(), preflight.Proceed},
		"another one of the same name": {other, preflight.Allow},
	} {
		t.Run(title, func(t *testing.T) {
			w := newWorld(t, []runtime.Object{machine("LiveMigrate", "True", "n1")}, nil)
			w.load(preset(t, "kubevirt"))
			got, err := w.store.Preflight("kubevirt.drawbridge.dev").Preflight(t.Context(), tc.pod)
			if err != nil || got.Outcome != tc.want {
				t.Errorf("want %s, got %s, %v", tc.want, got.Outcome, err)
			}
		})
	}
}

// The guard asks before the objects of a platform, or even a policy, are known. It is
// told when they are: nothing else would make it ask again.
func TestWhoAskedTooEarlyIsTold(t *testing.T) {
	w := newWorld(t, []runtime.Object{machine("None", "True", "n1")}, []client.Object{launcherPod()})
	told := make(chan types.NamespacedName, 10)
	w.store.OnPodChange(func(pod types.NamespacedName) { told <- pod })
	w.load()
	if _, held := w.store.Held(launcherPod()); held {
		t.Error("the guard holds though there is no policy")
	}
	release := w.holdLists()
	p := preset(t, "kubevirt")
	p.UID, p.Generation = "p", 1
	w.store.load(t.Context(), []v1alpha1.EvacuationPolicy{*p})
	if got := <-told; got.Name != launcherPod().Name {
		t.Errorf("a policy has come: told of %v", got)
	}
	if _, held := w.store.Held(launcherPod()); !held {
		t.Error("the guard does not hold though nothing is known of the machine")
	}
	for len(told) > 0 {
		<-told // The other kinds of the policy.
	}
	close(release)
	for got := range told {
		if got.Name != launcherPod().Name {
			t.Errorf("the machine is known: told of %v", got)
		}
		if _, held := w.store.Held(launcherPod()); !held {
			break
		}
	}
}

// A pod that goes is forgotten, on every replica.
func TestLinksGoWithTheirPods(t *testing.T) {
	w := newWorld(t, []runtime.Object{machine("None", "True", "n1")}, nil)
	w.load(preset(t, "kubevirt"))
	unknown := launcherPod()
	unknown.Name, unknown.UID, unknown.Labels = "other", "other", nil
	for _, pod := range []*corev1.Pod{launcherPod(), unknown} {
		w.store.Held(pod)
	}
	if n := len(w.store.index.all()); n != 2 {
		t.Fatalf("want 2 entries, got %d", n)
	}
	for _, pod := range []*corev1.Pod{launcherPod(), unknown} {
		w.store.podChanged(pod, true)
	}
	if n := len(w.store.index.byPod) + len(w.store.index.byWorkload); n != 0 {
		t.Errorf("want no entries, got %d", n)
	}
}
