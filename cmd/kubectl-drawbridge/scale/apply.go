package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

const (
	// restoreTimeout bounds the return of all costs, also after ^C.
	restoreTimeout = 30 * time.Second
	// leavePatience is how long to wait for the ReplicaSet controller.
	leavePatience = 30 * time.Second
)

// mark is the cost of the pods that go.
var mark = strconv.Itoa(pods.ChosenCost)

// errChanged says that what was planned with is no longer so.
var errChanged = errors.New("nothing was scaled, because it has changed meanwhile: try again")

// apply marks the pods that go, scales, and waits until they go. Whoever is still there with
// a mark at the end gets its former cost back.
func (s *options) apply(ctx context.Context, c *cli.Connection, t *target, plan *Plan) error {
	a := &application{Options: s.Options, Client: c, target: t, dryRun: s.dryRun == "server"}
	if a.dryRun {
		a.Client = client.NewDryRunClient(c)
	}
	for _, l := range plan.Going {
		a.going = append(a.going, l.Pod)
	}
	scaled, err := a.scale(ctx, s.replicas)
	if !scaled {
		return s.notScaled(ctx, a, err)
	}
	if a.dryRun {
		fmt.Fprintf(s.Out, "%s scaled (server dry run: nothing was changed)\n", t)
		return nil
	}
	fmt.Fprintf(s.Out, "%s scaled\n", t)
	return a.follow(ctx, int(s.replicas))
}

// notScaled takes the marks back, and tells why nothing was scaled.
func (s *options) notScaled(ctx context.Context, a *application, why error) error {
	failed := a.restore(ctx)
	switch {
	case ctx.Err() == nil:
		return errors.Join(why, failed)
	case failed != nil:
		// Not wrapped with the interruption, of which nothing more is printed.
		return fmt.Errorf("interrupted before %s was scaled: %w", a.target, failed)
	}
	fmt.Fprintf(s.ErrOut, "interrupted: %s was not scaled, and all deletion costs are as before\n", a.target)
	return cli.ErrInterrupted
}

// application carries out a plan.
type application struct {
	*cli.Options
	client.Client
	target *target
	going  []*corev1.Pod
	// marked are those of going that may have the mark.
	marked []*corev1.Pod
	// dryRun: the client makes dry runs, so there is nothing to wait for or to restore.
	dryRun bool
}

// scale marks and scales, and reports whether it is scaled: if not, the marks must go.
func (a *application) scale(ctx context.Context, replicas int32) (bool, error) {
	for _, pod := range a.going {
		a.marked = append(a.marked, pod)
		if err := a.mark(ctx, pod); err != nil {
			return false, err
		}
	}
	if !a.dryRun {
		if err := a.marksArrived(ctx); err != nil {
			return false, err
		}
	}
	err := cli.OnLatest(func() error {
		now := a.target.object.DeepCopyObject().(client.Object)
		if err := a.Get(ctx, client.ObjectKeyFromObject(now), now); err != nil {
			return fmt.Errorf("get %s: %w", a.target, err)
		}
		if now.GetUID() != a.target.object.GetUID() || now.GetGeneration() != a.target.object.GetGeneration() {
			return errChanged
		}
		// With the resourceVersion, so that no other change gets in between.
		scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: now.GetNamespace(), Name: now.GetName(), UID: now.GetUID(), ResourceVersion: now.GetResourceVersion()}}
		scale.Spec.Replicas = replicas
		return a.SubResource("scale").Update(ctx, now, client.WithSubResourceBody(scale), client.FieldOwner(cli.FieldOwner))
	})
	if err == nil {
		return true, nil
	}
	err = fmt.Errorf("scale %s: %w", a.target, err)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsConflict(err) || errors.Is(err, errChanged) {
		return false, err
	}
	// The answer may have been lost: look what became of it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
	defer cancel()
	scale := &autoscalingv1.Scale{}
	if lookErr := a.SubResource("scale").Get(ctx, a.target.object, scale); lookErr != nil || scale.Spec.Replicas != replicas {
		return false, err
	}
	return true, nil
}

// mark gives a pod the lowest cost.
func (a *application) mark(ctx context.Context, pod *corev1.Pod) error {
	now := pod
	err := cli.OnLatest(func() error {
		err := a.annotate(ctx, now, &mark)
		if !apierrors.IsConflict(err) {
			return err
		}
		// The kubelet writes its status all the time; nothing else may have changed.
		now = &corev1.Pod{}
		if getErr := a.Get(ctx, client.ObjectKeyFromObject(pod), now); getErr != nil {
			return fmt.Errorf("get it: %w", getErr)
		}
		if now.UID != pod.UID || !active(now, a.target.set) || !sameCost(now, pod) {
			return errChanged
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("mark pod %s: %w", pod.Name, err)
	}
	return nil
}

func sameCost(a, b *corev1.Pod) bool {
	before, had := a.Annotations[corev1.PodDeletionCost]
	now, has := b.Annotations[corev1.PodDeletionCost]
	return before == now && had == has
}

// annotate sets the cost of this version of the pod; nil removes it.
func (a *application) annotate(ctx context.Context, pod *corev1.Pod, cost *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "annotations": map[string]any{corev1.PodDeletionCost: cost},
	}})
	if err != nil {
		return fmt.Errorf("encode the patch: %w", err)
	}
	return a.Patch(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(cli.FieldOwner))
}

// marksArrived waits until a read from the API server's watch cache has the marks. The
// ReplicaSet controller is fed from there, in another stream than that of the number of
// replicas, so the marks must be ahead.
func (a *application) marksArrived(ctx context.Context) error {
	arrived := false
	err := a.HoldsWithin(ctx, cli.ConfirmPatience, func() (bool, error) {
		list, err := a.pods(ctx, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}})
		if err != nil {
			return false, err
		}
		arrived = !slices.ContainsFunc(a.going, func(pod *corev1.Pod) bool {
			return !slices.ContainsFunc(list, func(now corev1.Pod) bool {
				return now.UID == pod.UID && now.Annotations[corev1.PodDeletionCost] == mark
			})
		})
		return arrived, nil
	})
	if err == nil && !arrived {
		err = errChanged
	}
	return err
}

func (a *application) pods(ctx context.Context, options ...client.ListOption) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := a.List(ctx, &list, append(options, client.InNamespace(a.target.object.GetNamespace()))...); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return list.Items, nil
}

// follow waits until no more pods are there than wanted, and checks that those of the plan
// have gone.
func (a *application) follow(ctx context.Context, wanted int) error {
	var stayed []string
	left := 0
	err := a.HoldsWithin(ctx, leavePatience, func() (bool, error) {
		list, err := a.pods(ctx)
		if err != nil {
			return false, err
		}
		stayed, left = nil, 0
		for i := range list {
			if !active(&list[i], a.target.set) {
				continue
			}
			left++
			if slices.ContainsFunc(a.going, func(pod *corev1.Pod) bool { return pod.UID == list[i].UID }) {
				stayed = append(stayed, list[i].Name)
			}
		}
		return left <= wanted, nil
	})
	switch {
	case err != nil:
		return err
	case left > wanted:
		// Their cost is what makes them go, so it stays.
		return fmt.Errorf("%d pods are left %s after the change to %d replicas: is kube-controller-manager running?", left, leavePatience, wanted)
	case len(stayed) > 0:
		return errors.Join(fmt.Errorf("other pods have gone instead of %s, because they were no longer Ready or were deleted: see kubectl get pods -o wide", strings.Join(stayed, ", ")), a.restore(ctx))
	}
	return nil
}

// restore gives the marked pods that are still there their former cost, unless someone has
// changed it.
func (a *application) restore(ctx context.Context) error {
	if a.dryRun {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
	defer cancel()
	var failed []error
	for _, pod := range a.marked {
		var former *string
		if value, had := pod.Annotations[corev1.PodDeletionCost]; had {
			former = &value
		}
		err := cli.OnLatest(func() error {
			now := &corev1.Pod{}
			if err := a.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
				return client.IgnoreNotFound(err)
			}
			if now.UID != pod.UID || now.Annotations[corev1.PodDeletionCost] != mark || sameCost(now, pod) {
				return nil
			}
			return client.IgnoreNotFound(a.annotate(ctx, now, former))
		})
		if err != nil {
			failed = append(failed, fmt.Errorf("restore annotation %s of pod %s, which was %q: %w", corev1.PodDeletionCost, pod.Name, pod.Annotations[corev1.PodDeletionCost], err))
		}
	}
	return errors.Join(failed...)
}
