//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// ledger is the label of the pods that the hooks of these tests cover.
const ledger = "ledger"

// hooked is a namespace with two nodes, of which a test drains the first. All pods of
// Jobs stay on these nodes.
type hooked struct {
	namespace, node, other string
	seen                   *hookWatch
}

func newHooked(t *testing.T) *hooked {
	t.Helper()
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	return &hooked{namespace: namespace, node: nodes[0], other: nodes[1], seen: watchHooks(t, namespace)}
}

// pod creates a pod that the hooks cover, on the node to be drained.
func (h *hooked) pod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	return createPod(t, builder.Pod(h.namespace, name).Node(h.node).Change(ofApp(ledger)).Obj())
}

// job is the template of a Job whose pod is steered by annotations, pairs of a key and a
// value.
func (h *hooked) job(annotations ...string) *v1alpha1.HookJob {
	steers := map[string]string{}
	for i := 0; i+1 < len(annotations); i += 2 {
		steers[annotations[i]] = annotations[i+1]
	}
	raw, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{
		"metadata": map[string]any{"annotations": steers},
		"spec":     map[string]any{"restartPolicy": "Never", "nodeSelector": map[string]string{testLabel: h.namespace}, "containers": []any{map[string]any{"name": "main", "image": "registry.example.com/job:1"}}},
	}}})
	if err != nil {
		panic(err) // It is a constant but for strings.
	}
	return &v1alpha1.HookJob{Template: runtime.RawExtension{Raw: raw}}
}

// endJob lets the pod of a Job complete that would run for long.
func (h *hooked) endJob(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	patch(t, pod, func() { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, cluster.CompleteAfterAnnotation, "1ms") })
}

// hook creates a hook and waits until it is accepted and covers so many pods.
func (h *hooked) hook(t *testing.T, name string, covers int32, spec v1alpha1.EvacuationHookSpec) *v1alpha1.EvacuationHook {
	t.Helper()
	if spec.PodSelector == nil {
		spec.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{builder.AppLabel: ledger}}
	}
	hook := &v1alpha1.EvacuationHook{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}, Spec: spec}
	create(t, hook)
	waitHook(t, hook, fmt.Sprintf("accepted and to cover %d pods", covers), func(s v1alpha1.EvacuationHookStatus) bool {
		return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionAccepted) && s.MatchingPods != nil && *s.MatchingPods == covers
	})
	return hook
}

// waitHook waits until the status of a hook is as wanted.
func waitHook(t *testing.T, hook *v1alpha1.EvacuationHook, what string, wanted func(v1alpha1.EvacuationHookStatus) bool) {
	t.Helper()
	eventually(t, "hook "+hook.Name+" to be "+what, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(hook), hook); err != nil {
			return err
		}
		if !wanted(hook.Status) {
			return fmt.Errorf("its status is %+v", hook.Status)
		}
		return nil
	})
}

// repair changes a hook, which makes it begin anew.
func repair(t *testing.T, hook *v1alpha1.EvacuationHook, change func(*v1alpha1.EvacuationHookSpec)) {
	t.Helper()
	eventually(t, "hook "+hook.Name+" to be changed", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(hook), hook); err != nil {
			return err
		}
		change(&hook.Spec)
		return admin.Update(ctx, hook)
	})
}

// actsAs is the interceptor of a hook.
func actsAs(hook *v1alpha1.EvacuationHook) string {
	return v1alpha1.HookInterceptor(client.ObjectKeyFromObject(hook))
}

// waitHookSays waits for a message of a hook. A report is written at most once a minute,
// so all but the first one take longer than usual.
func waitHookSays(t *testing.T, pod *corev1.Pod, hook *v1alpha1.EvacuationHook, texts ...string) *v1alpha1.EvictionRequest {
	t.Helper()
	var er *v1alpha1.EvictionRequest
	cluster.Eventually(t, fmt.Sprintf("hook %s to say %q", hook.Name, texts), func(ctx context.Context) (err error) {
		if er, err = getRequest(ctx, pod); err != nil {
			return err
		}
		message := v1alpha1.ReportOf(er, actsAs(hook)).Message
		if slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(message, text) }) {
			return fmt.Errorf("it says %q", message)
		}
		return nil
	})
	return er
}

// evicted waits for the end of a drain and of its pod.
func evicted(t *testing.T, drain *cluster.Program, pod *corev1.Pod) *v1alpha1.EvictionRequest {
	t.Helper()
	gone(t, pod)
	er := waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	finishWell(t, drain)
	return er
}

// drainGoesOn fails the test if a program has ended.
func drainGoesOn(t *testing.T, program *cluster.Program) {
	t.Helper()
	select {
	case <-program.Done():
		t.Error("the drain has ended, want it to wait")
	default:
	}
}

// callOff interrupts a drain and uncordons its node.
func callOff(t *testing.T, user string, drain *cluster.Program, node string) {
	t.Helper()
	if err := drain.Interrupt(); err != nil {
		t.Fatal(err)
	}
	finish(t, drain)
	kubectl(t, user, "uncordon", node)
}

// hookWatch sees the Jobs and pods of a namespace, from outside. Revisions are those of
// the API server's store, so that Jobs and pods can be compared.
type hookWatch struct {
	mu sync.Mutex
	// jobs are the names of all Jobs there ever were, in their order.
	jobs []string
	// began is when a Job was created, ended when it had completed or failed, and removed
	// when it was gone.
	began, ended, removed map[string]int64
	// leaving is when a pod was first seen to be deleted.
	leaving map[types.UID]int64
	// containers are those of a Job's last pod, by the Job's name, the init containers first.
	containers map[string][]string
	// most is how many Jobs had not ended at a time.
	most int
	err  error
}

func watchHooks(t *testing.T, namespace string) *hookWatch {
	t.Helper()
	w := &hookWatch{began: map[string]int64{}, ended: map[string]int64{}, removed: map[string]int64{}, leaving: map[types.UID]int64{}, containers: map[string][]string{}}
	c := must(client.NewWithWatch(kube.Config(), client.Options{Scheme: scheme}))(t)
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &corev1.PodList{}} {
		watched := must(c.Watch(t.Context(), list, client.InNamespace(namespace)))(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for event := range watched.ResultChan() {
				w.take(event)
			}
		}()
		t.Cleanup(func() {
			watched.Stop()
			<-done
		})
	}
	return w
}

func (w *hookWatch) take(event watch.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	object, ok := event.Object.(client.Object)
	if !ok || event.Type == watch.Error {
		w.err = fmt.Errorf("the watch says %s: %v", event.Type, event.Object)
		return
	}
	at, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	if err != nil {
		w.err = err
		return
	}
	first := func(of map[string]int64, name string) {
		if of[name] == 0 {
			of[name] = at
		}
	}
	switch o := object.(type) {
	case *corev1.Pod:
		if job := o.Labels[batchv1.JobNameLabel]; job != "" && event.Type == watch.Added {
			w.containers[job] = nil
			for _, c := range slices.Concat(o.Spec.InitContainers, o.Spec.Containers) {
				w.containers[job] = append(w.containers[job], c.Name)
			}
		}
		if (o.DeletionTimestamp != nil || event.Type == watch.Deleted) && w.leaving[o.UID] == 0 {
			w.leaving[o.UID] = at
		}
	case *batchv1.Job:
		if event.Type == watch.Added {
			w.jobs = append(w.jobs, o.Name)
			first(w.began, o.Name)
		}
		if jobEnded(o) != "" {
			first(w.ended, o.Name)
		}
		if event.Type == watch.Deleted {
			first(w.removed, o.Name)
			first(w.ended, o.Name)
		}
		w.most = max(w.most, len(w.jobs)-len(w.ended))
	}
}

// jobEnded is the condition with which a Job has ended, empty if it has not.
func jobEnded(job *batchv1.Job) batchv1.JobConditionType {
	for _, c := range job.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return c.Type
		}
	}
	return ""
}

// created are the names of all Jobs there were, sorted.
func (w *hookWatch) created(t *testing.T) []string {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		t.Fatal(w.err)
	}
	return slices.Sorted(slices.Values(w.jobs))
}

// waitJobs waits until so many Jobs were created.
func (w *hookWatch) waitJobs(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d Jobs", n), func(context.Context) error {
		if got := w.created(t); len(got) != n {
			return fmt.Errorf("there were %v", got)
		}
		return nil
	})
}

// waitRemoved waits until a Job is gone.
func (w *hookWatch) waitRemoved(t *testing.T, name string) {
	t.Helper()
	eventually(t, "Job "+name+" to be gone", func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.removed[name] == 0 {
			return fmt.Errorf("gone are %v", slices.Collect(maps.Keys(w.removed)))
		}
		return nil
	})
}

// waitSeen waits until the watches, which may be late, have seen that of a Job, and a pod go.
func (w *hookWatch) waitSeen(t *testing.T, of map[string]int64, job string, pod *corev1.Pod) {
	t.Helper()
	eventually(t, "the watches to see Job "+job+" and pod "+pod.Name, func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if of[job] == 0 || w.leaving[pod.UID] == 0 {
			return fmt.Errorf("so far they have seen the Jobs %v and the pods %v", of, w.leaving)
		}
		return nil
	})
}

// endedBefore fails the test unless a Job had ended before a pod began to go.
func (w *hookWatch) endedBefore(t *testing.T, job string, pod *corev1.Pod) {
	t.Helper()
	w.waitSeen(t, w.ended, job, pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	if ended, left := w.ended[job], w.leaving[pod.UID]; ended == 0 || left == 0 || ended > left {
		t.Errorf("Job %s ended at revision %d, and pod %s was deleted at %d", job, ended, pod.Name, left)
	}
}

// beganAfter fails the test unless a Job was created after a pod had begun to go.
func (w *hookWatch) beganAfter(t *testing.T, job string, pod *corev1.Pod) {
	t.Helper()
	w.waitSeen(t, w.began, job, pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	if began, left := w.began[job], w.leaving[pod.UID]; began == 0 || left == 0 || began < left {
		t.Errorf("Job %s was created at revision %d, and pod %s was deleted at %d", job, began, pod.Name, left)
	}
}

// attemptsOf are the names of the Jobs of the first n attempts for a pod.
func attemptsOf(hook *v1alpha1.EvacuationHook, er *v1alpha1.EvictionRequest, n int32) []string {
	var names []string
	for i := range n {
		names = append(names, v1alpha1.HookJobName(hook.Name, er.UID, i+1))
	}
	return names
}
