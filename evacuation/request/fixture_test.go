package request

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	applyv1alpha1 "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

var key = types.NamespacedName{Namespace: "shop", Name: "uid-1"}

// eventLog keeps events as "Kind Reason".
type eventLog struct{ events []string }

func (l *eventLog) Eventf(regarding, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	kind := "EvictionRequest"
	if ref, ok := regarding.(*corev1.ObjectReference); ok {
		kind = ref.Kind
	}
	l.events = append(l.events, kind+" "+reason)
}

// metricsLog keeps what the metrics were told.
type metricsLog struct{ told []string }

func (m *metricsLog) Observe(er *v1alpha1.EvictionRequest) {
	m.told = append(m.told, fmt.Sprintf("observe %v %v", er.Status.ActiveInterceptors, er.Status.ProcessedInterceptors))
}

func (m *metricsLog) Forget(namespace, name string) {
	m.told = append(m.told, "forget "+namespace+"/"+name)
}

// bench is a reconciler over two API servers: the cache may lag behind the live
// one. It knows nothing of server-side apply; what is applied is kept.
type bench struct {
	*Reconciler
	live    client.WithWatch
	clock   *testingclock.FakeClock
	events  *eventLog
	metrics *metricsLog

	mu      sync.Mutex
	applied []*applyv1alpha1.EvictionRequestApplyConfiguration
	patches []string
	reads   []string
	// fail, if set, is asked before every call with its verb and kind.
	fail func(call string) error
}

// deadlines of interceptors, by name, as their registrations say.
type deadlines map[string]time.Duration

func (d deadlines) of(name string) v1alpha1.Interceptor {
	return itemOf(process.Participant{Name: name, HeartbeatDeadline: d[name]})
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	b := &bench{clock: testingclock.NewFakeClock(t0), events: &eventLog{}, metrics: &metricsLog{}}
	b.live = fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithReturnManagedFields().
		WithStatusSubresource(&v1alpha1.EvictionRequest{}).WithObjects(objects...).Build()
	b.Reconciler = &Reconciler{
		Client:    b.intercept(b.live, "cached"),
		APIReader: b.intercept(b.live, "live"),
		Clock:     b.clock,
		Policy:    process.DefaultPolicy(),
		Resolver:  builder.FromAnnotation{},
		Planned:   deadlines{}.of,
		ResolveLive: func(_ context.Context, pod *corev1.Pod) ([]string, func(string) v1alpha1.Interceptor, error) {
			names, err := builder.FromAnnotation{}.Resolve(pod)
			return names, deadlines{}.of, err
		},
		Recorder: b.events,
		Metrics:  b.metrics,
	}
	return b
}

// lag gives the reconciler a cache of its own that holds only these objects.
func (b *bench) lag(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	cache := fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithObjects(objects...).Build()
	b.Client = interceptor.NewClient(b.intercept(b.live, "cached"), interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return cache.Get(ctx, key, obj, opts...)
		},
	})
	return b
}

func (b *bench) call(format string, args ...any) error {
	if b.fail == nil {
		return nil
	}
	return b.fail(fmt.Sprintf(format, args...))
}

func (b *bench) intercept(c client.WithWatch, source string) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			read := fmt.Sprintf("%s %s", source, strings.TrimPrefix(fmt.Sprintf("%T", obj), "*v1."))
			b.mu.Lock()
			b.reads = append(b.reads, read)
			b.mu.Unlock()
			if err := b.call("get %s", read); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := b.call("delete"); err != nil {
				return err
			}
			return c.Delete(ctx, obj, opts...)
		},
		Apply: func(_ context.Context, _ client.WithWatch, obj runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			if err := b.call("apply"); err != nil {
				return err
			}
			b.applied = append(b.applied, obj.(*applyv1alpha1.EvictionRequestApplyConfiguration))
			return nil
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			data, err := patch.Data(obj)
			if err != nil {
				return err
			}
			b.mu.Lock()
			b.patches = append(b.patches, string(data))
			b.mu.Unlock()
			if err := b.call("patch %s", sub); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	})
}

func (b *bench) reconcile(t *testing.T) (ctrl.Result, error) {
	t.Helper()
	return b.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
}

func (b *bench) mustReconcile(t *testing.T) time.Duration {
	t.Helper()
	result, err := b.reconcile(t)
	if err != nil {
		t.Fatalf("reconcile: %v", err)
	}
	return result.RequeueAfter
}

// state renders what the tables compare of the stored request.
func (b *bench) state(t *testing.T) string {
	t.Helper()
	er := &v1alpha1.EvictionRequest{}
	if err := b.live.Get(t.Context(), key, er); err != nil {
		if apierrors.IsNotFound(err) {
			return "gone"
		}
		t.Fatalf("get request: %v", err)
	}
	s := fmt.Sprintf("active %v processed %v", er.Status.ActiveInterceptors, er.Status.ProcessedInterceptors)
	for _, c := range er.Status.Conditions {
		s += fmt.Sprintf(" %s=%s/%s", c.Type, c.Status, c.Reason)
	}
	return s
}

func webPod() *builder.PodWrapper {
	return builder.Pod("shop", "web-1").UID("uid-1").Node("n1").Phase(corev1.PodRunning).Interceptors("a.example.com")
}
