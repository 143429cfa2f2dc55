package native

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	k8sevents "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

const (
	// conflictRetry is a fallback: after a conflict the watch event normally comes first.
	conflictRetry = time.Second
	// outdatedRetry is when something is written again on a version that the API server says it
	// does not have, if the event that says the same does not come.
	outdatedRetry = 10 * time.Second
	// joinPause is the least time between two attempts to join the request of a pod, or to write the
	// same labels and owners of an Eviction: somebody who takes that back each time must not make
	// us write in a loop.
	joinPause = 5 * time.Second
)

// Resolver returns the interceptors of a pod, in order, without the default one. An error means
// that a name may be missing.
type Resolver interface {
	Resolve(pod *corev1.Pod) ([]string, error)
}

// Reconciler moves everything native about one pod on. All fields are required.
type Reconciler struct {
	// View has the native objects.
	View *View
	// Client reads pods and our requests from the informer cache, and writes. APIReader reads
	// live. Live does both without a cache.
	Client    client.Client
	APIReader client.Reader
	Live      client.WithWatch
	// Clock is the only source of time; the queue obeys it too.
	Clock    clock.WithTicker
	Policy   Policy
	Resolver Resolver
	Recorder k8sevents.EventRecorder
	// Priority is that of v1alpha1.NativeResponder, from 1000 to 100000.
	Priority int32
	// May reports whether Evictions may be written, right before each write.
	May func() bool

	startedAt time.Time
	mu        sync.Mutex
	memories  map[types.NamespacedName]memory
}

// memory is what has no time in the API. A restart loses it, which costs one grace.
type memory struct {
	endSeenAt time.Time
	joinedAt  time.Time
	// replaced are the versions of objects, by UID, that a write of ours has replaced.
	replaced map[types.UID][]string
	// outdated is the version of an object, by UID, that somebody else has replaced, or deleted: a
	// write of ours was refused for that.
	outdated map[types.UID]outdated
	// described is what the labels and owners of an Eviction, by UID, were last written as.
	described map[types.UID]description
	// announced: it was said that our interceptors run first.
	announced bool
}

// outdated is a version that the API server does not have any more. Its event is on the way, and
// until then nothing is decided: what is written for an owner that is gone, the garbage collector
// takes back at once.
type outdated struct {
	version string
	// until is when it is tried all the same.
	until time.Time
}

// description are the labels and owners of an Eviction.
type description struct {
	labels map[string]string
	owners []metav1.OwnerReference
	// at is when they were written.
	at time.Time
}

var _ reconcile.Reconciler = &Reconciler{}

// Reconcile handles the pod with the namespace and UID of the key. A conflict is no error: the
// newer version brings it back.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if !r.View.Engaged() {
		return ctrl.Result{}, nil
	}
	s, pod, err := r.gather(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if s == nil {
		return ctrl.Result{RequeueAfter: r.outdatedFor(req.NamespacedName)}, nil
	}
	ctx = refused.About(ctx, corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: s.Namespace, Name: s.PodName, UID: s.UID})
	d := Decide(*s)
	if d.Create != nil {
		created, err := r.create(ctx, s, d.Create)
		if err != nil || created == nil {
			return r.afterFailedWrite(ctx, err)
		}
		// Its first status is written at once, without waiting for its event.
		s.Evictions = append(s.Evictions, created)
		d = Decide(*s)
		d.Create = nil
	}
	if s.begins(d) {
		if fresh, err := r.isFresh(ctx, s); err != nil || !fresh {
			return r.afterFailedWrite(ctx, err)
		}
	}
	wakeAt, err := r.apply(ctx, *s, d, pod)
	if err != nil {
		return r.afterFailedWrite(ctx, err)
	}
	if wakeAt.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(wakeAt.Sub(r.Clock.Now()), time.Millisecond)}, nil
}

// gather collects the input of the decision, nil if there is nothing native about the pod.
func (r *Reconciler) gather(ctx context.Context, key types.NamespacedName) (*Situation, *corev1.Pod, error) {
	found, err := r.View.of(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	ours := &v1alpha1.EvictionRequest{}
	if err := r.Client.Get(ctx, key, ours); apierrors.IsNotFound(err) {
		ours = nil
	} else if err != nil {
		return nil, nil, fmt.Errorf("get EvictionRequest %s: %w", key, err)
	}
	if len(found.requests) == 0 && len(found.evictions) == 0 && (ours == nil || !concerns(ours)) {
		r.forget(key)
		return nil, nil, nil
	}
	if r.isStale(key, found) {
		return nil, nil, nil // The event of our own write brings it back.
	}
	s := &Situation{
		Now: r.Clock.Now(), Namespace: key.Namespace, UID: types.UID(key.Name), InCharge: r.View.InCharge(),
		Ours: ours, Priority: r.Priority, StartedAt: r.startedAt, Policy: r.Policy,
	}
	pod, err := r.target(ctx, s, found)
	if err != nil {
		return nil, nil, err
	}
	if pod != nil {
		if s.Interceptors, err = r.Resolver.Resolve(pod); err != nil {
			return nil, nil, fmt.Errorf("resolve who intercepts pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		s.Interceptors = slices.DeleteFunc(slices.Clone(s.Interceptors), func(name string) bool { return name == v1alpha1.NativeInterceptor })
	}
	if s.Taken, err = r.View.taken(ctx, s.Namespace, s.PodName); err != nil {
		return nil, nil, err
	}
	ended := s.targetEnded()
	s.Target.EndSeenAt = r.remember(key, func(m *memory) {
		switch {
		case !ended:
			m.endSeenAt = time.Time{}
		case m.endSeenAt.IsZero(), m.endSeenAt.After(s.Now):
			m.endSeenAt = s.Now
		}
	}).endSeenAt
	return s, pod, nil
}

// target finds the pod, and tells the objects that name it from those that give its UID another
// name.
func (r *Reconciler) target(ctx context.Context, s *Situation, found objects) (*corev1.Pod, error) {
	pod, err := r.named(ctx, s, found)
	if err != nil {
		return nil, err
	}
	for _, request := range found.requests {
		if request.Spec.Target.Pod.Name == s.PodName {
			s.Requests = append(s.Requests, request)
		} else {
			s.Strangers.Requests = append(s.Strangers.Requests, request)
		}
	}
	for _, e := range found.evictions {
		if e.Spec.Target.Pod.Name == s.PodName {
			s.Evictions = append(s.Evictions, e)
		} else {
			s.Strangers.Evictions = append(s.Strangers.Evictions, e)
		}
	}
	if pod == nil {
		return nil, nil //nolint:nilnil // It is gone.
	}
	s.Target = process.Target{
		Presence: process.Present, Terminal: pods.HasEnded(pod),
		Deleting: pod.DeletionTimestamp != nil, Grouped: pod.Spec.SchedulingGroup != nil,
	}
	for _, responder := range pod.Spec.EvictionResponders {
		s.Responders = append(s.Responders, lifecyclev1alpha1.TargetResponder{Name: responder.Name, Priority: responder.Priority})
	}
	return pod, nil
}

// named finds the pod under one of the names that the objects give it. Without a pod, the first
// name counts. An Eviction that says that the pod has gone is a reason to look live.
func (r *Reconciler) named(ctx context.Context, s *Situation, found objects) (*corev1.Pod, error) {
	var names []string
	gone := false
	if s.Ours != nil && s.Ours.Spec.Target.Pod != nil {
		names = append(names, s.Ours.Spec.Target.Pod.Name)
	}
	for _, e := range found.evictions {
		names = append(names, e.Spec.Target.Pod.Name)
		gone = gone || conclusionOf(e.Status.Conditions).evicted != ""
	}
	for _, request := range found.requests {
		names = append(names, request.Spec.Target.Pod.Name)
	}
	readers := []client.Reader{r.Client, r.APIReader}
	if gone {
		readers = readers[1:]
	}
	s.Target.Presence = process.Gone
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		pod, uid, err := pods.Incarnation(ctx, types.NamespacedName{Namespace: s.Namespace, Name: name}, s.UID, readers...)
		if err != nil {
			return nil, err
		}
		if i == 0 || pod != nil {
			s.PodName, s.FoundUID = name, uid
			if pod == nil && uid != "" {
				s.Target.Presence = process.Replaced
			}
		}
		if pod != nil {
			return pod, nil
		}
	}
	return nil, nil //nolint:nilnil // There is none.
}

// concerns reports whether our request has to do with the native API.
func concerns(er *v1alpha1.EvictionRequest) bool {
	return slices.ContainsFunc(er.Status.TargetInterceptors, func(i v1alpha1.Interceptor) bool { return i.Name == v1alpha1.NativeInterceptor }) ||
		slices.ContainsFunc(er.Spec.Requesters, func(r v1alpha1.Requester) bool { return r.Name == v1alpha1.NativeInterceptor })
}

// remember changes what is remembered of a pod, and returns it.
func (r *Reconciler) remember(key types.NamespacedName, change func(*memory)) memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memories == nil {
		r.memories = map[types.NamespacedName]memory{}
	}
	m := r.memories[key]
	change(&m)
	r.memories[key] = m
	return m
}

// wrote notes that a write of ours has replaced a version of an object.
func (r *Reconciler) wrote(key types.NamespacedName, object client.Object, version string) {
	if object.GetResourceVersion() == version {
		return // Nothing was different, so no event comes.
	}
	r.remember(key, func(m *memory) {
		if m.replaced == nil {
			m.replaced = map[types.UID][]string{}
		}
		m.replaced[object.GetUID()] = append(m.replaced[object.GetUID()], version)
	})
}

// isStale reports whether the cache still has a version that we, or others, have replaced. What is
// decided on it would end as a conflict.
func (r *Reconciler) isStale(key types.NamespacedName, found objects) (stale bool) {
	now := r.Clock.Now()
	r.remember(key, func(m *memory) {
		left := map[types.UID]outdated{}
		look := func(object client.Object) {
			if slices.Contains(m.replaced[object.GetUID()], object.GetResourceVersion()) {
				stale = true
			} else {
				delete(m.replaced, object.GetUID())
			}
			if old := m.outdated[object.GetUID()]; old.version == object.GetResourceVersion() && now.Before(old.until) {
				stale = true
				left[object.GetUID()] = old
			}
		}
		for _, e := range found.evictions {
			look(e)
		}
		for _, request := range found.requests {
			look(request)
		}
		m.outdated = left
	})
	return stale
}

// noteRefused notes that an object is not what the cache has, if a write was refused for that, and
// returns the error.
func (r *Reconciler) noteRefused(key types.NamespacedName, object client.Object, version string, err error) error {
	_, unserved := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse) // Then its kind is gone.
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) && !unserved {
		r.remember(key, func(m *memory) {
			if m.outdated == nil {
				m.outdated = map[types.UID]outdated{}
			}
			m.outdated[object.GetUID()] = outdated{version, r.Clock.Now().Add(outdatedRetry)}
		})
	}
	return err
}

// outdatedFor is how long the versions that others have replaced still keep a pod waiting, if their
// events do not come; 0 if there are none.
func (r *Reconciler) outdatedFor(key types.NamespacedName) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, old := range r.memories[key].outdated {
		wait = max(wait, old.until.Sub(r.Clock.Now()), time.Millisecond)
	}
	return wait
}

// isFresh reports whether our request is what the API server has. An Eviction that begins gives a
// responder its turn, and by what the cache has, it might not be the turn of ours. That is one live
// read for each Eviction of a pod with interceptors of ours.
func (r *Reconciler) isFresh(ctx context.Context, s *Situation) (bool, error) {
	live := &v1alpha1.EvictionRequest{}
	err := r.APIReader.Get(ctx, s.key(), live)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return false, fmt.Errorf("get EvictionRequest %s: %w", s.key(), err)
	case s.Ours == nil:
		return err != nil, nil
	default:
		return err == nil && live.UID == s.Ours.UID && live.ResourceVersion == s.Ours.ResourceVersion, nil
	}
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memories, key)
}

// afterFailedWrite distinguishes stale reads, which are normal, from failures.
func (r *Reconciler) afterFailedWrite(ctx context.Context, err error) (ctrl.Result, error) {
	switch {
	case errors.Is(err, errNotOurs):
		return ctrl.Result{}, nil
	case err == nil, apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		if err != nil {
			log.FromContext(ctx).V(1).Info("An object has changed meanwhile, deciding again", "cause", err.Error())
		}
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}
	return ctrl.Result{}, err
}
