//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// refusalName is the name of the policy and its binding, and of the lease by which is seen
	// whether it is in force.
	refusalName = "chaos-refusal"
	// refusalPatience bounds how long the policy may take to be in force: an API server may be
	// dead meanwhile.
	refusalPatience = 20 * time.Second
)

// managerUser is the user that the managers are.
func (w *World) managerUser() string {
	return "system:serviceaccount:" + w.inst.Namespace + ":" + w.inst.ServiceAccount
}

// refusingPolicy refuses a kind of write of the managers' account, and a lease of that
// account that nobody needs.
func (r *run) refusingPolicy(refusal Refusal) *admissionregistrationv1.ValidatingAdmissionPolicy {
	named := func(rule admissionregistrationv1.RuleWithOperations) admissionregistrationv1.NamedRuleWithOperations {
		return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: rule}
	}
	// The leader goes on: who leads is no write that Drawbridge decides.
	leases := fmt.Sprintf("request.name != '%s'", r.lease().Name)
	if refusal.Write != RefusedLeases {
		leases = fmt.Sprintf("request.name == '%s'", refusalName)
	}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: refusalName},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{named(refusal.Write.rule()), named(RefusedLeases.rule())},
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{Name: "manager", Expression: fmt.Sprintf("request.userInfo.username == '%s'", r.world.managerUser())},
				{Name: "leases", Expression: "request.resource.resource != 'leases' || " + leases},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "no " + string(refusal.Write) + " today"}},
		},
	}
	if refusal.Reason != "" {
		policy.Spec.Validations[0].Reason = &refusal.Reason
	}
	return policy
}

func refusingBinding() *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: refusalName},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: refusalName, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
}

// refuse makes the policy and waits until it is in force. What ends it waits until it is in
// force no more.
func (r *run) refuse(ctx context.Context, refusal Refusal) (heal func(context.Context) error, err error) {
	conf, err := r.world.Cluster.ConfigForServiceAccount(ctx, r.world.inst.Namespace, r.world.inst.ServiceAccount)
	if err != nil {
		return nil, err
	}
	manager, err := client.New(conf, r.world.clientOptions())
	if err != nil {
		return nil, fmt.Errorf("make client of the managers' account: %w", err)
	}
	from := time.Now()
	heal = func(ctx context.Context) error {
		err := errors.Join(
			insist(ctx, "delete the binding that refuses", func(ctx context.Context) error {
				return client.IgnoreNotFound(r.world.admin.Delete(ctx, refusingBinding()))
			}),
			insist(ctx, "delete the policy that refuses", func(ctx context.Context) error {
				return client.IgnoreNotFound(r.world.admin.Delete(ctx, r.refusingPolicy(refusal)))
			}),
			insist(ctx, "wait until nothing is refused", func(ctx context.Context) error { return tryLease(ctx, manager, r.lease().Namespace) }),
		)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.history.Refusals = append(r.history.Refusals, Refused{Interval{from, time.Now()}, refusal})
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, refusalPatience)
	defer cancel()
	for _, object := range []client.Object{r.refusingPolicy(refusal), refusingBinding()} {
		if err := insist(ctx, "create what refuses", func(ctx context.Context) error {
			return client.IgnoreAlreadyExists(r.world.admin.Create(ctx, object))
		}); err != nil {
			return heal, err
		}
	}
	err = insist(ctx, "wait until it is refused", func(ctx context.Context) error {
		err := tryLease(ctx, manager, r.lease().Namespace)
		if err != nil && strings.Contains(err.Error(), "'"+refusalName+"'") {
			return nil
		}
		return fmt.Errorf("it is not in force: %w", err)
	})
	r.world.tellf("refusal of %s is in force: %t", refusal, err == nil)
	return heal, err
}

// tryLease creates the lease that the policy refuses, as a dry run.
func tryLease(ctx context.Context, c client.Client, namespace string) error {
	return c.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: refusalName}}, client.DryRunAll)
}

// resumption is in how long the managers try everything again that was refused.
func (r *run) resumption() time.Duration {
	var longest time.Duration
	for _, refused := range r.history.Refusals {
		longest = max(longest, time.Until(refused.pausedUntil()))
	}
	return longest
}
