package request

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/test/framework/allocation"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// A request takes a step for each turn, which is written, and for each event that changes nothing,
// as a heartbeat. The copies that the cache makes count, the client's HTTP request does not.
func TestAStepAllocatesLittle(t *testing.T) {
	er := newRequest().NodeName("n1").Obj()
	er.ResourceVersion, er.Labels = "7", map[string]string{"app": "web"}
	er.ManagedFields = []metav1.ManagedFieldsEntry{fields(labelManager, "app"), wrote("sdk", t0, "heartbeatTime")}
	cache := &one{request: er, pod: webPod().Label("app", "web").Obj()}
	r := &Reconciler{
		Client: cache, APIReader: cache, Clock: testingclock.NewFakeClock(t0), Policy: process.DefaultPolicy(),
		Resolver: builder.FromAnnotation{}, Planned: deadlines{}.of, Recorder: ignored{}, Metrics: metrics.NewRequests(prometheus.NewRegistry(), false),
	}
	for _, tc := range []struct {
		name   string
		writes bool
		most   allocation.Cost
	}{
		{"the first turn", true, allocation.Cost{Allocs: 381, Bytes: 27_700}},
		{"nothing changes", false, allocation.Cost{Allocs: 120, Bytes: 9000}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cache.patched = nil
			allocation.AtMost(t, tc.most, func() {
				if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
					t.Fatal(err)
				}
			})
			if wrote := cache.patched != nil; wrote != tc.writes {
				t.Fatalf("the status was written: %t, want %t", wrote, tc.writes)
			}
			if tc.writes {
				cache.request = cache.patched
				cache.request.ManagedFields = er.ManagedFields // The API server's.
			}
		})
	}
}

// one is a cache that has one request and its pod. Patches of the status are composed and not
// applied.
type one struct {
	client.Client

	request *v1alpha1.EvictionRequest
	pod     *corev1.Pod
	// patched is the request as the last patch would leave it.
	patched *v1alpha1.EvictionRequest
}

func (o *one) Get(_ context.Context, _ client.ObjectKey, obj client.Object, options ...client.GetOption) error {
	shared := (&client.GetOptions{}).ApplyOptions(options).UnsafeDisableDeepCopy
	switch obj := obj.(type) {
	case *v1alpha1.EvictionRequest:
		*obj = *o.request
		if shared == nil || !*shared {
			*obj = *o.request.DeepCopy()
		}
	case *corev1.Pod:
		*obj = *o.pod
		if shared == nil || !*shared {
			*obj = *o.pod.DeepCopy()
		}
	default:
		return errors.New("only the request and its pod are asked for")
	}
	return nil
}

func (o *one) Status() client.SubResourceWriter { return oneStatus{of: o} }

type oneStatus struct {
	client.SubResourceWriter

	of *one
}

func (s oneStatus) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	_, err := patch.Data(obj)
	s.of.patched, _ = obj.(*v1alpha1.EvictionRequest)
	return err
}

// ignored takes events.
type ignored struct{}

func (ignored) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}
