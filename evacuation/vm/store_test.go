package vm

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/evacuation/preflight"
)

func TestPreflightAndHeld(t *testing.T) {
	const name = "kubevirt.drawbridge.dev"
	defaults := func(strategy string) runtime.Object {
		k := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "kubevirt", "namespace": "kubevirt"},
			"spec":     map[string]any{"configuration": map[string]any{"evictionStrategy": strategy}},
			"status":   map[string]any{"phase": "Deployed"},
		}}
		k.SetGroupVersionKind(configKind)
		return k
	}
	another := func(o runtime.Object) runtime.Object {
		o.(*unstructured.Unstructured).SetName("second")
		return o
	}
	phaseless := func(o runtime.Object) runtime.Object {
		unstructured.RemoveNestedField(o.(*unstructured.Unstructured).Object, "status", "phase")
		return o
	}
	unset := func(u *unstructured.Unstructured) {
		unstructured.RemoveNestedField(u.Object, "spec", "evictionStrategy")
	}
	cases := map[string]struct {
		objects []runtime.Object
		want    preflight.Outcome
		held    bool
	}{
		"None":                                        {[]runtime.Object{machine("None", "True", "n1")}, preflight.Allow, false},
		"LiveMigrate":                                 {[]runtime.Object{machine("LiveMigrate", "True", "n1")}, preflight.Proceed, true},
		"LiveMigrate, not migratable":                 {[]runtime.Object{machine("LiveMigrate", "False", "n1")}, preflight.Deny, true},
		"LiveMigrate, Unknown":                        {[]runtime.Object{machine("LiveMigrate", "Unknown", "n1")}, preflight.Proceed, true},
		"LiveMigrateIfPossible":                       {[]runtime.Object{machine("LiveMigrateIfPossible", "True", "n1")}, preflight.Proceed, true},
		"LiveMigrateIfPossible, not migratable":       {[]runtime.Object{machine("LiveMigrateIfPossible", "False", "n1")}, preflight.Allow, false},
		"External":                                    {[]runtime.Object{machine("External", "False", "n1")}, preflight.Proceed, true},
		"the machine is gone":                         {nil, preflight.Allow, false},
		"another machine has its name":                {[]runtime.Object{machine("LiveMigrate", "True", "n1", set("vm-2", "metadata", "uid"))}, preflight.Allow, false},
		"the machine has ended":                       {[]runtime.Object{machine("LiveMigrate", "True", "n1", set("Succeeded", "status", "phase"))}, preflight.Allow, false},
		"the cluster's strategy":                      {[]runtime.Object{machine("", "True", "n1", unset), defaults("LiveMigrate")}, preflight.Proceed, true},
		"the machine's strategy wins":                 {[]runtime.Object{machine("None", "True", "n1"), defaults("LiveMigrate")}, preflight.Allow, false},
		"neither has one":                             {[]runtime.Object{machine("", "True", "n1", unset), defaults("None")}, preflight.Allow, false},
		"there is no KubeVirt object":                 {[]runtime.Object{machine("", "True", "n1", unset)}, -1, true},
		"there are two":                               {[]runtime.Object{machine("", "True", "n1", unset), defaults("None"), another(defaults("None"))}, -1, true},
		"it has no phase":                             {[]runtime.Object{machine("", "True", "n1", unset), phaseless(defaults("None"))}, -1, true},
		"it has moved":                                {[]runtime.Object{moved()}, preflight.Proceed, false},
		"a strategy that nobody knows is no allowing": {[]runtime.Object{machine("Teleport", "True", "n1")}, -1, true},
	}
	for title, tc := range cases {
		t.Run(title, func(t *testing.T) {
			w := newWorld(t, tc.objects, nil)
			w.load(preset(t, "kubevirt"))
			got, err := w.store.Preflight(name).Preflight(t.Context(), launcherPod())
			if tc.want < 0 {
				if err == nil {
					t.Errorf("want an error, got %v", got)
				}
			} else if err != nil || got.Outcome != tc.want {
				t.Errorf("preflight: want %s, got %s, %v", tc.want, got.Outcome, err)
			}
			if reason, held := w.store.Held(launcherPod()); held != tc.held || (reason != "") != tc.held {
				t.Errorf("held: want %t, got %t (%q)", tc.held, held, reason)
			}
		})
	}
}

func moved() *unstructured.Unstructured {
	return machine("LiveMigrate", "True", "n2", set(map[string]any{"completed": true, "sourceNode": "n1", "targetNode": "n2"}, "status", "migrationState"))
}

// Before the policies are known, nobody is let through and every guard holds.
func TestNotLoaded(t *testing.T) {
	w := newWorld(t, nil, nil)
	if _, held := w.store.Held(launcherPod()); !held {
		t.Error("the guard does not hold")
	}
	if w.store.Loaded() {
		t.Error("it says that it is loaded")
	}
	w.load()
	if _, held := w.store.Held(launcherPod()); held {
		t.Error("the guard holds though there is no policy")
	}
	if w.store.Preflight("kubevirt.drawbridge.dev") != nil {
		t.Error("a name that no policy has gets a preflight")
	}
}

// An allowed eviction takes a machine down, so it rests on a live look: memory still
// says that the machine cannot migrate, or does not know it yet.
func TestAllowingRestsOnALiveLook(t *testing.T) {
	for title, remembered := range map[string][]runtime.Object{
		"memory is behind":           {machine("LiveMigrateIfPossible", "False", "n1")},
		"memory does not know of it": nil,
	} {
		t.Run(title, func(t *testing.T) {
			w := newWorld(t, remembered, nil)
			w.load(preset(t, "kubevirt"))
			w.answer("get", machine("LiveMigrateIfPossible", "True", "n1"), nil)
			got, err := w.store.Preflight("kubevirt.drawbridge.dev").Preflight(t.Context(), launcherPod())
			if err != nil || got.Outcome != preflight.Proceed {
				t.Errorf("want Proceed, got %s, %v", got.Outcome, err)
			}
			got, err = w.store.CachedPreflight("kubevirt.drawbridge.dev").Preflight(t.Context(), launcherPod())
			if err != nil || got.Outcome != preflight.Allow {
				t.Errorf("from memory alone: want Allow, got %s, %v", got.Outcome, err)
			}
			w.answer("get", nil, errBroken)
			if got, err := w.store.Preflight("kubevirt.drawbridge.dev").Preflight(t.Context(), launcherPod()); err == nil {
				t.Errorf("G1: the look fails: want an error, got %s", got.Outcome)
			}
		})
	}
}

func TestEvacuate(t *testing.T) {
	marked := ourMark
	evict := func(p *v1alpha1.EvacuationPolicy) { p.Spec.OnFailure = v1alpha1.OnFailureEvict }
	deadline := func(p *v1alpha1.EvacuationPolicy) {
		p.Spec.Deadline = &metav1.Duration{Duration: 20 * time.Minute}
	}
	cases := map[string]struct {
		objects []runtime.Object
		change  func(*v1alpha1.EvacuationPolicy)
		gone    bool
		done    bool
		message string
		writes  []string // What the patches contain, in order.
	}{
		"it marks": {
			objects: []runtime.Object{machine("LiveMigrate", "True", "n1")},
			message: "Eviction triggered evacuation of VirtualMachineInstance ns/vm. It waits for a migration.",
			writes:  []string{`{"op":"add","path":"/metadata/annotations","value":{"drawbridge.dev/evacuate-node":"n1"}}`},
		},
		"what KubeVirt has marked is followed": {
			objects: []runtime.Object{machine("LiveMigrate", "True", "n1", theirMark)},
			message: "Eviction triggered evacuation of VirtualMachineInstance ns/vm. It waits for a migration.",
		},
		"what is marked is not written again": {
			objects: []runtime.Object{machine("LiveMigrate", "True", "n1", marked)},
			message: "Eviction triggered evacuation of VirtualMachineInstance ns/vm. It waits for a migration.",
		},
		"a mark for another node is written over": {
			objects: []runtime.Object{machine("LiveMigrate", "True", "n1", set("n9", "metadata", "annotations", "drawbridge.dev/evacuate-node"))},
			message: "Eviction triggered evacuation of VirtualMachineInstance ns/vm. It waits for a migration.",
			writes:  []string{`{"op":"add","path":"/metadata/annotations/drawbridge.dev~1evacuate-node","value":"n1"}`},
		},
		"it waits while nothing is known": {
			objects: []runtime.Object{machine("LiveMigrate", "Unknown", "n1")},
			message: "Waiting: it is not known yet whether the workload is migratable.",
		},
		"a target pod waits": {
			objects: []runtime.Object{machine("LiveMigrate", "True", "n2")},
			message: "Waiting: the virtual machine runs on another node; this pod is the target of a migration, or about to end.",
		},
		"None is nothing to do": {
			objects: []runtime.Object{machine("None", "True", "n1")}, done: true,
			message: "There is nothing to do for VirtualMachineInstance ns/vm: the strategy is None.",
		},
		"not migratable is declined, and held": {
			objects: []runtime.Object{machine("LiveMigrate", "False", "n1")}, done: true,
			message: "Nothing can be done for VirtualMachineInstance ns/vm: the strategy is LiveMigrate and the workload is not migratable. The guard keeps the pod until the eviction is withdrawn.",
		},
		"it has moved": {
			objects: []runtime.Object{moved()}, done: true, message: "VirtualMachineInstance ns/vm has left the pod.",
		},
		"the pod has ended": {gone: true, done: true, message: "The pod has ended."},
		"migrations fail": {
			objects: append(failedMigrations(4), machine("LiveMigrate", "True", "n1", marked)),
			message: "Eviction triggered evacuation of VirtualMachineInstance ns/vm. It waits for a migration. Migrations that failed: 4 of at most 5.",
		},
		"migrations of an earlier turn do not count": {
			objects: append([]runtime.Object{migrationNamed("old", "Failed", epoch)}, append(failedMigrations(4), machine("LiveMigrate", "True", "n1", marked))...),
			message: "Eviction triggered evacuation of VirtualMachineInstance ns/vm. It waits for a migration. Migrations that failed: 4 of at most 5.",
		},
		"G7: it gives up, takes the mark back and holds": {
			objects: append(failedMigrations(5), machine("LiveMigrate", "True", "n1", marked)),
			message: "The evacuation of VirtualMachineInstance ns/vm is given up: 5 migrations failed. The guard keeps the pod.",
			writes:  []string{`{"op":"remove","path":"/metadata/annotations/drawbridge.dev~1evacuate-node"}`},
		},
		"G7: it gives up and lets the next one": {
			objects: append(failedMigrations(5), machine("LiveMigrate", "True", "n1", marked)), change: evict, done: true,
			message: "The evacuation of VirtualMachineInstance ns/vm is given up: 5 migrations failed. The pod will be evicted.",
			writes:  []string{`{"op":"remove","path":"/metadata/annotations/drawbridge.dev~1evacuate-node"}`},
		},
		"G7: it takes too long": {
			objects: []runtime.Object{machine("LiveMigrate", "True", "n1", marked)}, change: deadline,
			message: "The evacuation of VirtualMachineInstance ns/vm is given up: the evacuation has taken longer than its deadline. The guard keeps the pod.",
			writes:  []string{`{"op":"remove","path":"/metadata/annotations/drawbridge.dev~1evacuate-node"}`},
		},
	}
	for title, tc := range cases {
		t.Run(title, func(t *testing.T) {
			var pods []client.Object
			if !tc.gone {
				pods = append(pods, launcherPod())
			}
			w := newWorld(t, tc.objects, pods)
			w.load(adjusted(preset(t, "kubevirt"), tc.change))
			a := w.interceptor()
			for range 2 { // Level-triggered: twice is once.
				got, err := a.Evacuate(t.Context(), target())
				if err != nil {
					t.Fatal(err)
				}
				got.CheckAfter = 0
				if diff := cmp.Diff(interceptor.Progress{Done: tc.done, Message: tc.message}, got); diff != "" {
					t.Errorf("progress (-want +got):\n%s", diff)
				}
			}
			w.checkWrites(tc.writes)
		})
	}
}

// G2: the machine has moved since it was looked at. The test in the patch fails,
// and it is decided again.
func TestAFailedTestIsDecidedAgain(t *testing.T) {
	w := kubevirtWorld(t, machine("LiveMigrate", "True", "n1"))
	w.answer("patch", nil, apierrors.NewGenericServerResponse(422, "patch", machines.GroupResource(), "vm", "the server rejected our request due to an error in our request", 0, true))
	w.answer("get", moved(), nil)
	got, err := w.interceptor().Evacuate(t.Context(), target())
	if err != nil || !got.Done || got.Message != "VirtualMachineInstance ns/vm has left the pod." {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestCancel(t *testing.T) {
	running := migrationNamed("running", "Running", epoch.Add(45*time.Minute))
	others := migrationNamed("others", "Running", epoch.Add(45*time.Minute))
	others.SetAnnotations(nil)
	marked := ourMark
	cases := map[string]struct {
		objects []runtime.Object
		change  func(*v1alpha1.EvacuationPolicy)
		want    []string
		puts    int
	}{
		"KubeVirt's mark and its migration": {
			objects: []runtime.Object{machine("LiveMigrate", "True", "n1", theirMark), running.DeepCopy()},
			want:    []string{"delete running"}, puts: 1,
		},
		"both marks": {
			objects: []runtime.Object{machine("LiveMigrate", "True", "n1", marked, theirMark)},
			want:    []string{"/metadata/annotations/drawbridge.dev~1evacuate-node"}, puts: 1,
		},
		"the mark and its migration": {
			objects: []runtime.Object{machine("LiveMigrate", "True", "n1", marked), running.DeepCopy(), others.DeepCopy(), migrationNamed("old", "Failed", epoch)},
			want:    []string{"/metadata/annotations/drawbridge.dev~1evacuate-node", "delete running"},
		},
		"a migration that is to be kept": {
			objects: []runtime.Object{machine("LiveMigrate", "True", "n1", marked), running.DeepCopy()},
			change:  func(p *v1alpha1.EvacuationPolicy) { p.Spec.Migration.OnCancel = v1alpha1.OnCancelKeep },
			want:    []string{"/metadata/annotations/drawbridge.dev~1evacuate-node"},
		},
		"a mark for another node": {objects: []runtime.Object{machine("LiveMigrate", "True", "n1", set("n9", "status", "evacuationNodeName"))}},
		"nothing was done":        {objects: []runtime.Object{machine("LiveMigrate", "True", "n1")}},
		"no machine":              {},
	}
	for title, tc := range cases {
		t.Run(title, func(t *testing.T) {
			w := newWorld(t, tc.objects, []client.Object{launcherPod()})
			w.load(adjusted(preset(t, "kubevirt"), tc.change))
			if err := w.interceptor().Cancel(t.Context(), target()); err != nil {
				t.Fatal(err)
			}
			if len(w.puts) != tc.puts || (tc.puts > 0 && w.puts[0] != `/apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachineinstances/vm/evacuate/cancel {"evacuationNodeName":"n1"}`) {
				t.Errorf("want %d calls of KubeVirt's subresource, got %q", tc.puts, w.puts)
			}
			w.checkWrites(tc.want)
		})
	}
}

// Whatever is wrong with a policy, the interceptor goes on with heartbeats, so that
// nobody takes its silence for an end; and no guard opens.
func TestTroubleIsNoSilence(t *testing.T) {
	cases := map[string]struct {
		change  func(*v1alpha1.EvacuationPolicy)
		without string
		message string
	}{
		"it does not compile": {
			change:  func(p *v1alpha1.EvacuationPolicy) { p.Spec.Strategy = "nonsense" },
			message: "The evacuation waits: EvacuationPolicy kubevirt is not accepted.",
		},
		"it reads what is not there": {
			change:  func(p *v1alpha1.EvacuationPolicy) { p.Spec.Strategy = "workload.spec.nothing" },
			message: "The evacuation waits: spec.strategy: no such key: nothing.",
		},
		"the kind is not installed": {
			without: "VirtualMachineInstance", message: "The evacuation waits: objects of kind VirtualMachineInstance cannot be read.",
		},
	}
	for title, tc := range cases {
		t.Run(title, func(t *testing.T) {
			var without []string
			if tc.without != "" {
				without = append(without, tc.without)
			}
			w := newWorld(t, []runtime.Object{machine("LiveMigrate", "True", "n1")}, []client.Object{launcherPod()}, without...)
			w.load(adjusted(preset(t, "kubevirt"), tc.change))
			got, err := w.interceptor().Evacuate(t.Context(), target())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(interceptor.Progress{Message: tc.message, CheckAfter: troubleRetry}, got); diff != "" {
				t.Errorf("progress (-want +got):\n%s", diff)
			}
			if _, held := w.store.Held(launcherPod()); !held {
				t.Error("the guard does not hold")
			}
			if _, err := w.store.Preflight("kubevirt.drawbridge.dev").Preflight(t.Context(), launcherPod()); err == nil {
				t.Error("the webhook is not told of the trouble")
			}
		})
	}
}

// The first by priority counts; both say so.
func TestTwoPoliciesForOnePod(t *testing.T) {
	w := newWorld(t, []runtime.Object{machine("LiveMigrate", "True", "n1")}, []client.Object{launcherPod()})
	first, second := preset(t, "kubevirt"), preset(t, "kubevirt")
	first.Name, first.UID, first.Generation, first.Spec.Priority = "z-first", "z", 1, 5
	second.Name, second.Spec.Strategy = "a-second", "'None'"
	w.load(second, first)
	got, err := w.store.policyUnder(t.Context(), "kubevirt.drawbridge.dev", viewOf(launcherPod()))
	if err != nil || got == nil || got.name != "z-first" {
		t.Fatalf("got %+v, %v", got, err)
	}
	for _, p := range w.store.all() {
		if w.store.overlaps.summary(p) == "" {
			t.Errorf("policy %s does not know", p.name)
		}
	}
}

// Each of two interceptors of a pod has its own policy.
func TestPoliciesOfTwoInterceptorsForOnePod(t *testing.T) {
	w := newWorld(t, []runtime.Object{machine("LiveMigrate", "True", "n1")}, []client.Object{launcherPod()})
	first, second := preset(t, "kubevirt"), preset(t, "kubevirt")
	second.Name, second.Spec.Interceptor, second.Spec.Strategy = "a-second", "other.example.com", "'None'"
	w.load(second, first)
	for name, want := range map[string]string{"kubevirt.drawbridge.dev": "kubevirt", "other.example.com": "a-second"} {
		got, err := w.store.policyUnder(t.Context(), name, viewOf(launcherPod()))
		if err != nil || got == nil || got.name != want {
			t.Errorf("%s: want %s, got %+v, %v", name, want, got, err)
		}
	}
	for _, p := range w.store.all() {
		if got := w.store.overlaps.summary(p); !strings.Contains(got, "each counts for the pods of its own interceptor only") {
			t.Errorf("policy %s says %q", p.name, got)
		}
	}
}

func TestSetupNamesWhatIsMissing(t *testing.T) {
	err := (&Store{}).Setup(nil, Options{})
	if err == nil {
		t.Fatal("got no error")
	}
	want := "interceptors of EvacuationPolicies: " + strings.Join([]string{"Options.Callers is not set", "Options.Clock is not set", "Options.Metrics is not set", "StoreOptions.Client is not set", "StoreOptions.Clock is not set", "StoreOptions.Dynamic is not set", "StoreOptions.Live is not set", "StoreOptions.Mapper is not set", "StoreOptions.Put is not set", "StoreOptions.Resolver is not set"}, "\n")
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}
