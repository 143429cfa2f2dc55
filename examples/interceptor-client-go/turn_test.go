package main

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const me = "a.example.com"

// request of the pod "db-0", with this status.
func request(status map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "drawbridge.dev/v1alpha1",
		"kind":       "EvictionRequest",
		"metadata":   map[string]any{"namespace": "shop", "name": "u1", "uid": "r1"},
		"spec":       map[string]any{"target": map[string]any{"pod": map[string]any{"name": "db-0", "uid": "u1"}}},
		"status":     status,
	}}
}

func active(name string, item map[string]any) *unstructured.Unstructured {
	return request(map[string]any{"activeInterceptors": []any{name}, "interceptors": []any{item}})
}

func TestIsMyTurn(t *testing.T) {
	cases := map[string]struct {
		request *unstructured.Unstructured
		want    bool
	}{
		"not yet":                {request(map[string]any{}), false},
		"another one's turn":     {active("b.example.com", map[string]any{"name": "b.example.com", "message": ""}), false},
		"our turn":               {active(me, map[string]any{"name": me, "message": ""}), true},
		"we have completed":      {active(me, map[string]any{"name": me, "message": "", "completionTime": "2026-11-01T12:00:00Z"}), false},
		"the request is deleted": {deleted(active(me, map[string]any{"name": me, "message": ""})), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			i := &interceptor{name: me}
			if got := i.isMyTurn(tc.request); got != tc.want {
				t.Errorf("isMyTurn = %t, want %t", got, tc.want)
			}
		})
	}
}

func deleted(u *unstructured.Unstructured) *unstructured.Unstructured {
	now := metav1.Now()
	u.SetDeletionTimestamp(&now)
	return u
}

// newInterceptor works with a pod of this UID; what it reports goes to the channel.
func newInterceptor(t *testing.T, podUID types.UID, work time.Duration) (*interceptor, <-chan report) {
	t.Helper()
	reports := make(chan report, 10)
	requests := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	requests.PrependReactor("patch", "evictionrequests", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		if patch.GetSubresource() != "status" || patch.GetPatchType() != types.ApplyPatchType {
			t.Errorf("patched %q with %s", patch.GetSubresource(), patch.GetPatchType())
		}
		var sent struct {
			Metadata struct{ UID string }
			Status   struct{ Interceptors []report }
		}
		if err := json.Unmarshal(patch.GetPatch(), &sent); err != nil || len(sent.Status.Interceptors) != 1 || sent.Metadata.UID != "r1" {
			t.Errorf("patch %s: %v", patch.GetPatch(), err)
			return true, request(nil), nil
		}
		reports <- sent.Status.Interceptors[0]
		return true, request(nil), nil
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: podUID}}
	return &interceptor{
		name:      me,
		work:      work,
		heartbeat: time.Hour,
		requests:  requests.Resource(evictionRequests),
		pods:      fake.NewClientset(pod).CoreV1(),
		turns:     map[string]context.CancelFunc{},
	}, reports
}

func next(t *testing.T, reports <-chan report) report {
	t.Helper()
	select {
	case r := <-reports:
		return r
	case <-time.After(time.Minute):
		t.Fatal("nothing was reported")
		return report{}
	}
}

func TestATurnStartsAndCompletes(t *testing.T) {
	i, reports := newInterceptor(t, "u1", time.Millisecond)
	mine := active(me, map[string]any{"name": me, "message": ""})
	i.look(t.Context(), mine)
	i.look(t.Context(), mine) // Seen twice, done once.
	i.wait()
	i.look(t.Context(), mine) // A late copy from before the completion.
	i.wait()

	first, last := next(t, reports), next(t, reports)
	if first.StartTime == nil || !first.StartTime.Equal(first.HeartbeatTime) || first.CompletionTime != nil {
		t.Errorf("first report %+v", first)
	}
	if last.CompletionTime == nil || !last.StartTime.Equal(first.StartTime) || !last.HeartbeatTime.Equal(first.HeartbeatTime) {
		t.Errorf("last report %+v, want what the first said and a completion time", last)
	}
	if len(reports) != 0 {
		t.Errorf("a third report %+v", <-reports)
	}
}

func TestATurnResumesWithWhatWasReported(t *testing.T) {
	i, reports := newInterceptor(t, "u1", time.Millisecond)
	i.look(t.Context(), active(me, map[string]any{"name": me, "message": "", "startTime": "2026-11-01T12:00:00Z", "heartbeatTime": "2026-11-01T12:05:00Z"}))
	i.wait()
	if got := next(t, reports).StartTime.UTC().Format(time.RFC3339); got != "2026-11-01T12:00:00Z" {
		t.Errorf("startTime became %s", got)
	}
}

func TestAWithdrawnTurnIsNotCompleted(t *testing.T) {
	i, reports := newInterceptor(t, "u1", time.Hour)
	i.look(t.Context(), active(me, map[string]any{"name": me, "message": ""}))
	next(t, reports)
	i.look(t.Context(), request(map[string]any{"conditions": []any{map[string]any{"type": "Canceled", "status": "True", "reason": "NoRequesters"}}}))
	i.wait()
	if len(reports) != 0 {
		t.Errorf("reported %+v after the cancellation", <-reports)
	}
}

func TestAnotherPodOfTheSameNameIsLeftAlone(t *testing.T) {
	i, reports := newInterceptor(t, "u2", time.Millisecond)
	i.look(t.Context(), active(me, map[string]any{"name": me, "message": ""}))
	i.wait()
	if len(reports) != 0 {
		t.Errorf("reported %+v", <-reports)
	}
}
