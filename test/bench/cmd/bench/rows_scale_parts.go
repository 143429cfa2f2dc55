//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/webhook"
)

// latencies posts the same review n times, one after the other.
func latencies(ctx context.Context, url string, body []byte, want string, n int) ([]time.Duration, error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	poster := &http.Client{Transport: transport}
	var took []time.Duration
	for range n {
		begun := time.Now()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"?timeout=10s", bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := poster.Do(req)
		if err != nil {
			return nil, err
		}
		answer, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begun))
		if !bytes.Contains(answer, []byte(want)) {
			return nil, fmt.Errorf("want an answer with %q, got %s", want, answer)
		}
	}
	return took, nil
}

// reviews: how long a denied and an allowed review take, and what the manager uses for each.
func (s *scaled) reviews(ctx context.Context, at *atScale) error {
	url, err := s.inst.WebhookURL(ctx, webhook.EvictionPath)
	if err != nil {
		return err
	}
	config, err := s.cluster.ConfigFor("alice", "system:masters")
	if err != nil {
		return err
	}
	alice, err := kubernetes.NewForConfig(unlimited(config))
	if err != nil {
		return err
	}
	if err := firstDenial(ctx, alice, s.asked[0]); err != nil {
		return err
	}
	free, err := s.pods(ctx, fmt.Sprintf("free-%d", at.size.pods), 1, func(int, *builder.PodWrapper) {})
	if err != nil {
		return err
	}
	for _, review := range []struct {
		pod  *corev1.Pod
		want string
		cost *reviewCost
	}{{s.asked[0], silentInterceptor, &at.denied}, {free[0], `"allowed":true`, &at.allowed}} {
		body, err := reviewFor(review.pod)
		if err != nil {
			return err
		}
		// The first ones may need the API server, because the pod is new.
		if _, err := latencies(ctx, url, body, review.want, 100); err != nil {
			return err
		}
		if *review.cost, err = s.review(ctx, url, body, review.want); err != nil {
			return err
		}
	}
	return nil
}

// review posts a review while the API server stands still: it would use the same CPUs, for the
// garbage of so many objects.
func (s *scaled) review(ctx context.Context, url string, body []byte, want string) (cost reviewCost, err error) {
	server := s.cluster.Component(cluster.APIServer)
	if err := server.Pause(); err != nil {
		return cost, err
	}
	defer func() { err = errors.Join(err, server.Resume()) }()
	before, err := cpuOf(s.manager.PID())
	if err != nil {
		return cost, err
	}
	n := s.size(10_000, 1_000)
	took, err := latencies(ctx, url, body, want, n)
	if err != nil {
		return cost, err
	}
	after, err := cpuOf(s.manager.PID())
	return reviewCost{percentile(took, 50), percentile(took, 99), (after - before) / time.Duration(n)}, err
}

// events: what the manager uses for one change of a pod that concerns nobody. What it uses anyway
// is in a few changes and in many, so the difference is that of the changes.
func (s *scaled) events(ctx context.Context, at *atScale) error {
	few, many := s.size(4_000, 400), s.size(20_000, 2_000)
	var used [2]time.Duration
	for i, n := range []int{few, many} {
		before, err := cpuOf(s.manager.PID())
		if err != nil {
			return err
		}
		if err := s.change(ctx, n, fmt.Sprintf("%d-%d", at.size.pods, i)); err != nil {
			return err
		}
		after, err := cpuOf(s.manager.PID())
		if err != nil {
			return err
		}
		used[i] = after - before
	}
	at.event = (used[1] - used[0]) / time.Duration(many-few)
	return nil
}

// change makes n changes, of one ordinary pod after the other, and waits until the manager has them.
func (s *scaled) change(ctx context.Context, n int, mark string) error {
	err := inParallel(ctx, n, callers, func(ctx context.Context, i int) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: plainNamespace, Name: s.ordinary[i%len(s.ordinary)]}}
		return s.crs.Patch(ctx, pod, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"bench":"%s-%d"}}}`, mark, i)))
	})
	if err != nil {
		return fmt.Errorf("change pods: %w", err)
	}
	return pause(ctx, 2*time.Second)
}

// runningStatus is what a kubelet would report.
const runningStatus = `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-03-01T12:00:00Z"}]}}`

// freed: one disruption is allowed where many requests wait for it.
func (s *scaled) freed(ctx context.Context, at *atScale) error {
	n, name := at.size.waiters, fmt.Sprintf("waiter-%d", at.size.pods)
	pods, err := s.pods(ctx, name, n, func(int, *builder.PodWrapper) {})
	if err != nil {
		return err
	}
	err = inParallel(ctx, n, callers, func(ctx context.Context, i int) error {
		return s.crs.Status().Patch(ctx, pods[i].DeepCopy(), client.RawPatch(types.MergePatchType, []byte(runningStatus)))
	})
	if err != nil {
		return fmt.Errorf("run pods: %w", err)
	}
	// After the pods run: kube-controller-manager counts all pods of a budget for each that changes.
	pdb := builder.Budget(ourNamespace, name).Selects("app", name).MinAvailable(fmt.Sprint(n)).Obj()
	if err := s.crs.Create(ctx, pdb); err != nil {
		return fmt.Errorf("create budget: %w", err)
	}
	counted := func(ctx context.Context) (bool, error) {
		err := s.crs.Get(ctx, client.ObjectKeyFromObject(pdb), pdb)
		return pdb.Status.CurrentHealthy == int32(n) && pdb.Status.ObservedGeneration == pdb.Generation, err
	}
	if err := within(ctx, scalePatience, "the budget to count its pods", counted); err != nil {
		return err
	}
	refused, err := s.follow(ctx, ourNamespace, &v1alpha1.EvictionRequest{}, n, func(_ watch.EventType, object runtime.Object) bool {
		er, ok := object.(*v1alpha1.EvictionRequest)
		return ok && waits(er, name)
	})
	if err != nil {
		return err
	}
	if err := inParallel(ctx, n, callers, func(ctx context.Context, i int) error { return s.crs.Create(ctx, request(pods[i])) }); err != nil {
		return fmt.Errorf("create requests: %w", err)
	}
	if err := refused.waitFor(ctx, "the budget to refuse", scalePatience); err != nil {
		return err
	}
	evicted, err := s.follow(ctx, ourNamespace, &corev1.Pod{}, 1, func(event watch.EventType, object runtime.Object) bool {
		pod, ok := object.(*corev1.Pod)
		return ok && pod.Labels["app"] == name && event == watch.Deleted
	})
	if err != nil {
		return err
	}
	if err := s.free(ctx, at, pdb, n, evicted); err != nil {
		return err
	}
	// Without their requesters the others are left alone.
	return errors.Join(s.forget(ctx, pods), s.crs.Delete(ctx, pdb))
}

// waits says that a request of such a pod was refused by its budget.
func waits(er *v1alpha1.EvictionRequest, name string) bool {
	for _, report := range er.Status.Interceptors {
		if strings.HasPrefix(er.Spec.Target.Pod.Name, name) && report.Refusal != nil {
			return true
		}
	}
	return false
}

// free lets the budget allow one disruption and measures until it is used, and the CPU
// until all others have looked.
func (s *scaled) free(ctx context.Context, at *atScale, pdb *policyv1.PodDisruptionBudget, n int, evicted *following) error {
	if err := s.quiet(ctx); err != nil {
		return err
	}
	before, err := cpuOf(s.manager.PID())
	if err != nil {
		return err
	}
	requests, err := s.metricSum(ctx, "rest_client_requests_total")
	if err != nil {
		return err
	}
	begun := time.Now()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"minAvailable":%d}}`, n-1))
	if err := s.crs.Patch(ctx, pdb, patch); err != nil {
		return err
	}
	if err := evicted.waitFor(ctx, "the first eviction", scalePatience); err != nil {
		return err
	}
	at.budget = time.Since(begun)
	if err := pause(ctx, 10*time.Second); err != nil {
		return err
	}
	after, err := cpuOf(s.manager.PID())
	if err != nil {
		return err
	}
	at.budgetCPU = after - before
	total, err := s.metricSum(ctx, "rest_client_requests_total")
	at.budgetRequests = total - requests
	return err
}

// quiet waits until the manager has told what it had to tell: events follow later than statuses.
func (s *scaled) quiet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, scalePatience)
	defer cancel()
	last := -1.0
	return wait.PollUntilContextCancel(ctx, 5*time.Second, true, func(ctx context.Context) (bool, error) {
		requests, err := s.metricSum(ctx, "rest_client_requests_total")
		// A lease that is renewed and the API server's readiness go on.
		settled := last >= 0 && requests-last < 10
		last = requests
		return settled, err
	})
}

// forget deletes pods and their requests.
func (s *scaled) forget(ctx context.Context, pods []*corev1.Pod) error {
	return inParallel(ctx, len(pods), callers, func(ctx context.Context, i int) error {
		return errors.Join(client.IgnoreNotFound(s.crs.Delete(ctx, request(pods[i]))), client.IgnoreNotFound(s.crs.Delete(ctx, pods[i], client.Preconditions{UID: &pods[i].UID})))
	})
}

// maintained: a NodeMaintenance of many nodes of two pods each.
func (s *scaled) maintained(ctx context.Context, at *atScale) error {
	n, name := at.size.maintained, fmt.Sprintf("maintained-%d", at.size.pods)
	node := func(i int) string { return fmt.Sprintf("%s-%d", name, i) }
	if err := inParallel(ctx, n, callers, func(ctx context.Context, i int) error { return s.addNode(ctx, node(i)) }); err != nil {
		return err
	}
	if err := inParallel(ctx, n, callers, func(ctx context.Context, i int) error {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"bench-maintained":%q}}}`, name))
		return s.crs.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node(i)}}, patch)
	}); err != nil {
		return fmt.Errorf("label nodes: %w", err)
	}
	if _, err := s.pods(ctx, name, 2*n, func(i int, w *builder.PodWrapper) { w.Node(node(i / 2)) }); err != nil {
		return err
	}
	var largest, writes atomic.Int64
	last := ""
	done, err := s.follow(ctx, ourNamespace, &v1alpha1.NodeMaintenance{}, 1, func(_ watch.EventType, object runtime.Object) bool {
		nm, ok := object.(*v1alpha1.NodeMaintenance)
		if !ok || nm.Name != name {
			return false
		}
		status, err := json.Marshal(nm.Status)
		if err != nil {
			return false
		}
		if string(status) != last && nm.Status.Stage != "" {
			writes.Add(1)
			last = string(status)
		}
		largest.Store(max(largest.Load(), int64(len(status))))
		return nm.Status.Stage == v1alpha1.StageDrainComplete
	})
	if err != nil {
		return err
	}
	nm := &v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeMaintenanceSpec{
		Cordon: true, Drain: true, Reason: "bench",
		NodeSelector: v1alpha1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "bench-maintained", Operator: corev1.NodeSelectorOpIn, Values: []string{name}},
		}}}},
	}}
	begun := time.Now()
	if err := s.crs.Create(ctx, nm); err != nil {
		return fmt.Errorf("create NodeMaintenance: %w", err)
	}
	if err := done.waitFor(ctx, "the nodes to be drained", scalePatience); err != nil {
		return err
	}
	at.drained, at.statusBytes, at.statusWrites = time.Since(begun), int(largest.Load()), int(writes.Load())
	return s.crs.Delete(ctx, nm)
}
