//go:build unix

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// Policies whose denials these tests look for.
const (
	statusPolicy  = "evictionrequest-status.drawbridge.dev"
	reportsPolicy = "evictionrequest-reports.drawbridge.dev"
)

// statusChange is what somebody makes of a request's status.
type statusChange = func(*v1alpha1.EvictionRequestStatus)

// claims sets a final condition, as only the controller may.
func claims(kind, reason string) statusChange {
	return func(s *v1alpha1.EvictionRequestStatus) {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason})
	}
}

// try changes the status of a pod's request as the account does. A version that is old
// is read again; every other answer is returned.
func (a account) try(t *testing.T, er *v1alpha1.EvictionRequest, change statusChange) (answer error) {
	t.Helper()
	eventually(t, "an answer to a write of the status", func(ctx context.Context) error {
		now := &v1alpha1.EvictionRequest{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(er), now); err != nil {
			return err
		}
		change(&now.Status)
		answer = a.status.Status().Update(ctx, now)
		if apierrors.IsConflict(answer) || (apierrors.IsForbidden(answer) && !strings.Contains(answer.Error(), "ValidatingAdmissionPolicy")) {
			return answer // Not allowed yet: RBAC has not seen the role.
		}
		return nil
	})
	return answer
}

// mustDeny wants that this policy has denied a write.
func mustDeny(t *testing.T, err error, policy string, texts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("want a denial by %s, but it was accepted", policy)
		return
	}
	for _, text := range append([]string{"ValidatingAdmissionPolicy '" + policy + "'"}, texts...) {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("want %q in %q", text, err.Error())
		}
	}
}

// While no manager runs, whoever may only write evictionrequests/status forges the
// controller's words and reports for an interceptor that belongs to somebody else.
// Nothing of it is accepted, so that the pod is still there when the manager is back, and
// in the hands of its interceptor.
func TestAnInsiderForgesNothingWhileNoManagerRuns(t *testing.T) {
	m := startManager(t, nil)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	const first, second = "first.insiders.example.com", "second.insiders.example.com"
	registerFor(t, namespace, first, 20000, "failover")
	failover := newAccount(t, namespace, "failover", mayReport())
	insider := newAccount(t, namespace, "insider", mayReport())
	operator := newAccount(t, namespace, "operator", mayReport(), rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"evictionrequests"}, Verbs: []string{"skip"},
	})
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors(second).Obj())
	evict(t, "alice", pod, eviction(pod))
	er := waitRequest(t, pod, "in the hands of the first", activeIs(first))
	later := createPod(t, builder.Pod(namespace, "db-1").Node(node).Interceptors(second).Obj())
	m.StopFor(t)

	// Nobody has looked at this one.
	unplanned := builder.EvictionRequest(namespace, later.Name, later.UID).Requesters("drain.example.com").Obj()
	create(t, unplanned)

	now := m.Clock.Now()
	at := metav1.NewTime(now.Truncate(time.Second))
	const ours = "only Drawbridge may write"
	for name, tc := range map[string]struct {
		of     *v1alpha1.EvictionRequest
		change statusChange
		policy string
		want   []string
	}{
		"Evicted":                        {er, claims(v1alpha1.ConditionEvicted, v1alpha1.ReasonPodDeleted), statusPolicy, []string{ours, "Evicted and Canceled"}},
		"Canceled":                       {er, claims(v1alpha1.ConditionCanceled, v1alpha1.ReasonNoRequesters), statusPolicy, []string{ours}},
		"Canceled, as if it was refused": {er, claims(v1alpha1.ConditionCanceled, v1alpha1.ReasonValidationFailed), statusPolicy, []string{ours}},
		"Evicted before the plan":        {unplanned, claims(v1alpha1.ConditionEvicted, v1alpha1.ReasonPodDeleted), statusPolicy, []string{ours}},
		"a condition under our domain":   {er, claims("drawbridge.dev/Anything", "Why"), statusPolicy, []string{ours}},
		"a plan without the first": {unplanned, func(s *v1alpha1.EvictionRequestStatus) {
			s.TargetInterceptors = []v1alpha1.Interceptor{{Name: v1alpha1.ImperativeEvictionInterceptor}}
			s.Interceptors = []v1alpha1.InterceptorStatus{{Name: v1alpha1.ImperativeEvictionInterceptor}}
			s.ActiveInterceptors, s.ActivationTime = []string{v1alpha1.ImperativeEvictionInterceptor}, &at
		}, statusPolicy, []string{ours + " status.targetInterceptors, status.activeInterceptors, status.activationTime"}},
		"the end of its turn": {er, func(s *v1alpha1.EvictionRequestStatus) {
			s.ProcessedInterceptors, s.ActiveInterceptors = s.ActiveInterceptors, []string{second}
		}, statusPolicy, []string{"status.activeInterceptors, status.processedInterceptors"}},
		"when its turn began":          {er, func(s *v1alpha1.EvictionRequestStatus) { s.ActivationTime = &metav1.Time{Time: at.Add(-time.Hour)} }, statusPolicy, []string{"status.activationTime"}},
		"a deadline":                   {er, func(s *v1alpha1.EvictionRequestStatus) { s.Deadline, s.DeadlineSource = &at, "spot.example.com" }, statusPolicy, []string{"status.deadline, status.deadlineSource"}},
		"another node":                 {er, func(s *v1alpha1.EvictionRequestStatus) { s.NodeName = "elsewhere" }, statusPolicy, []string{"status.nodeName"}},
		"a report of the first":        {er, began(first, now, false), reportsPolicy, []string{"only " + serviceAccount(namespace, "failover") + " may report for interceptor " + first, serviceAccount(namespace, "insider")}},
		"the completion of the first":  {er, began(first, now, true), reportsPolicy, []string{"may report for interceptor " + first}},
		"a skip by somebody else":      {er, skips(first, "system:admin", at), statusPolicy, []string{"skippedBy must be your own user name"}},
		"a skip without the verb skip": {er, skips(first, serviceAccount(namespace, "insider"), at), statusPolicy, []string{`the verb "skip"`}},
		"a skip that begins the work, too": {er, func(s *v1alpha1.EvictionRequestStatus) {
			began(first, now, true)(s)
			skips(first, serviceAccount(namespace, "insider"), at)(s)
		}, statusPolicy, []string{"a skip sets completionTime, skippedBy and message, nothing else"}},
	} {
		t.Run(name, func(t *testing.T) { mustDeny(t, insider.try(t, tc.of, tc.change), tc.policy, tc.want...) })
	}

	// What is theirs to write, all of them may.
	if err := failover.try(t, er, began(first, now, false)); err != nil {
		t.Errorf("the interceptor's own account reports: %v", err)
	}
	if err := insider.try(t, er, claims("example.com/Noted", "Noted")); err != nil {
		t.Errorf("a condition of one's own: %v", err)
	}

	m = startManager(t, nil)
	got := waitRequest(t, pod, "in the hands of the first", activeIs(first))
	if slices.ContainsFunc(got.Status.Interceptors, func(s v1alpha1.InterceptorStatus) bool { return s.CompletionTime != nil }) {
		t.Errorf("somebody has completed: %+v", got.Status)
	}
	evictUntil(t, "alice", pod, `waiting for interceptor \"`+first+`\" (1 of 3)`)
	waitRequest(t, later, "in the hands of the first", activeIs(first))
	lives(t, pod)
	lives(t, later)

	// With the verb it is a skip, manager or not.
	m.StopFor(t)
	if err := operator.try(t, er, skips(first, serviceAccount(namespace, "operator"), at)); err != nil {
		t.Errorf("skip with the verb skip: %v", err)
	}
	startManager(t, nil)
	waitRequest(t, pod, "in the hands of the second", activeIs(second))
	lives(t, pod)
}

// skips ends the turn of an interceptor in its place.
func skips(name, by string, at metav1.Time) statusChange {
	return func(s *v1alpha1.EvictionRequestStatus) {
		for i := range s.Interceptors {
			if item := &s.Interceptors[i]; item.Name == name {
				item.CompletionTime, item.SkippedBy, item.Message = &at, by, "it hangs"
			}
		}
	}
}

// The accounts of a registration count as they are now, also in a request that began
// before, and a registration that goes takes them with it.
func TestThePolicyFollowsTheRegistration(t *testing.T) {
	m := shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	const name = "moves.insiders.example.com"
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors(name).Obj())
	evict(t, "alice", pod, eviction(pod))
	er := waitRequest(t, pod, "in the hands of the interceptor", activeIs(name))
	insider := newAccount(t, namespace, "insider", mayReport())
	blue := newAccount(t, namespace, "blue", mayReport())
	says := func(text string) statusChange {
		return func(s *v1alpha1.EvictionRequestStatus) {
			for i := range s.Interceptors {
				if s.Interceptors[i].Name == name {
					s.Interceptors[i].Message = text
				}
			}
		}
	}
	if err := insider.try(t, er, says("nobody is registered")); err != nil {
		t.Errorf("without a registration: %v", err)
	}
	registerFor(t, namespace, name, 10000, "green")
	denied := func(who account, text string) func(context.Context) error {
		return func(context.Context) error {
			if err := who.try(t, er, says(text)); err == nil || !strings.Contains(err.Error(), "'"+reportsPolicy+"'") {
				return fmt.Errorf("answer %w", err)
			}
			return nil
		}
	}
	eventually(t, "the policy to know the registration", denied(insider, "a"))
	eventually(t, "the policy to deny blue", denied(blue, "b"))
	registration := &v1alpha1.EvictionInterceptor{}
	eventually(t, "the registration to name blue", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, registration); err != nil {
			return err
		}
		registration.Spec.ServiceAccounts[0].Name = "blue"
		return admin.Update(ctx, registration)
	})
	eventually(t, "blue to be let in", func(context.Context) error { return blue.try(t, er, says("blue")) })
	mustDeny(t, insider.try(t, er, says("c")), reportsPolicy)
	complete := began(name, m.Clock.Now(), true)
	if err := blue.try(t, er, complete); err != nil {
		t.Errorf("the new account completes: %v", err)
	}
	gone(t, pod)
}

// Only the manager reports for its own interceptors, whoever may write statuses otherwise: a
// completion is what lets the eviction go on. Those who may skip interceptors may skip these,
// too. No manager runs, or it would write, too.
func TestOnlyTheManagerReportsForItsOwn(t *testing.T) {
	const other = "other.example.com"
	cases := map[string]struct {
		interceptor func(namespace string) string
		refusal     string
	}{
		"budgets": {
			func(string) string { return v1alpha1.BudgetInterceptor }, "only Drawbridge may report for budgets.drawbridge.dev",
		},
		"native responders": {
			func(string) string { return v1alpha1.NativeInterceptor }, "only Drawbridge may report for native.drawbridge.dev",
		},
		"the order of a node's pods": {
			func(string) string { return v1alpha1.OrderInterceptor }, "only Drawbridge may report for order.drawbridge.dev",
		},
		"hooks": {
			func(namespace string) string {
				return v1alpha1.HookInterceptor(types.NamespacedName{Namespace: namespace, Name: "dump"})
			},
			"only Drawbridge may report for interceptors under hooks.drawbridge.dev",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			namespace := kube.Namespace(t)
			interceptor := tc.interceptor(namespace)
			insider := newAccount(t, namespace, "insider", mayReport())
			operator := newAccount(t, namespace, "operator", mayReport(), may("skip", v1alpha1.GroupName, "evictionrequests"))
			pod := createPod(t, builder.Pod(namespace, "db-0").Node(addNodes(t, namespace, 1)[0]).Obj())
			er := builder.EvictionRequest(namespace, pod.Name, pod.UID).Requesters("drain.example.com").Obj()
			create(t, er)
			now := time.Now()
			at := metav1.NewTime(now.Truncate(time.Second))
			thief := must(client.New(managersConfig(t), client.Options{Scheme: admin.Scheme()}))(t)
			patch := fmt.Sprintf(`{"status":{"observedGeneration":1,"activationTime":%q,"activeInterceptors":[%q],
				"targetInterceptors":[{"name":%[2]q},{"name":%[3]q},{"name":"imperative-eviction.k8s.io"}],
				"interceptors":[{"name":%[2]q,"message":""},{"name":%[3]q,"message":""},{"name":"imperative-eviction.k8s.io","message":""}]}}`,
				at.UTC().Format(time.RFC3339), interceptor, other)
			if err := thief.Status().Patch(t.Context(), er, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
				t.Fatal(err)
			}
			for name, change := range map[string]statusChange{
				"a beginning":  began(interceptor, now, false),
				"a completion": began(interceptor, now, true),
				"a message":    func(s *v1alpha1.EvictionRequestStatus) { s.Interceptors[0].Message = "it is done" },
			} {
				t.Run(name, func(t *testing.T) {
					for _, who := range []account{insider, operator} {
						mustDeny(t, who.try(t, er, change), statusPolicy, tc.refusal)
					}
				})
			}
			skip := skips(interceptor, serviceAccount(namespace, "operator"), at)
			mustDeny(t, insider.try(t, er, skips(interceptor, serviceAccount(namespace, "insider"), at)), statusPolicy, `the verb "skip"`)
			mustDeny(t, operator.try(t, er, func(s *v1alpha1.EvictionRequestStatus) {
				began(interceptor, now, true)(s)
				skip(s)
			}), statusPolicy, "a skip sets completionTime, skippedBy and message, nothing else")
			if err := operator.try(t, er, skip); err != nil {
				t.Errorf("a skip by somebody who may: %v", err)
			}
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(er), er); err != nil {
				t.Fatal(err)
			}
			if got := er.Status.Interceptors[0]; got.SkippedBy != serviceAccount(namespace, "operator") {
				t.Errorf("it is not skipped: %+v", got)
			}
		})
	}
}
