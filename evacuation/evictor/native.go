package evictor

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	lifecycleapply "k8s.io/client-go/applyconfigurations/lifecycle/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/internal/text"
)

// nativeName is the evictor in the native API.
const nativeName = lifecyclev1alpha1.EvictionResponderImperativeEviction

// maxNativeMessage is the longest message of a native responder, in characters (C.2).
const maxNativeMessage = 4000

// Native are the native Evictions, whose last responder this evictor is, too.
type Native interface {
	// Running is the Eviction of the pod with that namespace and UID that is being processed,
	// nil if there is none.
	Running(ctx context.Context, pod types.NamespacedName) (*lifecyclev1alpha1.Eviction, error)
	// Awaited reports whether our request of that pod waits for an Eviction that does not run yet.
	Awaited(ctx context.Context, pod types.NamespacedName, er *v1alpha1.EvictionRequest) (bool, error)
	// InCharge reports whether this evictor is that of native Evictions. Otherwise the cluster
	// has one, which acts.
	InCharge() bool
	// Notify has changed called with the namespace and UID of each pod whose Evictions change.
	Notify(changed func(pod types.NamespacedName))
}

// wish is what the evictor acts for: our request of a pod, its native Eviction, or both. Then
// both have to have reached their last stage.
type wish struct {
	// er is our request. If there is none that runs, it says what the Eviction says, and does
	// not exist.
	er *v1alpha1.EvictionRequest
	// stored: er exists.
	stored bool
	// native is the running Eviction, nil if there is none.
	native *lifecyclev1alpha1.Eviction
	// foreign: the Eviction has an evictor of the cluster's.
	foreign bool
	// awaited: no Eviction runs, but er waits for the next one.
	awaited bool
}

// isTurn reports whether the evictor may act.
func (w *wish) isTurn() bool {
	if w.native != nil && w.foreign {
		return false
	}
	if !w.stored {
		return IsTurnOf(nil, w.native, false)
	}
	return IsTurnOf(w.er, w.native, w.awaited)
}

// lasts reports whether it is still the same, and the evictor's turn, as the API server has it now;
// nil for nothing.
func (w *wish) lasts(now *wish) bool {
	return now != nil && now.stored == w.stored && now.er.UID == w.er.UID && now.isTurn()
}

// IsTurnOf reports whether the evictor may act for our request of a pod and its running
// Eviction; nil is none. Both have to have reached their last stage. A request that only an
// Eviction needs goes no further than that: when the Eviction has ended, its name is not taken
// back yet. awaited: none runs, but the request waits for the next.
func IsTurnOf(er *v1alpha1.EvictionRequest, native *lifecyclev1alpha1.Eviction, awaited bool) bool {
	switch {
	case native != nil:
		return nativeTurn(native) && (er == nil || IsTurn(er))
	case er == nil:
		return false
	default:
		return IsTurn(er) && !onlyNative(er) && !awaited
	}
}

// onlyNative reports whether nobody but a native Eviction wants what the request asks for.
func onlyNative(er *v1alpha1.EvictionRequest) bool {
	return len(er.Spec.Requesters) > 0 && !slices.ContainsFunc(er.Spec.Requesters, func(r v1alpha1.Requester) bool {
		return r.Name != v1alpha1.NativeInterceptor
	})
}

// nativeTurn reports whether the evictor has the turn in an Eviction.
func nativeTurn(e *lifecyclev1alpha1.Eviction) bool {
	for _, r := range e.Status.TargetResponders {
		if r.Name == nativeName {
			return r.State == lifecyclev1alpha1.ResponderStateActive && e.DeletionTimestamp == nil
		}
	}
	return false
}

// wishOf finds what there is for the pod, nil for nothing. The live look is for before an
// eviction, which cannot be undone.
func (e *Reconciler) wishOf(ctx context.Context, key types.NamespacedName, live bool) (*wish, error) {
	reader := client.Reader(e.Client)
	if live {
		reader = e.APIReader
	}
	er, err := getRequest(ctx, reader, key)
	if err != nil {
		return nil, err
	}
	w := &wish{er: er, stored: er != nil}
	if e.Native != nil {
		if w.native, err = e.nativeOf(ctx, key, live); err != nil {
			return nil, err
		}
		w.foreign = !e.Native.InCharge()
	}
	if e.Native != nil && w.native == nil && er != nil {
		if w.awaited, err = e.Native.Awaited(ctx, key, er); err != nil {
			return nil, fmt.Errorf("look up who wants pod %s evicted natively: %w", key, err)
		}
	}
	if w.native != nil && (er == nil || v1alpha1.IsFinished(er)) {
		w.er, w.stored = requestOf(w.native), false
	}
	if w.er == nil {
		return nil, nil //nolint:nilnil // Nothing is an answer.
	}
	return w, nil
}

func (e *Reconciler) nativeOf(ctx context.Context, key types.NamespacedName, live bool) (*lifecyclev1alpha1.Eviction, error) {
	cached, err := e.Native.Running(ctx, key)
	if err != nil || cached == nil || !live {
		return cached, err
	}
	found := &lifecyclev1alpha1.Eviction{}
	switch err := e.APIReader.Get(ctx, client.ObjectKeyFromObject(cached), found); {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // Gone.
	case err != nil:
		return nil, fmt.Errorf("get eviction %s/%s: %w", cached.Namespace, cached.Name, err)
	case found.UID != cached.UID || isOver(found):
		return nil, nil //nolint:nilnil // Another one, or over.
	}
	return found, nil
}

func isOver(e *lifecyclev1alpha1.Eviction) bool {
	return meta.IsStatusConditionTrue(e.Status.Conditions, string(lifecyclev1alpha1.EvictionConditionFailed)) ||
		meta.IsStatusConditionTrue(e.Status.Conditions, string(lifecyclev1alpha1.EvictionConditionTargetEvicted))
}

// requestOf says what an Eviction says in the words of our API.
func requestOf(native *lifecyclev1alpha1.Eviction) *v1alpha1.EvictionRequest {
	pod, report := native.Spec.Target.Pod, nativeReport(native)
	er := &v1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{
		Namespace: native.Namespace, Name: string(pod.UID), CreationTimestamp: native.CreationTimestamp,
	}}
	er.Spec.Target.Pod = &v1alpha1.LocalPodReference{Name: pod.Name, UID: pod.UID}
	item := v1alpha1.InterceptorStatus{Name: v1alpha1.ImperativeEvictionInterceptor, StartTime: report.StartTime, HeartbeatTime: report.HeartbeatTime}
	if report.Message != nil {
		item.Message = *report.Message
		if found := attemptsIn.FindStringSubmatch(*report.Message); found != nil {
			if n, err := strconv.ParseInt(found[1], 10, 32); err == nil {
				item.Retries, item.Message = int32(n), fmt.Sprintf(FailedMessage, n)
			}
		}
	}
	er.Status.ActivationTime = report.StartTime
	er.Status.ActiveInterceptors = []string{v1alpha1.ImperativeEvictionInterceptor}
	er.Status.Interceptors = []v1alpha1.InterceptorStatus{item}
	return er
}

// nativeReport is the evictor's own item in an Eviction.
func nativeReport(native *lifecyclev1alpha1.Eviction) lifecyclev1alpha1.ResponderStatus {
	for i := range native.Status.Responders {
		if native.Status.Responders[i].Name == nativeName {
			return native.Status.Responders[i]
		}
	}
	return lifecyclev1alpha1.ResponderStatus{Name: nativeName}
}

// attemptsIn finds how often was tried in the message: the native API has no other place for it.
var attemptsIn = regexp.MustCompile(`\(attempts=(\d+)\)`)

// nativeText is the message for an item.
func nativeText(item Report) string {
	if item.Refusal == nil {
		return text.Cut(item.Message, maxNativeMessage)
	}
	return text.Cut(fmt.Sprintf("Deletion through /eviction failed (attempts=%d): %s", item.Retries, item.Refusal.Message), maxNativeMessage)
}

// reportNative writes the evictor's item of the Eviction, if it has something new to say or its
// heartbeat is due.
func (e *Reconciler) reportNative(ctx context.Context, native *lifecyclev1alpha1.Eviction, item Report, now time.Time) (wakeAt time.Time, err error) {
	stored := nativeReport(native)
	last, message := time.Time{}, ""
	for _, sign := range []*metav1.Time{stored.StartTime, stored.HeartbeatTime} {
		if sign != nil {
			last = controllers.Later(last, sign.Time)
		}
	}
	if stored.Message != nil {
		message = *stored.Message
	}
	if due := last.Add(e.Policy.HeartbeatInterval); nativeText(item) == message && now.Before(due) {
		return due, nil
	}
	if stored.CompletionTime != nil {
		return time.Time{}, nil // Somebody has said so in our name; it is final.
	}
	heartbeat := controllers.Later(now.Truncate(time.Second), last)
	err = e.applyNative(ctx, native, lifecycleapply.ResponderStatus().WithHeartbeatTime(metav1.NewTime(heartbeat)).WithMessage(nativeText(item)))
	return now.Add(e.Policy.HeartbeatInterval), err
}

// completeNative says that the pod has ended. The end comes with the engine's next write.
func (e *Reconciler) completeNative(ctx context.Context, native *lifecyclev1alpha1.Eviction, state PodState) error {
	stored := nativeReport(native)
	if stored.CompletionTime != nil {
		return nil
	}
	message := "The pod is deleted and fully terminated."
	if state == PodTerminal {
		message = "The pod is fully terminated."
	}
	report := lifecycleapply.ResponderStatus().WithMessage(message).WithCompletionTime(completionTime(stored, e.Clock.Now()))
	if stored.HeartbeatTime != nil {
		report.WithHeartbeatTime(*stored.HeartbeatTime)
	}
	return e.applyNative(ctx, native, report)
}

// completionTime is now, but not before the turn, which another clock may have begun (C.2).
func completionTime(stored lifecyclev1alpha1.ResponderStatus, now time.Time) metav1.Time {
	now = now.Truncate(time.Second)
	if stored.StartTime != nil {
		now = controllers.Later(now, stored.StartTime.Time)
	}
	return metav1.NewTime(now)
}

func (e *Reconciler) applyNative(ctx context.Context, native *lifecyclev1alpha1.Eviction, report *lifecycleapply.ResponderStatusApplyConfiguration) error {
	pod := native.Spec.Target.Pod
	ctx = refused.About(ctx, corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: native.Namespace, Name: pod.Name, UID: pod.UID})
	err := e.Client.SubResource("status").Apply(ctx,
		lifecycleapply.Eviction(native.Name, native.Namespace).
			WithResourceVersion(native.ResourceVersion).
			WithStatus(lifecycleapply.EvictionStatus().WithResponders(report.WithName(nativeName))),
		client.FieldOwner(v1alpha1.ImperativeEvictionInterceptor), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("report on eviction %s: %w", native.Name, err)
	}
	return nil
}

// ended reports whether the pod of an Eviction that is the evictor's to complete has ended. The
// cache alone cannot say that a pod is gone.
func (e *Reconciler) ended(ctx context.Context, w *wish, state PodState) (bool, error) {
	if w.native == nil || w.foreign || !nativeTurn(w.native) {
		return false, nil
	}
	switch state {
	case PodReplaced, PodTerminal:
		return true, nil
	case PodUnseen:
		pod := w.native.Spec.Target.Pod
		found, err := getPod(ctx, e.APIReader, types.NamespacedName{Namespace: w.native.Namespace, Name: pod.Name})
		return err == nil && (found == nil || found.UID != pod.UID), err
	default:
		return false, nil
	}
}

// announce records the event on the pod and on what the evictor acts for.
func (e *Reconciler) announce(w *wish, series bool, event events.Event) {
	switch {
	case !w.stored:
		events.Emit(e.Recorder, events.PodReference(w.er), &corev1.ObjectReference{
			APIVersion: lifecyclev1alpha1.SchemeGroupVersion.String(), Kind: "Eviction",
			Namespace: w.native.Namespace, Name: w.native.Name, UID: w.native.UID,
		}, event)
	case series:
		events.EmitSeriesOnBoth(e.Recorder, w.er, event)
	default:
		events.EmitOnBoth(e.Recorder, w.er, event)
	}
}
