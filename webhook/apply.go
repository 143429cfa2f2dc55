package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	applyv1alpha1 "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// FieldManager is the field manager under which a legacy requester's entry is
// applied.
func FieldManager(requester string) string {
	sum := sha256.Sum256([]byte(requester))
	return translate.FieldManagerPrefix + hex.EncodeToString(sum[:])[:10]
}

// apply writes what a decision requires, in an order that survives a crash at any
// point: first the lease, then the request that refers to it.
func (h *EvictionHandler) apply(ctx context.Context, in gathered, decision Decision) (translate.Verdict, error) {
	if w, ok := h.written.Get(applyKey(in)); ok && w.(Written) != in.Written {
		// The attempt that we would have shared ended just before this one began.
		return decision.Verdict, nil
	}
	caller := in.Call.Caller
	ctx = refused.About(ctx, refused.Pod(in.Pod))
	if err := h.leases.ensure(ctx, in.Pod.Spec.NodeName, caller); err != nil {
		return translate.Verdict{}, err
	}
	if decision.Action == ActRestart {
		if err := h.discard(ctx, in.Request); err != nil {
			return h.afterRefusal(in, err)
		}
	}
	request, err := h.applyEntry(ctx, in)
	if err != nil {
		return h.afterRefusal(in, err)
	}
	about := decision.Verdict.Subject
	about.Request = request.Name
	if request.DeletionTimestamp != nil && len(request.Finalizers) > 0 {
		return translate.Held(about, request.Finalizers[0]), nil
	}
	if request.DeletionTimestamp != nil || meta.IsStatusConditionTrue(request.Status.Conditions, v1alpha1.ConditionCanceled) {
		// We joined a finished request; its name is free once it is gone.
		return translate.Restarting(about), nil
	}
	h.written.Add(applyKey(in), Written{Request: request.UID, GracePeriodSeconds: in.wantedGrace()}, bridge)
	events.EmitOnBoth(h.Recorder, request, events.EvictionRequested(caller.Display))
	if decision.Verdict.Outcome == translate.Allow || decision.Verdict.Reason == translate.ReasonGuardClosed {
		return decision.Verdict, nil
	}
	return stateVerdict(about, in.Pod, request), nil
}

// notifyEnd records that the caller is notified of the end of a pod, and only then
// answers. Of two simultaneous calls one writes first; the other is told to retry, and
// then counts as a new request.
func (h *EvictionHandler) notifyEnd(ctx context.Context, in gathered, decision Decision) (translate.Verdict, error) {
	ended := decision.Ended
	names := append(slices.Clone(notified(ended)), in.Call.Caller.Requester)
	slices.Sort(names)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": ended.UID, "resourceVersion": ended.ResourceVersion,
		"annotations": map[string]string{v1alpha1.NotifiedAnnotation: strings.Join(names, ",")},
	}})
	if err != nil {
		return translate.Verdict{}, fmt.Errorf("encode patch: %w", err)
	}
	target := &v1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: ended.Namespace, Name: ended.Name, UID: ended.UID}}
	switch err := h.Writer.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)); {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return translate.Trouble(in.subject(), translate.ReasonChanged), nil
	case err != nil:
		return translate.Verdict{}, fmt.Errorf("record the end in evictionrequest %s/%s: %w", ended.Namespace, ended.Name, err)
	}
	return decision.Verdict, nil
}

// discard deletes a canceled request, and not another one that may have its name
// meanwhile.
func (h *EvictionHandler) discard(ctx context.Context, request *v1alpha1.EvictionRequest) error {
	err := h.Writer.Delete(ctx, request.DeepCopy(), client.Preconditions{UID: &request.UID, ResourceVersion: &request.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete canceled evictionrequest %s/%s: %w", request.Namespace, request.Name, err)
	}
	return nil
}

// afterRefusal handles temporary refusals: the request was canceled or changed between
// our read and our write.
func (h *EvictionHandler) afterRefusal(in gathered, err error) (translate.Verdict, error) {
	switch {
	case isInvalid(err) && in.Request != nil:
		return translate.Restarting(in.subject()), nil // No revival (ruling R3).
	case apierrors.IsConflict(err):
		return translate.Trouble(in.subject(), translate.ReasonChanged), nil
	default:
		return translate.Verdict{}, err
	}
}

// isInvalid reports whether the schema refuses a write, and no policy.
func isInvalid(err error) bool {
	cause, _ := refused.Of(err)
	return cause == refused.Invalid
}

// applyEntry creates or joins the request, in one call: with the pod's labels, so that the
// controller need not write them (ruling R7). Labels that somebody's policy refuses hold up
// no eviction.
func (h *EvictionHandler) applyEntry(ctx context.Context, in gathered) (*v1alpha1.EvictionRequest, error) {
	labels := pods.CopiedLabels(in.Pod.Labels)
	request, err := h.applyWith(ctx, in, labels)
	if _, refused := refused.Of(err); refused && len(labels) > 0 {
		return h.applyWith(ctx, in, nil)
	}
	return request, err
}

// applyWith creates or joins the request with these labels.
func (h *EvictionHandler) applyWith(ctx context.Context, in gathered, labels map[string]string) (*v1alpha1.EvictionRequest, error) {
	pod, caller := in.Pod, in.Call.Caller
	entry := applyv1alpha1.Requester().WithName(caller.Requester).WithLeaseName(in.LeaseName)
	if grace := in.wantedGrace(); grace != nil {
		entry.WithGracePeriodSeconds(*grace)
	}
	desired := applyv1alpha1.EvictionRequest(string(pod.UID), pod.Namespace).
		WithLabels(labels).
		WithSpec(applyv1alpha1.EvictionRequestSpec().
			WithTarget(applyv1alpha1.EvictionTarget().
				WithPod(applyv1alpha1.LocalPodReference().WithName(pod.Name).WithUID(pod.UID))).
			WithRequesters(entry))
	if len(in.Interceptors) > 0 { // Else its plan is made.
		desired.WithAnnotations(map[string]string{v1alpha1.SeenInterceptorsAnnotation: strings.Join(in.Interceptors, ",")})
	}
	// Forced: the entry is ours, no matter who wrote it last.
	if err := h.Writer.Apply(ctx, desired, client.FieldOwner(FieldManager(caller.Requester)), client.ForceOwnership); err != nil {
		return nil, fmt.Errorf("apply evictionrequest %s/%s: %w", pod.Namespace, pod.UID, err)
	}
	// The client has put the server's answer into what we sent.
	answer, err := json.Marshal(desired)
	if err != nil {
		return nil, fmt.Errorf("encode the applied evictionrequest: %w", err)
	}
	var request v1alpha1.EvictionRequest
	if err := json.Unmarshal(answer, &request); err != nil {
		return nil, fmt.Errorf("decode the applied evictionrequest: %w", err)
	}
	return &request, nil
}

// wantedGrace is the longest grace period this requester ever asked for; a later
// call may lengthen it, never shorten it. Nil is the pod's own.
func (in *gathered) wantedGrace() *int64 {
	wishes := []*int64{in.Call.GracePeriodSeconds}
	if in.Written != (Written{}) {
		wishes = append(wishes, in.Written.GracePeriodSeconds)
	}
	if in.Request != nil {
		for _, r := range in.Request.Spec.Requesters {
			if in.isEntry(r) {
				wishes = append(wishes, r.GracePeriodSeconds)
			}
		}
	}
	return translate.LongestGrace(translate.OwnGrace(in.Pod), wishes...)
}
