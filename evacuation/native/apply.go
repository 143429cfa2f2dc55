package native

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	lifecycleapply "k8s.io/client-go/applyconfigurations/lifecycle/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	apply "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/native/charge"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/internal/events"
)

// attempts is how many names are tried for a new Eviction.
const attempts = 3

// errNotOurs means that somebody else has taken charge since the decision.
var errNotOurs = errors.New("the controllers of the native API are not ours any more")

// create makes the Eviction. nil means that there is one already that the cache does not have.
func (r *Reconciler) create(ctx context.Context, s *Situation, e *lifecyclev1alpha1.Eviction) (*lifecyclev1alpha1.Eviction, error) {
	for range attempts {
		if !r.May() {
			return nil, nil //nolint:nilnil // Not ours any more.
		}
		err := r.Client.Create(ctx, e, client.FieldOwner(charge.Manager))
		if !apierrors.IsAlreadyExists(err) {
			if err != nil {
				return nil, fmt.Errorf("create Eviction %s: %w", e.Name, err)
			}
			log.FromContext(ctx).Info("A native Eviction begins", "eviction", e.Name, "pod", s.PodName)
			return e, nil
		}
		found := &lifecyclev1alpha1.Eviction{}
		if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(e), found); err != nil {
			return nil, fmt.Errorf("get Eviction %s: %w", e.Name, err)
		}
		if found.Spec.Target.Pod != nil && found.Spec.Target.Pod.UID == s.UID {
			return nil, nil //nolint:nilnil // Its event brings the pod back.
		}
		// The name is taken by one of another pod that our cache does not have yet.
		s.Taken = append(s.Taken, e.Name)
		e = s.newEviction(s.wanting())
	}
	return nil, fmt.Errorf("name the next Eviction of pod %s: %d names are taken that the cache does not have", s.PodName, attempts)
}

// apply writes a decision: first the wishes, then the Evictions, then what follows from them. It
// returns when to decide again. One write that fails ends it, because what comes after depends on
// it. But nothing depends on what native EvictionRequests say: if their writes are refused, nobody
// loses a turn by that.
func (r *Reconciler) apply(ctx context.Context, s Situation, d Decision, pod *corev1.Pod) (time.Time, error) {
	var refused []error
	for _, wish := range d.Wishes {
		if err := r.ask(ctx, wish); err != nil {
			refused = append(refused, err)
		}
	}
	wakeAt, err := r.move(ctx, s, d, pod)
	if err != nil {
		return time.Time{}, errors.Join(append(refused, err)...)
	}
	for _, write := range r.ends(s.key(), d) {
		if err := r.inCharge(ctx, write); err != nil {
			refused = append(refused, err)
		}
	}
	return wakeAt, errors.Join(refused...)
}

// inCharge makes a write, if it is still ours to make.
func (r *Reconciler) inCharge(ctx context.Context, write func(context.Context) error) error {
	if !r.May() {
		return errNotOurs
	}
	return write(ctx)
}

// move writes the Evictions and what joins them to our request.
func (r *Reconciler) move(ctx context.Context, s Situation, d Decision, pod *corev1.Pod) (wakeAt time.Time, err error) {
	var due time.Time
	d.Metadata, due = r.withoutRepeats(s.key(), s.Now, d.Metadata)
	defer func() { wakeAt = soonest(wakeAt, due) }()
	for _, write := range r.writes(s.key(), d) {
		if err := r.inCharge(ctx, write); err != nil {
			return time.Time{}, err
		}
	}
	r.announce(ctx, s, d)
	if wakeAt, err = r.join(ctx, s, d, pod); err != nil {
		return time.Time{}, err
	}
	if d.Responder != nil {
		if err := r.report(ctx, d.Relevant, *d.Responder); err != nil {
			return time.Time{}, err
		}
	}
	if d.Interceptor != nil {
		return wakeAt, r.reportOurs(ctx, s.Ours, *d.Interceptor)
	}
	return wakeAt, nil
}

// withoutRepeats leaves out what has just been written with the same labels and owners: somebody
// takes them back, such as the garbage collector those owners whose deletion the cache does not
// know yet, and each of the two would answer the other. It returns when the rest is due.
func (r *Reconciler) withoutRepeats(key types.NamespacedName, now time.Time, all []*lifecyclev1alpha1.Eviction) (left []*lifecyclev1alpha1.Eviction, due time.Time) {
	for _, e := range all {
		last := r.remember(key, func(*memory) {}).described[e.UID]
		again := last.at.Add(joinPause)
		if now.Before(again) && apiequality.Semantic.DeepEqual(last.labels, e.Labels) && apiequality.Semantic.DeepEqual(last.owners, e.OwnerReferences) {
			due = soonest(due, again)
		} else {
			left = append(left, e)
		}
	}
	return left, due
}

// soonest is the earlier of two times; zero is never.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// ask writes one wish.
func (r *Reconciler) ask(ctx context.Context, wish *lifecyclev1alpha1.EvictionRequest) error {
	if wish.ResourceVersion == "" {
		if err := r.Client.Create(ctx, wish, client.FieldOwner(v1alpha1.NativeInterceptor)); err != nil {
			return fmt.Errorf("ask natively for pod %s: %w", wish.Spec.Target.Pod.Name, err)
		}
		return nil
	}
	if err := r.Client.Update(ctx, wish, client.FieldOwner(v1alpha1.NativeInterceptor)); err != nil {
		return fmt.Errorf("change the native request %s to %s: %w", wish.Name, wish.Spec.Intent, err)
	}
	return nil
}

// writes are those that move the Evictions, in order.
func (r *Reconciler) writes(key types.NamespacedName, d Decision) (writes []func(context.Context) error) {
	for _, e := range d.Metadata {
		writes = append(writes, func(ctx context.Context) error {
			version, written := e.ResourceVersion, description{e.Labels, e.OwnerReferences, r.Clock.Now()}
			if err := r.Client.Update(ctx, e, client.FieldOwner(charge.Manager)); err != nil {
				return fmt.Errorf("update labels and owners of Eviction %s: %w", e.Name, r.noteRefused(key, e, version, err))
			}
			r.wrote(key, e, version)
			r.remember(key, func(m *memory) {
				if m.described == nil {
					m.described = map[types.UID]description{}
				}
				m.described[e.UID] = written
			})
			for _, after := range d.Statuses {
				if after.UID == e.UID && after.ResourceVersion == version {
					after.ResourceVersion = e.ResourceVersion // Nothing else has changed.
				}
			}
			return nil
		})
	}
	for _, e := range d.Statuses {
		writes = append(writes, func(ctx context.Context) error {
			version := e.ResourceVersion
			if err := r.Client.Status().Update(ctx, e, client.FieldOwner(charge.Manager)); err != nil {
				return fmt.Errorf("update status of Eviction %s: %w", e.Name, r.noteRefused(key, e, version, err))
			}
			r.wrote(key, e, version)
			return nil
		})
	}
	return writes
}

// ends are what the Evictions leave behind: what their requests say, and those of no use. None
// depends on another.
func (r *Reconciler) ends(key types.NamespacedName, d Decision) (writes []func(context.Context) error) {
	for _, request := range d.RequestStatuses {
		writes = append(writes, func(ctx context.Context) error {
			version := request.ResourceVersion
			if err := r.Client.Status().Update(ctx, request, client.FieldOwner(charge.Manager)); err != nil {
				return fmt.Errorf("update status of native EvictionRequest %s: %w", request.Name, r.noteRefused(key, request, version, err))
			}
			r.wrote(key, request, version)
			return nil
		})
	}
	for _, e := range d.Prune {
		writes = append(writes, func(ctx context.Context) error {
			err := r.Client.Delete(ctx, e, client.Preconditions{UID: &e.UID, ResourceVersion: &e.ResourceVersion})
			if err != nil {
				return fmt.Errorf("delete Eviction %s: %w", e.Name, err)
			}
			return nil
		})
	}
	return writes
}

// join makes our request of the pod want what the Eviction wants, and takes that back.
func (r *Reconciler) join(ctx context.Context, s Situation, d Decision, pod *corev1.Pod) (time.Time, error) {
	key := s.key()
	us := &requester.Requester{Name: v1alpha1.NativeInterceptor, Client: r.Live, Clock: r.Clock}
	switch {
	case d.Join && pod != nil:
		if due := r.remember(key, func(*memory) {}).joinedAt.Add(joinPause); s.Now.Before(due) {
			return due, nil
		}
		r.remember(key, func(m *memory) { m.joinedAt = s.Now })
		if err := joinOurs(ctx, us, s, pod); err != nil {
			return time.Time{}, fmt.Errorf("begin the turn of Drawbridge's interceptors: %w", err)
		}
	case d.Withdraw:
		target := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.PodName, UID: s.UID}}
		if err := us.Withdraw(ctx, target); err != nil {
			return time.Time{}, fmt.Errorf("end the turn of Drawbridge's interceptors: %w", err)
		}
	}
	return d.WakeAt, nil
}

// joinOurs joins the request that runs, or begins one if none does. If the one that was seen has
// been canceled meanwhile, another one is not begun: its interceptors would have their turns while
// native responders have theirs.
func joinOurs(ctx context.Context, us *requester.Requester, s Situation, pod *corev1.Pod) error {
	if s.oursRuns() && !v1alpha1.IsUnwanted(s.Ours) {
		return us.JoinRunning(ctx, pod, s.Ours) //nolint:wrapcheck // The caller does.
	}
	_, err := us.Join(ctx, pod)
	return err //nolint:wrapcheck // The caller does.
}

// report writes the item of v1alpha1.NativeResponder, and nothing else.
func (r *Reconciler) report(ctx context.Context, e *lifecyclev1alpha1.Eviction, report ResponderReport) error {
	item := lifecycleapply.ResponderStatus().WithName(v1alpha1.NativeResponder).
		WithHeartbeatTime(metav1.NewTime(report.HeartbeatAt)).WithMessage(report.Message)
	if !report.ExpectedAt.IsZero() {
		item.WithExpectedCompletionTime(metav1.NewTime(report.ExpectedAt))
	}
	if !report.CompletedAt.IsZero() {
		item.WithCompletionTime(metav1.NewTime(report.CompletedAt))
	}
	err := r.Client.SubResource("status").Apply(ctx,
		lifecycleapply.Eviction(e.Name, e.Namespace).WithResourceVersion(e.ResourceVersion).
			WithStatus(lifecycleapply.EvictionStatus().WithResponders(item)),
		client.FieldOwner(v1alpha1.NativeResponder), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("report on Eviction %s: %w", e.Name, err)
	}
	return nil
}

// reportOurs writes the item of v1alpha1.NativeInterceptor, and nothing else.
func (r *Reconciler) reportOurs(ctx context.Context, er *v1alpha1.EvictionRequest, report InterceptorReport) error {
	item := apply.InterceptorStatus().WithName(v1alpha1.NativeInterceptor).WithMessage(report.Message).
		WithStartTime(metav1.NewTime(report.StartedAt)).WithHeartbeatTime(metav1.NewTime(report.HeartbeatAt))
	if !report.ExpectedAt.IsZero() {
		item.WithExpectedFinishTime(metav1.NewTime(report.ExpectedAt))
	}
	if !report.CompletedAt.IsZero() {
		item.WithCompletionTime(metav1.NewTime(report.CompletedAt))
	}
	err := r.Client.SubResource("status").Apply(ctx,
		apply.EvictionRequest(er.Name, er.Namespace).WithResourceVersion(er.ResourceVersion).
			WithStatus(apply.EvictionRequestStatus().WithInterceptors(item)),
		client.FieldOwner(v1alpha1.NativeInterceptor), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("report on EvictionRequest %s: %w", er.Name, err)
	}
	return nil
}

// announce records what has happened, on the pod and on the object.
func (r *Reconciler) announce(ctx context.Context, s Situation, d Decision) {
	pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: s.Namespace, Name: s.PodName, UID: s.UID}
	key := s.key()
	for _, h := range d.Happened {
		var event events.Event
		switch h.What {
		case PassedOver:
			event = events.NativeResponderPassedOver(h.Who)
		case EvictionFailed:
			event = events.NativeEvictionFailed(h.Eviction, h.Text)
		case RequestRefused:
			event = events.NativeRequestRefused(h.Eviction, h.Text)
		case OursFirst:
			if r.remember(key, func(*memory) {}).announced {
				continue
			}
			r.remember(key, func(m *memory) { m.announced = true })
			event = events.InterceptorsBeforeNative(s.PodName, len(s.Responders))
		}
		log.FromContext(ctx).Info(event.Note, "event", event.Reason, "pod", s.PodName)
		events.Emit(r.Recorder, pod, nil, event)
	}
}
