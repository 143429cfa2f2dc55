package vm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	eventsclient "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	apply "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/text"
)

// statusOwner is the field manager of the conditions.
const statusOwner = "drawbridge-evacuation-policies"

// statusCheck is how often a problem is checked again, and mostNamed how many objects a
// condition names.
const (
	statusCheck = 30 * time.Second
	mostNamed   = 5
)

// permissionCheck is how often permissions are checked while all is well, and
// statusDelay batches changes.
const (
	permissionCheck = 10 * time.Minute
	statusDelay     = 500 * time.Millisecond
)

// reporter writes the conditions of the policies.
type reporter struct {
	store    *Store
	client   client.Client
	clock    clock.PassiveClock
	recorder eventsclient.EventRecorder
	metrics  *metrics.VM
	limiter  statusLimiter
	queue    controllers.Waker
}

func (r *reporter) wake(policy string) {
	r.queue.Wake(types.NamespacedName{Name: policy}, statusDelay)
}

func (r *reporter) wakeAll() {
	for _, p := range r.store.all() {
		r.wake(p.name)
	}
}

var _ reconcile.Reconciler = &reporter{}

// Reconcile writes the conditions of one policy, if they have changed.
func (r *reporter) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	object := &v1alpha1.EvacuationPolicy{}
	err := r.client.Get(ctx, req.NamespacedName, object)
	switch {
	case apierrors.IsNotFound(err):
		r.metrics.Forget(req.Name)
		r.limiter.forget(req.Name)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("get EvacuationPolicy %s: %w", req.Name, err)
	}
	p := r.store.find(func(p *policy) bool { return p.uid == object.UID && p.generation == object.Generation })
	if p == nil {
		return reconcile.Result{RequeueAfter: time.Second}, nil // It will be loaded soon.
	}
	if err := r.retain(ctx, p); err != nil {
		return reconcile.Result{}, err
	}
	want := r.store.conditions(ctx, p)
	conditions := slices.Clone(object.Status.Conditions)
	healthy := true
	for _, c := range want {
		c.ObservedGeneration = p.generation
		c.LastTransitionTime = metav1.NewTime(r.clock.Now())
		meta.SetStatusCondition(&conditions, c)
		healthy = healthy && c.Status == metav1.ConditionTrue
	}
	result := reconcile.Result{RequeueAfter: permissionCheck}
	if !healthy {
		result.RequeueAfter = statusCheck
	}
	if object.Status.ObservedGeneration == p.generation && equality.Semantic.DeepEqual(conditions, object.Status.Conditions) {
		return result, nil
	}
	if delay := r.limiter.wait(p, r.clock.Now()); delay > 0 {
		return reconcile.Result{RequeueAfter: delay}, nil
	}
	status := apply.EvacuationPolicyStatus().WithObservedGeneration(p.generation)
	for i := range conditions {
		c := &conditions[i]
		status.WithConditions(applymetav1.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).
			WithMessage(c.Message).WithObservedGeneration(c.ObservedGeneration).WithLastTransitionTime(c.LastTransitionTime))
	}
	err = r.client.SubResource("status").Apply(ctx,
		apply.EvacuationPolicy(p.name).WithUID(object.UID).WithResourceVersion(object.ResourceVersion).WithStatus(status),
		client.FieldOwner(statusOwner), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("write the status of EvacuationPolicy %s: %w", p.name, err)
	}
	if err == nil {
		r.emit(object, want)
	}
	return result, nil
}

// emit records events about a policy's written status. Each is emitted once: the
// condition was True before, or missing.
func (r *reporter) emit(before *v1alpha1.EvacuationPolicy, now []metav1.Condition) {
	for _, c := range now {
		if c.Status != metav1.ConditionFalse || meta.IsStatusConditionFalse(before.Status.Conditions, c.Type) {
			continue
		}
		if c.Type == v1alpha1.ConditionExclusive {
			events.Emit(r.recorder, before, nil, events.PoliciesOverlap(strings.TrimSuffix(c.Message, ".")))
		}
	}
}

// retain forgets given-up evacuations that are over.
func (r *reporter) retain(ctx context.Context, p *policy) error {
	untaken, _ := r.store.unheard.summary(p.name)
	if len(r.store.stuck.workloads(p.name)) == 0 && untaken == 0 {
		return nil
	}
	var list v1alpha1.EvictionRequestList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list eviction requests: %w", err)
	}
	lives := map[types.UID]bool{}
	for i := range list.Items {
		if slices.Contains(list.Items[i].Status.ActiveInterceptors, p.interceptor) {
			lives[list.Items[i].UID] = true
		}
	}
	r.store.stuck.retain(p.name, func(request types.UID) bool { return lives[request] })
	r.store.unheard.retain(p.name, func(request types.UID) bool { return lives[request] })
	return nil
}

// conditions returns the conditions of a policy.
func (s *Store) conditions(ctx context.Context, p *policy) []metav1.Condition {
	condition := func(kind string, ok bool, good, bad, message string) metav1.Condition {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: good, Message: message}
		if !ok {
			c.Status, c.Reason = metav1.ConditionFalse, bad
		}
		return c
	}
	var all []metav1.Condition
	if p.refused != nil {
		reason := v1alpha1.ReasonInvalidExpression
		if strings.HasPrefix(p.refused.Error(), "spec.pods.selector ") {
			reason = v1alpha1.ReasonInvalidSelector
		}
		all = append(all, condition(v1alpha1.ConditionAccepted, false, "", reason, oneLine(p.refused.Error())+". The pods it covers are not evicted until that is repaired."))
	} else {
		all = append(all, condition(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, "", "The expressions are well formed."))
	}
	if problem := s.missing(ctx, p); problem != nil {
		all = append(all, condition(v1alpha1.ConditionReady, false, "", problem.reason, oneLine(problem.Error())+". It is tried again every "+retryKinds.String()+"."))
	} else {
		all = append(all, condition(v1alpha1.ConditionReady, true, v1alpha1.ReasonReady, "", "All kinds are installed and permitted."))
	}
	count, example := s.failures.summary(p)
	evaluated := "No expression failed."
	if count > 0 {
		evaluated = fmt.Sprintf("An expression fails for %d pods, %s.", count, example)
	}
	all = append(all, condition(v1alpha1.ConditionEvaluated, count == 0, v1alpha1.ReasonEvaluated, v1alpha1.ReasonEvaluationFailed, evaluated))
	overlap := s.overlaps.summary(p)
	exclusive := "No other policy covers its pods."
	if overlap != "" {
		exclusive = oneLine(overlap) + "."
	}
	all = append(all, condition(v1alpha1.ConditionExclusive, overlap == "", v1alpha1.ReasonExclusive, v1alpha1.ReasonOverlapping, exclusive))
	stuck := s.stuck.workloads(p.name)
	progressing := "No evacuation has been given up."
	if len(stuck) > 0 {
		progressing = "Evacuations that were given up: " + named(stuck) + "."
	}
	all = append(all, condition(v1alpha1.ConditionProgressing, len(stuck) == 0, v1alpha1.ReasonProgressing, v1alpha1.ReasonGaveUp, progressing))
	untaken, first := s.unheard.summary(p.name)
	marking := "No mark is refused or discarded."
	if untaken > 0 {
		marking = fmt.Sprintf("Marks do not last for %d pods. %s", untaken, oneLine(first.text))
	}
	return append(all, condition(v1alpha1.ConditionMarking, untaken == 0, v1alpha1.ReasonMarking, first.reason, marking))
}

// named lists some of the names and counts the rest.
func named(names []string) string {
	return text.Few(names, mostNamed)
}

// missing is what keeps the policy from working: a kind, or a permission.
func (s *Store) missing(ctx context.Context, p *policy) *kindError {
	if !p.accepted() {
		return nil
	}
	kinds := []schema.GroupVersionKind{p.workload, p.configKind}
	if p.migration != nil {
		kinds = append(kinds, p.migration.kind)
	}
	for _, kind := range kinds {
		if problem := s.problem(p, kind); problem != nil {
			return problem
		}
	}
	for _, subresource := range p.patched() {
		kind := p.workload
		if kind.Empty() {
			kind = podKind
		}
		if problem := s.kinds.allowed(ctx, kind, subresource, "patch"); problem != nil {
			return problem
		}
	}
	if m := p.migration; m != nil {
		var verbs []string
		if m.template != nil {
			verbs = append(verbs, "create")
		}
		if m.deleteOnCancel {
			verbs = append(verbs, "delete")
		}
		return s.kinds.allowed(ctx, m.kind, "", verbs...)
	}
	return nil
}

// patched are the subresources that the policy patches; empty is the object.
func (p *policy) patched() []string {
	var subresources []string
	for _, by := range []*patch{p.mark, p.unmark} {
		if by != nil && !slices.Contains(subresources, by.subresource) {
			subresources = append(subresources, by.subresource)
		}
	}
	return subresources
}
