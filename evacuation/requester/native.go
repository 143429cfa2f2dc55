package requester

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applylifecycle "k8s.io/client-go/applyconfigurations/lifecycle/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrNotServed is returned where the API server does not serve lifecycle.k8s.io/v1alpha1.
var ErrNotServed = errors.New("the API server does not serve " + lifecyclev1alpha1.GroupName + "/v1alpha1")

// NativeKey is the name of the requester in Kubernetes' own API: NAME/requester.
func (r *Requester) NativeKey() string { return r.Name + "/requester" }

// JoinNative requests the eviction of the pod by Kubernetes' own API (lifecycle.k8s.io,
// Kubernetes 1.37 and later): by an EvictionRequest of its own, whose spec.requester is
// NativeKey. It is idempotent, and takes back a WithdrawNative. The conditions of what it
// returns say how it goes: TargetEvicted is True when the pod has ended, Failed when nobody can
// evict it. It returns ErrNotServed where there is no such API.
//
// GracePeriodSeconds, Deadline and Type do not exist there. Use either this or Join for a pod:
// each is a wish of its own, and one sequence evicts the pod for both. Its account must be
// allowed to get, create and patch evictionrequests of lifecycle.k8s.io, as the built-in role
// edit is; the right to delete pods is not asked for. The client's scheme must have
// k8s.io/api/lifecycle/v1alpha1.
func (r *Requester) JoinNative(ctx context.Context, pod client.Object) (*lifecyclev1alpha1.EvictionRequest, error) {
	if err := r.checkNative(pod); err != nil {
		return nil, err
	}
	if err := r.applyNative(ctx, pod, nil, lifecyclev1alpha1.EvictionRequestIntentEviction); err != nil {
		return nil, r.explainNative("ask", pod, err)
	}
	found, err := r.getNative(ctx, pod)
	if err == nil && found == nil {
		err = errors.New("it was deleted at once")
	}
	if err != nil {
		return nil, r.explainNative("ask", pod, err)
	}
	return found, nil
}

// WithdrawNative takes back what JoinNative has asked for: the intent becomes Withdrawn. If nobody
// else wants the eviction, it fails (CanceledDueToNoRequesters). A missing request is left so.
func (r *Requester) WithdrawNative(ctx context.Context, pod client.Object) error {
	if err := r.checkNative(pod); err != nil {
		return err
	}
	var last error
	for range attempts {
		found, err := r.getNative(ctx, pod)
		switch {
		case err != nil:
			return r.explainNative("withdraw", pod, err)
		case found == nil || found.Spec.Intent == lifecyclev1alpha1.EvictionRequestIntentWithdrawn:
			return nil
		}
		last = r.applyNative(ctx, pod, found, lifecyclev1alpha1.EvictionRequestIntentWithdrawn)
		if last == nil {
			return nil
		}
		if !apierrors.IsConflict(last) && !apierrors.IsNotFound(last) {
			break
		}
	}
	return r.explainNative("withdraw", pod, last)
}

func (r *Requester) checkNative(pod client.Object) error {
	if err := r.check(pod); err != nil {
		return err
	}
	for _, reserved := range []string{"k8s.io", "kubernetes.io"} {
		if r.Name == reserved || strings.HasSuffix(r.Name, "."+reserved) {
			return fmt.Errorf("requester %s: names under %s cannot ask natively", r.Name, reserved)
		}
	}
	return nil
}

// nativeName is one that no other requester of the pod has.
func (r *Requester) nativeName(pod client.Object) client.ObjectKey {
	sum := sha256.Sum256([]byte(r.NativeKey()))
	return client.ObjectKey{Namespace: pod.GetNamespace(), Name: string(pod.GetUID()) + "-" + hex.EncodeToString(sum[:4])}
}

// getNative reads the native request of this requester, nil if there is none.
func (r *Requester) getNative(ctx context.Context, pod client.Object) (*lifecyclev1alpha1.EvictionRequest, error) {
	found := &lifecyclev1alpha1.EvictionRequest{}
	err := r.Client.Get(ctx, r.nativeName(pod), found)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // No request is an answer, and every caller asks for it.
	}
	return found, err
}

// applyNative writes the request; if seen is given, only that one is changed.
func (r *Requester) applyNative(ctx context.Context, pod client.Object, seen *lifecyclev1alpha1.EvictionRequest, intent lifecyclev1alpha1.EvictionRequestIntent) error {
	key := r.nativeName(pod)
	desired := applylifecycle.EvictionRequest(key.Name, key.Namespace).WithSpec(applylifecycle.EvictionRequestSpec().
		WithTarget(applylifecycle.EvictionRequestTarget().WithPod(applylifecycle.EvictionRequestPodReference().WithName(pod.GetName()).WithUID(pod.GetUID()))).
		WithRequester(r.NativeKey()).
		WithIntent(intent))
	if seen != nil {
		desired.WithUID(seen.UID)
	}
	return r.Client.Apply(ctx, desired, client.FieldOwner(r.fieldOwner()), client.ForceOwnership)
}

// explainNative adds what was tried, and for a refusal which permissions are needed.
func (r *Requester) explainNative(verb string, pod client.Object, err error) error {
	hint := ""
	switch {
	// The client knows it from its last look at what is served, or hears it now.
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		err = fmt.Errorf("%w: %w", ErrNotServed, err)
	case apierrors.IsForbidden(err):
		hint = " (a native requester needs get, create and patch on evictionrequests." + lifecyclev1alpha1.GroupName + ")"
	}
	return fmt.Errorf("requester %s: %s natively for the eviction of pod %s/%s (%s): %w%s", r.Name, verb, pod.GetNamespace(), pod.GetName(), pod.GetUID(), err, hint)
}
