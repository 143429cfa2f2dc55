//go:build unix

package situations

import (
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// history is what was seen of the pods of a namespace.
type history struct {
	mu    sync.Mutex
	ended []ending                // In their order.
	ready map[types.UID]readiness // When each was first seen Ready.
}

type ending struct {
	name string
	uid  types.UID
	at   time.Time
}

type readiness struct {
	app string
	at  time.Time
}

// follow follows the pods of a namespace until the test ends.
func follow(t *testing.T, kube *cluster.Cluster, namespace string) *history {
	t.Helper()
	clients, err := kubernetes.NewForConfig(kube.Config())
	if err != nil {
		t.Fatal(err)
	}
	h := &history{ready: map[types.UID]readiness{}}
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(namespace))
	pods := factory.Core().V1().Pods().Informer()
	_, err = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { h.see(object, false) },
		UpdateFunc: func(_, object any) { h.see(object, false) },
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			h.see(object, true)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	if !cache.WaitForCacheSync(t.Context().Done(), pods.HasSynced) {
		t.Fatal("the pods cannot be followed")
	}
	return h
}

// see notes when a pod was first Ready, and when it began to end.
func (h *history) see(object any, gone bool) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if _, known := h.ready[pod.UID]; !known && cluster.IsReady(pod) {
		h.ready[pod.UID] = readiness{app: pod.Labels[builder.AppLabel], at: now}
	}
	known := slices.ContainsFunc(h.ended, func(e ending) bool { return e.uid == pod.UID })
	if !known && (gone || pod.DeletionTimestamp != nil) {
		h.ended = append(h.ended, ending{name: pod.Name, uid: pod.UID, at: now})
	}
}

// order are the names of the pods that have begun to end, in that order.
func (h *history) order() (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.ended {
		names = append(names, e.name)
	}
	return names
}

// went are those of a name.
func (h *history) went(name string) []types.UID {
	h.mu.Lock()
	defer h.mu.Unlock()
	var uids []types.UID
	for _, e := range h.ended {
		if e.name == name {
			uids = append(uids, e.uid)
		}
	}
	return uids
}

// end is when a pod began to end, zero if it did not.
func (h *history) end(pod types.UID) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.ended {
		if e.uid == pod {
			return e.at
		}
	}
	return time.Time{}
}

// replaced says whether another pod of the same workload was Ready before this one began to end.
func (h *history) replaced(pod *corev1.Pod) bool {
	app, end := pod.Labels[builder.AppLabel], h.end(pod.UID)
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid, r := range h.ready {
		if uid != pod.UID && app != "" && r.app == app && r.at.Before(end) {
			return true
		}
	}
	return false
}
