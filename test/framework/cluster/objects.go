package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	applyv1alpha1 "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
)

// Scheme knows Kubernetes' types and ours, and those that more adds.
func Scheme(more ...func(*runtime.Scheme) error) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range append(more, clientgoscheme.AddToScheme, v1alpha1.AddToScheme) {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// Must returns a value, or ends the test.
func Must[T any](value T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return value
	}
}

// Create creates objects, or ends the test.
func Create(tb testing.TB, c client.Client, objects ...client.Object) {
	tb.Helper()
	for _, object := range objects {
		if err := c.Create(tb.Context(), object); err != nil {
			tb.Fatalf("create %T %s: %v", object, object.GetName(), err)
		}
	}
}

// IsReady says that a pod is Ready and not being deleted.
func IsReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// ReadyPod waits for a pod of that name which is Ready and not being deleted.
func ReadyPod(tb testing.TB, c client.Reader, namespace, name string) *corev1.Pod {
	tb.Helper()
	pod := &corev1.Pod{}
	Eventually(tb, "pod "+name+" to be Ready", func(ctx context.Context) error {
		*pod = corev1.Pod{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod); err != nil {
			return err
		}
		if !IsReady(pod) {
			return fmt.Errorf("phase %s, node %q, conditions %v", pod.Status.Phase, pod.Spec.NodeName, pod.Status.Conditions)
		}
		return nil
	})
	return pod
}

// Gone waits until the very pod is no more.
func Gone(tb testing.TB, c client.Reader, pod *corev1.Pod) {
	tb.Helper()
	Eventually(tb, "pod "+pod.Name+" to go", func(ctx context.Context) error {
		now := &corev1.Pod{}
		err := c.Get(ctx, client.ObjectKeyFromObject(pod), now)
		if apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("it is still there, deleted %v", now.DeletionTimestamp)
		}
		return err
	})
}

// RequestFor returns the request for a pod.
func RequestFor(ctx context.Context, c client.Reader, pod *corev1.Pod) (*v1alpha1.EvictionRequest, error) {
	er := &v1alpha1.EvictionRequest{}
	err := c.Get(ctx, v1alpha1.RequestKey(pod), er)
	return er, err
}

// WaitRequest waits until the request for a pod is as wanted, and returns it.
func WaitRequest(tb testing.TB, c client.Reader, pod *corev1.Pod, what string, wanted func(*v1alpha1.EvictionRequest) bool) *v1alpha1.EvictionRequest {
	tb.Helper()
	var er *v1alpha1.EvictionRequest
	Eventually(tb, "the request for pod "+pod.Name+" to be "+what, func(ctx context.Context) (err error) {
		if er, err = RequestFor(ctx, c, pod); err != nil {
			return err
		}
		if !wanted(er) {
			return fmt.Errorf("requesters %v, status %+v", er.Spec.Requesters, er.Status)
		}
		return nil
	})
	return er
}

// ApplyWish says by server-side apply, in the name of a requester, that it wants the pod
// evicted, or that it does not any more.
func ApplyWish(tb testing.TB, c client.Client, requester string, pod *corev1.Pod, wanted bool) {
	tb.Helper()
	spec := applyv1alpha1.EvictionRequestSpec().WithTarget(applyv1alpha1.EvictionTarget().
		WithPod(applyv1alpha1.LocalPodReference().WithName(pod.Name).WithUID(pod.UID)))
	if wanted {
		spec.WithRequesters(applyv1alpha1.Requester().WithName(requester))
	}
	request := applyv1alpha1.EvictionRequest(string(pod.UID), pod.Namespace).WithSpec(spec)
	// A cluster sees it a moment after the policies that RBAC allows something.
	Eventually(tb, requester+" to apply", func(ctx context.Context) error {
		return c.Apply(ctx, request, client.FieldOwner(requester))
	})
}

// ActiveIs wants that it is the turn of this interceptor.
func ActiveIs(name string) func(*v1alpha1.EvictionRequest) bool {
	return func(er *v1alpha1.EvictionRequest) bool {
		return slices.Equal(er.Status.ActiveInterceptors, []string{name})
	}
}

// IsTrue wants that a condition is True.
func IsTrue(condition string) func(*v1alpha1.EvictionRequest) bool {
	return func(er *v1alpha1.EvictionRequest) bool {
		return meta.IsStatusConditionTrue(er.Status.Conditions, condition)
	}
}
