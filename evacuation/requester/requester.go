// Package requester is the SDK for programs that want pods evicted.
package requester

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	applyv1alpha1 "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// attempts is how often a call is retried after a conflicting write.
const attempts = 4

// ErrTooManyRequesters is returned for a pod whose request has the maximum number of
// requesters (v1alpha1.MaxRequesters). The eviction proceeds without this one.
var ErrTooManyRequesters = errors.New("the request has as many requesters as it can have")

// ErrDeleting is returned while the request of a pod is being deleted, but held by
// a finalizer: a new one can only begin once it is gone.
var ErrDeleting = errors.New("the request is still being deleted")

// Requester requests the eviction of pods, under a name and together with other
// requesters (000:L203-217, statement 114). All its state is in the API: it can be
// created again at any time, and several processes may share a name.
//
// The pod is a Pod or its metadata; only namespace, name and UID are used, and, where the
// name is one of Drawbridge's own, the labels.
//
// Its account must be allowed to get, list, watch, create, patch and delete
// evictionrequests, to get pods, and to delete the pods it wants evicted.
type Requester struct {
	// Name in spec.requesters, a fully qualified domain name. The field manager is
	// derived from it.
	Name string
	// Client reads and writes requests. It must not read from a cache, because it must
	// see its own writes (use client.NewWithWatch).
	Client client.WithWatch
	// GracePeriodSeconds is the requested termination grace period; nil leaves it to
	// other requesters and the pod.
	GracePeriodSeconds *int64
	// Deadline is when this requester stops waiting and the pod has to have ended; zero
	// means never. status.deadline of the request is earlier by the pod's grace period and a
	// margin, and then interceptors that are not done are cut off. A Join with another
	// Deadline moves it.
	Deadline time.Time
	// Type says how patient this requester is; empty is Soft, or SoftWithDeadline if there is a
	// Deadline. Only Hard has to be said: it does not wait, and has no Deadline.
	Type v1alpha1.RequesterType
	// Clock drives the pauses between attempts. Default: the real one.
	Clock clock.Clock
}

// Join requests the eviction of the pod: it creates the request or joins the existing
// one, and returns it. It is idempotent.
//
// A canceled request stays canceled (ruling R3); it is deleted and a new one is created.
// A request whose pod is already evicted, or that the controller has refused (reason
// ValidationFailed), is returned unchanged: see Observe.
func (r *Requester) Join(ctx context.Context, pod client.Object) (*v1alpha1.EvictionRequest, error) {
	if err := r.check(pod); err != nil {
		return nil, err
	}
	var last error
	for range attempts {
		er, err := r.get(ctx, pod)
		if err != nil {
			return nil, r.explain("join", pod, err)
		}
		switch wishFor(er, r.Name) {
		case wishOver:
			return er, nil
		case wishWait:
			return nil, r.explain("join", pod, fmt.Errorf("%w: finalizers hold it: %s", ErrDeleting, strings.Join(er.Finalizers, ", ")))
		case wishRenew:
			if isRefused(er, pod.GetName()) {
				return er, nil
			}
			// Only the one we have seen: another requester may have created a new one
			// before us.
			err = client.IgnoreNotFound(r.Client.Delete(ctx, er.DeepCopy(), client.Preconditions{UID: &er.UID, ResourceVersion: &er.ResourceVersion}))
		case wishJoin, wishNothing:
			if er != nil && isFull(er, r.Name) {
				return nil, r.explain("join", pod, ErrTooManyRequesters)
			}
			var joined *v1alpha1.EvictionRequest
			if joined, err = r.join(ctx, pod); err == nil && wishFor(joined, r.Name) == wishNothing {
				return joined, nil
			}
		}
		// Conflict: changed since we looked. Invalid: canceled since we looked. No
		// error: there is a next step.
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			return nil, r.explain("join", pod, err)
		}
		last = err
	}
	if last == nil {
		last = errors.New("it is changed all the time")
	}
	return nil, r.explain("join", pod, last)
}

// JoinRunning joins the request that was seen, if it still runs and somebody wants it. Unlike
// Join it begins no other one. It is idempotent.
func (r *Requester) JoinRunning(ctx context.Context, pod client.Object, seen *v1alpha1.EvictionRequest) error {
	if err := r.check(pod); err != nil {
		return err
	}
	er, err := r.get(ctx, pod)
	switch {
	case err != nil:
		return r.explain("join", pod, err)
	case er == nil || er.UID != seen.UID || wishFor(er, r.Name) != wishJoin:
		return nil
	case isFull(er, r.Name):
		return r.explain("join", pod, ErrTooManyRequesters)
	}
	_, err = r.apply(ctx, pod, nil, er, true)
	switch {
	case err == nil, apierrors.IsConflict(err): // There is another one by now.
		return nil
	case apierrors.IsInvalid(err):
		// It has been canceled meanwhile, or somebody's policy refuses what we write for good.
		if now, failed := r.get(ctx, pod); failed == nil && (now == nil || now.UID != seen.UID || wishFor(now, r.Name) != wishJoin) {
			return nil
		}
	}
	return r.explain("join", pod, err)
}

// Withdraw says that this requester no longer wants the pod evicted. If no other
// requester does, that cancels the request. A missing or finished request is left
// unchanged. End a Follow for the same pod first, or it joins again.
func (r *Requester) Withdraw(ctx context.Context, pod client.Object) error {
	if err := r.check(pod); err != nil {
		return err
	}
	var last error
	for range attempts {
		er, err := r.get(ctx, pod)
		switch {
		case err != nil:
			return r.explain("leave", pod, err)
		case er == nil || !hasRequester(er, r.Name) || wishFor(er, r.Name) != wishNothing:
			return nil
		}
		var labels map[string]string
		if translate.CopiesLabels(r.fieldOwner()) {
			labels = er.Labels // What an apply omits goes, and the labels must stay.
		}
		left, err := r.apply(ctx, pod, labels, er, false)
		if err == nil && hasRequester(left, r.Name) {
			// Another manager also owns our entry, so omitting it does not remove it.
			without := left.DeepCopy()
			without.Spec.Requesters = slices.DeleteFunc(without.Spec.Requesters, func(e v1alpha1.Requester) bool { return e.Name == r.Name })
			err = r.Client.Patch(ctx, without, client.MergeFromWithOptions(left, client.MergeFromWithOptimisticLock{}), client.FieldOwner(r.fieldOwner()))
		}
		switch {
		case err == nil:
			return nil
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
			return r.explain("leave", pod, err)
		}
		last = err
	}
	return r.explain("leave", pod, last)
}

// check refuses, with a clearer error, what the API server would refuse.
func (r *Requester) check(pod client.Object) error {
	switch {
	case !translate.IsFQDN(r.Name):
		return fmt.Errorf("requester %q: the name is no fully qualified domain name such as drain.example.com", r.Name)
	case pod.GetNamespace() == "" || pod.GetName() == "" || pod.GetUID() == "":
		return fmt.Errorf("requester %s: pod %s/%s with UID %q: namespace, name and UID are required", r.Name, pod.GetNamespace(), pod.GetName(), pod.GetUID())
	}
	return nil
}

// explain adds what was tried, and for a refusal which permissions are needed.
func (r *Requester) explain(verb string, pod client.Object, err error) error {
	hint := ""
	if apierrors.IsForbidden(err) {
		hint = " (a requester needs get, list, watch, create, patch and delete on evictionrequests." + v1alpha1.GroupName + ", and delete on the pod)"
	}
	return fmt.Errorf("requester %s: %s the eviction request of pod %s/%s (%s): %w%s", r.Name, verb, pod.GetNamespace(), pod.GetName(), pod.GetUID(), err, hint)
}

// get reads the request of a pod, nil if there is none.
func (r *Requester) get(ctx context.Context, pod client.Object) (*v1alpha1.EvictionRequest, error) {
	er := &v1alpha1.EvictionRequest{}
	err := r.Client.Get(ctx, v1alpha1.RequestKey(pod), er)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // No request is an answer, and every caller asks for it.
	}
	return er, err
}

// join creates or joins the request. Drawbridge's own requesters do it with the pod's
// labels, so that the controller need not write them (ruling R7). Labels that somebody's
// policy refuses hold up no eviction.
func (r *Requester) join(ctx context.Context, pod client.Object) (*v1alpha1.EvictionRequest, error) {
	var labels map[string]string
	if translate.CopiesLabels(r.fieldOwner()) {
		labels = pods.CopiedLabels(pod.GetLabels())
	}
	er, err := r.apply(ctx, pod, labels, nil, true)
	if len(labels) > 0 && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)) {
		return r.apply(ctx, pod, nil, nil, true)
	}
	return er, err
}

// apply writes the fields of this requester: the target, which is in every request of
// that name, these labels, and its entry if it should be in the list. If seen is given,
// only that request is changed.
func (r *Requester) apply(ctx context.Context, pod client.Object, labels map[string]string, seen *v1alpha1.EvictionRequest, wanted bool) (*v1alpha1.EvictionRequest, error) {
	spec := applyv1alpha1.EvictionRequestSpec().WithTarget(applyv1alpha1.EvictionTarget().
		WithPod(applyv1alpha1.LocalPodReference().WithName(pod.GetName()).WithUID(pod.GetUID())))
	if wanted {
		entry := applyv1alpha1.Requester().WithName(r.Name)
		if r.GracePeriodSeconds != nil {
			entry.WithGracePeriodSeconds(*r.GracePeriodSeconds)
		}
		if r.Type != "" {
			entry.WithType(r.Type)
		}
		if !r.Deadline.IsZero() {
			entry.WithDeadline(metav1.NewTime(r.Deadline))
		}
		spec.WithRequesters(entry)
	}
	desired := applyv1alpha1.EvictionRequest(string(pod.GetUID()), pod.GetNamespace()).WithLabels(labels).WithSpec(spec)
	if seen != nil {
		desired.WithUID(seen.UID)
	}
	// Forced: the entry is ours, no matter who wrote it last.
	if err := r.Client.Apply(ctx, desired, client.FieldOwner(r.fieldOwner()), client.ForceOwnership); err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	// The client has put the server's answer into what we sent.
	answer, err := json.Marshal(desired)
	if err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	er := &v1alpha1.EvictionRequest{}
	if err := json.Unmarshal(answer, er); err != nil {
		return nil, fmt.Errorf("decode the answer: %w", err)
	}
	return er, nil
}

// maxFieldOwner is the longest name of a field manager (apimachinery:
// pkg/apis/meta/v1/validation, FieldManagerMaxLength).
const maxFieldOwner = 128

// fieldOwner is the name, or a hashed form if it is too long for a field manager. A cut
// name might be shared with another requester, and each would remove the other's entry.
func (r *Requester) fieldOwner() string {
	if len(r.Name) <= maxFieldOwner {
		return r.Name
	}
	sum := sha256.Sum256([]byte(r.Name))
	return "requester-" + hex.EncodeToString(sum[:])
}

func (r *Requester) clock() clock.Clock {
	if r.Clock == nil {
		return clock.RealClock{}
	}
	return r.Clock
}
