package surge

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/internal/text"
)

// tries is how often a decision is repeated because the pod has changed, before the
// queue's backoff takes over.
const tries = 4

var (
	// errChanging is returned when the pod changed during every try.
	errChanging = errors.New("the pod keeps changing")
	// errNotObserved is returned while the current revision is unknown.
	errNotObserved = errors.New("the Deployment's controller has not seen its present spec yet")
)

// Joiner requests evictions; requester.Requester is one.
type Joiner interface {
	Join(ctx context.Context, pod client.Object) (*v1alpha1.EvictionRequest, error)
}

var _ Joiner = &requester.Requester{}

// Surge is the interceptor. All fields are required.
type Surge struct {
	// Client reads from the cache and writes. The cache needs setupIndexes.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Requester requests the eviction of pods that cannot be given back.
	Requester Joiner
	Clock     clock.WithTicker
	Policy    Policy
	Recorder  eventsclient.EventRecorder
	Metrics   *metrics.Surge

	handUps   *handUps
	following *follower
}

var (
	_ interceptor.Interceptor = (*Surge)(nil)
	_ interceptor.Canceler    = (*Surge)(nil)
)

// init makes what is remembered.
func (s *Surge) init() {
	s.handUps = &handUps{cache: s.Client, held: map[types.UID]hold{}}
	s.following = &follower{requests: map[types.UID]map[types.NamespacedName]bool{}, known: map[types.NamespacedName]interest{}}
}

// Evacuate hands the pod up, or sets it free, and completes when its Deployment or its
// ReplicaSet is full without it, or when it cannot be replaced beforehand.
func (s *Surge) Evacuate(ctx context.Context, t interceptor.Target) (interceptor.Progress, error) {
	about := subject{pod: t.Pod, uid: t.PodUID, request: t.Request, requestUID: t.RequestUID, activatedAt: t.ActivatedAt}
	// The cache is good enough for waiting, unless we know that it is behind.
	live := s.handUps.holds(t.PodUID)
	for range tries {
		in, err := s.gather(ctx, about, live)
		if err != nil {
			return interceptor.Progress{}, err
		}
		s.following.follow(t.Request, in)
		s.settle(about.uid, in)
		d := step(in)
		live = true
		switch d.verdict {
		case look:
			continue
		case handUp:
			d, err = s.handUp(ctx, in, d)
		case giveBack:
			rec, _ := handedUp(in.pod)
			err = s.giveBack(ctx, in, rec, d.reason, &failure{Request: t.RequestUID, Message: d.message})
		}
		switch {
		case refused.Changed(err):
			continue
		case isRefusal(err):
			// Somebody has to act, and the next interceptor would have no replacement.
			return interceptor.Progress{Message: refusal(in, err), CheckAfter: recheckRefused}, nil
		case err != nil:
			return interceptor.Progress{}, err
		case d.verdict == giveBack && d.reason == metrics.GivenBackFailed:
			// The next call finds out when it is safe to evict it: see hasFailedBefore.
			return interceptor.Progress{Message: d.message, CheckAfter: recheckSoon}, nil
		case d.verdict == done:
			s.concluded(in, d)
			fallthrough
		case d.verdict == giveBack:
			s.following.forget(t.Request)
			return interceptor.Progress{Done: true, Message: d.message}, nil
		}
		return interceptor.Progress{Message: d.message, CheckAfter: d.checkAfter}, nil
	}
	return interceptor.Progress{}, errChanging
}

// Cancel gives the pod back. A pod that cannot be given back is evicted eventually: the
// interceptor becomes a requester itself.
func (s *Surge) Cancel(ctx context.Context, t interceptor.Target) error {
	s.following.forget(t.Request)
	return s.restore(ctx, subject{pod: t.Pod, uid: t.PodUID, request: t.Request, requestUID: t.RequestUID}, metrics.GivenBackCanceled)
}

// restore undoes a hand-up that is no longer wanted.
func (s *Surge) restore(ctx context.Context, about subject, reason string) error {
	for range tries {
		in, err := s.gather(ctx, about, true)
		if err != nil {
			return err
		}
		s.settle(about.uid, in)
		switch returnStep(in) {
		case later:
			return errNotObserved
		case evict:
			if _, err := s.Requester.Join(ctx, in.pod); err != nil {
				return fmt.Errorf("ask for the eviction of pod %s: %w", about.pod, err)
			}
			events.Emit(s.Recorder, in.pod, ownerReference(in), events.PodNotGivenBack(in.named()))
			return nil
		case back:
			rec, _ := handedUp(in.pod)
			if err := s.giveBack(ctx, in, rec, reason, nil); refused.Changed(err) {
				continue
			} else if err != nil {
				return err
			}
			return nil
		default:
			return nil
		}
	}
	return errChanging
}

// settle updates the hand-ups from the live pod, in case the result of a patch is
// unknown.
func (s *Surge) settle(pod types.UID, in *input) {
	switch {
	case !in.live || !s.handUps.holds(pod):
	case in.pod == nil:
		s.handUps.release(pod)
	default:
		if _, up := handedUp(in.pod); up {
			s.handUps.keep(pod, in.pod.ResourceVersion)
		} else {
			s.handUps.release(pod)
		}
	}
}

// handUp takes the pod from its ReplicaSet, if there still is a place: it goes to its
// Deployment, or is free.
func (s *Surge) handUp(ctx context.Context, in *input, d decision) (decision, error) {
	ok, err := s.handUps.take(ctx, in.deployment, in.pod, func(now occupied) bool {
		in.occupied = now
		for _, limit := range []check{deploymentLimitIsInUse, clusterLimitIsInUse} {
			if full, is := limit(in); is {
				d = full
				return false
			}
		}
		return true
	})
	if err != nil || !ok {
		return d, err
	}
	patch, err := takePatch(in)
	if err == nil {
		err = s.patch(ctx, in.pod, patch)
	}
	switch {
	case err == nil:
	case notMade(err):
		s.handUps.release(in.pod.UID)
		return d, err
	default:
		return d, err // It may have been applied: settle finds out.
	}
	s.handUps.keep(in.pod.UID, in.pod.ResourceVersion)
	s.Metrics.HandedUp()
	log.FromContext(ctx).Info("Took the pod from its ReplicaSet", "pod", client.ObjectKeyFromObject(in.pod), "owner", in.named())
	if in.setsFree() {
		s.emit(in, events.PodSetFree(in.pod.Name, in.named()))
	} else {
		s.emit(in, events.PodHandedUp(in.pod.Name, in.named()))
	}
	return d, nil
}

// giveBack gives the pod back to its ReplicaSet.
func (s *Surge) giveBack(ctx context.Context, in *input, rec record, reason string, why *failure) error {
	patch, err := giveBackPatch(in.pod, rec, why)
	if err != nil {
		return err
	}
	if err := s.patch(ctx, in.pod, patch); err != nil {
		return err
	}
	s.handUps.release(in.pod.UID)
	s.Metrics.GivenBack(reason)
	log.FromContext(ctx).Info("Gave the pod back", "pod", client.ObjectKeyFromObject(in.pod), "replicaSet", rec.ReplicaSet.Name, "reason", reason)
	message := ""
	if why != nil {
		message = why.Message
	}
	s.emit(in, events.PodGivenBack(in.pod.Name, rec.ReplicaSet.Name, reason, message))
	return nil
}

// concluded counts and reports how a turn ended without the pod being given back.
func (s *Surge) concluded(in *input, d decision) {
	switch d.reason { // The SDK reports the completion.
	case reasonReplaced:
		s.Metrics.Replaced()
	case reasonFailed:
	default:
		s.Metrics.Declined(d.reason)
		events.Emit(s.Recorder, in.pod, ownerReference(in), events.SurgeDeclined(d.message))
	}
}

// patch changes the pod; afterwards it is as the API server has it.
func (s *Surge) patch(ctx context.Context, pod *corev1.Pod, patch []byte) error {
	if err := s.Client.Patch(ctx, pod, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(Name)); err != nil {
		return fmt.Errorf("patch pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// recheckRefused is how soon a patch that is refused is looked at again. How often it is
// sent is not decided here.
const recheckRefused = time.Minute

func isRefusal(err error) bool {
	_, is := refused.Of(err)
	return is
}

// refusal says that the pod cannot be changed, and why.
func refusal(in *input, err error) string {
	return fmt.Sprintf("Pod %s cannot be handed up or given back: %s. It is tried again.", in.pod.Name, text.OneLine(err.Error(), maxRefusal))
}

// maxRefusal is how much of the API server's text a message has, in characters.
const maxRefusal = 500

// notMade reports whether the patch was certainly not made.
func notMade(err error) bool {
	return refused.Changed(err) || isRefusal(err) || apierrors.IsTooManyRequests(err)
}

// emit records an event on the pod and on its owner: people may check either.
func (s *Surge) emit(in *input, e events.Event) {
	pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: in.pod.Namespace, Name: in.pod.Name, UID: in.pod.UID}
	owner := ownerReference(in)
	if owner == nil {
		events.Emit(s.Recorder, pod, nil, e)
		return
	}
	events.Emit(s.Recorder, pod, owner, e)
	events.Emit(s.Recorder, owner, pod, e)
}

// ownerReference is the Deployment, or the ReplicaSet that is treated like one; nil if
// there is none.
func ownerReference(in *input) *corev1.ObjectReference {
	if in.deployment == nil {
		return nil
	}
	kind := "Deployment"
	if in.setsFree() {
		kind = "ReplicaSet"
	}
	return &corev1.ObjectReference{
		APIVersion: "apps/v1", Kind: kind,
		Namespace: in.deployment.Namespace, Name: in.deployment.Name, UID: in.deployment.UID,
	}
}
