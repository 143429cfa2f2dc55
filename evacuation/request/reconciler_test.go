package request

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestReconcileGathersTheTarget(t *testing.T) {
	grouped := webPod().Change(func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{} })
	tests := map[string]struct {
		request *v1alpha1.EvictionRequest
		live    *builder.PodWrapper
		cached  *builder.PodWrapper
		want    string
		reads   []string
	}{
		"a pod in the cache needs no live look": {
			newRequest().Obj(), webPod(), webPod(), "active [a.example.com] processed []", nil,
		},
		"56: a pod the cache does not have yet is found live": {
			newRequest().Obj(), webPod(), nil, "active [a.example.com] processed []", []string{"live Pod"},
		},
		"56: nor is its predecessor in the cache a verdict": {
			newRequest().Obj(), webPod(), webPod().UID("uid-0"), "active [a.example.com] processed []", []string{"live Pod"},
		},
		"51: a pod that is nowhere": {
			newRequest().Obj(), nil, nil, "active [] processed [] Canceled=True/ValidationFailed", []string{"live Pod"},
		},
		"52: another pod of the name": {
			newRequest().Obj(), webPod().UID("uid-2"), webPod().UID("uid-2"), "active [] processed [] Canceled=True/ValidationFailed", []string{"live Pod"},
		},
		"53: a member of a group": {
			newRequest().Obj(), grouped, grouped, "active [] processed [] Canceled=True/ValidationFailed", nil,
		},
		"91: a pod that went after the first look": {
			planned().Processed("a.example.com").Active(imperative, t0).Obj(), nil, nil,
			"active [] processed [a.example.com imperative-eviction.k8s.io] Evicted=True/PodDeleted", []string{"live Pod"},
		},
		"91: a pod whose deletion only the cache believes": {
			planned().Processed("a.example.com").Active(imperative, t0).Obj(), webPod(), nil,
			"active [imperative-eviction.k8s.io] processed [a.example.com]", []string{"live Pod"},
		},
		"91: a pod that was replaced after the first look": {
			planned().Processed("a.example.com").Active(imperative, t0).Obj(), webPod().UID("uid-2"), webPod().UID("uid-2"),
			"active [] processed [a.example.com imperative-eviction.k8s.io] Evicted=True/PodDeleted", []string{"live Pod"},
		},
		"90: a terminal phase in the cache is final": {
			planned().Processed("a.example.com").Active(imperative, t0).Obj(), webPod().Phase(corev1.PodFailed), webPod().Phase(corev1.PodFailed),
			"active [] processed [a.example.com imperative-eviction.k8s.io] Evicted=True/PodTerminal", nil,
		},
		"54: a refused request is not looked at again": {
			newRequest().Canceled(v1alpha1.ReasonValidationFailed, t0).Obj(), webPod(), webPod(),
			"active [] processed [] Canceled=True/ValidationFailed", nil,
		},
		"95: a request that is being deleted gets no plan": {
			heldRequest(newRequest()), webPod(), webPod(), "active [] processed [] Deleting=True/HeldByFinalizers", nil,
		},
		"95: a request that is being deleted takes the turn from whoever has it": {
			heldRequest(planned()), webPod(), webPod(), "active [] processed [a.example.com] Deleting=True/HeldByFinalizers", nil,
		},
		"95: even from the last one": {
			heldRequest(planned().Processed("a.example.com").Active(imperative, t0)), webPod(), webPod(),
			"active [] processed [a.example.com imperative-eviction.k8s.io] Deleting=True/HeldByFinalizers", nil,
		},
		"95: and records the end of its pod": {
			heldRequest(newRequest().Observed().Interceptors("a.example.com").Processed("a.example.com")), nil, nil, "active [] processed [a.example.com] Evicted=True/PodDeleted", []string{"live Pod"},
		},
		"95: a request that is being deleted and was never looked at is for no pod": {
			heldRequest(newRequest()), nil, nil, "active [] processed [] Canceled=True/ValidationFailed", []string{"live Pod"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			live, cached := []client.Object{tc.request}, []client.Object{tc.request.DeepCopy()}
			if tc.live != nil {
				live = append(live, tc.live.Clone().Obj())
			}
			if tc.cached != nil {
				cached = append(cached, tc.cached.Clone().Obj())
			}
			b := newBench(t, live...).lag(t, cached...)
			b.mustReconcile(t)
			if got := b.state(t); got != tc.want {
				t.Errorf("request:\ngot:  %s\nwant: %s", got, tc.want)
			}
			if diff := cmp.Diff(tc.reads, b.reads); diff != "" {
				t.Errorf("live reads (-want +got):\n%s", diff)
			}
		})
	}
}

// heldRequest is a request that was deleted and is held by a finalizer.
func heldRequest(w *builder.EvictionRequestWrapper) *v1alpha1.EvictionRequest {
	er := w.Obj()
	er.Finalizers, er.DeletionTimestamp = []string{"example.com/hold"}, new(metav1.NewTime(t0))
	return er
}

// It says who holds it, once, follows the generation, and is never deleted again.
func TestARequestThatIsHeldSaysSo(t *testing.T) {
	er := heldRequest(planned())
	er.Generation = 4
	b := newBench(t, er, webPod().Obj())
	b.Retention = time.Minute
	for range 3 {
		if wake := b.mustReconcile(t); wake != 0 {
			t.Errorf("wakes after %s, want only events to do that", wake)
		}
	}
	now := &v1alpha1.EvictionRequest{}
	if err := b.live.Get(t.Context(), key, now); err != nil {
		t.Fatal(err)
	}
	want := metav1.Condition{
		Type: v1alpha1.ConditionDeleting, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonHeldByFinalizers, ObservedGeneration: 4,
		Message: "The request is being deleted, and finalizers hold it: example.com/hold. Nobody acts on it any more, and no other request for the pod can begin until it is gone.",
	}
	if diff := cmp.Diff([]metav1.Condition{want}, now.Status.Conditions, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if now.Status.ObservedGeneration != 4 || now.Status.Summary.State != v1alpha1.StateDeleting || now.Status.Summary.Interceptor != "" {
		t.Errorf("observedGeneration %d, summary %+v, want generation 4, Deleting and nobody", now.Status.ObservedGeneration, now.Status.Summary)
	}
	if diff := cmp.Diff([]string{"EvictionRequest RequestHeld", "Pod RequestHeld"}, b.events.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if len(b.patches) != 1 || len(b.applied) != 0 {
		t.Errorf("%d writes of the status, %d of labels, want one and none", len(b.patches), len(b.applied))
	}
	if err := b.live.Delete(t.Context(), webPod().Obj()); err != nil {
		t.Fatal(err)
	}
	b.mustReconcile(t)
	b.clock.Step(time.Hour)
	b.mustReconcile(t) // It is past its retention, and deleted already.
	if got, want := b.state(t), "active [] processed [a.example.com] Deleting=True/HeldByFinalizers Evicted=True/PodDeleted"; got != want {
		t.Errorf("request when the pod is gone:\ngot:  %s\nwant: %s", got, want)
	}
}

func TestReconcileFollowsAWholeRequest(t *testing.T) {
	b := newBench(t, newRequest().Obj(), webPod().Obj())
	steps := []struct {
		name string
		do   func(t *testing.T)
		wake time.Duration
		want string
	}{
		{"first look", nil, 20 * time.Minute, "active [a.example.com] processed []"},
		{"one second early", func(*testing.T) { b.clock.SetTime(t0.Add(20*time.Minute - time.Second)) }, time.Second, "active [a.example.com] processed []"},
		{"due", func(*testing.T) { b.clock.SetTime(t0.Add(20 * time.Minute)) }, 0, "active [imperative-eviction.k8s.io] processed [a.example.com]"},
		{"a day later", func(*testing.T) { b.clock.SetTime(t0.Add(24 * time.Hour)) }, 0, "active [imperative-eviction.k8s.io] processed [a.example.com]"},
		{"the pod goes", func(t *testing.T) {
			t.Helper()
			if err := b.live.Delete(t.Context(), webPod().Obj()); err != nil {
				t.Fatalf("delete pod: %v", err)
			}
		}, 0, "active [] processed [a.example.com imperative-eviction.k8s.io] Evicted=True/PodDeleted"},
		{"afterwards", nil, 0, "active [] processed [a.example.com imperative-eviction.k8s.io] Evicted=True/PodDeleted"},
	}
	for _, step := range steps {
		if step.do != nil {
			step.do(t)
		}
		if wake := b.mustReconcile(t); wake != step.wake {
			t.Errorf("%s: wakes after %s, want %s", step.name, wake, step.wake)
		}
		if got := b.state(t); got != step.want {
			t.Errorf("%s:\ngot:  %s\nwant: %s", step.name, got, step.want)
		}
	}
	want := []string{
		"EvictionRequest InterceptorActivated", "Pod InterceptorActivated",
		"EvictionRequest InterceptorTimedOut", "Pod InterceptorTimedOut", // Of the last one's turn the evictor tells.
		"EvictionRequest Evicted", // Nobody can describe the pod any more.
	}
	if diff := cmp.Diff(want, b.events.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if len(b.patches) != 3 {
		t.Errorf("status writes: got %d, want 3 (activation, switch, end):\n%s", len(b.patches), strings.Join(b.patches, "\n"))
	}
	for _, patch := range b.patches {
		if !strings.Contains(patch, `"resourceVersion"`) {
			t.Errorf("a status write without resourceVersion: %s", patch)
		}
	}
}

func TestReconcileAnnouncesOnlyWhatItWrote(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "evictionrequests"}, "uid-1", errors.New("newer"))
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "evictionrequests"}, "uid-1")
	down := errors.New("connection refused")
	failing := func(call string, err error) func(string) error {
		return func(c string) error {
			if c == call {
				return err
			}
			return nil
		}
	}
	tests := map[string]struct {
		request  *v1alpha1.EvictionRequest
		fail     func(string) error
		wantErr  error
		wantWake time.Duration
		want     string
		events   int
		metrics  int
	}{
		"a conflict of the status is retried without an error": {
			newRequest().Obj(), failing("patch status", conflict), nil, conflictRetry, "active [] processed []", 0, 0,
		},
		"a conflict of the labels stops before the status": {
			newRequest().Obj(), failing("apply", conflict), nil, conflictRetry, "active [] processed []", 0, 0,
		},
		"a request that went meanwhile is no error": {
			newRequest().Obj(), failing("patch status", gone), nil, 0, "active [] processed []", 0, 0,
		},
		"55: an API that is down is returned": {
			newRequest().Obj(), failing("patch status", down), down, 0, "active [] processed []", 0, 0,
		},
		"55: a cache that fails is no verdict": {
			newRequest().Obj(), failing("get cached Pod", down), down, 0, "active [] processed []", 0, 0,
		},
		"labels that cannot be written hold up no eviction": {
			newRequest().Obj(), failing("apply", down), down, 0, "active [a.example.com] processed []", 2, 1,
		},
		"without a failure it is told once on each object": {
			newRequest().Obj(), nil, nil, 20 * time.Minute, "active [a.example.com] processed []", 2, 1,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tc.request, webPod().Label("app", "web").Obj())
			b.fail = tc.fail
			result, err := b.reconcile(t)
			if !errors.Is(err, tc.wantErr) {
				t.Errorf("error: got %v, want %v", err, tc.wantErr)
			}
			if result.RequeueAfter != tc.wantWake {
				t.Errorf("wakes after %s, want %s", result.RequeueAfter, tc.wantWake)
			}
			if got := b.state(t); got != tc.want {
				t.Errorf("request: got %s, want %s", got, tc.want)
			}
			if len(b.events.events) != tc.events || len(b.metrics.told) != tc.metrics {
				t.Errorf("got %d events and %d observations, want %d and %d", len(b.events.events), len(b.metrics.told), tc.events, tc.metrics)
			}
		})
	}
}

// Statement 55 for the live look: a failing API server is not an absent pod.
func TestReconcileDoesNotTakeAFailedLiveLookForAnAbsence(t *testing.T) {
	for name, request := range map[string]*v1alpha1.EvictionRequest{
		"first look": newRequest().Obj(),
		"later":      planned().Obj(),
	} {
		t.Run(name, func(t *testing.T) {
			down := errors.New("connection refused")
			b := newBench(t, request.DeepCopy(), webPod().Obj()).lag(t, request)
			b.fail = func(call string) error {
				if call == "get live Pod" {
					return down
				}
				return nil
			}
			if _, err := b.reconcile(t); !errors.Is(err, down) {
				t.Errorf("error: got %v, want %v", err, down)
			}
			if len(b.patches) != 0 {
				t.Errorf("status writes: got %v, want none", b.patches)
			}
		})
	}
}
