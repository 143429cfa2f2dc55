//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// The accounts of those who make trouble.
const (
	// stamper has the permission to write the status of requests, and no other.
	stamper = "stamper"
	// forger has the chart's role of interceptors, and intercepts nothing.
	forger = "forger"
	// editor has Kubernetes' own role edit.
	editor = "editor"
	// padder may drain.
	padder = "padder"
)

// troublemakers are the clients of the accounts above.
type troublemakers struct {
	stamper, forger, editor, padder client.Client
	// held is how many requests were deleted and are held.
	held int
}

// prepareTroubles makes the accounts, and what lasts for the whole run.
func (r *run) prepareTroubles(ctx context.Context) error {
	if len(r.history.Plan.Troubles) == 0 {
		return nil
	}
	for account, role := range map[string]string{stamper: stampers, forger: r.world.inst.Release + "-interceptor", editor: "edit"} {
		if err := r.bind(ctx, account, role); err != nil {
			return err
		}
	}
	var failures [4]error
	r.trouble.stamper, failures[0] = r.clientOf(ctx, stamper)
	r.trouble.forger, failures[1] = r.clientOf(ctx, forger)
	r.trouble.editor, failures[2] = r.clientOf(ctx, editor)
	conf, err := r.world.Cluster.ConfigFor(padder, group)
	if err == nil {
		r.trouble.padder, err = client.New(conf, r.world.clientOptions())
	}
	failures[3] = err
	if err := errors.Join(failures[:]...); err != nil {
		return fmt.Errorf("make clients of troublemakers: %w", err)
	}
	if r.history.Plan.Has(PostReview) {
		r.awaitAuthentication(ctx)
	}
	if r.history.Plan.Has(FailingPolicy) {
		if err := r.failPolicy(ctx); err != nil {
			return err
		}
	}
	if r.history.Plan.Has(MutatedBudget) {
		return r.mutateBudget(ctx)
	}
	return nil
}

// bind gives an account of the run's namespace a role there.
func (r *run) bind(ctx context.Context, account, role string) error {
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: r.namespace, Name: account}},
	}
	if err := r.world.admin.Create(ctx, binding); err != nil {
		return fmt.Errorf("bind role %s to %s: %w", role, account, err)
	}
	return nil
}

func (r *run) clientOf(ctx context.Context, account string) (client.Client, error) {
	conf, err := r.world.Cluster.ConfigForServiceAccount(ctx, r.namespace, account)
	if err != nil {
		return nil, err
	}
	return client.New(conf, r.world.clientOptions())
}

// failingName is the name of the policy that fails; it sorts before all others.
func (r *run) failingName() string { return "a-failing-" + r.namespace }

// failPolicy makes a policy that is for all pods and fails on each of them, for an
// interceptor that has none.
func (r *run) failPolicy(ctx context.Context) error {
	const key = "workload.metadata.annotations['" + foreign + "nobody-has-this']"
	name := "failing." + r.namespace + ".chaos.example.com"
	policy := machinePolicy(r.failingName(), name, "")
	policy.Spec.Pods, policy.Spec.Strategy, policy.Spec.Evacuating, policy.Spec.Done = v1alpha1.CoveredPods{}, key, key+" == 'true'", key+" == 'true'"
	if err := r.world.admin.Create(ctx, policy); err != nil {
		return fmt.Errorf("create the policy that fails: %w", err)
	}
	registration := builder.EvictionInterceptor(name).InNamespace(r.namespace).Pods(builder.AppLabel, "nobody")
	registration.EvictionInterceptor.Generation = 0
	if err := r.world.admin.Create(ctx, registration.Obj()); err != nil {
		return fmt.Errorf("register %s: %w", name, err)
	}
	r.registered = append(r.registered, name)
	return r.await(ctx, "the policy that fails", func(ctx context.Context) error {
		if err := r.world.admin.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(policy.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("conditions %+v", policy.Status.Conditions)
		}
		return nil
	})
}

// mutatedField is what the policy engine adds to the guard's budget.
const mutatedField = policyv1.IfHealthyBudget

func (r *run) mutation() *admissionregistrationv1.MutatingAdmissionPolicy {
	all := admissionregistrationv1.OperationAll
	return &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: r.namespace},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy:      new(admissionregistrationv1.Fail),
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": r.namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{all},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{policyv1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"poddisruptionbudgets"}},
				}}},
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "guard", Expression: "request.operation != 'DELETE' && object.metadata.name == '" + v1alpha1.GuardBudgetName + "'"}},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
					Expression: fmt.Sprintf("Object{spec: Object.spec{unhealthyPodEvictionPolicy: %q}}", mutatedField),
				},
			}},
		},
	}
}

func (r *run) mutationBinding() *admissionregistrationv1.MutatingAdmissionPolicyBinding {
	return &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: r.namespace},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: r.namespace},
	}
}

// mutateBudget installs a policy engine, so to speak, and waits until it works.
func (r *run) mutateBudget(ctx context.Context) error {
	if err := errors.Join(r.world.admin.Create(ctx, r.mutation()), r.world.admin.Create(ctx, r.mutationBinding())); err != nil {
		return fmt.Errorf("create the mutation of the guard's budget: %w", err)
	}
	return r.await(ctx, "the mutation of the guard's budget", func(ctx context.Context) error {
		budget := builder.Budget(r.namespace, v1alpha1.GuardBudgetName).Selects(builder.AppLabel, "nobody").MaxUnavailable("1").Obj()
		if err := r.world.admin.Create(ctx, budget, client.DryRunAll); err != nil {
			return err
		}
		if policy := budget.Spec.UnhealthyPodEvictionPolicy; policy == nil || *policy != mutatedField {
			return errors.New("it is not enforced yet")
		}
		return nil
	})
}

// makeTrouble is what happens in the middle of a run.
func (r *run) makeTrouble(ctx context.Context, t Trouble) {
	if t.Lasts == 0 || !r.until(ctx, t.At) {
		return // Or it is there already.
	}
	r.world.tellf("trouble: %s", t)
	ctx, cancel := context.WithDeadline(ctx, r.began.Add(time.Duration(t.At+t.Lasts)*Step))
	defer cancel()
	switch t.Kind {
	case ForeignBudget:
		r.once(ctx, t.Kind, "budget", func(ctx context.Context) error {
			return r.trouble.editor.Create(ctx, builder.Budget(r.namespace, "foreign").Selects(v1alpha1.GuardLabel, v1alpha1.GuardClosed).MaxUnavailable("1").Obj())
		})
	case GuardTemplate:
		r.once(ctx, t.Kind, "Deployment", func(ctx context.Context) error { return r.trouble.editor.Create(ctx, r.guardTemplate()) })
		<-ctx.Done()
	case HeldRequests:
		r.attack(ctx, t.Kind, r.holdRequest)
	case ForgeOutcome:
		r.attack(ctx, t.Kind, r.forgeOutcome)
	case ForgePlan:
		r.attack(ctx, t.Kind, r.forgePlan)
	case ForgeReport:
		r.attack(ctx, t.Kind, r.forgeReport)
	case PostReview:
		r.attack(ctx, t.Kind, r.postReview)
	case PadEviction:
		r.attack(ctx, t.Kind, r.padEviction)
	}
}

// once insists on one attempt until the API server has said yes or no.
func (r *run) once(ctx context.Context, kind TroubleKind, what string, try func(context.Context) error) {
	for ctx.Err() == nil {
		err := within(ctx, try)
		if r.attempted(kind, what, err); err == nil || !isOutage(err) {
			return
		}
		rest(ctx, 2*retryPause)
	}
}

// isOutage reports whether an error says nothing about what was asked.
func isOutage(err error) bool {
	status := apierrors.APIStatus(nil)
	return !errors.As(err, &status) || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err)
}

func (r *run) attempted(kind TroubleKind, what string, err error) {
	a := Attempt{At: time.Now(), Kind: kind, What: what, Accepted: err == nil}
	if err != nil {
		a.Answer = err.Error()
	}
	r.note(a)
}

func (r *run) note(a Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Attempts = append(r.history.Attempts, a)
}

// guardTemplate is a Deployment whose pods have the guard's label from the beginning.
func (r *run) guardTemplate() client.Object {
	return builder.Deployment(r.namespace, templateApp).Replicas(1).Pods(func(p *builder.PodWrapper) {
		p.NodeSelector(testLabel, r.namespace).Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed)
	}).Obj()
}

// endTroubles takes back what would be in the way of the rest of the run.
func (r *run) endTroubles(ctx context.Context) error {
	if !r.history.Plan.Has(GuardTemplate) {
		return nil
	}
	return client.IgnoreNotFound(r.world.admin.Delete(ctx, r.guardTemplate(), client.PropagationPolicy(metav1.DeletePropagationForeground)))
}

// letRequestsGo takes the finalizers off the requests that are held. What they have come
// to is in the history before.
func (r *run) letRequestsGo(ctx context.Context) error {
	requests := &v1alpha1.EvictionRequestList{}
	if err := r.world.admin.List(ctx, requests, client.InNamespace(r.namespace)); err != nil {
		return err
	}
	var failures []error
	for i := range requests.Items {
		er := &requests.Items[i]
		if !slices.Contains(er.Finalizers, finalizer) {
			continue
		}
		before := er.DeepCopy()
		er.Finalizers = slices.DeleteFunc(er.Finalizers, func(f string) bool { return f == finalizer })
		err := r.world.admin.Patch(ctx, er, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		failures = append(failures, client.IgnoreNotFound(err))
	}
	return errors.Join(failures...)
}
