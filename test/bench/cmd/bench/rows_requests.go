//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// spent is what something took: time, and CPU of the API server.
type spent struct{ took, api time.Duration }

// spending runs work and says what it took.
func (e *env) spending(work func() error) (spent, error) {
	before, err := e.apiServerCPU()
	if err != nil {
		return spent{}, err
	}
	begun := time.Now()
	if err := work(); err != nil {
		return spent{}, err
	}
	took := time.Since(begun)
	after, err := e.apiServerCPU()
	return spent{took, after - before}, err
}

// plainEvictions is what n pods take to go by plain evictions, without us.
func (e *env) plainEvictions(ctx context.Context, n int) (spent, error) {
	if err := e.stopManager(ctx); err != nil {
		return spent{}, err
	}
	pods, err := e.makePods(ctx, plainNamespace, "node-1", n)
	if err != nil {
		return spent{}, err
	}
	gone, err := e.follow(ctx, plainNamespace, &corev1.Pod{}, n, deleted)
	if err != nil {
		return spent{}, err
	}
	return e.spending(func() error {
		if _, err := e.evictAll(ctx, pods, callers); err != nil {
			return err
		}
		return gone.wait(ctx, "the evicted pods to go")
	})
}

// asking makes somebody want the eviction of a pod.
type asking func(ctx context.Context, pod *corev1.Pod) error

// native asks as a program of somebody else does.
func (e *env) native(ctx context.Context, pod *corev1.Pod) error {
	return e.crs.Create(ctx, request(pod))
}

// own asks as a NodeMaintenance does.
func (e *env) own(ctx context.Context, pod *corev1.Pod) error {
	_, err := (&requester.Requester{Name: "bench." + v1alpha1.GroupName, Client: e.crs}).Join(ctx, pod)
	return err
}

// requested is what n requests take from their creation to Evicted.
func (e *env) requested(ctx context.Context, n int, ask asking) (used spent, err error) {
	if err := e.startManager(ctx); err != nil {
		return spent{}, err
	}
	pods, err := e.makePods(ctx, ourNamespace, "node-1", n)
	if err != nil {
		return spent{}, err
	}
	done, err := e.follow(ctx, ourNamespace, &v1alpha1.EvictionRequest{}, n, isEvicted)
	if err != nil {
		return spent{}, err
	}
	err = e.profiled(ctx, 5, func() error {
		used, err = e.spending(func() error {
			err := inParallel(ctx, n, callers, func(ctx context.Context, i int) error { return ask(ctx, pods[i]) })
			if err != nil {
				return fmt.Errorf("create requests: %w", err)
			}
			return done.wait(ctx, "the requests to end")
		})
		return err
	})
	return used, errors.Join(err, e.noRequests(ctx, ourNamespace))
}

// measureRequests: many requests against as many plain evictions.
func measureRequests(ctx context.Context, e *env) error {
	n := e.size(1000, 200)
	got, err := alternate(ctx, e.rounds,
		func(ctx context.Context) (spent, error) { return e.plainEvictions(ctx, n) },
		func(ctx context.Context) (spent, error) { return e.requested(ctx, n, e.own) },
		func(ctx context.Context) (spent, error) { return e.requested(ctx, n, e.native) })
	if err != nil {
		return err
	}
	plain, apiPlain := got[0], cpus(got[0], n)
	for _, side := range []struct {
		of  string
		all []spent
	}{{"of a NodeMaintenance", got[1]}, {"of others", got[2]}} {
		theirs, ours := median(times(plain)), median(times(side.all))
		e.table.add(line{
			what: fmt.Sprintf("%d requests %s from creation to Evicted", n, side.of), ours: spread(times(side.all), seconds),
			theirs: spread(times(plain), seconds) + " plain evictions",
			ratio:  ratioOf(ours.Seconds(), theirs.Seconds()), goal: "<= 3.3", met: new(10*ours <= 33*theirs),
		})
		apiOurs := cpus(side.all, n)
		e.table.add(line{
			what: "CPU of kube-apiserver for each of them, without etcd", ours: spread(apiOurs, hundredths),
			theirs: spread(apiPlain, hundredths) + " each plain eviction", ratio: ratioOf(median(apiOurs).Seconds(), median(apiPlain).Seconds()),
			goal: "<= 20 ms", met: new(median(apiOurs) <= 20*time.Millisecond),
		})
	}
	return nil
}

func times(all []spent) (took []time.Duration) {
	for _, s := range all {
		took = append(took, s.took)
	}
	return took
}

// cpus are the CPU of the API server for each of n.
func cpus(all []spent, n int) (used []time.Duration) {
	for _, s := range all {
		used = append(used, s.api/time.Duration(n))
	}
	return used
}

// measureGrowth: the time per request when there are more.
func measureGrowth(ctx context.Context, e *env) error {
	few, many := 100, e.size(5000, 1000)
	got, err := alternate(ctx, min(e.rounds, 3),
		func(ctx context.Context) (spent, error) { return e.requested(ctx, few, e.native) },
		func(ctx context.Context) (spent, error) { return e.requested(ctx, many, e.native) })
	if err != nil {
		return err
	}
	each := func(all []spent, n int) (one []time.Duration) {
		for _, took := range times(all) {
			one = append(one, took/time.Duration(n))
		}
		return one
	}
	small, large := each(got[0], few), each(got[1], many)
	tell := func(one []time.Duration, n int) string {
		return fmt.Sprintf("%s each of %d", spread(one, hundredths), n)
	}
	e.table.add(line{
		what: "time per request when there are more", ours: tell(large, many), theirs: tell(small, few),
		ratio: ratioOf(median(large).Seconds(), median(small).Seconds()),
	})
	return nil
}

// measureBudget: how long a pod waits after its budget has room.
func measureBudget(ctx context.Context, e *env) error {
	if err := e.startManager(ctx); err != nil {
		return err
	}
	n := e.size(50, 15)
	pods, err := e.makePods(ctx, ourNamespace, "node-1", n, func(i int, w *builder.PodWrapper) { w.Label("bench", fmt.Sprint(i)) })
	if err != nil {
		return err
	}
	var mu sync.Mutex
	freed, ended := map[string]time.Time{}, map[string]time.Time{}
	budgets, err := e.follow(ctx, ourNamespace, &policyv1.PodDisruptionBudget{}, n+1, func(_ watch.EventType, object runtime.Object) bool {
		if pdb, ok := object.(*policyv1.PodDisruptionBudget); ok && pdb.Status.DisruptionsAllowed > 0 {
			mu.Lock()
			defer mu.Unlock()
			if _, known := freed[pdb.Name]; !known {
				freed[pdb.Name] = time.Now()
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	defer budgets.stop()
	evicted, err := e.follow(ctx, ourNamespace, &corev1.Pod{}, n+1, func(event watch.EventType, object runtime.Object) bool {
		if pod, ok := object.(*corev1.Pod); ok && (pod.DeletionTimestamp != nil || event == watch.Deleted) {
			mu.Lock()
			defer mu.Unlock()
			if _, known := ended[pod.Name]; !known {
				ended[pod.Name] = time.Now()
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	defer evicted.stop()
	for i, pod := range pods {
		pdb := builder.Budget(ourNamespace, pod.Name).Selects("bench", fmt.Sprint(i)).MinAvailable("1").Obj()
		if err := errors.Join(e.crs.Create(ctx, pdb), e.crs.Create(ctx, request(pod))); err != nil {
			return err
		}
	}
	for _, pod := range pods {
		if err := eventually(ctx, "the budget to refuse", func(ctx context.Context) (bool, error) {
			er := &v1alpha1.EvictionRequest{}
			err := e.crs.Get(ctx, client.ObjectKey{Namespace: ourNamespace, Name: string(pod.UID)}, er)
			for _, report := range er.Status.Interceptors {
				if report.Refusal != nil {
					return true, nil
				}
			}
			return false, err
		}); err != nil {
			return err
		}
	}
	for _, pod := range pods {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"minAvailable":0}}`))
		if err := e.crs.Patch(ctx, builder.Budget(ourNamespace, pod.Name).Obj(), patch); err != nil {
			return err
		}
		if err := eventually(ctx, "the eviction", func(context.Context) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			return !ended[pod.Name].IsZero() && !freed[pod.Name].IsZero(), nil
		}); err != nil {
			return err
		}
	}
	var waits []time.Duration
	for _, pod := range pods {
		waits = append(waits, max(ended[pod.Name].Sub(freed[pod.Name]), 0))
	}
	e.table.add(line{
		what: "budget freed to pod evicted, median", ours: millis(median(waits)), theirs: millis(percentile(waits, 95)) + " 95th percentile",
		goal: "< 200 ms", met: new(median(waits) < 200*time.Millisecond),
	})
	return errors.Join(e.crs.DeleteAllOf(ctx, &policyv1.PodDisruptionBudget{}, client.InNamespace(ourNamespace)), e.noRequests(ctx, ourNamespace))
}

// nodePods is how many pods a node has at most by Kubernetes' own default.
const nodePods = 110

// drained is how long a way of draining takes for a node of 110 pods.
func (e *env) drained(ctx context.Context, namespace string, drain func(ctx context.Context, node string) error) (time.Duration, error) {
	nodes, err := e.cluster.AddNodes(ctx, 1)
	if err != nil {
		return 0, err
	}
	if _, err := e.makePods(ctx, namespace, nodes[0], nodePods); err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := drain(ctx, nodes[0]); err != nil {
		return 0, err
	}
	took := time.Since(begun)
	return took, errors.Join(e.noPods(ctx, namespace), e.kube.CoreV1().Nodes().Delete(ctx, nodes[0], metav1.DeleteOptions{}))
}

func (e *env) kubectlDrain(ctx context.Context, node string) error {
	result, err := e.cluster.Kubectl(ctx, cluster.KubectlOptions{}, "drain", node, "--force", "--ignore-daemonsets", "--delete-emptydir-data")
	if err != nil {
		return err
	}
	return result.Err()
}

// measureDrain: kubectl drain with and without us.
func measureDrain(ctx context.Context, e *env) error {
	got, err := alternate(ctx, e.rounds,
		func(ctx context.Context) (time.Duration, error) {
			if err := e.stopManager(ctx); err != nil {
				return 0, err
			}
			return e.drained(ctx, plainNamespace, e.kubectlDrain)
		},
		func(ctx context.Context) (time.Duration, error) {
			if err := e.startManager(ctx); err != nil {
				return 0, err
			}
			return e.drained(ctx, ourNamespace, e.kubectlDrain)
		})
	if err != nil {
		return err
	}
	without, with := median(got[0]), median(got[1])
	e.table.add(line{
		what: fmt.Sprintf("kubectl drain of a node of %d pods nobody intercepts", nodePods), ours: spread(got[1], seconds), theirs: spread(got[0], seconds) + " without us",
		ratio: ratioOf(with.Seconds(), without.Seconds()),
	})
	return nil
}

// measureMaintenance: NodeMaintenance against kubectl drain, both past us. There is
// no line where the API does not exist.
func measureMaintenance(ctx context.Context, e *env) error {
	resources, err := e.kube.Discovery().ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
	if err != nil {
		return fmt.Errorf("discover our API: %w", err)
	}
	served := false
	for _, r := range resources.APIResources {
		served = served || r.Name == "nodemaintenances"
	}
	if !served {
		fmt.Println("  NodeMaintenance is not served here")
		return nil
	}
	if err := e.startManager(ctx); err != nil {
		return err
	}
	got, err := alternate(ctx, e.rounds,
		func(ctx context.Context) (time.Duration, error) { return e.drained(ctx, ourNamespace, e.kubectlDrain) },
		func(ctx context.Context) (time.Duration, error) { return e.drained(ctx, ourNamespace, e.maintain) })
	if err != nil {
		return err
	}
	kubectl, ours := median(got[0]), median(got[1])
	e.table.add(line{
		what: fmt.Sprintf("NodeMaintenance of a node of %d pods nobody intercepts", nodePods), ours: spread(got[1], seconds), theirs: spread(got[0], seconds) + " kubectl drain",
		ratio: ratioOf(ours.Seconds(), kubectl.Seconds()),
	})
	return nil
}

// maintain drains a node by a NodeMaintenance.
func (e *env) maintain(ctx context.Context, node string) error {
	nm := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"cordon": true, "drain": true, "reason": "bench",
		"nodeSelector": map[string]any{"nodeSelectorTerms": []any{map[string]any{"matchFields": []any{
			map[string]any{"key": "metadata.name", "operator": "In", "values": []any{node}},
		}}}},
	}}}
	nm.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("NodeMaintenance"))
	nm.SetName("bench-" + node)
	if err := e.crs.Create(ctx, nm); err != nil {
		return fmt.Errorf("create NodeMaintenance: %w", err)
	}
	err := eventually(ctx, "the node to be drained", func(ctx context.Context) (bool, error) {
		if err := e.crs.Get(ctx, client.ObjectKeyFromObject(nm), nm); err != nil {
			return false, err
		}
		stage, _, err := unstructured.NestedString(nm.Object, "status", "stage")
		return stage == "DrainComplete", err
	})
	return errors.Join(err, client.IgnoreNotFound(e.crs.Delete(ctx, nm)), e.noRequests(ctx, ourNamespace))
}
