//go:build unix

package forecast

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

const (
	// poolLabel keeps the pods of a scenario on its nodes, homeLabel those that fit nowhere
	// else on the nodes to drain.
	poolLabel = "test.drawbridge.dev/pool"
	homeLabel = "test.drawbridge.dev/home"
	// warmPods is how many pods of each workload are drained before, so that there is a
	// history.
	warmPods = 4
)

// world is a scenario that was made.
type world struct {
	*scenario
	namespace string
	nodes     []string
}

// build makes the workloads on the nodes to drain, a history, and then the room for
// replacements.
func build(t *testing.T, s *scenario) *world {
	t.Helper()
	w := &world{scenario: s, namespace: kube.Namespace(t)}
	for i := range s.nodes {
		name := fmt.Sprintf("s%d-drained-%d", s.seed, i+1)
		w.addNode(t, name, string(rune('a'+i)), func(n *corev1.Node) { n.Labels[homeLabel] = w.namespace })
		w.nodes = append(w.nodes, name)
	}
	w.play(t)
	for i := range s.loads {
		w.makeLoad(t, &s.loads[i])
	}
	w.warmUp(t)
	for i := range s.loads {
		w.waitLoad(t, &s.loads[i])
	}
	for i := range 2 {
		w.addNode(t, fmt.Sprintf("s%d-room-%d", s.seed, i+1), "room", func(*corev1.Node) {})
	}
	return w
}

// addNode adds a node that goes with the test.
func (w *world) addNode(t *testing.T, name, zone string, change func(*corev1.Node)) {
	t.Helper()
	err := kube.AddNode(t.Context(), name, func(n *corev1.Node) {
		n.Labels[poolLabel], n.Labels[zoneLabel] = w.namespace, zone
		change(n)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Delete(context.WithoutCancel(t.Context()), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Errorf("delete node %s: %v", name, err)
		}
	})
}

// pod is what the pods of a workload have in common with those of its history.
func (l *load) pod(p *builder.PodWrapper) {
	p.Annotation(cluster.StartDelayAnnotation, l.startup.String()).Annotation(cluster.StopDelayAnnotation, l.stop.String())
	var names []string
	for _, t := range l.turns {
		names = append(names, t.interceptor)
	}
	if len(names) > 0 {
		p.Interceptors(names...)
	}
}

func (w *world) makeLoad(t *testing.T, l *load) {
	t.Helper()
	pods := func(p *builder.PodWrapper) {
		l.pod(p)
		p.NodeSelector(poolLabel, w.namespace)
		if l.homeless {
			p.NodeSelector(homeLabel, w.namespace)
		}
		if l.surges {
			p.Label(surge.OptInLabel, "enabled")
		}
	}
	if l.stateful {
		set := builder.StatefulSet(w.namespace, l.name).Replicas(int32(l.pods)).Pods(pods).Obj()
		set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		create(t, set)
	} else {
		create(t, builder.Deployment(w.namespace, l.name).Replicas(int32(l.pods)).Rolling("1", "0").Pods(pods).Obj())
	}
	if l.pdb != "" {
		create(t, builder.Budget(w.namespace, l.name).Selects(builder.AppLabel, l.name).MaxUnavailable(l.pdb).Obj())
	}
	if l.after != "" {
		name := fmt.Sprintf("%s-%d%s", l.name, w.seed, v1alpha1.OrderInterceptorSuffix)
		r := builder.EvictionInterceptor(name).InNamespace(w.namespace).Pods(builder.AppLabel, l.name).
			After(builder.AppLabel, l.after).AfterNamespaces(corev1.LabelMetadataName, w.namespace).AfterTimeout(l.timeout).Obj()
		create(t, r)
		t.Cleanup(func() {
			if err := admin.Delete(context.WithoutCancel(t.Context()), r); err != nil {
				t.Errorf("delete registration %s: %v", name, err)
			}
		})
		eventually(t, "registration "+name+" to be accepted", func(ctx context.Context) error {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(r), r); err != nil {
				return err
			}
			if !meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionAccepted) {
				return fmt.Errorf("its status is %+v", r.Status)
			}
			return nil
		})
	}
	if p := l.paced; p != nil {
		b := builder.EvictionBudget(w.namespace, l.name, builder.AppLabel, l.name).MaxUnavailable("1")
		if p.by != "" {
			b.ByNodeLabel(p.by, 1)
		}
		if p.settle > 0 {
			b.Settle(p.settle)
		}
		if p.minInterval > 0 {
			b.MinInterval(p.minInterval)
		}
		create(t, b.Obj())
	}
}

// waitLoad waits until all pods are Ready, and the budgets know it.
func (w *world) waitLoad(t *testing.T, l *load) {
	t.Helper()
	key := client.ObjectKey{Namespace: w.namespace, Name: l.name}
	eventually(t, "the pods of "+l.name, func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := admin.List(ctx, list, client.InNamespace(w.namespace), client.MatchingLabels{builder.AppLabel: l.name}); err != nil {
			return err
		}
		n := 0
		for i := range list.Items {
			if isReady(&list.Items[i]) {
				n++
			}
		}
		if n != l.pods {
			return fmt.Errorf("%d of %d are Ready", n, l.pods)
		}
		return nil
	})
	if l.pdb != "" {
		eventually(t, "the disruption controller to count "+l.name, func(ctx context.Context) error {
			pdb := &policyv1.PodDisruptionBudget{}
			if err := admin.Get(ctx, key, pdb); err != nil {
				return err
			}
			if int(pdb.Status.CurrentHealthy) != l.pods || pdb.Status.ObservedGeneration != pdb.Generation {
				return fmt.Errorf("its status is %+v", pdb.Status)
			}
			return nil
		})
	}
	if l.paced != nil {
		eventually(t, "the manager to count "+l.name, func(ctx context.Context) error {
			b := &v1alpha1.EvictionBudget{}
			if err := admin.Get(ctx, key, b); err != nil {
				return err
			}
			if b.Status.MatchingPods == nil || int(*b.Status.MatchingPods) != l.pods {
				return fmt.Errorf("its status is %+v", b.Status)
			}
			return nil
		})
	}
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// warmUp drains another node, with pods like those of the workloads, which nobody makes
// again.
func (w *world) warmUp(t *testing.T) {
	t.Helper()
	node := fmt.Sprintf("s%d-warm", w.seed)
	w.addNode(t, node, "warm", func(n *corev1.Node) { delete(n.Labels, poolLabel) })
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "warm"}}
	create(t, owner)
	by := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: new(true)}
	for i := range w.loads {
		for n := range warmPods {
			p := builder.Pod(w.namespace, w.loads[i].name+"-warm-"+strconv.Itoa(n)).Node(node).Owner(by)
			w.loads[i].pod(p)
			create(t, p.Obj())
		}
	}
	eventually(t, "the pods to warm up", func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := admin.List(ctx, list, client.InNamespace(w.namespace), client.MatchingFields{"spec.nodeName": node}); err != nil {
			return err
		}
		for i := range list.Items {
			if !isReady(&list.Items[i]) {
				return fmt.Errorf("pod %s is not Ready", list.Items[i].Name)
			}
		}
		return nil
	})
	run(t, "drain", node, "--reason=warm up", "--timeout="+patience.String())
}

// endMaintenances makes the API server forget the drains, also those that never end.
func endMaintenances(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	list := &v1alpha1.NodeMaintenanceList{}
	if err := admin.List(ctx, list); err != nil {
		t.Errorf("list nodemaintenances: %v", err)
	}
	for i := range list.Items {
		if err := admin.Delete(ctx, &list.Items[i]); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("delete nodemaintenance %s: %v", list.Items[i].Name, err)
		}
	}
}

// worker is an interceptor with the real SDK, whose turns take as long as the scenario says.
type worker struct {
	turn
	mu sync.Mutex
	// ends is when it is done with a pod, by UID.
	ends map[types.UID]time.Time
}

var _ interceptor.Interceptor = &worker{}

// Evacuate is done when the time of the pod has passed.
func (w *worker) Evacuate(_ context.Context, t interceptor.Target) (interceptor.Progress, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	end, ok := w.ends[t.PodUID]
	if !ok {
		end = time.Now().Add(w.lasts(len(w.ends)))
		w.ends[t.PodUID] = end
	}
	left := time.Until(end)
	if left <= 0 {
		return interceptor.Progress{Done: true, Message: "done"}, nil
	}
	return interceptor.Progress{Message: "working", ExpectedFinishTime: end, CheckAfter: left}, nil
}

// lasts is how long the turn of the n-th pod takes. The multiples of the golden ratio are
// spread evenly, however many there are: so few samples show what a turn may take.
func (w *worker) lasts(n int) time.Duration {
	_, part := math.Modf(float64(n) * math.Phi)
	return w.min + time.Duration(part*float64(w.max-w.min))
}

// play runs the interceptors of the scenario until the end of the test.
func (w *world) play(t *testing.T) {
	t.Helper()
	mgr, err := ctrl.NewManager(kube.Config(), ctrl.Options{
		Scheme:                 scheme,
		Cache:                  cache.Options{DefaultNamespaces: map[string]cache.Config{w.namespace: {}}},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range w.loads {
		for _, turn := range w.loads[i].turns {
			work := &worker{turn: turn, ends: map[types.UID]time.Time{}}
			if err := interceptor.Add(mgr, work, interceptor.Options{Name: turn.interceptor}); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the interceptors' manager: %v", err)
		}
	})
}
