// Package upstream is a stand-in for the controllers of lifecycle.k8s.io that Kubernetes itself is
// to bring: no released version has them. It was written after what their pull requests do, and
// what the API server demands, and shares no code with those of Drawbridge.
package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apply "k8s.io/client-go/applyconfigurations/lifecycle/v1alpha1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// Manager is the field manager of the controllers.
	Manager = "evictionrequest-controller"
	// Evictor is that of the responder that comes last.
	Evictor = "imperative-eviction-controller"
)

const (
	// round is how often it looks. The real ones watch.
	round = 100 * time.Millisecond
	// deadline of a responder, and grace after the end of a pod.
	deadline, grace = 20 * time.Minute, 5 * time.Second
	// retry is the first pause of the evictor, which doubles: a tenth of the real one's.
	retry = 500 * time.Millisecond
	last  = lifecyclev1alpha1.EvictionResponderImperativeEviction

	failed, evicted = string(lifecyclev1alpha1.EvictionConditionFailed), string(lifecyclev1alpha1.EvictionConditionTargetEvicted)
)

type (
	request   = lifecyclev1alpha1.EvictionRequest
	eviction  = lifecyclev1alpha1.Eviction
	responder = lifecyclev1alpha1.TargetResponder
)

// Controllers move all native Evictions of a cluster.
type Controllers struct {
	client kubernetes.Interface
	ended  map[types.UID]time.Time // When the end of a pod was first seen.
	tried  map[types.UID]attempt   // The evictor's calls, by the Eviction.
}

type attempt struct {
	count int
	next  time.Time
}

// Start runs them until stop is called, which returns the first error that was no conflict.
func Start(config *rest.Config) (stop func() error, err error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	c := &Controllers{client: client, ended: map[types.UID]time.Time{}, tried: map[types.UID]attempt{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var failure error
	running.Go(func() {
		ticker := time.NewTicker(round)
		defer ticker.Stop()
		for ctx.Err() == nil {
			if err := c.look(ctx); err != nil && ctx.Err() == nil && failure == nil {
				failure = err
			}
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
	return func() error {
		cancel()
		running.Wait()
		return failure
	}, nil
}

// look moves everything on by at most one step.
func (c *Controllers) look(ctx context.Context) error {
	api, all := c.client.LifecycleV1alpha1(), metav1.ListOptions{}
	requests, err := api.EvictionRequests("").List(ctx, all)
	evictions, err2 := api.Evictions("").List(ctx, all)
	pods, err3 := c.client.CoreV1().Pods("").List(ctx, all)
	if err := errors.Join(err, err2, err3); err != nil {
		return fmt.Errorf("list: %w", err)
	}
	targets := map[types.UID]*target{}
	of := func(namespace, name string, uid types.UID) *target {
		if targets[uid] == nil {
			t := &target{namespace: namespace, name: name, uid: uid, now: time.Now(), gone: true}
			for i, pod := range pods.Items {
				if pod.Namespace == namespace && pod.Name == name && pod.UID == uid {
					t.pod, t.gone = &pods.Items[i], false
				}
			}
			targets[uid] = t
		}
		return targets[uid]
	}
	for i := range requests.Items {
		r := &requests.Items[i]
		t := of(r.Namespace, r.Spec.Target.Pod.Name, r.Spec.Target.Pod.UID)
		t.requests = append(t.requests, r)
	}
	for i := range evictions.Items {
		e := &evictions.Items[i]
		t := of(e.Namespace, e.Spec.Target.Pod.Name, e.Spec.Target.Pod.UID)
		t.evictions = append(t.evictions, e)
	}
	var failures []error
	for _, t := range targets {
		t.now = time.Now() // The API server takes no time that is half a minute old, and there may be many.
		if t.over() {
			if c.ended[t.uid].IsZero() {
				c.ended[t.uid] = t.now
			}
			t.graceOver = t.now.Sub(c.ended[t.uid]) >= grace
		}
		failures = append(failures, c.move(ctx, t))
	}
	return errors.Join(failures...)
}

// target is a pod and what there is about it.
type target struct {
	namespace, name string
	uid             types.UID
	now             time.Time
	pod             *corev1.Pod
	gone, graceOver bool
	requests        []*request
	evictions       []*eviction
}

func (t *target) over() bool {
	return t.gone || t.pod.Status.Phase == corev1.PodSucceeded || t.pod.Status.Phase == corev1.PodFailed
}

func (t *target) wanted() bool {
	return slices.ContainsFunc(t.requests, func(r *request) bool {
		return r.DeletionTimestamp == nil && r.Spec.Intent == lifecyclev1alpha1.EvictionRequestIntentEviction && !isTrue(r.Status.Conditions, evicted)
	})
}

func isTrue(conditions []metav1.Condition, condition string) bool {
	return meta.IsStatusConditionTrue(conditions, condition)
}

func isFinal(e *eviction) bool {
	return isTrue(e.Status.Conditions, failed) || isTrue(e.Status.Conditions, evicted)
}

// move handles a target.
func (c *Controllers) move(ctx context.Context, t *target) error {
	slices.SortFunc(t.evictions, func(a, b *eviction) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	var newest *eviction
	if len(t.evictions) > 0 {
		newest = t.evictions[len(t.evictions)-1]
	}
	if t.wanted() && !t.over() && (newest == nil || isFinal(newest)) {
		return c.begin(ctx, t, newest)
	}
	if newest == nil {
		return nil
	}
	if !isFinal(newest) {
		if err := c.step(ctx, t, newest); err != nil {
			return err
		}
		return c.evict(ctx, t, newest)
	}
	for _, r := range t.requests {
		if err := c.follow(ctx, r, newest); err != nil {
			return err
		}
	}
	return nil
}

// begin creates the next Eviction.
func (c *Controllers) begin(ctx context.Context, t *target, before *eviction) error {
	n := 1
	if before != nil {
		number, _, _ := strings.Cut(strings.TrimPrefix(before.Name, "pod-"), "-")
		n, _ = strconv.Atoi(number)
		n++
	}
	e := &eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: fmt.Sprintf("pod-%d-%s", n, t.name), Labels: map[string]string{last: "responder"}},
		Spec:       lifecyclev1alpha1.EvictionSpec{Target: lifecyclev1alpha1.EvictionTarget{Pod: &lifecyclev1alpha1.EvictionPodReference{Name: t.name, UID: t.uid}}},
	}
	for _, r := range t.requests {
		e.Labels[r.Spec.Requester] = "requester"
		e.OwnerReferences = append(e.OwnerReferences, metav1.OwnerReference{APIVersion: "lifecycle.k8s.io/v1alpha1", Kind: "EvictionRequest", Name: r.Name, UID: r.UID})
	}
	for _, r := range t.pod.Spec.EvictionResponders {
		e.Labels[r.Name] = "responder"
	}
	_, err := c.client.LifecycleV1alpha1().Evictions(t.namespace).Create(ctx, e, metav1.CreateOptions{FieldManager: Manager})
	return unlessStale(err)
}

// step makes one move of the state machine of an Eviction.
func (c *Controllers) step(ctx context.Context, t *target, e *eviction) error {
	list := slices.Clone(e.Status.TargetResponders)
	conditions := slices.Clone(e.Status.Conditions)
	is := func(condition string, status metav1.ConditionStatus, reason lifecyclev1alpha1.EvictionConditionReason) {
		meta.SetStatusCondition(&conditions, metav1.Condition{Type: condition, Status: status, Reason: string(reason), ObservedGeneration: e.Generation})
	}
	is(failed, metav1.ConditionFalse, lifecyclev1alpha1.EvictionConditionReasonAwaitingEviction)
	is(evicted, metav1.ConditionFalse, lifecyclev1alpha1.EvictionConditionReasonAwaitingEviction)
	end := func(ok bool, reason lifecyclev1alpha1.EvictionConditionReason) {
		if ok {
			is(evicted, metav1.ConditionTrue, reason)
			is(failed, metav1.ConditionFalse, lifecyclev1alpha1.EvictionConditionReasonSucceeded)
			return
		}
		is(failed, metav1.ConditionTrue, reason)
		is(evicted, metav1.ConditionFalse, lifecyclev1alpha1.EvictionConditionReasonEvictionFailed)
	}
	if len(list) == 0 && !t.gone {
		list = plan(t.pod)
	}
	active := slices.IndexFunc(list, func(r responder) bool { return r.State == lifecyclev1alpha1.ResponderStateActive })
	next := slices.IndexFunc(list, func(r responder) bool { return r.State == lifecyclev1alpha1.ResponderStateInactive })
	starts := -1
	begin := func() {
		if next >= 0 && !t.over() && t.wanted() {
			list[next].State, starts = lifecyclev1alpha1.ResponderStateActive, next
		}
	}
	switch report := reportOf(e, list, active); {
	case active >= 0 && report.CompletionTime != nil:
		list[active].State = lifecyclev1alpha1.ResponderStateCompleted
		begin()
		if t.over() {
			end(true, lifecyclev1alpha1.EvictionConditionReasonPodDeleted)
		} else if !t.wanted() {
			end(false, lifecyclev1alpha1.EvictionConditionReasonCanceledDueToNoRequesters)
		}
	case t.over() && active >= 0 && !t.graceOver:
		return nil
	case t.over():
		if active >= 0 {
			list[active].State = lifecyclev1alpha1.ResponderStateInterrupted
		}
		end(true, lifecyclev1alpha1.EvictionConditionReasonPodDeleted)
	case !t.wanted():
		if active >= 0 {
			list[active].State = lifecyclev1alpha1.ResponderStateCanceled
		}
		end(false, lifecyclev1alpha1.EvictionConditionReasonCanceledDueToNoRequesters)
	case active >= 0 && t.now.Sub(heard(report)) >= deadline:
		list[active].State = lifecyclev1alpha1.ResponderStateInterrupted
		begin()
	case active < 0 && next < 0:
		end(false, lifecyclev1alpha1.EvictionConditionReasonNoFurtherResponder)
	case active < 0:
		begin()
	}
	if slices.Equal(states(list), states(e.Status.TargetResponders)) && slices.Equal(reasons(conditions), reasons(e.Status.Conditions)) {
		return nil
	}
	status := apply.EvictionStatus().WithObservedGeneration(e.Generation)
	seen := map[string]bool{}
	for _, r := range t.requests {
		if intent := lifecyclev1alpha1.RequesterIntent(r.Spec.Intent); !seen[r.Spec.Requester] {
			status.WithRequesters(apply.Requester().WithName(r.Spec.Requester).WithIntent(intent))
		}
		seen[r.Spec.Requester] = true
	}
	for i, r := range list {
		status.WithTargetResponders(apply.TargetResponder().WithName(r.Name).WithPriority(*r.Priority).WithState(r.State))
		item := apply.ResponderStatus().WithName(r.Name)
		if start := reportOf(e, list, i).StartTime; start != nil {
			item.WithStartTime(*start)
		} else if i == starts {
			item.WithStartTime(metav1.NewTime(t.now))
		}
		status.WithResponders(item)
	}
	for _, condition := range conditions {
		status.WithConditions(metaapply.Condition().WithType(condition.Type).WithStatus(condition.Status).WithReason(condition.Reason).
			WithMessage(condition.Message).WithObservedGeneration(condition.ObservedGeneration).WithLastTransitionTime(condition.LastTransitionTime))
	}
	return c.write(ctx, e, status, Manager)
}

func (c *Controllers) write(ctx context.Context, e *eviction, status *apply.EvictionStatusApplyConfiguration, manager string) error {
	mine := apply.Eviction(e.Name, e.Namespace).WithUID(e.UID).WithStatus(status)
	_, err := c.client.LifecycleV1alpha1().Evictions(e.Namespace).ApplyStatus(ctx, mine, metav1.ApplyOptions{FieldManager: manager, Force: true})
	return unlessStale(err)
}

// unlessStale leaves out what the next look puts right.
func unlessStale(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func reportOf(e *eviction, list []responder, i int) (report lifecyclev1alpha1.ResponderStatus) {
	for _, r := range e.Status.Responders {
		if i >= 0 && r.Name == list[i].Name {
			return r
		}
	}
	return report
}

func heard(report lifecyclev1alpha1.ResponderStatus) time.Time {
	return cmp.Or(report.HeartbeatTime, report.StartTime).Time
}

func states(list []responder) (found []string) {
	for _, r := range list {
		found = append(found, r.Name+string(r.State))
	}
	return found
}

func reasons(conditions []metav1.Condition) (found []string) {
	for _, c := range conditions {
		found = append(found, c.Type+string(c.Status)+c.Reason)
	}
	return found
}

// follow copies the conditions of an Eviction that has ended.
func (c *Controllers) follow(ctx context.Context, r *request, e *eviction) error {
	if slices.Equal(reasons(r.Status.Conditions), reasons(e.Status.Conditions)) {
		return nil
	}
	r.Status.Conditions, r.Status.ObservedGeneration = e.Status.Conditions, new(r.Generation)
	_, err := c.client.LifecycleV1alpha1().EvictionRequests(r.Namespace).UpdateStatus(ctx, r, metav1.UpdateOptions{FieldManager: Manager})
	return unlessStale(err)
}
