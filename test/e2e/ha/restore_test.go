//go:build unix

package ha

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// etcd is restored from a copy that is some writes old, in the middle of a drain. The manager
// notices it, ends, is started again as by a kubelet, and goes on. A control plane that went
// back in time is of no use to other tests, so this one has its own.
func TestADrainGoesOnAfterEtcdWasRestored(t *testing.T) {
	restored := cluster.ForTest(t, cluster.Options{Nodes: 2})
	r := &restore{kube: restored, admin: must(client.NewWithWatch(restored.Config(), client.Options{Scheme: scheme}))(t), namespace: restored.Namespace(t)}
	inst := must(manager.Install(t.Context(), restored, manager.InstallOptions{}))(t)
	replica := keepRunning(t, inst)

	pods := make([]string, 15)
	for i := range pods {
		pods[i] = fmt.Sprintf("ledger-%d", i)
		pod := builder.Pod(r.namespace, pods[i]).Node("node-1").Obj()
		eventually(t, "pod "+pod.Name+" to be accepted", func(ctx context.Context) error { return r.admin.Create(ctx, pod) })
	}
	hook := builder.EvacuationHook(r.namespace, "dump").Generation(0).Job(`{"spec": {"template": {
		"metadata": {"annotations": {"` + cluster.CompleteAfterAnnotation + `": "3s"}},
		"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.example.com/job:1"}]}
	}}}`).Obj()
	eventually(t, "the hook to be created", func(ctx context.Context) error { return r.admin.Create(ctx, hook) })
	eventually(t, "the hook to cover the pods", func(ctx context.Context) error {
		if err := r.admin.Get(ctx, client.ObjectKeyFromObject(hook), hook); err != nil {
			return err
		}
		if hook.Status.MatchingPods == nil || *hook.Status.MatchingPods != int32(len(pods)) {
			return fmt.Errorf("its status is %+v", hook.Status)
		}
		return nil
	})

	// What happens before, some of which will not have been.
	before := r.follow(t)
	stop := r.drain(t, "node-1")
	before.waitLeaving(t, 1)
	saved := must(restored.SaveEtcd(t.Context()))(t)
	before.waitLeaving(t, 7)
	r.writeALot(t)
	stop()
	lost := r.jobNames(t, hook.Name)
	if codes := replica.exitCodes(); len(codes) > 0 {
		t.Fatalf("the manager ended too early, with %v", codes)
	}

	if err := restored.RestoreEtcd(t.Context(), saved); err != nil {
		t.Fatal(err)
	}
	after := r.follow(t)
	stop = r.drain(t, "node-1")
	// They believe their caches just as well, and people restart them.
	for _, name := range []cluster.ComponentName{cluster.ControllerManager, cluster.Scheduler} {
		if err := restored.Component(name).Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := restored.RestartKwok(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the manager to end", func(context.Context) error {
		if len(replica.exitCodes()) == 0 {
			return errors.New("it runs")
		}
		return nil
	})
	eventually(t, "all pods to go", func(ctx context.Context) error {
		left := &corev1.PodList{}
		if err := r.admin.List(ctx, left, client.InNamespace(r.namespace)); err != nil {
			return err
		}
		for i := range left.Items {
			if slices.Contains(pods, left.Items[i].Name) {
				return fmt.Errorf("pod %s is there", left.Items[i].Name)
			}
		}
		return nil
	})
	stop()

	// Once, and no more: the next one is content with what it sees.
	if diff := cmp.Diff([]int{app.ExitRolledBack}, replica.exitCodes()); diff != "" {
		t.Errorf("exit codes (-want +got):\n%s", diff)
	}
	told := &eventsv1.EventList{}
	if err := r.admin.List(t.Context(), told, client.InNamespace(inst.Namespace)); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(told.Items, func(e eventsv1.Event) bool { return e.Reason == events.ReasonStoreRolledBack }) {
		t.Errorf("no event %s among %d events", events.ReasonStoreRolledBack, len(told.Items))
	}
	jobs := r.jobNames(t, hook.Name)
	var want []string
	for _, pod := range pods {
		if after.has(pod) {
			want = append(want, jobs[pod])
			after.endedBefore(t, jobs[pod], pod)
		} else {
			before.endedBefore(t, lost[pod], pod)
		}
	}
	after.createdOnce(t, want)
}

// restore is what the test has of its control plane.
type restore struct {
	kube      *cluster.Cluster
	admin     client.WithWatch
	namespace string
}

// drain drains a node as somebody does who tries again when kubectl gives up, which it does
// when the API server goes away. It returns how to stop that.
func (r *restore) drain(t *testing.T, node string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			result, err := r.kube.Kubectl(ctx, cluster.KubectlOptions{}, "drain", node, "--force", "--ignore-daemonsets")
			if err == nil && result.ExitCode == 0 {
				return
			}
		}
	})
	stop = sync.OnceFunc(func() { cancel(); group.Wait() })
	t.Cleanup(stop)
	return stop
}

// writeALot makes the copy older, as it is in a cluster that does more than drain a node:
// resource versions do not catch up within seconds.
func (r *restore) writeALot(t *testing.T) {
	t.Helper()
	busy := &corev1.ConfigMap{}
	busy.Namespace, busy.Name = r.namespace, "busy"
	if err := r.admin.Create(t.Context(), busy); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		busy.Data = map[string]string{"n": strconv.Itoa(i)}
		if err := r.admin.Update(t.Context(), busy); err != nil {
			t.Fatal(err)
		}
	}
}

// jobNames are, by pod, the names of the Jobs of the first attempts.
func (r *restore) jobNames(t *testing.T, hook string) map[string]string {
	t.Helper()
	requests := &v1alpha1.EvictionRequestList{}
	if err := r.admin.List(t.Context(), requests, client.InNamespace(r.namespace)); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, er := range requests.Items {
		names[er.Spec.Target.Pod.Name] = v1alpha1.HookJobName(hook, er.UID, 1)
	}
	return names
}

// history is what a watch saw, in the resource versions of one life of the store.
type history struct {
	mu sync.Mutex
	// pods are all there were, with the time at which they were first seen to be deleted.
	pods map[string]int64
	// jobs are all there were, ended those that had completed or failed.
	jobs  map[string][]types.UID
	ended map[string]int64
	err   error
}

func (r *restore) follow(t *testing.T) *history {
	t.Helper()
	h := &history{pods: map[string]int64{}, jobs: map[string][]types.UID{}, ended: map[string]int64{}}
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &corev1.PodList{}} {
		watched := must(r.admin.Watch(t.Context(), list, client.InNamespace(r.namespace)))(t)
		var group sync.WaitGroup
		group.Go(func() {
			for event := range watched.ResultChan() {
				h.take(event)
			}
		})
		t.Cleanup(func() { watched.Stop(); group.Wait() })
	}
	return h
}

func (h *history) take(event watch.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	object, ok := event.Object.(client.Object)
	if !ok {
		return // The API server ends; what was not seen is missed below.
	}
	at, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	if err != nil {
		h.err = errors.Join(h.err, err)
		return
	}
	switch o := object.(type) {
	case *corev1.Pod:
		left := h.pods[o.Name]
		if left == 0 && (o.DeletionTimestamp != nil || event.Type == watch.Deleted) {
			left = at
		}
		h.pods[o.Name] = left
	case *batchv1.Job:
		if !slices.Contains(h.jobs[o.Name], o.UID) {
			h.jobs[o.Name] = append(h.jobs[o.Name], o.UID)
		}
		for _, c := range o.Status.Conditions {
			if h.ended[o.Name] == 0 && c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
				h.ended[o.Name] = at
			}
		}
	}
}

// waitLeaving waits until so many of the pods that are drained were deleted.
func (h *history) waitLeaving(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d pods to be deleted", n), func(context.Context) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		got := 0
		for _, at := range h.pods {
			if at > 0 {
				got++
			}
		}
		if got < n {
			return fmt.Errorf("%d so far", got)
		}
		return nil
	})
}

// has reports whether there was a pod.
func (h *history) has(pod string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.pods[pod]
	return ok
}

// endedBefore fails the test unless a Job had ended before a pod began to go.
func (h *history) endedBefore(t *testing.T, job, pod string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if ended, left := h.ended[job], h.pods[pod]; ended == 0 || left == 0 || ended > left {
		t.Errorf("Job %q ended at %d, and pod %s was deleted at %d", job, ended, pod, left)
	}
}

// createdOnce fails the test unless there was one Job of each of these names. Those of
// pods that had gone before may still be there.
func (h *history) createdOnce(t *testing.T, names []string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		t.Error(h.err)
	}
	for _, name := range names {
		if n := len(h.jobs[name]); n != 1 {
			t.Errorf("%d Jobs were named %q, want 1", n, name)
		}
	}
	if len(h.jobs) > 15 {
		t.Errorf("%d Jobs for 15 pods", len(h.jobs))
	}
}

// replica is a manager that is started again whenever it ends, as a kubelet does.
type replica struct {
	mu    sync.Mutex
	codes []int
}

func keepRunning(t *testing.T, inst *manager.Installation) *replica {
	t.Helper()
	first := must(inst.StartProcess(t.Context(), manager.ProcessOptions{}))(t)
	r, ctx := &replica{}, t.Context()
	var group sync.WaitGroup
	group.Go(func() {
		for p := first; ; {
			select {
			case <-ctx.Done():
				if err := p.Kill(); err != nil {
					t.Error(err)
				}
				return
			case <-p.Done():
			}
			r.mu.Lock()
			r.codes = append(r.codes, p.ExitCode())
			r.mu.Unlock()
			next, err := inst.StartProcess(ctx, manager.ProcessOptions{})
			if err != nil {
				t.Errorf("start the manager again: %v", err)
				return
			}
			p = next
		}
	})
	t.Cleanup(group.Wait) // The test's context has ended then.
	return r
}

// exitCodes are those it has ended with so far.
func (r *replica) exitCodes() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.codes)
}
