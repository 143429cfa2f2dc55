package hook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
)

// A hook with a spec.nativeKey is also a responder of lifecycle.k8s.io, for the pods of its
// namespace that name the key. Its turn there is like any other, with an Eviction in the place of
// the EvictionRequest: the SDK calls the same methods, and a run is recorded the same way. Where
// two hooks of a namespace have one key, the first by name answers.

// NativeEvictions are the Evictions of lifecycle.k8s.io, as far as they are served. They must
// not be changed.
type NativeEvictions interface {
	interceptor.PodEvictions
	// Notify has a function called with the namespace and UID of each pod that has some, and
	// whenever they change.
	Notify(changed func(pod types.NamespacedName))
}

// nativeTurn is what a hook answers natively.
type nativeTurn struct {
	hook types.NamespacedName
	key  string
}

func compareTurns(a, b nativeTurn) int {
	if c := compareKeys(a.hook, b.hook); c != 0 {
		return c
	}
	return strings.Compare(a.key, b.key)
}

// podKey identifies the pod of a target: it is also the key of its EvictionRequest.
func podKey(t interceptor.Target) types.NamespacedName {
	return types.NamespacedName{Namespace: t.Pod.Namespace, Name: string(t.PodUID)}
}

// requestReference is the EvictionRequest or the Eviction of a target.
func requestReference(t interceptor.Target) corev1.ObjectReference {
	o := corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "EvictionRequest",
		Namespace: t.Request.Namespace, Name: t.Request.Name, UID: t.RequestUID,
	}
	if t.Native {
		o.APIVersion, o.Kind = lifecyclev1alpha1.SchemeGroupVersion.String(), "Eviction"
	}
	return o
}

// evictionsOf are the native Evictions of a pod.
func (a *hookInterceptor) evictionsOf(ctx context.Context, pod types.NamespacedName) ([]*lifecyclev1alpha1.Eviction, error) {
	if a.native == nil {
		return nil, nil
	}
	found, err := a.native.EvictionsOf(ctx, pod)
	if err != nil {
		return nil, fmt.Errorf("find the native Evictions of pod %s: %w", pod, err)
	}
	return found, nil
}

// wanted reports whether an Eviction goes on.
func wanted(e *lifecyclev1alpha1.Eviction) bool {
	return e != nil && e.DeletionTimestamp.IsZero() && !meta.IsStatusConditionTrue(e.Status.Conditions, string(lifecyclev1alpha1.EvictionConditionFailed))
}

// evictionOf is the one of that UID, nil if it is not among them.
func evictionOf(evictions []*lifecyclev1alpha1.Eviction, uid types.UID) *lifecyclev1alpha1.Eviction {
	i := slices.IndexFunc(evictions, func(e *lifecyclev1alpha1.Eviction) bool { return e.UID == uid })
	if i < 0 {
		return nil
	}
	return evictions[i]
}

// respond handles one pod, for all hooks that have or had a native turn.
func (r *runner) respond(ctx context.Context, req reconcile.Request, evictions []*lifecyclev1alpha1.Eviction) (time.Duration, error) {
	turns, err := r.turnsOf(ctx, req.NamespacedName, evictions)
	errs := []error{err}
	var soonest time.Duration
	for _, turn := range turns {
		sdk, err := r.responder(turn)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		one, err := sdk.Reconcile(ctx, req)
		errs = append(errs, err)
		if after := one.RequeueAfter; after > 0 && (soonest == 0 || after < soonest) {
			soonest = after
		}
	}
	if len(evictions) == 0 {
		r.mu.Lock()
		delete(r.answered, req.NamespacedName)
		r.mu.Unlock()
	}
	return soonest, errors.Join(errs...)
}

// turnsOf are the turns that hooks have or had in a pod's Evictions.
func (r *runner) turnsOf(ctx context.Context, pod types.NamespacedName, evictions []*lifecyclev1alpha1.Eviction) ([]nativeTurn, error) {
	keys := map[string]bool{}
	for _, e := range evictions {
		for _, responder := range e.Status.TargetResponders {
			if responder.State != lifecyclev1alpha1.ResponderStateInactive {
				keys[responder.Name] = true
			}
		}
	}
	r.mu.Lock()
	known := slices.SortedFunc(maps.Keys(r.answered[pod]), compareTurns)
	r.mu.Unlock()
	for _, turn := range known {
		delete(keys, turn.key)
	}
	if len(keys) == 0 {
		return known, nil
	}
	var hooks v1alpha1.EvacuationHookList
	if err := r.client.List(ctx, &hooks, client.InNamespace(pod.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return known, fmt.Errorf("list the hooks of namespace %s: %w", pod.Namespace, err)
	}
	slices.SortFunc(hooks.Items, func(a, b v1alpha1.EvacuationHook) int { return strings.Compare(a.Name, b.Name) })
	for i := range hooks.Items {
		hook := &hooks.Items[i]
		if key := hook.Spec.NativeKey; keys[key] && hook.DeletionTimestamp.IsZero() {
			delete(keys, key)
			known = append(known, nativeTurn{client.ObjectKeyFromObject(hook), key})
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, turn := range known {
		if r.answered[pod] == nil {
			r.answered[pod] = map[nativeTurn]bool{}
		}
		r.answered[pod][turn] = true
	}
	return known, nil
}

// nativeClient also knows the Evictions.
type nativeClient struct {
	client.Client
	interceptor.PodEvictions
}

var _ interceptor.PodEvictions = &nativeClient{}

func (r *runner) responder(turn nativeTurn) (reconcile.Reconciler, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.responders[turn] == nil {
		made, err := interceptor.NewReconciler(&nativeClient{r.client, r.native}, r.live, &named{hookInterceptor: r.hookInterceptor, hook: turn.hook}, interceptor.Options{
			NativeKey: turn.key, Clock: r.clock, Recorder: r.recorder, HeartbeatInterval: r.beat,
		})
		if err != nil {
			return nil, fmt.Errorf("run hook %s natively: %w", turn.hook, err)
		}
		r.responders[turn] = made
	}
	return r.responders[turn], nil
}

// settleNative ends a run of an Eviction that has ended itself, as settle does. It returns after
// how long it is to be called again.
func (r *runner) settleNative(ctx context.Context, n *named, request types.NamespacedName, run v1alpha1.HookRun, evictions []*lifecyclev1alpha1.Eviction) (time.Duration, error) {
	e := evictionOf(evictions, types.UID(run.RequestUID))
	if e == nil {
		gone, err := r.isEvictionGone(ctx, request.Namespace, run)
		if err != nil || !gone {
			return 0, err
		}
	}
	if wanted(e) {
		if meta.IsStatusConditionTrue(e.Status.Conditions, string(lifecyclev1alpha1.EvictionConditionTargetEvicted)) {
			r.runs.drop(n.hook, e.UID)
		}
		return 0, nil
	}
	target := targetOf(request, nil, run)
	switch err := n.callOff(about(ctx, target), target, false); {
	case errors.Is(err, interceptor.ErrNotYet):
		return soon, nil
	case errors.Is(err, interceptor.ErrPointOfNoReturn):
		if e == nil { // Nobody is left who would finish it.
			r.runs.drop(n.hook, types.UID(run.RequestUID))
		}
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("cancel hook %s: %w", n.hook, err)
	}
	return 0, nil
}

// isEvictionGone asks the API server: the cache may lag behind. An API that is not served any
// more, or that we keep out of now, has none.
func (r *runner) isEvictionGone(ctx context.Context, namespace string, run v1alpha1.HookRun) (bool, error) {
	if r.native == nil {
		return true, nil
	}
	e := &lifecyclev1alpha1.Eviction{}
	switch err := r.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: run.Eviction}, e); {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("get Eviction %s/%s: %w", namespace, run.Eviction, err)
	}
	return string(e.UID) != run.RequestUID, nil
}
