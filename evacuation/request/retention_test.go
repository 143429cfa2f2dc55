package request

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Ruling R4, under the number of statement 96.
func TestRetentionDeletesFinishedRequests(t *testing.T) {
	const evicted = "active [] processed [] Evicted=True/PodDeleted"
	tests := map[string]struct {
		request   *v1alpha1.EvictionRequest
		retention time.Duration
		after     time.Duration
		fail      error
		want      string
		wake      time.Duration
	}{
		"96: a finished request waits for its time": {
			newRequest().Evicted(v1alpha1.ReasonPodDeleted, t0).Obj(), time.Hour, time.Hour - time.Second, nil, evicted, time.Second,
		},
		"96: an evicted one goes at its time": {
			newRequest().Evicted(v1alpha1.ReasonPodDeleted, t0).Obj(), time.Hour, time.Hour, nil, "gone", 0,
		},
		"96: a canceled one goes at its time": {
			newRequest().Canceled(v1alpha1.ReasonNoRequesters, t0).Obj(), time.Hour, time.Hour, nil, "gone", 0,
		},
		"96: without a retention it stays for ever": {
			newRequest().Evicted(v1alpha1.ReasonPodDeleted, t0).Obj(), 0, 8760 * time.Hour, nil, evicted, 0,
		},
		"96: a running one is not touched, however old": {
			planned().Processed("a.example.com").Active(imperative, t0).Obj(), time.Hour, 8760 * time.Hour, nil,
			"active [imperative-eviction.k8s.io] processed [a.example.com]", 0,
		},
		"96: a newer version is looked at again": {
			newRequest().Evicted(v1alpha1.ReasonPodDeleted, t0).Obj(), time.Hour, time.Hour,
			apierrors.NewConflict(schema.GroupResource{}, "uid-1", errors.New("precondition")), evicted, conflictRetry,
		},
		"96: one that is already gone is fine": {
			newRequest().Evicted(v1alpha1.ReasonPodDeleted, t0).Obj(), time.Hour, time.Hour,
			apierrors.NewNotFound(schema.GroupResource{}, "uid-1"), evicted, 0,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{tc.request}
			if !v1alpha1.IsFinished(tc.request) {
				objects = append(objects, webPod().Obj())
			}
			b := newBench(t, objects...)
			b.Retention = tc.retention
			b.clock.SetTime(t0.Add(tc.after))
			b.fail = func(call string) error {
				if call == "delete" {
					return tc.fail
				}
				return nil
			}
			if wake := b.mustReconcile(t); wake != tc.wake {
				t.Errorf("wakes after %s, want %s", wake, tc.wake)
			}
			if got := b.state(t); got != tc.want {
				t.Errorf("request: got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestRetentionDeletesOnlyWhatItHasRead(t *testing.T) {
	request := newRequest().Evicted(v1alpha1.ReasonPodDeleted, t0).Obj()
	b := newBench(t, request)
	b.Retention = time.Hour
	b.clock.SetTime(t0.Add(2 * time.Hour))
	var got *client.DeleteOptions
	b.Client = interceptor.NewClient(b.live, interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.DeleteOption) error {
			got = (&client.DeleteOptions{}).ApplyOptions(opts)
			return nil
		},
	})
	b.mustReconcile(t)
	stored := &v1alpha1.EvictionRequest{}
	if err := b.live.Get(t.Context(), key, stored); err != nil {
		t.Fatalf("get request: %v", err)
	}
	if got == nil || got.Preconditions == nil || *got.Preconditions.UID != "er-1" || *got.Preconditions.ResourceVersion != stored.ResourceVersion {
		t.Errorf("preconditions: got %+v, want UID er-1 and resourceVersion %s", got, stored.ResourceVersion)
	}
}

func TestReconcileCleansUpAfterARequest(t *testing.T) {
	b := newBench(t)
	b.seen.observe(newRequest().Obj(), true, t0)
	b.mustReconcile(t)
	if diff := cmp.Diff([]string{"forget shop/uid-1"}, b.metrics.told); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if len(b.seen.requests) != 0 {
		t.Errorf("requests remembered: got %d, want 0", len(b.seen.requests))
	}
}

func TestLabelsAreAppliedOnlyWhenTheyDiffer(t *testing.T) {
	synced := func(request *v1alpha1.EvictionRequest) *v1alpha1.EvictionRequest {
		request.Labels = map[string]string{"app": "web"}
		request.ManagedFields = append(request.ManagedFields, fields(labelManager, "app"))
		return request
	}
	tests := map[string]struct {
		request *v1alpha1.EvictionRequest
		phase   corev1.PodPhase
		grouped bool
		want    int
	}{
		"57: a new request gets the labels":         {request: newRequest().Obj(), want: 1},
		"in sync nothing is written":                {request: synced(planned().Obj())},
		"54: a refused request gets none":           {request: newRequest().Obj(), grouped: true},
		"54: a finished request gets none":          {request: newRequest().Canceled(v1alpha1.ReasonNoRequesters, t0).Obj()},
		"a pod that has ended still has its labels": {request: planned().Obj(), phase: corev1.PodSucceeded, want: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := webPod().Label("app", "web").Obj()
			if tc.phase != "" {
				pod.Status.Phase = tc.phase
			}
			if tc.grouped {
				pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{}
			}
			b := newBench(t, tc.request, pod)
			b.mustReconcile(t)
			if len(b.applied) != tc.want {
				t.Errorf("label writes: got %d, want %d", len(b.applied), tc.want)
			}
		})
	}
}

// Statement 53 on servers of version 1.35.
func TestWorkloadRef(t *testing.T) {
	down := errors.New("connection refused")
	tests := map[string]struct {
		request *v1alpha1.EvictionRequest
		found   bool
		err     error
		want    string
		asked   int
	}{
		"a reference refuses the request": {newRequest().Obj(), true, nil, "active [] processed [] Canceled=True/ValidationFailed", 1},
		"no reference lets it go on":      {newRequest().Obj(), false, nil, "active [a.example.com] processed []", 1},
		"an error is no verdict":          {newRequest().Obj(), false, down, "active [] processed []", 1},
		"it is asked on the first look only": {
			planned().Obj(), true, nil, "active [a.example.com] processed []", 0,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tc.request, webPod().Obj())
			asked := 0
			b.WorkloadRef = func(_ context.Context, pod types.NamespacedName, uid types.UID) (bool, error) {
				asked++
				if pod.Name != "web-1" || uid != "uid-1" {
					t.Errorf("asked for %s with UID %s", pod, uid)
				}
				return tc.found, tc.err
			}
			if _, err := b.reconcile(t); !errors.Is(err, tc.err) {
				t.Errorf("error: got %v, want %v", err, tc.err)
			}
			if got := b.state(t); got != tc.want || asked != tc.asked {
				t.Errorf("got %s after %d questions, want %s after %d", got, asked, tc.want, tc.asked)
			}
		})
	}
}

func TestLiveWorkloadRef(t *testing.T) {
	down := errors.New("connection refused")
	pod := func(uid string, spec map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"namespace": "shop", "name": "web-1", "uid": uid}, "spec": spec}
	}
	tests := map[string]struct {
		object  map[string]any
		readErr error
		want    bool
		wantErr error
	}{
		"a pod with a workload":      {object: pod("uid-1", map[string]any{"workloadRef": map[string]any{"name": "training"}}), want: true},
		"a pod without one":          {object: pod("uid-1", map[string]any{"nodeName": "n1"})},
		"another pod of the name":    {object: pod("uid-2", map[string]any{"workloadRef": map[string]any{"name": "training"}})},
		"no pod at all":              {readErr: apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "web-1")},
		"an API server that is down": {readErr: down, wantErr: down},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			reader := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
				Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
					if tc.readErr != nil {
						return tc.readErr
					}
					setContent(t, obj, tc.object)
					return nil
				},
			})
			got, err := LiveWorkloadRef(reader)(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web-1"}, "uid-1")
			if got != tc.want || !errors.Is(err, tc.wantErr) {
				t.Errorf("got %t, %v; want %t, %v", got, err, tc.want, tc.wantErr)
			}
		})
	}
}
