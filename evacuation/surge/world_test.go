package surge

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	sdk "github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const (
	ns   = "shop"
	hash = "5c4f788ddf"
)

var t0 = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// deployment is one of so many replicas at revision 2, which its controller has
// seen.
func deployment(replicas int32) *appsv1.Deployment {
	d := builder.Deployment(ns, "web").UID("d").Replicas(replicas).Rolling("1", "0").Obj()
	d.Generation, d.Status.ObservedGeneration = 7, 7
	d.Annotations = map[string]string{revisionAnnotation: "2"}
	d.Spec.ProgressDeadlineSeconds = ptr.To[int32](600)
	return d
}

// replicaSet is one of the Deployment's.
func replicaSet(name string, revision, replicas int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: name, UID: types.UID(name),
			Annotations:     map[string]string{revisionAnnotation: fmt.Sprint(revision)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "d", Controller: ptr.To(true)}},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas},
	}
}

// pod is one of a ReplicaSet's that has been Ready for an hour.
func pod(name, set string) *corev1.Pod {
	p := builder.Pod(ns, name).UID(types.UID(name)).Label(builder.AppLabel, "web").Label(hashLabel, hash).
		Annotation("team", "shop").Created(t0.Add(-2 * time.Hour)).Ready().
		Owner(metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Keeper", Name: "k", UID: "k"}).
		Owner(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set, UID: types.UID(set), Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}).Obj()
	setReady(p, corev1.ConditionTrue, t0.Add(-time.Hour), "")
	return p
}

func setReady(p *corev1.Pod, status corev1.ConditionStatus, since time.Time, message string) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			c.Status, c.LastTransitionTime, c.Message = status, metav1.NewTime(since), message
		}
	}
}

// up is a pod as it is when it was handed up.
func up(t *testing.T, p *corev1.Pod, at time.Time) *corev1.Pod {
	t.Helper()
	patch, err := handUpPatch(p, deployment(1), at)
	if err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithObjects(p.DeepCopy()).Build()
	got := p.DeepCopy()
	if err := c.Patch(t.Context(), got, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		t.Fatal(err)
	}
	got.ResourceVersion = p.ResourceVersion
	return got
}

// world is a Surge over a fake client.
type world struct {
	*Surge
	mu     sync.Mutex // Of what is counted below.
	clock  *testingclock.FakeClock
	client client.Client
	joined []string
	events []string
	writes int
	// fail, if set, is what the next patch fails with; it is made all the same if
	// made is set.
	fail error
	made bool
}

func newWorld(objects ...client.Object) *world {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	w := &world{clock: testingclock.NewFakeClock(t0)}
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			w.mu.Lock()
			w.writes++
			err := w.fail
			w.fail = nil
			w.mu.Unlock()
			if err != nil && !w.made {
				return err
			}
			if err != nil {
				obj, _ = obj.DeepCopyObject().(client.Object)
			}
			if failed := c.Patch(ctx, obj, patch, opts...); failed != nil {
				return failed
			}
			return err
		},
	})
	for _, i := range indexes {
		b.WithIndex(i.object, i.name, i.extract)
	}
	w.client = b.Build()
	w.Surge = &Surge{
		Client: w.client, APIReader: w.client, Requester: w, Clock: w.clock, Recorder: w,
		Metrics: metrics.NewSurge(prometheus.NewRegistry()),
	}
	w.init()
	return w
}

// Join notes who is asked for.
func (w *world) Join(_ context.Context, pod client.Object) (*v1alpha1.EvictionRequest, error) {
	w.joined = append(w.joined, pod.GetName())
	return nil, nil
}

// Eventf notes the events, by what they are about.
func (w *world) Eventf(regarding, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	kind := fmt.Sprintf("%T", regarding)
	if ref, ok := regarding.(*corev1.ObjectReference); ok {
		kind = ref.Kind
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, kind+" "+reason)
}

// get reads a pod.
func (w *world) get(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	if err := w.client.Get(t.Context(), keyOf(ns, name), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// target is the pod as the SDK names it.
func target(name string) sdk.Target {
	return sdk.Target{
		Request: keyOf(ns, name), RequestUID: types.UID("er-" + name), Pod: keyOf(ns, name), PodUID: types.UID(name), ActivatedAt: t0,
	}
}

func deploymentStrategy(maxSurge string) appsv1.DeploymentStrategy {
	return builder.Deployment(ns, "web").Rolling(maxSurge, "0").Spec.Strategy
}
