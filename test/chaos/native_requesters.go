//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// wisher is a requester of lifecycle.k8s.io, which wants the pods of a node gone.
type wisher struct {
	*run
	number int
	drain  Drain
	// made is how many requests it has made for a pod: a deleted one has a successor of another
	// name.
	made map[types.UID]int
}

// requester is its name in its requests.
func (w *wisher) requester() string { return fmt.Sprintf("drain-%d.chaos.example.com/go", w.number) }

// lifecycle asks natively for every pod of the node, until ctx ends, and takes that back.
func (r *run) lifecycle(ctx context.Context, node string, number int, d Drain) {
	w := &wisher{run: r, number: number, drain: d, made: map[types.UID]int{}}
	draw := diceFor(r.history.Plan.Seed, w.requester())
	for ctx.Err() == nil {
		mine := w.mine()
		for _, pod := range r.observer.podsOn(node) {
			if slices.ContainsFunc(mine, func(wish *lifecyclev1alpha1.EvictionRequest) bool { return wish.Spec.Target.Pod.UID == pod.UID }) {
				continue
			}
			_ = within(ctx, func(ctx context.Context) error { return w.wish(ctx, pod) }) // It is tried again.
		}
		if d.Restless && len(mine) > 0 && draw.chance(80) {
			wish := mine[draw.IntN(len(mine))]
			_ = within(ctx, func(ctx context.Context) error { return w.change(ctx, wish, draw.chance(30)) })
		}
		rest(ctx, Step)
	}
	w.takeBack(context.WithoutCancel(ctx))
}

// mine are its requests that are not being deleted, by name.
func (w *wisher) mine() []*lifecyclev1alpha1.EvictionRequest {
	var mine []*lifecyclev1alpha1.EvictionRequest
	for _, wish := range w.observer.wishesNow() {
		if wish.Spec.Requester == w.requester() && wish.DeletionTimestamp == nil {
			mine = append(mine, wish)
		}
	}
	slices.SortFunc(mine, func(a, b *lifecyclev1alpha1.EvictionRequest) int { return compareNames(a, b) })
	return mine
}

// wish asks for a pod.
func (w *wisher) wish(ctx context.Context, pod *corev1.Pod) error {
	err := w.world.admin.Create(ctx, &lifecyclev1alpha1.EvictionRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: fmt.Sprintf("drain-%d-%d-%s", w.number, w.made[pod.UID], pod.UID)},
		Spec: lifecyclev1alpha1.EvictionRequestSpec{
			Target:    lifecyclev1alpha1.EvictionRequestTarget{Pod: &lifecyclev1alpha1.EvictionRequestPodReference{Name: pod.Name, UID: pod.UID}},
			Requester: w.requester(), Intent: lifecyclev1alpha1.EvictionRequestIntentEviction,
		},
	})
	if apierrors.IsAlreadyExists(err) { // The answer before was lost, or it is still to be seen.
		return nil
	}
	return err
}

// change withdraws a request, or no longer does, or deletes it.
func (w *wisher) change(ctx context.Context, wish *lifecyclev1alpha1.EvictionRequest, deletes bool) error {
	if deletes {
		err := client.IgnoreNotFound(w.world.admin.Delete(ctx, wish, client.Preconditions{UID: &wish.UID}))
		if err == nil {
			w.made[wish.Spec.Target.Pod.UID]++
		}
		return err
	}
	intent := lifecyclev1alpha1.EvictionRequestIntentWithdrawn
	if wish.Spec.Intent == intent {
		intent = lifecyclev1alpha1.EvictionRequestIntentEviction
	}
	return w.intend(ctx, wish, intent)
}

func (w *wisher) intend(ctx context.Context, wish *lifecyclev1alpha1.EvictionRequest, intent lifecyclev1alpha1.EvictionRequestIntent) error {
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"intent":%q}}`, wish.UID, intent))
	err := client.IgnoreNotFound(w.world.admin.Patch(ctx, wish.DeepCopy(), patch))
	if apierrors.IsConflict(err) { // Another one has its name.
		return nil
	}
	return err
}

// takeBack withdraws all its requests, or deletes them. Those that it does not see any more as its own were
// taken back already.
func (w *wisher) takeBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.patience)
	defer cancel()
	err := insist(ctx, "take back what "+w.requester()+" wants", func(ctx context.Context) error {
		list := &lifecyclev1alpha1.EvictionRequestList{}
		if err := w.world.admin.List(ctx, list, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			wish := &list.Items[i]
			if wish.Spec.Requester != w.requester() || wish.DeletionTimestamp != nil {
				continue
			}
			var err error
			switch {
			case w.drain.Deletes:
				err = client.IgnoreNotFound(w.world.admin.Delete(ctx, wish))
			case wish.Spec.Intent == lifecyclev1alpha1.EvictionRequestIntentEviction:
				err = w.intend(ctx, wish, lifecyclev1alpha1.EvictionRequestIntentWithdrawn)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		w.world.tellf("%v", err)
	}
}

// touchEviction does to an Eviction what others do who have their own business with it: a label,
// or no label at all any more.
func (r *run) touchEviction(e *lifecyclev1alpha1.Eviction, how int, value string) func(context.Context) error {
	e = e.DeepCopy()
	return func(ctx context.Context) error {
		if how == 0 {
			e.Labels = nil
		} else {
			setKey(&e.Labels, foreign+"seen", value)
		}
		return r.world.admin.Update(ctx, e)
	}
}

// writeNative touches Evictions now and then. It is no loop: labels that are wiped are written
// again.
func (r *run) writeNative(ctx context.Context) {
	draw := diceFor(r.history.Plan.Seed, "native writers")
	for n := 0; rest(ctx, 10*writerPause); n++ {
		if found := r.observer.evictionsNow(); len(found) > 0 {
			_ = within(ctx, r.touchEviction(pick(draw.Rand, found), draw.IntN(3), fmt.Sprint(n))) // Conflicts are everyday.
		}
	}
}

// lookNatively says what there is of lifecycle.k8s.io.
func (r *run) lookNatively(ctx context.Context) ([]lifecyclev1alpha1.Eviction, []lifecyclev1alpha1.EvictionRequest, error) {
	evictions, wishes := &lifecyclev1alpha1.EvictionList{}, &lifecyclev1alpha1.EvictionRequestList{}
	err := within(ctx, func(ctx context.Context) error {
		return errors.Join(r.world.admin.List(ctx, evictions, client.InNamespace(r.namespace)), r.world.admin.List(ctx, wishes, client.InNamespace(r.namespace)))
	})
	return evictions.Items, wishes.Items, err
}
