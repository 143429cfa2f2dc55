//go:build unix

package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// The bounds of what an eviction costs, in stored API writes by us without events: for the
// request of a native requester, for each interceptor of the pod, and for a caller of
// pods/eviction, whose request and lease we have to write ourselves.
const (
	writesPerEviction    = 4
	writesPerInterceptor = 3
	writesPerCaller      = 2
	// A label put on and taken off. The third is the namespace's budget, once for all.
	writesPerGuard = 3
)

func TestWritesPerEviction(t *testing.T) {
	m := shareManager(t)
	native := func(t *testing.T, pod *corev1.Pod) {
		t.Helper()
		newNative(t, pod.Namespace, "rebalancer", "rebalancer.example.com").apply(t, pod, true)
	}
	caller := func(t *testing.T, pod *corev1.Pod) {
		t.Helper()
		evict(t, "writer", pod, eviction(pod))
	}
	// As a NodeMaintenance and the surge do, which put the pod's labels on the request it creates.
	maintenance := func(t *testing.T, pod *corev1.Pod) {
		t.Helper()
		r := &requester.Requester{Name: "rebalancer.drawbridge.dev", Client: must(client.NewWithWatch(kube.Config(), client.Options{Scheme: scheme}))(t)}
		if _, err := r.Join(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		interceptors int
		ask          func(*testing.T, *corev1.Pod)
		atMost       int
	}{
		"a native request, no interceptor":       {0, native, writesPerEviction},
		"a request of our own, no interceptor":   {0, maintenance, writesPerEviction - 1},
		"a native request, one interceptor":      {1, native, writesPerEviction + writesPerInterceptor + writesPerGuard},
		"a native request, two interceptors":     {2, native, writesPerEviction + 2*writesPerInterceptor + writesPerGuard},
		"a native request, fifteen interceptors": {15, native, writesPerEviction + 15*writesPerInterceptor + writesPerGuard},
		"a caller of pods/eviction, one of them": {1, caller, writesPerEviction + writesPerInterceptor + writesPerCaller + writesPerGuard},
		"a caller of pods/eviction, two of them": {2, caller, writesPerEviction + 2*writesPerInterceptor + writesPerCaller + writesPerGuard},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := kube.Namespace(t)
			node := addNodes(t, namespace, 1)[0]
			var interceptors []string
			for i := range tt.interceptors {
				interceptors = append(interceptors, fmt.Sprintf("i%d.example.com", i))
			}
			w := builder.Pod(namespace, "db-0").Node(node).Change(ofApp("db")) // Labels cost a write of their own.
			if len(interceptors) > 0 {
				w.Interceptors(interceptors...)
			}
			pod := createPod(t, w.Obj())

			mark := kube.RequestLog().Mark()
			tt.ask(t, pod)
			if len(interceptors) > 0 {
				// Or the eviction might meet a guard that is just closing, and be tried again: a
				// real interceptor takes longer than the guard.
				waitGuard(t, pod, true)
			}
			for _, interceptor := range interceptors {
				complete(t, pod, interceptor, m.Clock.Now)
			}
			gone(t, pod)
			waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))

			lease := translate.LeaseName(translate.RequesterName("writer"), node)
			ours := since(t, mark).By(drawbridge()).Where(func(r cluster.Request) bool {
				return r.Writes() && (r.Namespace == namespace || r.Namespace == inst.Namespace && r.Name == lease)
			})
			kinds := map[string]int{}
			total, events, refused := 0, 0, 0
			for _, r := range ours {
				if r.Code == http.StatusConflict {
					// A decision on a stale read met the version check: nothing was stored. How
					// often depends on how busy the machine is.
					refused++
					continue
				}
				if r.Resource == "events" {
					events++
					continue
				}
				total++
				kinds[strings.TrimSuffix(r.Verb+" "+r.Resource+"/"+r.Subresource, "/")]++
			}
			var list []string
			for _, kind := range slices.Sorted(maps.Keys(kinds)) {
				list = append(list, fmt.Sprintf("%d %s", kinds[kind], kind))
			}
			t.Logf("%d interceptors: %d writes (%s), %d refused as stale, and %d of events", tt.interceptors, total, strings.Join(list, ", "), refused, events)
			if total > tt.atMost {
				t.Errorf("want at most %d writes, got %d:\n%s", tt.atMost, total, ours)
			}
		})
	}
}
