package vm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	toolscache "k8s.io/client-go/tools/cache"
	eventsclient "k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	crinterceptor "sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

var (
	machineKind   = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstance"}
	migrationKind = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstanceMigration"}
	configKind    = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "KubeVirt"}
	machines      = machineKind.GroupVersion().WithResource("virtualmachineinstances")
	plurals       = map[string]string{
		"VirtualMachineInstance": "virtualmachineinstances", "VirtualMachineInstanceMigration": "virtualmachineinstancemigrations", "KubeVirt": "kubevirts",
	}
)

// world is a store among fakes.
type world struct {
	t       *testing.T
	store   *Store
	clock   *testingclock.FakeClock
	dynamic *dynamicfake.FakeDynamicClient
	mapper  *meta.DefaultRESTMapper
	// denied is the verb that may not be used; empty for none.
	denied atomic.Value
	events *eventsclient.FakeRecorder
	// puts are the paths and bodies of the calls of subresources, and put is the answer;
	// nil for KubeVirt's.
	puts []string
	put  func() error
}

// newWorld installs KubeVirt's kinds, unless without says so.
func newWorld(t *testing.T, objects []runtime.Object, pods []client.Object, without ...string) *world {
	t.Helper()
	w := &world{t: t, clock: testingclock.NewFakeClock(epoch.Add(time.Hour)), events: eventsclient.NewFakeRecorder(100)}
	w.denied.Store("")
	w.mapper = meta.NewDefaultRESTMapper(nil)
	lists := map[schema.GroupVersionResource]string{}
	for _, kind := range []schema.GroupVersionKind{machineKind, migrationKind, configKind} {
		lists[kind.GroupVersion().WithResource(plurals[kind.Kind])] = kind.Kind + "List"
		if len(without) == 0 || without[0] != kind.Kind {
			w.install(kind)
		}
	}
	w.dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...)
	react, version := clienttesting.ObjectReaction(w.dynamic.Tracker()), 100
	w.dynamic.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		handled, obj, err := react(action)
		if err != nil && !apierrors.IsNotFound(err) { // The API server's answer to a test that fails.
			err = apierrors.NewGenericServerResponse(422, "patch", machines.GroupResource(), "", err.Error(), 0, true)
		}
		if u, ok := obj.(*unstructured.Unstructured); ok && err == nil {
			version++ // As the API server does, and the fake does not.
			u.SetResourceVersion(strconv.Itoa(version))
			err = w.dynamic.Tracker().Update(action.GetResource(), u, action.GetNamespace())
		}
		return handled, obj, err
	})
	c := fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithObjects(pods...).WithInterceptorFuncs(crinterceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if review, ok := obj.(*authorizationv1.SelfSubjectAccessReview); ok {
				review.Status.Allowed = review.Spec.ResourceAttributes.Verb != w.denied.Load()
				return nil
			}
			return c.Create(ctx, obj, opts...)
		},
	}).Build()
	w.store = NewStore(StoreOptions{
		Client: c, Live: c, Writes: refused.NewTracker(w.clock, metrics.NewRefused(prometheus.NewRegistry()), logr.Discard()), Dynamic: w.dynamic, Mapper: w.mapper, Clock: w.clock, Resolver: staticResolver{"kubevirt.drawbridge.dev"},
		Put: func(_ context.Context, path string, body []byte) error {
			w.puts = append(w.puts, path+" "+string(body))
			if w.put != nil {
				return w.put()
			}
			object, err := w.dynamic.Tracker().Get(machines, "ns", "vm")
			if err != nil {
				return err
			}
			machine := object.DeepCopyObject().(*unstructured.Unstructured)
			unstructured.RemoveNestedField(machine.Object, "status", "evacuationNodeName")
			version++
			machine.SetResourceVersion(strconv.Itoa(version))
			return w.dynamic.Tracker().Update(machines, machine, "ns")
		},
	})
	return w
}

func (w *world) install(kind schema.GroupVersionKind) {
	w.mapper.AddSpecific(kind, kind.GroupVersion().WithResource(plurals[kind.Kind]), kind.GroupVersion().WithResource(plurals[kind.Kind]), meta.RESTScopeNamespace)
}

// load gives the store its policies and waits for the informers.
func (w *world) load(policies ...*v1alpha1.EvacuationPolicy) time.Duration {
	w.t.Helper()
	var list []v1alpha1.EvacuationPolicy
	for _, p := range policies {
		if p.UID == "" {
			p.UID, p.Generation = types.UID(p.Name), 1
		}
		list = append(list, *p)
	}
	again := w.store.load(w.t.Context(), list)
	w.store.kinds.mu.RLock()
	defer w.store.kinds.mu.RUnlock()
	for _, k := range w.store.kinds.of {
		if !toolscache.WaitForCacheSync(w.t.Context().Done(), k.informer.HasSynced) {
			w.t.Fatal("the informers do not sync")
		}
	}
	return again
}

// kubevirtWorld has the launcher's pod and the preset for KubeVirt.
func kubevirtWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	w := newWorld(t, objects, []client.Object{launcherPod()})
	w.load(preset(t, "kubevirt"))
	return w
}

// adjusted is the policy after a change; nil for none.
func adjusted(p *v1alpha1.EvacuationPolicy, change func(*v1alpha1.EvacuationPolicy)) *v1alpha1.EvacuationPolicy {
	if change != nil {
		change(p)
	}
	return p
}

// answer is what the API server says from now on to a verb on machines.
func (w *world) answer(verb string, object runtime.Object, err error) {
	w.dynamic.PrependReactor(verb, machines.Resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, object, err })
}

// holdLists lets nobody list machines until what it returns is closed.
func (w *world) holdLists() chan struct{} {
	release := make(chan struct{})
	w.dynamic.PrependReactor("list", machines.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		<-release
		return false, nil, nil
	})
	return release
}

// update changes a machine in the API server.
func (w *world) update(machine *unstructured.Unstructured) {
	w.t.Helper()
	if err := w.dynamic.Tracker().Update(machines, machine, "ns"); err != nil {
		w.t.Fatal(err)
	}
}

// checkWrites wants as many writes as texts, and each text in its write.
func (w *world) checkWrites(want []string) {
	w.t.Helper()
	wrote := w.writes()
	if len(wrote) != len(want) {
		w.t.Fatalf("want writes %q, got %q", want, wrote)
	}
	for i, text := range want {
		if !strings.Contains(wrote[i], text) {
			w.t.Errorf("write %d: want %s in it, got %s", i, text, wrote[i])
		}
	}
}

// policyInterceptor is the interceptor of KubeVirt's preset.
func (w *world) interceptor() *policyInterceptor {
	return &policyInterceptor{Store: w.store, name: "kubevirt.drawbridge.dev", recorder: w.events, metrics: metrics.NewVM(prometheus.NewRegistry()), callers: noCallers}
}

// noCallers knows of no requester what it is.
func noCallers(context.Context, types.NamespacedName) []string { return nil }

// writes are the patches and deletions of one resource.
func (w *world) writes() []string {
	var all []string
	for _, action := range w.dynamic.Actions() {
		switch action := action.(type) {
		case clienttesting.PatchAction:
			all = append(all, string(action.GetPatch()))
		case clienttesting.DeleteAction:
			all = append(all, "delete "+action.GetName())
		}
	}
	return all
}

func machine(strategy, migratable, node string, changes ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	m := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "vm", "namespace": "ns", "uid": "vm-1", "resourceVersion": "7"},
		"spec":     map[string]any{"evictionStrategy": strategy},
		"status": map[string]any{"nodeName": node, "phase": "Running", "conditions": []any{
			map[string]any{"type": "LiveMigratable", "status": migratable},
		}},
	}}
	m.SetGroupVersionKind(machineKind)
	for _, change := range changes {
		change(m)
	}
	return m
}

// Marks for node n1: ours, and the one that KubeVirt sets.
var (
	ourMark   = set("n1", "metadata", "annotations", "drawbridge.dev/evacuate-node")
	theirMark = set("n1", "status", "evacuationNodeName")
)

func set(value any, path ...string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		utilruntime.Must(unstructured.SetNestedField(u.Object, value, path...))
	}
}

func launcherPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "virt-launcher-vm", UID: "pod-1",
			Labels: map[string]string{"kubevirt.io": "virt-launcher"}, Annotations: map[string]string{"kubevirt.io/domain": "vm"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: "vm", UID: "vm-1"}},
		},
		Spec:   corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// failedMigrations are migrations that failed.
func failedMigrations(n int) []runtime.Object {
	var all []runtime.Object
	for i := range n {
		all = append(all, migrationNamed(fmt.Sprint("m", i), "Failed", epoch.Add(45*time.Minute)))
	}
	return all
}

func migrationNamed(name, phase string, created time.Time) *unstructured.Unstructured {
	m := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{
			"name": name, "namespace": "ns", "uid": name, "creationTimestamp": created.Format(time.RFC3339),
			"annotations": map[string]any{"kubevirt.io/evacuationMigration": "n1"},
		},
		"spec": map[string]any{"vmiName": "vm"}, "status": map[string]any{"phase": phase},
	}}
	m.SetGroupVersionKind(migrationKind)
	return m
}

func target() interceptor.Target {
	return interceptor.Target{
		Request: types.NamespacedName{Namespace: "ns", Name: "pod-1"}, RequestUID: "request-1",
		Pod: types.NamespacedName{Namespace: "ns", Name: "virt-launcher-vm"}, PodUID: "pod-1", NodeName: "n1",
		Requesters: []string{"alice.users.drawbridge.dev"}, ActivatedAt: epoch.Add(30 * time.Minute),
	}
}

var errBroken = errors.New("broken")
