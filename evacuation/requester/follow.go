package requester

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Pauses before a retry: after an error, and before joining again after being removed.
// The maximum of a minute keeps a fight between two programs cheap.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = time.Minute
	calmAfter  = 10 * time.Minute
)

// rejoinTimeout limits a Join within a Follow.
const rejoinTimeout = 30 * time.Second

// Follow requests the eviction of the pod until it is evicted: it joins, passes each
// change of the request's progress to each (which may be nil), and joins again whenever
// others remove this requester, cancel or delete the request. It returns
//
//   - the outcome, when the pod has ended, or the controller has refused the
//     request (reason ValidationFailed);
//   - the error of each, if it returns one;
//   - the error of the context. The request stays as it is; call Withdraw if the
//     eviction is not wanted any more;
//   - an error that would come again, such as a missing permission.
//
// It survives interruptions: expired watches, restarts of the API server. It uses one
// watch. To evict many pods at a time, watch EvictionRequests with an informer, call
// Join for each pod, and read them with Observe.
func (r *Requester) Follow(ctx context.Context, pod client.Object, each func(Update) error) (Outcome, error) {
	if err := r.check(pod); err != nil {
		return Outcome{}, err
	}
	if each == nil {
		each = func(Update) error { return nil }
	}
	f := &follower{
		Requester: r, pod: pod, each: each,
		pause: wait.Backoff{Duration: firstPause, Factor: 2, Jitter: 0.1, Steps: 20, Cap: lastPause}.DelayWithReset(r.clock(), calmAfter),
	}
	for {
		end, err := f.watch(ctx)
		var stopped stopError
		switch {
		case end != nil:
			return *end, nil
		case errors.As(err, &stopped):
			return Outcome{}, stopped.error
		case ctx.Err() != nil:
			return Outcome{}, ctx.Err()
		case isPermanent(err):
			return Outcome{}, r.explain("follow", pod, err)
		case err != nil:
			log.FromContext(ctx).Info("Following an eviction request again after an error",
				"requester", r.Name, "namespace", pod.GetNamespace(), "pod", pod.GetName(), "error", err.Error())
		}
		if err := f.rest(ctx); err != nil {
			return Outcome{}, err
		}
	}
}

// follower is one Follow.
type follower struct {
	*Requester
	pod   client.Object
	each  func(Update) error
	pause wait.DelayFunc
	// emitted is the last update, if any.
	emitted *Update
	// joined: we have been in the list before.
	joined bool
}

// stopError is what the caller's function returned.
type stopError struct{ error }

// watch observes the current state and then every change, until there is an outcome, an
// error, or the watch ends.
func (f *follower) watch(ctx context.Context) (*Outcome, error) {
	key := v1alpha1.RequestKey(f.pod)
	one := []client.ListOption{
		client.InNamespace(key.Namespace),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name)},
	}
	// A list, as the version of one object may be older than what can be watched from.
	var found v1alpha1.EvictionRequestList
	if err := f.Client.List(ctx, &found, one...); err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	var er *v1alpha1.EvictionRequest
	for i := range found.Items {
		if found.Items[i].Name == key.Name {
			er = &found.Items[i]
		}
	}
	if end, err := f.observe(ctx, er); end != nil || err != nil {
		return end, err
	}
	w, err := f.Client.Watch(ctx, &v1alpha1.EvictionRequestList{}, append(one,
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: found.ResourceVersion, AllowWatchBookmarks: true}})...)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case event, ok := <-w.ResultChan():
			if !ok {
				return nil, nil //nolint:nilnil // Watches end; the next one goes on.
			}
			if event.Type == watch.Error {
				return nil, fmt.Errorf("watch: %w", apierrors.FromObject(event.Object))
			}
			er, ok := event.Object.(*v1alpha1.EvictionRequest)
			if !ok || er.Name != key.Name || event.Type == watch.Bookmark {
				continue
			}
			end, err := f.see(ctx, er, event.Type == watch.Deleted)
			if end != nil || err != nil {
				return end, err
			}
		}
	}
}

// see handles an event of the watch.
func (f *follower) see(ctx context.Context, er *v1alpha1.EvictionRequest, deleted bool) (*Outcome, error) {
	if !deleted {
		return f.observe(ctx, er)
	}
	// Its last state may be the end.
	if end, over := outcomeOf(er); over && end.State == v1alpha1.StateEvicted {
		return f.end(end, er)
	}
	return f.observe(ctx, nil)
}

// observe emits the progress of the request and does what is needed; nil means no
// request. The request may be outdated: Join reads it before it writes.
func (f *follower) observe(ctx context.Context, er *v1alpha1.EvictionRequest) (*Outcome, error) {
	if er != nil {
		if end, over := outcomeOf(er); over {
			return f.end(end, er)
		}
		if err := f.emit(Observe(er)); err != nil {
			return nil, err
		}
	}
	switch wishFor(er, f.Name) {
	case wishJoin, wishRenew:
		return f.join(ctx, er)
	case wishNothing:
		f.joined = true
	case wishWait, wishOver:
	}
	return nil, nil //nolint:nilnil // Not over, and nothing wrong.
}

// join joins, immediately the first time.
func (f *follower) join(ctx context.Context, seen *v1alpha1.EvictionRequest) (*Outcome, error) {
	if f.joined {
		if err := f.rest(ctx); err != nil {
			return nil, err
		}
	}
	// A finished request is deleted after a while. Without it, only the pod shows
	// whether there is something left to evict.
	if seen == nil {
		gone, err := f.podIsGone(ctx)
		if err != nil {
			return nil, err
		}
		if gone {
			return &Outcome{State: v1alpha1.StateEvicted, Reason: v1alpha1.ReasonPodDeleted, Message: "The pod does not exist any more."}, nil
		}
	}
	// Completed even if the context is canceled meanwhile, so that a Withdraw after
	// Follow comes last.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rejoinTimeout)
	defer cancel()
	if _, err := f.Join(ctx, f.pod); err != nil && !errors.Is(err, ErrDeleting) {
		return nil, err
	}
	f.joined = true
	return nil, nil //nolint:nilnil // The watch tells what became of it.
}

func (f *follower) end(end Outcome, er *v1alpha1.EvictionRequest) (*Outcome, error) {
	if err := f.emit(Observe(er)); err != nil {
		return nil, err
	}
	return &end, nil
}

func (f *follower) emit(u Update) error {
	if f.emitted != nil && *f.emitted == u {
		return nil
	}
	f.emitted = &u
	if err := f.each(u); err != nil {
		return stopError{err}
	}
	return nil
}

// podIsGone reports whether the pod of that UID no longer exists. Without the
// permission to read it, the answer is false.
func (f *follower) podIsGone(ctx context.Context) (bool, error) {
	pod := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	err := f.Client.Get(ctx, client.ObjectKeyFromObject(f.pod), pod)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("get the pod: %w", err)
	}
	return pod.UID != f.pod.GetUID(), nil
}

// rest pauses, longer each time.
func (f *follower) rest(ctx context.Context) error {
	timer := f.clock().NewTimer(f.pause())
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}

// isPermanent reports whether an error would come again.
func isPermanent(err error) bool {
	return errors.Is(err, ErrTooManyRequesters) || meta.IsNoMatchError(err) ||
		apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) ||
		apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err)
}
