package refused

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/events"
)

type (
	aboutKey  struct{}
	tryingKey struct{}
	atOnceKey struct{}
)

// About says which objects the writes of ctx are for: a refusal is told by an event on
// them. Without it, or without a UID, that is the object that is written.
func About(ctx context.Context, objects ...corev1.ObjectReference) context.Context {
	return context.WithValue(ctx, aboutKey{}, objects)
}

// Pod is the reference of a pod.
func Pod(pod *corev1.Pod) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

// AboutRequest is About for a request and its pod.
func AboutRequest(ctx context.Context, er *v1alpha1.EvictionRequest) context.Context {
	return About(ctx, ofRequest(er)...)
}

// ofRequest are the pod of a request and the request.
func ofRequest(er *v1alpha1.EvictionRequest) []corev1.ObjectReference {
	var about []corev1.ObjectReference
	if pod := events.PodReference(er); pod != nil {
		about = append(about, *pod)
	}
	return append(about, corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "EvictionRequest", Namespace: er.Namespace, Name: er.Name, UID: er.UID,
	})
}

// AboutPodOfRequest is AboutRequest for a pod and a request by their names.
func AboutPodOfRequest(ctx context.Context, pod types.NamespacedName, podUID types.UID, request types.NamespacedName, requestUID types.UID) context.Context {
	er := &v1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name, UID: requestUID}}
	er.Spec.Target.Pod = &v1alpha1.LocalPodReference{Name: pod.Name, UID: podUID}
	return AboutRequest(ctx, er)
}

func subjectsOf(ctx context.Context) []corev1.ObjectReference {
	objects, _ := ctx.Value(aboutKey{}).([]corev1.ObjectReference)
	return objects
}

// trying says that the caller tries the same write with another content if this one is
// refused: only that is a refusal.
func trying(ctx context.Context) context.Context {
	return context.WithValue(ctx, tryingKey{}, true)
}

// AtOnce lets a write be tried although it was refused a moment ago: somebody has asked for
// it.
func AtOnce(ctx context.Context) context.Context {
	return context.WithValue(ctx, atOnceKey{}, true)
}

// expected reports whether the caller handles the refusal: a try, if it depends on the
// content, and what the schema refuses of requests and reports, which have rules that a newer
// object obeys (no revival of a canceled request; times within the clock's skew).
func expected(ctx context.Context, write Write, cause Cause) bool {
	switch cause {
	case Policy, Webhook:
		return ctx.Value(tryingKey{}) != nil
	case Invalid:
		return ctx.Value(tryingKey{}) != nil || write == Request || write == Report || write == NativeReport
	default:
		return false
	}
}
