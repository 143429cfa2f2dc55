package vm

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// discardingStatus is a policy whose mark is written where KubeVirt discards it.
func discardingStatus(t *testing.T) *v1alpha1.EvacuationPolicy {
	t.Helper()
	p := preset(t, "kubevirt")
	p.Spec.Mark = patchOf("", "add", "/status/evacuationNodeName", "pod.spec.nodeName")
	p.Spec.Unmark = &v1alpha1.WorkloadPatch{Operations: []v1alpha1.PatchOperation{{Op: "remove", Path: "/status/evacuationNodeName"}}}
	p.Spec.Cancel, p.Spec.Migration.Template = nil, nil
	return p
}

// keepsStatus makes the API server answer patches with success and the status as it
// was, as KubeVirt's mutating webhook does.
func keepsStatus(w *world) {
	w.dynamic.PrependReactor("patch", "virtualmachineinstances", func(action clienttesting.Action) (bool, runtime.Object, error) {
		before, err := w.dynamic.Tracker().Get(action.GetResource(), "ns", "vm")
		return true, before, err
	})
}

// untilQuiet lets the interceptor look, as often as it asks for, for some time.
func untilQuiet(t *testing.T, w *world, a *policyInterceptor, during time.Duration) (last string) {
	t.Helper()
	for end := w.clock.Now().Add(during); w.clock.Now().Before(end); {
		got, err := a.Evacuate(t.Context(), target())
		if err != nil {
			t.Fatal(err)
		}
		last = got.Message
		w.clock.Step(time.Second) // Something changes all the time.
	}
	return last
}

// A mark that is discarded is noticed, told of once, and tried again ever more
// seldom.
func TestAMarkThatIsDiscardedIsNoticed(t *testing.T) {
	w := newWorld(t, []runtime.Object{machine("LiveMigrate", "True", "n1")}, []client.Object{launcherPod()})
	w.load(discardingStatus(t))
	keepsStatus(w)
	last := untilQuiet(t, w, w.interceptor(), time.Hour)
	const why = "What is written to /status/evacuationNodeName of VirtualMachineInstance ns/vm does not last: somebody puts it back."
	if last != "The evacuation waits: "+why {
		t.Errorf("message: %q", last)
	}
	if n := len(w.writes()); n > 20 {
		t.Errorf("%d writes in an hour", n)
	}
	conditions := w.store.conditions(t.Context(), w.store.all()[0])
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionMarking); c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonDiscarded || !strings.Contains(c.Message, why) {
		t.Errorf("condition: %+v", c)
	}
	if told := countEvents(w, "MarkDiscarded"); told != 2 { // On the request and on the pod.
		t.Errorf("%d events", told)
	}
}

func countEvents(w *world, reason string) (n int) {
	for len(w.events.Events) > 0 {
		if strings.Contains(<-w.events.Events, reason) {
			n++
		}
	}
	return n
}

// A mark that the API server refuses shows its cause.
func TestAMarkThatIsRefusedShowsTheCause(t *testing.T) {
	w := kubevirtWorld(t, machine("LiveMigrate", "True", "n1"))
	w.answer("patch", nil, apierrors.NewInvalid(machineKind.GroupKind(), "vm", field.ErrorList{field.Invalid(field.NewPath("status", "x"), "y", "must be a number")}))
	last := untilQuiet(t, w, w.interceptor(), time.Hour)
	if !strings.Contains(last, "is refused") || !strings.Contains(last, "must be a number") {
		t.Errorf("message: %q", last)
	}
	if n := len(w.writes()); n > 25 {
		t.Errorf("%d writes in an hour", n)
	}
	conditions := w.store.conditions(t.Context(), w.store.all()[0])
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionMarking); c == nil || c.Reason != v1alpha1.ReasonRejected || !strings.Contains(c.Message, "must be a number") {
		t.Errorf("condition: %+v", c)
	}
}

// Nobody who takes our writes back, whichever, makes us write in a loop: marks,
// un-marks, calls of the platform and deletions of migrations.
func TestNoWriteIsALoop(t *testing.T) {
	unfinished := migrationNamed("pending", "Pending", epoch.Add(45*time.Minute))
	failures := append(failedMigrations(5), machine("LiveMigrate", "True", "n1", theirMark), unfinished)
	for title, tc := range map[string]struct {
		objects []runtime.Object
		act     func(context.Context, *policyInterceptor) error
		undo    func(*world)
	}{
		"somebody takes the mark away": {
			objects: []runtime.Object{machine("LiveMigrate", "True", "n1")},
			act:     func(ctx context.Context, a *policyInterceptor) error { _, err := a.Evacuate(ctx, target()); return err },
			undo:    func(w *world) { w.update(machine("LiveMigrate", "True", "n1")) },
		},
		"KubeVirt marks what was given up": {
			objects: failures,
			act:     func(ctx context.Context, a *policyInterceptor) error { _, err := a.Evacuate(ctx, target()); return err },
			undo:    func(w *world) { w.update(machine("LiveMigrate", "True", "n1", theirMark)) },
		},
		"KubeVirt marks what was canceled": {
			objects: []runtime.Object{machine("LiveMigrate", "True", "n1", theirMark), unfinished},
			act:     func(ctx context.Context, a *policyInterceptor) error { return a.Cancel(ctx, target()) },
			undo:    func(w *world) { w.update(machine("LiveMigrate", "True", "n1", theirMark)) },
		},
		"KubeVirt refuses to take its mark back": {
			objects: []runtime.Object{machine("LiveMigrate", "True", "n1", theirMark), unfinished},
			act:     func(ctx context.Context, a *policyInterceptor) error { return a.Cancel(ctx, target()) },
			undo: func(w *world) {
				w.put = func() error {
					return apierrors.NewBadRequest(`Node "n1" has NodeDrainTaintKey "kubevirt.io/drain:NoSchedule"`)
				}
			},
		},
	} {
		t.Run(title, func(t *testing.T) {
			w := kubevirtWorld(t, tc.objects...)
			a := w.interceptor()
			perMinute := map[int]int{}
			for second := range 3600 {
				before := len(w.writes()) + len(w.puts)
				var limited *limitedError
				if err := tc.act(t.Context(), a); err != nil && !errors.As(err, &limited) && !apierrors.IsBadRequest(err) {
					t.Fatal(err)
				}
				wrote := len(w.writes()) + len(w.puts) - before
				if perMinute[second/60] += wrote; wrote > 0 || second == 0 {
					tc.undo(w)
				}
				w.clock.Step(time.Second)
			}
			total := 0
			for minute, n := range perMinute {
				if total += n; n > 12 {
					t.Errorf("%d writes in minute %d", n, minute)
				}
			}
			if total > 80 {
				t.Errorf("%d writes in an hour", total)
			}
		})
	}
}

// KubeVirt's own mark is taken back by KubeVirt, where it can do so.
func TestKubeVirtsMarkIsTakenBackByKubeVirt(t *testing.T) {
	pending := migrationNamed("pending", "Pending", epoch.Add(45*time.Minute))
	for title, tc := range map[string]struct {
		answer  error
		wantErr string
		deleted bool
		event   string
	}{
		"from 1.7 on":                   {deleted: true, event: "WorkloadUnmarked"},
		"before 1.7 there is no way":    {answer: apierrors.NewNotFound(machines.GroupResource(), "vm"), event: "MarkKept"},
		"the node has KubeVirt's taint": {answer: apierrors.NewBadRequest("Node has NodeDrainTaintKey"), wantErr: "NodeDrainTaintKey", deleted: true},
	} {
		t.Run(title, func(t *testing.T) {
			w := kubevirtWorld(t, machine("LiveMigrate", "True", "n1", ourMark, theirMark), pending.DeepCopy())
			if tc.answer != nil {
				w.put = func() error { return tc.answer }
			}
			err := w.interceptor().Cancel(t.Context(), target())
			if machine, _ := w.store.kinds.live(t.Context(), w.store.all()[0].needs[machineKind], client.ObjectKey{Namespace: "ns", Name: "vm"}); len(machine.GetAnnotations()) != 0 {
				t.Errorf("our own mark is still there: %v", machine.GetAnnotations())
			}
			if (tc.wantErr == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("want an error with %q, got %v", tc.wantErr, err)
			}
			if deleted := slices.Contains(w.writes(), "delete pending"); deleted != tc.deleted {
				t.Errorf("the migration is deleted: %t, want %t", deleted, tc.deleted)
			}
			if tc.event != "" && countEvents(w, tc.event) == 0 {
				t.Errorf("no event %s", tc.event)
			}
		})
	}
}

// A strategy that becomes None by what the evacuation does leaves no mark behind.
func TestAStrategyThatBecomesNoneTakesTheMarkBack(t *testing.T) {
	w := newWorld(t, []runtime.Object{machine("LiveMigrate", "True", "n1")}, []client.Object{launcherPod()})
	p := preset(t, "kubevirt")
	p.Spec.Strategy = "'drawbridge.dev/evacuate-node' in workload.?metadata.?annotations.orValue({}) ? 'None' : 'LiveMigrate'"
	w.load(p)
	for range 2 {
		if _, err := w.interceptor().Evacuate(t.Context(), target()); err != nil {
			t.Fatal(err)
		}
	}
	wrote := w.writes()
	if len(wrote) != 2 || !strings.Contains(wrote[1], `"op":"remove"`) {
		t.Errorf("want a mark and its removal, got %q", wrote)
	}
}

// retryLimit counts what has failed, whatever the platform has waiting already.
func TestGivingUpDoesNotWaitForTheLastMigrationToEnd(t *testing.T) {
	pending := migrationNamed("pending", "Pending", epoch.Add(50*time.Minute))
	w := kubevirtWorld(t, append(failedMigrations(5), machine("LiveMigrate", "True", "n1", theirMark), pending)...)
	got, err := w.interceptor().Evacuate(t.Context(), target())
	if err != nil || got.Message != "The evacuation of VirtualMachineInstance ns/vm is given up: 5 migrations failed. The guard keeps the pod." {
		t.Errorf("got %+v, %v", got, err)
	}
	if len(w.puts) != 1 || !slices.Contains(w.writes(), "delete pending") {
		t.Errorf("KubeVirt goes on: calls %q, writes %q", w.puts, w.writes())
	}
}

// Whoever asks again hears that it was given up, on every replica.
func TestAStalledEvacuationIsToldTheCaller(t *testing.T) {
	failures := append(failedMigrations(5), machine("LiveMigrate", "True", "n1"))
	er := &v1alpha1.EvictionRequest{Status: v1alpha1.EvictionRequestStatus{
		ActiveInterceptors: []string{"kubevirt.drawbridge.dev"}, ActivationTime: &metav1.Time{Time: target().ActivatedAt},
	}}
	failing := preset(t, "kubevirt")
	failing.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionMarking, Status: metav1.ConditionFalse}}
	for title, tc := range map[string]struct {
		objects []runtime.Object
		others  []client.Object
		change  func(*v1alpha1.EvacuationPolicy)
		want    string
	}{
		"it goes on":          {objects: []runtime.Object{machine("LiveMigrate", "True", "n1", ourMark)}},
		"it begins":           {objects: []runtime.Object{machine("LiveMigrate", "True", "n1")}},
		"marks do not last":   {objects: []runtime.Object{machine("LiveMigrate", "True", "n1")}, others: []client.Object{failing}, want: "its marks come to nothing"},
		"it is given up":      {objects: failures, want: "given up, 5 migrations failed"},
		"it is to be evicted": {objects: failures, change: func(p *v1alpha1.EvacuationPolicy) { p.Spec.OnFailure = v1alpha1.OnFailureEvict }},
	} {
		t.Run(title, func(t *testing.T) {
			w := newWorld(t, tc.objects, append(tc.others, launcherPod()))
			w.load(adjusted(preset(t, "kubevirt"), tc.change))
			if got := w.store.Stalled(t.Context(), launcherPod(), er); got != tc.want {
				t.Errorf("want %q, got %q", tc.want, got)
			}
		})
	}
}

// What is Pending does nothing yet and may go, unless a migration or a start waits for
// it.
func TestWhichPendingPodsAreKept(t *testing.T) {
	pending := launcherPod()
	pending.Status.Phase = corev1.PodPending
	unscheduled := pending.DeepCopy()
	unscheduled.Spec.NodeName = ""
	for title, tc := range map[string]struct {
		machine *unstructured.Unstructured
		pod     *corev1.Pod
		held    bool
	}{
		"the target of a migration":            {machine("LiveMigrate", "True", "n2"), pending, true},
		"a target without a node":              {machine("LiveMigrate", "True", "n2"), unscheduled, true},
		"a machine that starts":                {machine("LiveMigrate", "Unknown", ""), pending, true},
		"a machine that starts, if possible":   {machine("LiveMigrateIfPossible", "Unknown", ""), pending, true},
		"a machine that starts, External":      {machine("External", "Unknown", ""), pending, true},
		"a machine with the strategy None":     {machine("None", "Unknown", ""), pending, false},
		"a machine that runs here, oddly":      {machine("LiveMigrate", "True", "n1"), pending, false},
		"a machine that has ended":             {machine("LiveMigrate", "True", "n1", set("Failed", "status", "phase")), pending, false},
		"a machine that runs, and so its pod":  {machine("LiveMigrate", "True", "n1"), launcherPod(), true},
		"a machine that cannot move, starting": {machine("LiveMigrate", "False", ""), pending, true},
	} {
		t.Run(title, func(t *testing.T) {
			w := newWorld(t, []runtime.Object{tc.machine}, nil)
			w.load(preset(t, "kubevirt"))
			if reason, held := w.store.Held(tc.pod); held != tc.held {
				t.Errorf("want %t, got %t (%s)", tc.held, held, reason)
			}
		})
	}
}
