package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// retryAfter is the pause after a failed call.
const retryAfter = 2 * time.Second

type interceptor struct {
	name            string
	work, heartbeat time.Duration
	requests        dynamic.NamespaceableResourceInterface
	pods            corev1.PodsGetter

	mu sync.Mutex
	// turns has the way to stop each of ours, by the UID of the request, from when
	// we see that it has come until we see that it is over.
	turns   map[string]context.CancelFunc
	workers sync.WaitGroup
}

// report is our item of status.interceptors. Server-side apply removes what a
// field manager no longer sends, so every report is complete.
type report struct {
	Name               string       `json:"name"`
	StartTime          *metav1.Time `json:"startTime,omitempty"`
	HeartbeatTime      *metav1.Time `json:"heartbeatTime,omitempty"`
	ExpectedFinishTime *metav1.Time `json:"expectedFinishTime,omitempty"`
	CompletionTime     *metav1.Time `json:"completionTime,omitempty"`
	Message            string       `json:"message"`
}

// isMyTurn reports whether our name is in status.activeInterceptors and our item
// has no completion time yet.
func (i *interceptor) isMyTurn(request *unstructured.Unstructured) bool {
	active, _, err := unstructured.NestedStringSlice(request.Object, "status", "activeInterceptors")
	if err != nil || !slices.Contains(active, i.name) || request.GetDeletionTimestamp() != nil {
		return false
	}
	mine, err := i.reported(request)
	return err == nil && mine.CompletionTime == nil
}

// reported returns our item as it stands in the request.
func (i *interceptor) reported(request *unstructured.Unstructured) (report, error) {
	content, err := json.Marshal(request.Object["status"])
	if err != nil {
		return report{}, err
	}
	var status struct {
		Interceptors []report `json:"interceptors"`
	}
	if err := json.Unmarshal(content, &status); err != nil {
		return report{}, err
	}
	for _, item := range status.Interceptors {
		if item.Name == i.name {
			return item, nil
		}
	}
	return report{Name: i.name}, nil
}

// whyOver says why it is not our turn any more.
func whyOver(request *unstructured.Unstructured) string {
	conditions, _, err := unstructured.NestedSlice(request.Object, "status", "conditions")
	if err != nil {
		return "it is not our turn any more"
	}
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["status"] == "True" && (condition["type"] == "Canceled" || condition["type"] == "Evicted") {
			return fmt.Sprintf("the request is %v (%v)", condition["type"], condition["reason"])
		}
	}
	return "it is not our turn any more"
}

// begin starts to work on a request, once.
func (i *interceptor) begin(ctx context.Context, request *unstructured.Unstructured) {
	i.mu.Lock()
	defer i.mu.Unlock()
	uid := string(request.GetUID())
	if i.turns[uid] != nil {
		return
	}
	ctx, stop := context.WithCancel(ctx)
	i.turns[uid] = stop
	i.workers.Go(func() {
		defer stop()
		i.act(ctx, request.DeepCopy())
	})
}

// end stops the work on a request, if there is any.
func (i *interceptor) end(request *unstructured.Unstructured, why string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	uid := string(request.GetUID())
	stop := i.turns[uid]
	if stop == nil {
		return
	}
	delete(i.turns, uid)
	// What the API says counts: our own completion may be seen here before the call
	// that reported it returns. That call is left to its end.
	if mine, err := i.reported(request); err == nil && mine.CompletionTime != nil {
		say(request, "completed")
		return
	}
	stop()
	say(request, "stopping, because %s", why)
}

// wait returns when nobody works any more.
func (i *interceptor) wait() { i.workers.Wait() }

// act is the work for one pod, from the first heartbeat to the completion.
func (i *interceptor) act(ctx context.Context, request *unstructured.Unstructured) {
	say(request, "it is our turn")
	if !i.isSamePod(ctx, request) {
		return
	}
	mine, err := i.reported(request)
	if err != nil {
		say(request, "cannot read our report: %v", err)
		return
	}
	now := time.Now()
	if mine.StartTime == nil {
		// Start and first heartbeat are set together. After a restart of this
		// program both are there already and stay.
		mine.StartTime, mine.HeartbeatTime = at(now), at(now)
	}
	mine.ExpectedFinishTime = at(now.Add(i.work + time.Second)) // Times are cut to seconds.
	mine.Message = "working"
	if !i.send(ctx, request, mine) {
		return
	}
	say(request, "started, expecting to work for %s", i.work)

	done := time.NewTimer(i.work)
	defer done.Stop()
	beat := time.NewTicker(i.heartbeat)
	defer beat.Stop()
	for working := true; working; {
		select {
		case <-ctx.Done():
			return
		case now := <-beat.C:
			mine.HeartbeatTime = at(now)
			if !i.send(ctx, request, mine) {
				return
			}
			say(request, "still working")
		case <-done.C:
			working = false
		}
	}

	mine.CompletionTime = at(time.Now())
	mine.Message = "done"
	i.send(ctx, request, mine)
}

// isSamePod reports whether the pod is still the one the request was made for. A
// pod is its UID: another one may have the name by now.
func (i *interceptor) isSamePod(ctx context.Context, request *unstructured.Unstructured) bool {
	name, uid := target(request)
	for {
		pod, err := i.pods.Pods(request.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
		switch {
		case ctx.Err() != nil:
			return false
		case apierrors.IsNotFound(err):
			say(request, "the pod is gone, nothing to do")
			return false
		case err == nil && string(pod.UID) != uid:
			say(request, "another pod has the name, nothing to do")
			return false
		case err == nil:
			return true
		}
		say(request, "cannot get the pod: %v", err)
		if !pause(ctx) {
			return false
		}
	}
}

// send applies our report and reports whether it was accepted. It tries again
// until it is, or our turn is over.
func (i *interceptor) send(ctx context.Context, request *unstructured.Unstructured, mine report) bool {
	patch, err := json.Marshal(map[string]any{
		"apiVersion": request.GetAPIVersion(),
		"kind":       request.GetKind(),
		// With its UID the patch can only meet this request, never a later one of
		// the same name.
		"metadata": map[string]any{"namespace": request.GetNamespace(), "name": request.GetName(), "uid": request.GetUID()},
		"status":   map[string]any{"interceptors": []report{mine}},
	})
	if err != nil {
		say(request, "cannot encode our report: %v", err)
		return false
	}
	force := true
	for {
		_, err := i.requests.Namespace(request.GetNamespace()).Patch(ctx, request.GetName(), types.ApplyPatchType, patch,
			metav1.PatchOptions{FieldManager: i.name, Force: &force}, "status")
		switch {
		case err == nil:
			return true
		case ctx.Err() != nil:
			return false
		case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
			say(request, "the request is gone")
			return false
		}
		say(request, "cannot report: %v", err)
		if !pause(ctx) {
			return false
		}
	}
}

// pause waits before the next try and reports whether there is still a reason to.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(retryAfter):
		return true
	}
}

func target(request *unstructured.Unstructured) (name, uid string) {
	// The schema guarantees both.
	name, _, _ = unstructured.NestedString(request.Object, "spec", "target", "pod", "name")
	uid, _, _ = unstructured.NestedString(request.Object, "spec", "target", "pod", "uid")
	return name, uid
}

func at(t time.Time) *metav1.Time {
	stamp := metav1.NewTime(t)
	return &stamp
}

// say prints one line about a request, named by its pod.
func say(request *unstructured.Unstructured, format string, args ...any) {
	pod, _ := target(request)
	fmt.Printf("%s/%s: %s\n", request.GetNamespace(), pod, fmt.Sprintf(format, args...))
}
