package registration

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/drawbridge-dev/drawbridge/test/framework/allocation"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const (
	benchRegistrations = 500
	benchPods          = 50_000
	benchNamespaces    = 500
)

// benchRegistration is one of a mix: most ask for a label, some for a label of the
// namespace, some for what only an expression can tell.
func benchRegistration(i int) *builder.EvictionInterceptorWrapper {
	w := builder.EvictionInterceptor(fmt.Sprintf("i%03d.example.com", i))
	switch i % 10 {
	case 0:
		return w.PodsWhere("app", "In", fmt.Sprintf("app-%d", i), fmt.Sprintf("other-%d", i))
	case 1:
		return w.PodsWhere(fmt.Sprintf("opt-in-%d", i), "Exists")
	case 2: // Found by no label of the pod, but by one of the namespace.
		return w.Namespaces("team", fmt.Sprintf("team-%d", i))
	case 3:
		return w.Pods("app", fmt.Sprintf("app-%d", i)).When("object.metadata.ownerReferences.exists(o, o.kind == 'StatefulSet')")
	default:
		return w.Pods("app", fmt.Sprintf("app-%d", i)).Pods("tier", "back").Namespaces("env", "prod")
	}
}

// benchRegistry also returns how many bytes one registration takes.
func benchRegistry() (*Registry, float64) {
	r := NewRegistry(Options{Namespace: ownNamespace})
	for i := range benchNamespaces {
		r.next.putNamespace(namespace(fmt.Sprintf("ns-%d", i), "env", "prod"))
	}
	r.dirty.Store(true)
	before := heap()
	for i := range benchRegistrations {
		r.put(benchRegistration(i).Obj())
	}
	return r, float64(heap()-before) / benchRegistrations
}

// pods of a cluster, each with the labels that pods usually have. Those with an
// index below hits are selected by one registration.
func benchPodsOf(n, hits int) []*corev1.Pod {
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		app := fmt.Sprintf("web-%d", i%2000)
		if i < hits {
			app = fmt.Sprintf("app-%d", i%50*10+5)
		}
		pods[i] = builder.Pod(fmt.Sprintf("ns-%d", i%benchNamespaces), fmt.Sprintf("p-%d", i)).
			Label("app", app).Label("tier", "back").Label("app.kubernetes.io/name", app).Label("app.kubernetes.io/part-of", "shop").
			Label("pod-template-hash", fmt.Sprint(i)).Obj()
	}
	return pods
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// benchResolve asks about one pod after the other, each with so many interceptors.
func benchResolve(b *testing.B, r *Registry, want int, pods ...*corev1.Pod) {
	b.Helper()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if got, err := r.Resolve(pods[i%len(pods)]); err != nil || len(got) != want {
			b.Fatalf("%d interceptors and error %v, want %d", len(got), err, want)
		}
		i++
	}
}

// benchCovered asks about a pod that something of namespace ns-1 covers, and about one elsewhere.
func benchCovered(b *testing.B, r *Registry) {
	b.Helper()
	for name, bench := range map[string]struct {
		namespace string
		want      int
	}{"elsewhere": {"ns-3", 0}, "covered": {"ns-1", 1}} {
		b.Run(name, func(b *testing.B) {
			benchResolve(b, r, bench.want, builder.Pod(bench.namespace, "p").Label("app", "web-1").Label("tier", "back").Obj())
		})
	}
}

// BenchmarkRegistry looks up 50,000 pods with 500 registrations. The last one is
// what the index saves: asking every registration takes so many times as long.
func BenchmarkRegistry(b *testing.B) {
	hit, miss := benchPodsOf(benchPods, benchPods), benchPodsOf(benchPods, 0)
	var missed float64
	for _, bench := range []struct {
		name string
		pods []*corev1.Pod
		want int
	}{{"miss", miss, 0}, {"hit", hit, 1}} {
		b.Run(bench.name, func(b *testing.B) {
			r, size := benchRegistry()
			benchResolve(b, r, bench.want, bench.pods...)
			b.ReportMetric(size, "B/registration")
			if bench.want == 0 {
				missed = perLoop(b)
			}
		})
	}
	b.Run("expression", func(b *testing.B) {
		r, _ := benchRegistry()
		pod := builder.Pod("ns-1", "db-0").Label("app", "app-3").OwnedBy("StatefulSet", "db").Obj()
		benchResolve(b, r, 1, pod)
	})
	b.Run("miss-without-index", func(b *testing.B) {
		r, _ := benchRegistry()
		s := r.snapshot()
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			pod := miss[i%benchPods]
			for _, e := range s.slots {
				if e.pods.Matches(labels.Set(pod.Labels)) && e.matchNamespace(s.namespaces[pod.Namespace].object) {
					b.Fatal("selected")
				}
			}
			i++
		}
		if missed > 0 {
			b.ReportMetric(perLoop(b)/missed, "times-the-index")
		}
	})
}

// The webhook, the guard and the count ask at every event of every pod.
func TestToAskWhoInterceptsAllocatesTheAnswerOnly(t *testing.T) {
	r, _ := benchRegistry()
	cases := map[string]struct {
		pod   *corev1.Pod
		names int
		most  allocation.Cost
	}{
		"nobody":               {benchPodsOf(1, 0)[0], 0, allocation.Cost{}},
		"one, by its selector": {benchPodsOf(1, 1)[0], 1, allocation.Cost{Allocs: 2, Bytes: 27}},
		"one, by its expression, of pods that are alike": {builder.Pod("ns-1", "db-0").Label("app", "app-3").OwnedBy("StatefulSet", "db").Obj(), 1, allocation.Cost{Allocs: 2, Bytes: 27}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			allocation.AtMost(t, tc.most, func() {
				if names, err := r.Resolve(tc.pod); err != nil || len(names) != tc.names {
					t.Fatalf("%d interceptors and error %v, want %d", len(names), err, tc.names)
				}
			})
		})
	}
}

func perLoop(b *testing.B) float64 {
	b.Helper()
	return float64(b.Elapsed()) / float64(b.N)
}

// BenchmarkRegistryChange is what a registration costs that comes and goes while
// there are 500 others.
func BenchmarkRegistryChange(b *testing.B) {
	r, _ := benchRegistry()
	b.ReportAllocs()
	for b.Loop() {
		r.put(builder.EvictionInterceptor("new.example.com").Pods("app", "new").Namespaces("env", "prod").Obj())
		r.remove("new.example.com")
	}
}
