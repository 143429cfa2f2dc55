//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// drain does what a plan's drainer does, until ctx ends.
func (r *run) drain(ctx context.Context, d Drain, number int) {
	if !r.until(ctx, d.From) {
		return
	}
	node := r.nodes[d.Node]
	r.world.tellf("%s begins with %s", d.Kind, node)
	draining, cancel := context.WithCancel(ctx)
	defer cancel()
	r.group.Go(func() {
		if r.until(draining, d.To) && d.To < Steps {
			cancel()
		}
	})
	switch d.Kind {
	case Kubectl:
		r.kubectl(draining, node, number)
	case Loop:
		r.loop(draining, node)
	case Native:
		r.native(draining, node, number, d)
	case Maintained:
		r.maintain(draining, node, number)
	case Lifecycle:
		r.lifecycle(draining, node, number, d)
	}
	if ctx.Err() != nil {
		return // It is all called off.
	}
	r.world.tellf("%s ends with %s", d.Kind, node)
	if d.Kind == Kubectl || d.Kind == Loop { // The others have cordoned nothing.
		r.cordon(ctx, node, false)
	}
}

// kubectl drains again and again: it gives up when the API server does not answer.
func (r *run) kubectl(ctx context.Context, node string, number int) {
	for ctx.Err() == nil {
		result, err := r.world.Cluster.Kubectl(ctx, cluster.KubectlOptions{User: fmt.Sprintf("admin-%d", number), Groups: []string{group}},
			"drain", node, "--force", "--ignore-daemonsets", "--delete-emptydir-data")
		switch {
		case ctx.Err() != nil:
		case err != nil:
			r.world.tellf("kubectl drain %s: %v", node, err)
		default:
			r.world.tellf("kubectl drain %s: exit code %d", node, result.ExitCode)
		}
		rest(ctx, Step)
	}
}

// looper is the user behind the loop.
const looper = "looper"

// loopPause is the pause between two evictions of the loop.
const loopPause = 50 * time.Millisecond

// loop evicts by name, without preconditions, whatever it hears.
func (r *run) loop(ctx context.Context, node string) {
	conf, err := r.world.Cluster.ConfigFor(looper, group)
	if err != nil {
		r.world.tellf("loop: %v", err)
		return
	}
	c, err := client.New(conf, client.Options{Scheme: scheme})
	if err != nil {
		r.world.tellf("loop: %v", err)
		return
	}
	r.cordon(ctx, node, true)
	for ctx.Err() == nil {
		for _, pod := range r.observer.podsOn(node) {
			_ = within(ctx, func(ctx context.Context) error { // Whatever it hears.
				return c.SubResource("eviction").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}, &policyv1.Eviction{})
			})
			rest(ctx, loopPause)
		}
		rest(ctx, loopPause)
	}
}

// native creates a request for every pod of the node, which may leave the interceptors some
// steps, or not wait.
func (r *run) native(ctx context.Context, node string, number int, d Drain) {
	name := fmt.Sprintf("native-%d.chaos.example.com", number)
	for ctx.Err() == nil {
		for _, pod := range r.observer.podsOn(node) {
			_ = within(ctx, func(ctx context.Context) error { // It is tried again.
				wish := v1alpha1.Requester{Name: name}
				if d.Hard {
					wish.Type = v1alpha1.RequesterHard
				}
				if d.Deadline > 0 {
					reserved := time.Duration(translate.OwnGrace(pod))*time.Second + process.DefaultPolicy().DeadlineMargin
					wish.Deadline = new(metav1.NewTime(time.Now().Add(time.Duration(d.Deadline)*Step + reserved)))
				}
				return r.want(ctx, pod, wish)
			})
		}
		rest(ctx, Step)
	}
	r.withdraw(context.WithoutCancel(ctx), name)
}

func (r *run) want(ctx context.Context, pod *corev1.Pod, wish v1alpha1.Requester) error {
	er := &v1alpha1.EvictionRequest{}
	err := r.world.admin.Get(ctx, v1alpha1.RequestKey(pod), er)
	if apierrors.IsNotFound(err) {
		er = &v1alpha1.EvictionRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: string(pod.UID)},
			Spec: v1alpha1.EvictionRequestSpec{
				Target:     v1alpha1.EvictionTarget{Pod: &v1alpha1.LocalPodReference{Name: pod.Name, UID: pod.UID}},
				Requesters: []v1alpha1.Requester{wish},
			},
		}
		return r.world.admin.Create(ctx, er)
	}
	if err != nil || outcome(er) != "" || len(er.Spec.Requesters) == 0 || wantedBy(er, wish.Name) {
		return err
	}
	er.Spec.Requesters = append(er.Spec.Requesters, wish)
	return r.world.admin.Update(ctx, er)
}

func wantedBy(er *v1alpha1.EvictionRequest, name string) bool {
	return slices.ContainsFunc(er.Spec.Requesters, func(q v1alpha1.Requester) bool { return q.Name == name })
}

// withdraw takes a native requester out of all requests of the run.
func (r *run) withdraw(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	err := insist(ctx, "withdraw "+name, func(ctx context.Context) error {
		list := &v1alpha1.EvictionRequestList{}
		if err := r.world.admin.List(ctx, list, client.InNamespace(r.namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			er := &list.Items[i]
			if !wantedBy(er, name) {
				continue
			}
			er.Spec.Requesters = slices.DeleteFunc(er.Spec.Requesters, func(q v1alpha1.Requester) bool { return q.Name == name })
			if err := r.world.admin.Update(ctx, er); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		r.world.tellf("%v", err)
	}
}

// cordon makes a node unschedulable, or takes that back.
func (r *run) cordon(ctx context.Context, node string, on bool) {
	err := insist(ctx, "cordon "+node, func(ctx context.Context) error {
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on))
		return r.world.admin.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, patch)
	})
	if err != nil && ctx.Err() == nil {
		r.world.tellf("%v", err)
	}
}

const (
	// finalizer holds a pod up for a moment.
	finalizer   = foreign + "hold"
	writerPause = 150 * time.Millisecond
)

// write touches requests and pods all the time, as others do who have their own
// business with them.
func (r *run) write(ctx context.Context) {
	draw := rand.New(rand.NewPCG(r.history.Plan.Seed, 1))
	for n := 0; rest(ctx, writerPause); n++ {
		var touch func(ctx context.Context) error
		value := fmt.Sprint(n)
		if ers := r.observer.requestsNow(); draw.IntN(2) == 0 && len(ers) > 0 {
			touch = r.touchRequest(pick(draw, ers), draw.IntN(3), value)
		} else if pods := r.observer.podsNow(); len(pods) > 0 {
			touch = r.touchPod(pick(draw, pods), draw.IntN(4), value)
		} else {
			continue
		}
		_ = within(ctx, touch) // Conflicts are everyday.
	}
}

func pick[K comparable, T client.Object](draw *rand.Rand, all map[K]T) T {
	values := make([]T, 0, len(all))
	for _, value := range all {
		values = append(values, value)
	}
	slices.SortFunc(values, func(a, b T) int { return compareNames(a, b) })
	return values[draw.IntN(len(values))]
}

func (r *run) touchRequest(er *v1alpha1.EvictionRequest, how int, value string) func(context.Context) error {
	er = er.DeepCopy()
	return func(ctx context.Context) error {
		switch how {
		case 0:
			meta.SetStatusCondition(&er.Status.Conditions, metav1.Condition{Type: "Seen", Status: metav1.ConditionTrue, Reason: "Chaos", Message: value})
			return r.world.admin.Status().Update(ctx, er)
		case 1:
			setKey(&er.Labels, foreign+"seen", value)
		default:
			setKey(&er.Annotations, foreign+"seen", value)
		}
		return r.world.admin.Update(ctx, er)
	}
}

func (r *run) touchPod(pod *corev1.Pod, how int, value string) func(context.Context) error {
	before := pod.DeepCopy()
	pod = pod.DeepCopy()
	return func(ctx context.Context) error {
		switch {
		case how == 0 && pod.DeletionTimestamp == nil && !slices.Contains(pod.Finalizers, finalizer):
			pod.Finalizers = append(pod.Finalizers, finalizer)
		case slices.Contains(pod.Finalizers, finalizer):
			pod.Finalizers = slices.DeleteFunc(pod.Finalizers, func(f string) bool { return f == finalizer })
		case how == 1 && !r.history.Plan.Mode.Ignores() && r.history.Plan.Mode != ModeNoGuard:
			// A guard that somebody closes on his own must not stay.
			setKey(&pod.Labels, v1alpha1.GuardLabel, v1alpha1.GuardClosed)
		case how == 2:
			setKey(&pod.Labels, foreign+"seen", value)
		default:
			setKey(&pod.Annotations, foreign+"seen", value)
		}
		return r.world.admin.Patch(ctx, pod, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	}
}

func setKey(values *map[string]string, key, value string) {
	if *values == nil {
		*values = map[string]string{}
	}
	(*values)[key] = value
}

// cleanPods takes the writers' finalizers off.
func (r *run) cleanPods(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := r.world.admin.List(ctx, pods, client.InNamespace(r.namespace)); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !slices.Contains(pod.Finalizers, finalizer) {
			continue
		}
		before := pod.DeepCopy()
		pod.Finalizers = slices.DeleteFunc(pod.Finalizers, func(f string) bool { return f == finalizer })
		if err := r.world.admin.Patch(ctx, pod, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}
