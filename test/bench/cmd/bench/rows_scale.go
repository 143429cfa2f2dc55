//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// scale is the size of a cluster.
type scale struct{ pods, nodes, requests, waiters, maintained int }

// times is a cluster so many times as large.
func (s scale) times(n int) scale {
	return scale{s.pods * n, s.nodes * n, s.requests * n, s.waiters * n, s.maintained * n}
}

// scalePatience bounds what grows with the cluster.
const scalePatience = 30 * time.Minute

// atScale is what was measured at one size.
type atScale struct {
	size                      scale
	resident, rest            float64 // Bytes, share of one CPU.
	ready, readyCPU, move     time.Duration
	denied, allowed           reviewCost
	event                     time.Duration
	budget, budgetCPU         time.Duration
	budgetRequests            float64
	drained                   time.Duration
	statusBytes, statusWrites int
	created                   int
	creation                  time.Duration
}

// reviewCost is what reviews of one kind take: all of them in the calls' own time, and each in CPU
// of the manager.
type reviewCost struct{ p50, p99, cpu time.Duration }

// scaled is the state of the row while its cluster grows.
type scaled struct {
	*env
	owner *corev1.ConfigMap
	have  scale
	// ordinary and asked are the names of pods without and with a request.
	ordinary []string
	asked    []*corev1.Pod
}

// measureScale: one cluster, measured small and again when it is ten times as large.
func measureScale(ctx context.Context, e *env) error {
	// Nodes and pods are plain objects: without a kubelet, fake or not, pods stay Pending.
	// They all have a node from the start; a scheduler that watches them takes gigabytes of memory.
	for _, idle := range []cluster.ComponentName{cluster.Kwok, cluster.Scheduler} {
		if err := e.cluster.Component(idle).Kill(ctx); err != nil {
			return err
		}
	}
	s := &scaled{env: e, owner: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: plainNamespace, Name: "storefront-7c6f6d9b5d"}}}
	if err := e.crs.Create(ctx, s.owner); err != nil {
		return fmt.Errorf("create owner: %w", err)
	}
	// The silent interceptors must keep their turns until the row ends.
	e.extraArgs = []string{"--heartbeat-deadline=24h"}
	small := scale{pods: e.size(15_000, 1_000), nodes: e.size(500, 50), requests: e.size(1_000, 100), waiters: e.size(500, 50), maintained: e.size(50, 5)}
	var got []atScale
	for _, size := range []scale{small, small.times(10)} {
		at, err := s.measure(ctx, size)
		// Also if something failed: it took half an hour to get there.
		fmt.Printf("  %d pods: %d objects created in %s, measured: %+v\n", size.pods, at.created, at.creation.Round(time.Second), at)
		if err != nil {
			return fmt.Errorf("%d pods: %w", size.pods, err)
		}
		got = append(got, at)
	}
	e.addScale(got[0], got[1])
	return nil
}

// measure grows the cluster to a size and measures all there.
func (s *scaled) measure(ctx context.Context, size scale) (at atScale, err error) {
	at.size = size
	if at.created, at.creation, err = s.grow(ctx, size); err != nil {
		return at, err
	}
	if err := s.stopManager(ctx); err != nil {
		return at, err
	}
	begun := time.Now()
	if err := s.startManager(ctx); err != nil {
		return at, err
	}
	at.ready = time.Since(begun)
	if at.readyCPU, err = cpuOf(s.manager.PID()); err != nil {
		return at, err
	}
	if err := s.quiet(ctx); err != nil {
		return at, err
	}
	if at.rest, err = s.atRest(ctx, time.Duration(s.size(60, 10))*time.Second); err != nil {
		return at, err
	}
	if at.resident, err = s.metric(ctx, "process_resident_memory_bytes"); err != nil {
		return at, err
	}
	return at, errors.Join(s.reviews(ctx, &at), s.events(ctx, &at), s.freed(ctx, &at), s.maintained(ctx, &at), s.leaderChange(ctx, &at))
}

// atRest is the share of one CPU that the manager uses.
func (s *scaled) atRest(ctx context.Context, span time.Duration) (float64, error) {
	before, err := cpuOf(s.manager.PID())
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, span); err != nil {
		return 0, err
	}
	after, err := cpuOf(s.manager.PID())
	return (after - before).Seconds() / span.Seconds(), err
}

// grow adds nodes, ordinary pods, and pods with a request whose interceptor is silent.
func (s *scaled) grow(ctx context.Context, size scale) (created int, took time.Duration, err error) {
	begun, from := time.Now(), s.have
	s.have = size
	if err := inParallel(ctx, size.nodes-from.nodes, callers, func(ctx context.Context, i int) error {
		return s.addNode(ctx, fmt.Sprintf("scale-%d", from.nodes+i))
	}); err != nil {
		return 0, 0, err
	}
	more, err := s.addOrdinary(ctx, size)
	if err != nil {
		return 0, 0, err
	}
	s.ordinary = append(s.ordinary, more...)
	if err := s.startManager(ctx); err != nil {
		return 0, 0, err
	}
	n := size.requests - len(s.asked)
	turns, err := s.follow(ctx, ourNamespace, &v1alpha1.EvictionRequest{}, n+len(s.asked), hasTurn)
	if err != nil {
		return 0, 0, err
	}
	name := fmt.Sprintf("asked-%d", size.pods)
	pods, err := s.pods(ctx, name, 1, func(_ int, w *builder.PodWrapper) { w.Interceptors(silentInterceptor) })
	if err != nil {
		return 0, 0, err
	}
	copies, err := s.copyPods(ctx, pods[0], n-1, func(i int, pod *corev1.Pod) {
		pod.Name, pod.Spec.NodeName = fmt.Sprintf("%s-%d", name, i+1), fmt.Sprintf("scale-%d", i%size.nodes)
	})
	if err != nil {
		return 0, 0, err
	}
	pods = append(pods, copies...)
	if err := inParallel(ctx, n, callers, func(ctx context.Context, i int) error { return s.crs.Create(ctx, request(pods[i])) }); err != nil {
		return 0, 0, fmt.Errorf("create requests: %w", err)
	}
	s.asked = append(s.asked, pods...)
	err = turns.waitFor(ctx, "the turns of the silent interceptor", scalePatience)
	return len(more) + 2*n + size.nodes - from.nodes, time.Since(begun), err
}

// addOrdinary adds the pods without a request that a size still lacks, and returns their names.
func (s *scaled) addOrdinary(ctx context.Context, size scale) (names []string, err error) {
	from := len(s.ordinary)
	first := ordinaryPod(fmt.Sprintf("ordinary-%d", from), s.owner)
	first.Spec.NodeName, first.Spec.TerminationGracePeriodSeconds = "scale-0", new(int64)
	if err := s.crs.Create(ctx, first); err != nil {
		return nil, fmt.Errorf("create pod: %w", err)
	}
	copies, err := s.copyPods(ctx, first, size.pods-size.requests-from-1, func(i int, pod *corev1.Pod) {
		pod.Name, pod.Spec.NodeName = fmt.Sprintf("ordinary-%d", from+1+i), fmt.Sprintf("scale-%d", i%size.nodes)
	})
	if err != nil {
		return nil, err
	}
	for _, pod := range append(copies, first) {
		names = append(names, pod.Name)
	}
	return names, nil
}

func hasTurn(_ watch.EventType, object runtime.Object) bool {
	er, ok := object.(*v1alpha1.EvictionRequest)
	return ok && len(er.Status.ActiveInterceptors) > 0
}

// addNode creates a node that has just reported, which is enough for an hour.
func (s *scaled) addNode(ctx context.Context, name string) error {
	now := metav1.Now()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now,
		}}},
	}
	if err := s.crs.Create(ctx, node); err != nil {
		return fmt.Errorf("create node: %w", err)
	}
	return nil
}

// pods creates n pods that nobody runs, spread over the nodes.
func (s *scaled) pods(ctx context.Context, name string, n int, change func(int, *builder.PodWrapper)) ([]*corev1.Pod, error) {
	pods := make([]*corev1.Pod, n)
	err := inParallel(ctx, n, callers, func(ctx context.Context, i int) error {
		w := builder.Pod(ourNamespace, fmt.Sprintf("%s-%d", name, i)).Node(fmt.Sprintf("scale-%d", i%s.have.nodes)).Label("app", name).GracePeriod(0)
		change(i, w)
		pods[i] = w.Obj()
		return s.crs.Create(ctx, pods[i])
	})
	if err != nil {
		return nil, fmt.Errorf("create pods: %w", err)
	}
	return pods, nil
}

// leaderChange: the leader ends, and a request that comes then waits for the replica
// that stood by. It is the last, because it leaves no manager behind.
func (s *scaled) leaderChange(ctx context.Context, at *atScale) (err error) {
	if err := s.stopManager(ctx); err != nil {
		return err
	}
	pods, err := s.pods(ctx, fmt.Sprintf("next-%d", at.size.pods), 1, func(_ int, w *builder.PodWrapper) { w.Interceptors(silentInterceptor) })
	if err != nil {
		return err
	}
	elected := s.extraArgs
	defer func() { s.extraArgs = elected }()
	s.extraArgs = append([]string{"--leader-elect=true"}, elected...)
	if err := s.startManager(ctx); err != nil {
		return err
	}
	port, err := manager.FreePort(ctx)
	if err != nil {
		return err
	}
	// The API server goes on asking the first one's address: no eviction is called here.
	standby, err := s.inst.StartProcess(ctx, manager.ProcessOptions{Args: append([]string{
		"--log-level=info", "--log-format=json", "--startup-grace=0s", fmt.Sprintf("--webhook-port=%d", port),
	}, s.extraArgs...)})
	if err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, standby.Stop(ending))
	}()
	turn, err := s.follow(ctx, ourNamespace, &v1alpha1.EvictionRequest{}, 1, func(event watch.EventType, object runtime.Object) bool {
		er, ok := object.(*v1alpha1.EvictionRequest)
		return ok && er.Spec.Target.Pod.UID == pods[0].UID && hasTurn(event, object)
	})
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := s.stopManager(ctx); err != nil {
		return err
	}
	if err := s.crs.Create(ctx, request(pods[0])); err != nil {
		return err
	}
	err = turn.waitFor(ctx, "the first move of the new leader", scalePatience)
	at.move = time.Since(begun)
	return errors.Join(err, s.forget(ctx, pods))
}
