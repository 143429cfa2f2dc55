package maintenance_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// onNode adds a pod of an application to the node n1. It has an interceptor.
func (w *world) onNode(name, app string) *corev1.Pod {
	pod := builder.Pod("shop", name).UID(types.UID("uid-"+name)).Node("n1").Label("app", app).Interceptors("db.example.com").Obj()
	w.put(pod)
	return pod
}

// ordered is a world with one node, which a maintenance with these waves drains.
func ordered(t *testing.T, waves ...v1alpha1.MaintenanceWave) *world {
	t.Helper()
	w := newWorld(t, time.Minute)
	w.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "storage"}}})
	w.put(builder.Node("n1").UID("uid-n1").Label("rack", "r7").Obj())
	m := drainOf("kernel")
	m.Spec.Waves = waves
	w.put(m)
	return w
}

func waveOf(name, app string) v1alpha1.MaintenanceWave {
	return v1alpha1.MaintenanceWave{Name: name, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}
}

// leave removes pods, and settles.
func (w *world) leave(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		w.remove(w.pods[client.ObjectKeyFromObject(pod)])
	}
	w.settle(t)
}

// wantRequested wants that the eviction of just these pods is requested.
func (w *world) wantRequested(t *testing.T, when string, want ...*corev1.Pod) {
	t.Helper()
	var names, got []string
	for _, pod := range want {
		names = append(names, pod.Name)
	}
	for _, obj := range w.pods {
		if pod := obj.(*corev1.Pod); len(w.requesters(pod)) > 0 {
			got = append(got, pod.Name)
		}
	}
	slices.Sort(names)
	slices.Sort(got)
	if diff := cmp.Diff(names, got); diff != "" {
		t.Errorf("%s: pods whose eviction is requested (-want +got):\n%s", when, diff)
	}
}

// wave is the one that the maintenance has begun last on the node.
func (w *world) wave() string {
	return translate.BegunWavesOf(w.nodes[types.NamespacedName{Name: "n1"}].(*corev1.Node))["kernel"].Name
}

// The pods of a node go wave by wave. One that comes late goes at once if its wave has begun, and
// takes back nothing that runs.
func TestPodsGoWaveByWave(t *testing.T) {
	databases := waveOf("databases", "db")
	databases.Timeout = &metav1.Duration{Duration: 10 * time.Minute}
	w := ordered(t, databases, waveOf("storage", "storage"))
	web, db, storage := w.onNode("web", "web"), w.onNode("db", "db"), w.onNode("storage", "storage")
	w.settle(t)
	w.settle(t) // Numbers wait to be written.
	w.wantRequested(t, "at first", web)
	if got := w.conditions(db); len(got) > 0 {
		t.Errorf("conditions of a pod of a later wave: %v", got)
	}
	if got := w.plan("kernel").Status.Nodes[0]; got.Wave != "" || got.PodsInLaterWaves != 2 || got.PodsPendingEvacuation != 3 {
		t.Errorf("at first: status %+v", got)
	}

	w.leave(t, web)
	w.wantRequested(t, "when the first are gone", db)
	if got := w.wave(); got != "databases" || !slices.Contains(w.told(), "NodeWaveBegan") {
		t.Errorf("wave %q, or no event", got)
	}
	late := w.onNode("late", "web")
	w.settle(t)
	w.wantRequested(t, "when one came late", db, late)
	w.leave(t, late)
	w.wantRequested(t, "when it is gone", db)

	w.clock.Step(10 * time.Minute)
	w.settle(t)
	w.wantRequested(t, "when their time is over", db, storage)
	if got := w.wave(); got != "storage" || !slices.Contains(w.told(), "NodeWaveForced") {
		t.Errorf("wave %q, or no event", got)
	}
	w.leave(t, db, storage)
	if got := w.plan("kernel").Status; got.Stage != drained || got.Nodes[0].Wave != "storage" || got.Nodes[0].PodsInLaterWaves != 0 {
		t.Errorf("at the end: status %+v", got)
	}
	w.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Spec.Cordon, m.Spec.Drain = false, false })
	w.settle(t)
	if value, ok := w.nodes[types.NamespacedName{Name: "n1"}].(*corev1.Node).Annotations[v1alpha1.MaintenanceWavesAnnotation]; ok {
		t.Errorf("the released node still says which wave has begun: %q", value)
	}
}

// A pod that the cache shows late keeps the next wave from its turn.
func TestAWaveBeginsWhenALiveListSaysSo(t *testing.T) {
	w := ordered(t, waveOf("storage", "storage"))
	web, storage := w.onNode("web", "web"), w.onNode("storage", "storage")
	w.settle(t)
	key := client.ObjectKeyFromObject(web)
	hidden := w.pods[key].(*corev1.Pod)
	w.hidden = append(w.hidden, hidden)
	w.leave(t, web)
	w.wantRequested(t, "while the API server has a pod that the cache does not")
	w.hidden = nil
	w.settle(t)
	w.wantRequested(t, "when it is gone", storage)
}

// On a dead node nothing confirms the end of a pod, so the next wave does not wait for that.
func TestTheNextWaveDoesNotWaitForDeletedPodsOfADeadNode(t *testing.T) {
	w := ordered(t, waveOf("storage", "storage"))
	web, storage := w.onNode("web", "web"), w.onNode("storage", "storage")
	w.settle(t)
	leaving := w.pods[client.ObjectKeyFromObject(web)].(*corev1.Pod).DeepCopy()
	leaving.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()}
	w.put(leaving)
	w.settle(t)
	w.wantRequested(t, "while the first terminates", web)
	node := w.nodes[types.NamespacedName{Name: "n1"}].(*corev1.Node).DeepCopy()
	node.Status.Conditions[0].Status, node.Status.Conditions[0].LastTransitionTime = corev1.ConditionUnknown, metav1.NewTime(w.clock.Now())
	w.put(node)
	w.settle(t)
	w.settle(t) // It counts as lost after a minute.
	w.wantRequested(t, "when the node is lost", storage, web)
}

// A drain that is taken back and begins again begins with its first pods.
func TestADrainThatBeginsAgainBeginsWithItsFirstWave(t *testing.T) {
	w := ordered(t, waveOf("storage", "storage"))
	web, storage := w.onNode("web", "web"), w.onNode("storage", "storage")
	w.settle(t)
	w.leave(t, web)
	w.wantRequested(t, "in the last wave", storage)
	w.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Spec.Drain = false })
	w.settle(t)
	w.wantRequested(t, "when it is taken back")
	web = w.onNode("web-2", "web")
	w.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Spec.Drain = true })
	w.settle(t)
	w.wantRequested(t, "when it begins again", web)
}

// A pod gets into an earlier wave by its labels, or by those of its namespace. Both must be
// noticed, or the next wave would wait for a pod that nobody asks to go.
func TestAPodThatGetsIntoAnEarlierWaveIsAskedToGo(t *testing.T) {
	storage := waveOf("storage", "storage")
	storage.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "storage"}}
	cases := map[string]func(w *world, pod *corev1.Pod){
		"by its labels": func(w *world, pod *corev1.Pod) {
			now := w.pods[client.ObjectKeyFromObject(pod)].(*corev1.Pod).DeepCopy()
			now.Labels["app"] = "web"
			w.put(now)
		},
		"by its namespace": func(w *world, _ *corev1.Pod) {
			before := w.namespaces[types.NamespacedName{Name: "shop"}].(*corev1.Namespace)
			now := before.DeepCopy()
			now.Labels["team"] = "shop"
			w.put(now)
		},
		"by another order": func(w *world, _ *corev1.Pod) {
			w.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Spec.Waves = nil })
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			w := ordered(t, storage)
			web, pod := w.onNode("web", "web"), w.onNode("storage", "storage")
			w.settle(t)
			w.wantRequested(t, "before", web)
			change(w, pod)
			w.settle(t)
			w.wantRequested(t, "afterwards", web, pod)
		})
	}
}

// The next manager goes on with the wave that has begun.
func TestAWaveOutlivesItsManager(t *testing.T) {
	w := ordered(t, waveOf("storage", "storage"))
	web, storage := w.onNode("web", "web"), w.onNode("storage", "storage")
	w.settle(t)
	w.leave(t, web)
	w.wantRequested(t, "before", storage)
	next := newWorld(t, time.Minute)
	for _, store := range []map[types.NamespacedName]client.Object{w.namespaces, w.nodes, w.plans, w.pods} {
		for _, obj := range store {
			next.put(obj.DeepCopyObject().(client.Object))
		}
	}
	for _, er := range w.requests {
		next.putRequest(er)
	}
	late := next.onNode("late", "web")
	next.settle(t)
	next.wantRequested(t, "by the next one", late, storage)
	if got := next.wave(); got != "storage" {
		t.Errorf("wave %q, want storage", got)
	}
}
