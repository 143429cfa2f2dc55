package budget

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/waitfor"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// benchPods are the covered pods of every cluster that is measured, in benchZones zones of
// each budget.
const (
	benchPods  = 20_000
	benchZones = 4
)

// layout is how many namespaces a cluster has, and budgets in each; all of them together
// cover benchPods.
type layout struct {
	name                string
	namespaces, budgets int
}

var layouts = []layout{
	{"200 namespaces with a budget of 100 pods", 200, 1},
	{"a namespace with 200 budgets of 100 pods", 1, 200},
	{"a budget of 20000 pods", 1, 1},
}

// benchAPI has StatefulSets of any name, and budgets. It counts the calls.
type benchAPI struct {
	client.Client
	replicas      int32
	budgets       map[types.NamespacedName]*v1alpha1.EvictionBudget
	lists, writes int
}

func (a *benchAPI) List(context.Context, client.ObjectList, ...client.ListOption) error {
	a.lists++
	return nil
}

func (a *benchAPI) Get(_ context.Context, key types.NamespacedName, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *appsv1.StatefulSet:
		into.UID, into.Spec.Replicas = types.UID(key.Name), &a.replicas
	case *v1alpha1.EvictionBudget:
		a.budgets[key].DeepCopyInto(into)
	default:
		return fmt.Errorf("nobody should ask for %T %s", into, key)
	}
	return nil
}

func (a *benchAPI) Status() client.SubResourceWriter { return benchStatus{api: a} }

type benchStatus struct {
	client.SubResourceWriter
	api *benchAPI
}

func (s benchStatus) Update(_ context.Context, object client.Object, _ ...client.SubResourceUpdateOption) error {
	s.api.writes++
	object.SetResourceVersion(strconv.Itoa(s.api.writes))
	return nil
}

// benchCluster is one whose events have all come.
type benchCluster struct {
	layout
	api    *benchAPI
	clock  *clocktesting.FakeClock
	runner *runner
	pods   []*corev1.Pod
	// asked is how many decisions the state has asked for.
	asked int
}

func newBenchCluster(b *testing.B, l layout) *benchCluster {
	b.Helper()
	c := &benchCluster{layout: l, clock: clocktesting.NewFakeClock(noon)}
	c.api = &benchAPI{budgets: map[types.NamespacedName]*v1alpha1.EvictionBudget{}, replicas: int32(benchPods / l.namespaces / l.budgets / benchZones)}
	c.runner = newRunner(c.api, c.api, Options{
		Clock: c.clock, Metrics: metrics.NewBudgets(prometheus.NewRegistry()), Watches: &waitfor.Watches{}, Recorder: &eventsclient.FakeRecorder{},
	})
	c.runner.state.changed = func(types.NamespacedName) { c.asked++ }
	for i := range l.namespaces * l.budgets {
		budget := builder.EvictionBudget(c.namespace(i), c.budget(i), "app", c.budget(i)).ByPodLabel(zoneLabel, 1).MaxUnavailable("100%").
			UID(types.UID(fmt.Sprint("budget-", i))).Generation(1).Obj()
		c.api.budgets[client.ObjectKeyFromObject(budget)] = budget
		c.runner.state.putBudget(budget)
	}
	for i := range benchPods {
		c.pods = append(c.pods, c.pod(i, 0, true))
		c.runner.state.putPod(c.pods[i], noon)
	}
	c.api.lists = 0
	return c
}

// namespace and budget are those of a budget or of a pod.
func (c *benchCluster) namespace(i int) string { return fmt.Sprint("ns-", i%c.namespaces) }

func (c *benchCluster) budget(i int) string { return fmt.Sprint("app-", i/c.namespaces%c.budgets) }

// pod has labels as pods usually have them. A later one has another generation.
func (c *benchCluster) pod(i, generation int, ready bool) *corev1.Pod {
	zone := i / c.namespaces / c.budgets % benchZones
	set := fmt.Sprint(c.budget(i), "-zone-", zone)
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: set, UID: types.UID(set), Controller: new(true)}
	w := builder.Pod(c.namespace(i), fmt.Sprint(set, "-", i)).UID(types.UID(fmt.Sprintf("pod-%d-%d", i, generation))).
		Label("app", c.budget(i)).Label(zoneLabel, fmt.Sprint(zone)).Label("app.kubernetes.io/name", "ingester").Label("pod-template-hash", "6f7c").
		Node(fmt.Sprint("node-", i%500)).Owner(owner)
	if ready {
		w.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.clock.Now())}}
	}
	return w.Obj()
}

// ask has a request wait for a pod.
func (c *benchCluster) ask(pod *corev1.Pod, created time.Time) *v1alpha1.EvictionRequest {
	er := builder.EvictionRequest(pod.Namespace, pod.Name, pod.UID).UID("er-"+pod.UID).Created(created).
		Requesters("drain.example.com").Interceptors(v1alpha1.BudgetInterceptor).Active(v1alpha1.BudgetInterceptor, created).Obj()
	c.runner.state.putRequest(er)
	return er
}

func perLoop(b *testing.B) float64 {
	b.Helper()
	return float64(b.Elapsed()) / float64(b.N)
}

// BenchmarkPodEvent is what the state needs for the event of a pod, of 20,000 that budgets
// cover. The first one is without budgets in the namespace: what all other pods of a cluster
// cost.
func BenchmarkPodEvent(b *testing.B) {
	var without float64
	b.Run("no budget in the namespace", func(b *testing.B) {
		c := newBenchCluster(b, layouts[0])
		pod := builder.Pod("elsewhere", "web").Label("app", "app-0").Ready().Obj()
		b.ReportAllocs()
		for b.Loop() {
			c.runner.state.putPod(pod, noon)
		}
		without = perLoop(b)
	})
	for _, l := range layouts {
		for _, event := range []struct {
			name    string
			changes bool
		}{{"its readiness changes", true}, {"nothing that matters changes", false}} {
			b.Run(l.name+", "+event.name, func(b *testing.B) {
				c := newBenchCluster(b, l)
				states := [2][]*corev1.Pod{make([]*corev1.Pod, benchPods), make([]*corev1.Pod, benchPods)}
				for i := range benchPods {
					states[0][i], states[1][i] = c.pod(i, 0, !event.changes), c.pods[i]
				}
				c.asked = 0
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					c.runner.state.putPod(states[i/benchPods%2][i%benchPods], noon)
					i++
				}
				if event.changes && c.asked != i || !event.changes && c.asked != 0 {
					b.Fatalf("%d events have asked for %d decisions", i, c.asked)
				}
				if without > 0 {
					b.ReportMetric(perLoop(b)/without, "times-without")
				}
			})
		}
	}
}

// BenchmarkGrant is a grant with all that belongs to it: a request comes, it is decided and
// recorded, the pod goes, another one comes, and the request goes. Others wait for another
// zone meanwhile. Nothing is listed, and each grant is one write.
func BenchmarkGrant(b *testing.B) {
	for _, others := range []int{0, 50} {
		var first float64
		for _, l := range layouts {
			b.Run(fmt.Sprintf("%s, %d others wait", l.name, others), func(b *testing.B) {
				c := newBenchCluster(b, l)
				zone := c.zones()
				for i := range others {
					c.ask(c.pods[zone[1][i%len(zone[1])]], noon.Add(time.Hour)) // They are younger.
				}
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					n++
					c.grant(b, zone[0][n%len(zone[0])], n)
				}
				if c.api.lists != 0 || c.api.writes != n {
					b.Fatalf("%d grants took %d lists and %d writes", n, c.api.lists, c.api.writes)
				}
				if first == 0 {
					first = perLoop(b)
				} else {
					b.ReportMetric(perLoop(b)/first, "times-the-first")
				}
			})
		}
	}
}

// zones are the numbers of the pods of the first budget in its first two zones.
func (c *benchCluster) zones() (of [2][]int) {
	for i, pod := range c.pods {
		if pod.Namespace != c.namespace(0) || pod.Labels["app"] != c.budget(0) {
			continue
		}
		for z := range of {
			if pod.Labels[zoneLabel] == strconv.Itoa(z) {
				of[z] = append(of[z], i)
			}
		}
	}
	return of
}

// grant has a pod evicted, and replaced by one of that generation.
func (c *benchCluster) grant(b *testing.B, i, generation int) {
	b.Helper()
	pod := c.pods[i]
	er := c.ask(pod, noon)
	if _, err := c.runner.decide(b.Context(), client.ObjectKey{Namespace: pod.Namespace, Name: c.budget(i)}); err != nil {
		b.Fatal(err)
	}
	if answer, _ := c.runner.state.answerOf(pod.Namespace, er.UID, pod.UID); !answer.granted {
		b.Fatalf("the answer for %s is %+v", pod.Name, answer)
	}
	c.runner.state.removePod(pod, noon)
	c.pods[i] = c.pod(i, generation, true)
	c.runner.state.putPod(c.pods[i], noon)
	c.runner.state.removeRequest(pod.Namespace, er.UID, pod.UID)
}

// BenchmarkComponent finds out which budgets and requests are decided together, while 1000
// requests wait.
func BenchmarkComponent(b *testing.B) {
	const waiting = 1000
	for _, l := range layouts {
		b.Run(l.name, func(b *testing.B) {
			c := newBenchCluster(b, l)
			for i := range waiting {
				c.ask(c.pods[i], noon)
			}
			s := c.runner.state.space(c.namespace(0))
			b.ReportAllocs()
			for b.Loop() {
				if entries, requests := c.runner.state.component(s, c.budget(0)); len(entries) != 1 || len(requests) != waiting/l.namespaces/l.budgets {
					b.Fatalf("%d budgets and %d requests", len(entries), len(requests))
				}
			}
		})
	}
}
