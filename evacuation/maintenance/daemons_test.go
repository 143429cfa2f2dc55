package maintenance_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// daemonsWave is the wave of all DaemonSets.
func daemonsWave() v1alpha1.MaintenanceWave {
	return v1alpha1.MaintenanceWave{Name: "daemons", DaemonSets: true}
}

// daemon adds a pod of a DaemonSet to the node n1.
func (w *world) daemon(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := builder.Pod("shop", name).UID(types.UID("uid-" + name)).Node("n1").DaemonSet(name).Obj()
	for _, c := range change {
		c(pod)
	}
	w.put(pod)
	return pod
}

func tolerates(pod *corev1.Pod) {
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
}

// has reports whether the pod is still there.
func (w *world) has(pod *corev1.Pod) bool { return w.pods[client.ObjectKeyFromObject(pod)] != nil }

// taints are those of the node n1.
func (w *world) taints() []corev1.Taint {
	return w.nodes[types.NamespacedName{Name: "n1"}].(*corev1.Node).Spec.Taints
}

// The pods of DaemonSets go last, behind a taint. One that tolerates it and one that the node needs
// stay, and the taint goes with the maintenance.
func TestPodsOfDaemonSetsGoLast(t *testing.T) {
	w := ordered(t, daemonsWave())
	web, agent := w.onNode("web", "web"), w.daemon("agent")
	tolerant := w.daemon("tolerant", tolerates)
	proxy := w.daemon("proxy", func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" })
	w.settle(t)
	w.settle(t) // Numbers wait to be written.
	if got := w.plan("kernel").Status.Nodes[0]; got.PodsPendingEvacuation != 2 || got.PodsInLaterWaves != 1 || len(w.taints()) > 0 {
		t.Errorf("at first: status %+v, taints %v", got, w.taints())
	}
	w.leave(t, web)
	if w.has(agent) || !w.has(tolerant) || !w.has(proxy) || w.writes["evict"] != 1 {
		t.Errorf("agent %t, tolerant %t, proxy %t, %d evictions", w.has(agent), w.has(tolerant), w.has(proxy), w.writes["evict"])
	}
	if diff := cmp.Diff([]corev1.Taint{translate.MaintenanceTaint()}, w.taints()); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
	if got := w.told(); !slices.Contains(got, "NodeTainted") {
		t.Errorf("events %v", got)
	}
	if got := w.plan("kernel").Status; got.Stage != drained || got.Nodes[0].Wave != "daemons" || got.Nodes[0].PodsPendingEvacuation != 0 {
		t.Errorf("at the end: status %+v", got)
	}
	if len(w.requests) != 1 {
		t.Errorf("%d requests, want that of web only", len(w.requests))
	}
	reads := w.liveReads
	tolerated := w.pods[client.ObjectKeyFromObject(tolerant)].(*corev1.Pod).DeepCopy()
	tolerated.Status.Phase = corev1.PodRunning
	w.put(tolerated)
	w.settle(t)
	if w.liveReads != reads {
		t.Error("the tolerations of a pod are read more than once")
	}

	// One that is made in a race goes, too.
	late := w.daemon("late")
	w.settle(t)
	if w.has(late) {
		t.Error("a pod that came late stays")
	}
	w.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Spec.Cordon, m.Spec.Drain = false, false })
	w.settle(t)
	if got := w.told(); len(w.taints()) > 0 || !slices.Contains(got, "NodeUntainted") {
		t.Errorf("taints of the released node %v, events %v", w.taints(), got)
	}
}

// Without such a wave, pods of DaemonSets are none of the maintenance's business, also while that of
// another one takes them.
func TestWithoutTheirWavePodsOfDaemonSetsStay(t *testing.T) {
	w := ordered(t, waveOf("storage", "storage"))
	agent := w.daemon("agent")
	w.settle(t)
	if got := w.plan("kernel").Status; got.Stage != drained || !w.has(agent) || w.liveReads > 0 {
		t.Errorf("agent %t, %d reads, status %+v", w.has(agent), w.liveReads, got)
	}
	w.refusal = builder.BlockedAnswer()
	other := drainOf("disks")
	other.Spec.Waves = []v1alpha1.MaintenanceWave{daemonsWave()}
	w.put(other)
	w.settle(t)
	w.settle(t)
	if got := w.plan("kernel").Status; got.Stage != drained || got.Progress.PodsPendingEvacuation != 0 {
		t.Errorf("the one without: status %+v", got)
	}
	if got := w.plan("disks").Status; got.Stage == drained || got.Progress.PodsBlocking != 1 {
		t.Errorf("the other one: status %+v", got)
	}
}

// Each maintenance waits for the pods of its own wave, and tells of no others.
func TestEachMaintenanceCountsThePodsOfItsOwnWave(t *testing.T) {
	of := func(app string) v1alpha1.MaintenanceWave {
		wave := waveOf("daemons", app)
		wave.DaemonSets = true
		return wave
	}
	w := ordered(t, of("agent"))
	other := drainOf("disks")
	other.Spec.Waves = []v1alpha1.MaintenanceWave{of("scraper")}
	w.put(other)
	for _, name := range []string{"agent", "scraper"} {
		w.daemon(name, func(p *corev1.Pod) { p.Labels = map[string]string{"app": name} })
	}
	w.refusal = builder.BlockedAnswer()
	w.settle(t)
	w.settle(t)
	for name, want := range map[string]string{"kernel": "agent", "disks": "scraper"} {
		got := w.plan(name).Status.Nodes[0]
		if got.PodsPendingEvacuation != 1 || len(got.BlockingPods) != 1 || got.BlockingPods[0].Name != want {
			t.Errorf("%s: status %+v, want the block of %s", name, got, want)
		}
	}
	w.refusal = nil
	w.settle(t)
	w.settle(t)
	for _, name := range []string{"kernel", "disks"} {
		if got := w.plan(name).Status; got.Stage != drained || got.Progress.PodsEvacuated != 1 {
			t.Errorf("%s: status %+v", name, got)
		}
	}
	w.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Spec.Cordon, m.Spec.Drain = false, false })
	w.settle(t)
	if len(w.taints()) != 1 {
		t.Errorf("taints %v, and disks still wants one", w.taints())
	}
}

// end ends a maintenance, and settles.
func (w *world) end(t *testing.T, name string) {
	t.Helper()
	w.change(name, func(m *v1alpha1.NodeMaintenance) { m.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()} })
	w.settle(t)
	if w.plan(name) != nil {
		t.Errorf("maintenance %s is still there", name)
	}
}

// Behind the taint of one maintenance, the wave of another one has nothing to do. It begins when all
// other pods are gone, so that the taint does not go with the first maintenance.
func TestTheTaintStaysForAnotherMaintenance(t *testing.T) {
	w := ordered(t, daemonsWave())
	w.daemon("agent")
	w.settle(t)
	other := drainOf("disks")
	other.Spec.Waves = []v1alpha1.MaintenanceWave{daemonsWave()}
	w.put(other)
	late := w.onNode("late", "web")
	w.settle(t)
	if got := w.plan("disks").Status.Nodes[0]; got.Stage != drain || got.Wave != "" {
		t.Errorf("while another pod is there: status %+v", got)
	}
	w.leave(t, late)
	if got := w.plan("disks").Status; got.Stage != drained || got.Nodes[0].Wave != "daemons" {
		t.Errorf("behind the taint: status %+v", got)
	}
	w.told()
	w.end(t, "kernel")
	if got := w.told(); len(w.taints()) != 1 || slices.Contains(got, "NodeUntainted") {
		t.Errorf("taints %v after the first one, events %v", w.taints(), got)
	}
	w.end(t, "disks")
	if got := w.told(); len(w.taints()) > 0 || !slices.Contains(got, "NodeUntainted") {
		t.Errorf("taints %v at the end, events %v", w.taints(), got)
	}
}

// Whose wave has begun is the same, whoever is faster to evict the pods.
func TestTheTaintStaysForWhoeverWantedThePodsAsWell(t *testing.T) {
	of := func(app string) v1alpha1.MaintenanceWave {
		wave := waveOf("daemons", app)
		wave.DaemonSets = true
		return wave
	}
	for name, tc := range map[string]struct {
		wave v1alpha1.MaintenanceWave
		want int
	}{
		"the same pods": {of("agent"), 1},
		"other pods":    {of("scraper"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := ordered(t, daemonsWave())
			w.refusal = builder.BlockedAnswer()
			agent := w.daemon("agent", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "agent"} })
			w.settle(t)
			other := drainOf("disks")
			other.Spec.Waves = []v1alpha1.MaintenanceWave{tc.wave}
			w.put(other)
			for !strings.Contains(w.annotations("n1")["node-maintenances"], "disks=Drain") {
				w.clock.Step(time.Second)
				w.reconcile(t)
			}
			if got := translate.BegunWavesOf(w.nodes[types.NamespacedName{Name: "n1"}].(*corev1.Node)); got["disks"].Name != "" {
				t.Fatalf("begun waves %v", got)
			}
			// The pod goes before the second maintenance has seen that nothing else is left.
			w.remove(w.pods[client.ObjectKeyFromObject(agent)])
			w.settle(t)
			w.settle(t)
			if got := w.plan("disks").Status; got.Stage != drained {
				t.Errorf("status %+v", got)
			}
			w.end(t, "kernel")
			if len(w.taints()) != tc.want {
				t.Errorf("taints %v, want %d", w.taints(), tc.want)
			}
		})
	}
}

// Only tolerant pods are no reason for a taint.
func TestANodeWithoutPodsThatCouldStayAwayGetsNoTaint(t *testing.T) {
	w := ordered(t, daemonsWave())
	tolerant := w.daemon("tolerant", tolerates)
	w.settle(t)
	if got := w.plan("kernel").Status.Stage; got != drained || !w.has(tolerant) || len(w.taints()) > 0 || w.wave() != "" {
		t.Errorf("stage %s, taints %v, wave %q", got, w.taints(), w.wave())
	}
}

// A refusal is tried again, with longer and longer pauses, and said meanwhile.
func TestARefusedPodOfADaemonSetBlocks(t *testing.T) {
	for name, refusal := range map[string]error{"by a budget": builder.BlockedAnswer(), "by a failure": errors.New("no connection"), "for good": apierrors.NewForbidden(corev1.Resource("pods"), "agent", errors.New("no"))} {
		t.Run(name, func(t *testing.T) {
			w := ordered(t, daemonsWave())
			w.refusal = refusal
			agent := w.daemon("agent")
			w.settle(t)
			w.settle(t)
			calls := w.writes["evict"]
			if calls < 2 || calls > 8 {
				t.Errorf("%d calls in two minutes", calls)
			}
			blocked := w.plan("kernel").Status.Nodes[0].BlockingPods
			if len(blocked) != 1 || blocked[0].Name != "agent" || blocked[0].Reason != v1alpha1.BlockEvictionRefused || blocked[0].Message == "" {
				t.Errorf("blocking pods %+v", blocked)
			}
			w.refusal = nil
			w.clock.Step(time.Minute)
			w.settle(t)
			w.settle(t)
			if got := w.plan("kernel").Status; got.Stage != drained || w.has(agent) {
				t.Errorf("when it is let go: status %+v", got)
			}
		})
	}
}

// Calls that get no answer hold none of the workers that all other pods need.
func TestEvictionsOfDaemonSetsHoldUpNoOtherPods(t *testing.T) {
	w := ordered(t, daemonsWave())
	w.stuck = "evictions"
	agent := w.daemon("agent")
	w.settle(t)
	if got := w.plan("kernel").Status; len(w.taints()) != 1 || got.Progress.PodsPendingEvacuation != 1 {
		t.Fatalf("taints %v, status %+v", w.taints(), got)
	}
	late := w.onNode("late", "web")
	w.settle(t)
	w.wantRequested(t, "while no eviction of a DaemonSet's pod is answered", late)
	if w.writes["evict"] != 0 || !w.has(agent) {
		t.Errorf("%d calls by the workers of all pods, agent %t", w.writes["evict"], w.has(agent))
	}
	w.stuck = ""
	w.settle(t)
	if w.writes["evict"] != 1 || w.has(agent) {
		t.Errorf("%d calls, agent %t", w.writes["evict"], w.has(agent))
	}
}

// What was to be evicted may be none of the maintenance's business any more when its turn comes.
func TestAnEvictionThatIsLateIsDecidedAgain(t *testing.T) {
	w := ordered(t, daemonsWave())
	w.stuck = "evictions"
	agent := w.daemon("agent")
	w.settle(t)
	w.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Spec.Drain = false })
	w.stuck = ""
	w.settle(t)
	if w.writes["evict"] != 0 || !w.has(agent) {
		t.Errorf("%d calls, agent %t", w.writes["evict"], w.has(agent))
	}
}

// The pause begins with the answer, however long that took.
func TestARefusalThatTakesLongIsFollowedByAPause(t *testing.T) {
	w := ordered(t, daemonsWave())
	w.refusal = context.DeadlineExceeded
	var answered time.Time
	calls := 0
	w.calling = func() {
		if pause := w.clock.Now().Sub(answered); pause < 5*time.Second {
			t.Errorf("call %d comes %s after an answer", calls, pause)
		}
		calls++
		w.clock.Step(10 * time.Second)
		answered = w.clock.Now()
	}
	w.daemon("agent")
	w.settle(t)
	w.settle(t)
	if calls < 3 {
		t.Errorf("%d calls", calls)
	}
}

// Whoever ends it all in the middle ends the evictions, too.
func TestNothingIsEvictedAfterTheEndOfItsMaintenanceOrNode(t *testing.T) {
	ends := map[string]func(*world){
		"the node is deleted": func(w *world) { w.remove(w.nodes[types.NamespacedName{Name: "n1"}]) },
		"the maintenance is deleted": func(w *world) {
			w.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()} })
		},
		"the maintenance is deleted by force": func(w *world) { w.remove(w.plan("kernel")) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			w := ordered(t, daemonsWave())
			w.refusal = builder.BlockedAnswer()
			agent := w.daemon("agent")
			w.settle(t)
			if len(w.taints()) != 1 || w.writes["evict"] == 0 {
				t.Fatalf("taints %v, %d calls", w.taints(), w.writes["evict"])
			}
			end(w)
			calls := w.writes["evict"]
			w.refusal = nil
			w.settle(t)
			w.settle(t)
			if w.writes["evict"] != calls || !w.has(agent) {
				t.Errorf("%d calls after %d, agent %t", w.writes["evict"], calls, w.has(agent))
			}
			if m := w.plan("kernel"); m != nil && len(m.Status.Nodes) > 0 {
				t.Errorf("nodes %+v", m.Status.Nodes)
			}
			if w.nodes[types.NamespacedName{Name: "n1"}] != nil && len(w.taints()) > 0 {
				t.Errorf("taints %v", w.taints())
			}
		})
	}
}

// Whoever takes the wave away takes the taint back.
func TestATaintGoesWithItsWave(t *testing.T) {
	w := ordered(t, daemonsWave())
	w.daemon("agent")
	w.settle(t)
	if len(w.taints()) != 1 {
		t.Fatalf("taints %v", w.taints())
	}
	w.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Spec.Waves = nil })
	w.settle(t)
	again := w.daemon("agent-2")
	w.settle(t)
	if got := w.plan("kernel").Status; len(w.taints()) > 0 || !w.has(again) || got.Stage != drained {
		t.Errorf("taints %v, agent %t, status %+v", w.taints(), w.has(again), got)
	}
}
