package hook

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
)

// attempt is one attempt, or the undo, for one pod.
type attempt struct {
	compiled *compiled
	target   interceptor.Target
	run      v1alpha1.HookRun
	undo     bool
	// late: its deadline is over.
	late bool
	// changed: it was recorded before the hook's last change.
	changed bool
	// pod is what the API server has, nil if it was not asked or the pod is gone.
	pod    *corev1.Pod
	object map[string]any
}

// key of what is only in memory.
func (t *attempt) key() string {
	kind := "do"
	if t.undo {
		kind = "undo"
	}
	return fmt.Sprintf("%s/%d/%s", t.target.RequestUID, t.run.Attempt, kind)
}

func (t *attempt) deadline() time.Time { return t.compiled.rules.deadline(t.run) }

// toldDeadline is the deadline that the hook's own program is told, RFC 3339: that of the
// attempt, or of the request if that is earlier.
func (t *attempt) toldDeadline() string {
	at := t.deadline()
	if of := t.target.Deadline; !t.undo && !of.IsZero() && of.Before(at) {
		at = of
	}
	return at.UTC().Format(time.RFC3339)
}

func (t *attempt) podIP() string {
	if t.pod == nil {
		return ""
	}
	return t.pod.Status.PodIP
}

// vars are the variables of the expressions.
func (t *attempt) vars() map[string]any {
	object := t.object
	if object == nil {
		object = map[string]any{"metadata": map[string]any{
			"namespace": t.target.Pod.Namespace, "name": t.target.Pod.Name, "uid": string(t.target.PodUID), "labels": anyMap(t.target.Labels),
		}}
	}
	requesters := make([]any, 0, len(t.target.Requesters))
	for _, r := range t.target.Requesters {
		requesters = append(requesters, r)
	}
	return map[string]any{varPod: object, varRequest: map[string]any{
		"namespace": t.target.Request.Namespace, "name": t.target.Request.Name, "uid": string(t.target.RequestUID),
		"nodeName": t.target.NodeName, "requesters": requesters, "attempt": int64(t.run.Attempt),
		"deadline": t.toldDeadline(),
	}}
}

func anyMap(from map[string]string) map[string]any {
	to := make(map[string]any, len(from))
	for k, v := range from {
		to[k] = v
	}
	return to
}

// look reads the pod from the API server: the cache has neither addresses nor containers.
func (a *hookInterceptor) look(ctx context.Context, t *attempt) error {
	pod := &corev1.Pod{}
	err := a.live.Get(ctx, t.target.Pod, pod)
	switch {
	case apierrors.IsNotFound(err), err == nil && pod.UID != t.target.PodUID:
		return nil
	case err != nil:
		return fmt.Errorf("get pod %s: %w", t.target.Pod, err)
	}
	return t.sees(pod)
}

func (t *attempt) sees(pod *corev1.Pod) error {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return fmt.Errorf("convert pod %s: %w", t.target.Pod, err)
	}
	t.pod, t.object = pod, object
	return nil
}
