//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// mayReport lets an account write the status of requests.
func mayReport() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"evictionrequests", "evictionrequests/status"}, Verbs: []string{"get", "update"}}
}

// registerFor registers an interceptor of one namespace's pods, which belongs to a
// service account of that namespace, and waits until it is in force.
func registerFor(t *testing.T, namespace, name string, priority int32, account string) {
	t.Helper()
	registration := &v1alpha1.EvictionInterceptor{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.EvictionInterceptorSpec{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			Priority:          &priority,
			Evicts:            true, // Or the guard would keep its evictions away.
			ServiceAccounts:   []v1alpha1.ServiceAccountReference{{Namespace: namespace, Name: account}},
		},
	}
	create(t, registration)
	t.Cleanup(func() {
		// The test's own context has ended by now.
		if err := admin.Delete(context.Background(), registration); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete registration %s: %v", name, err)
		}
	})
	eventually(t, "registration "+name+" to be accepted", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(registration), registration); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(registration.Status.Conditions, v1alpha1.ConditionAccepted) {
			return fmt.Errorf("conditions %+v", registration.Status.Conditions)
		}
		return nil
	})
}

// write changes the status of a pod's request as the account does, and returns the
// error of the first write that says more than "not allowed yet" or "changed
// meanwhile".
func (a account) write(t *testing.T, pod *corev1.Pod, change func(*v1alpha1.EvictionRequestStatus)) (refused error) {
	t.Helper()
	eventually(t, "a write of the status", func(ctx context.Context) error {
		er := &v1alpha1.EvictionRequest{}
		if err := a.status.Get(ctx, v1alpha1.RequestKey(pod), er); err != nil {
			return err
		}
		change(&er.Status)
		err := a.status.Status().Update(ctx, er)
		if apierrors.IsForbidden(err) || apierrors.IsConflict(err) {
			return err
		}
		refused = err
		return nil
	})
	return refused
}

// began reports that an interceptor works on the pod since now, or is done.
func began(name string, now time.Time, done bool) func(*v1alpha1.EvictionRequestStatus) {
	return func(status *v1alpha1.EvictionRequestStatus) {
		at := metav1.NewTime(now.Truncate(time.Second))
		for i := range status.Interceptors {
			if item := &status.Interceptors[i]; item.Name == name {
				if item.StartTime == nil {
					item.StartTime, item.HeartbeatTime = &at, &at
				}
				if item.Message = "working"; done {
					item.CompletionTime = &at
				}
			}
		}
	}
}

// Two interceptors of the same pod, each with its own service account, and a third
// account with the same permissions that nobody has named.
func TestOnlyRegisteredAccountsActForAnInterceptor(t *testing.T) {
	m := shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	const first, second = "first.accounts.example.com", "second.accounts.example.com"
	registerFor(t, namespace, first, 20000, "failover")
	registerFor(t, namespace, second, 10000, "flush")
	failover := newAccount(t, namespace, "failover", mayReport(), mayEvict())
	flush := newAccount(t, namespace, "flush", mayReport(), mayEvict())
	stranger := newAccount(t, namespace, "stranger", mayReport(), mayEvict())

	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Change(ofApp("db")).Obj())
	budget := createBudget(t, builder.Budget(namespace, "db").Selects(builder.AppLabel, "db").MinAvailable("1").Obj(), 1)
	byUID := eviction(pod)
	byUID.DeleteOptions.Preconditions = &metav1.Preconditions{UID: &pod.UID}

	evict(t, "alice", pod, eviction(pod))
	er := waitRequest(t, pod, "in the hands of the first", activeIs(first))
	if diff := cmp.Diff([]string{first, second, v1alpha1.ImperativeEvictionInterceptor}, targets(er)); diff != "" {
		t.Fatalf("plan (-want +got):\n%s", diff)
	}

	// Not before its turn, and nobody becomes a requester of what it intercepts.
	wantEvict(t, flush, byUID, http.StatusTooManyRequests, `waiting for interceptor "`+first+`" (1 of 3)`)
	// In its turn; the budget still counts.
	wantEvict(t, failover, byUID, http.StatusTooManyRequests, "disruption budget")
	wantEvict(t, failover, eviction(pod), http.StatusTooManyRequests, "disruption budget")

	// Nobody else reports for it, or ends its turn.
	now := m.Clock.Now()
	for name, other := range map[string]account{"stranger": stranger, "flush": flush} {
		err := other.try(t, er, began(first, now, true))
		mustDeny(t, err, reportsPolicy, "only "+serviceAccount(namespace, "failover")+" may report for interceptor "+first, serviceAccount(namespace, name))
	}
	mustDeny(t, stranger.try(t, er, claims(v1alpha1.ConditionCanceled, v1alpha1.ReasonNoRequesters)), statusPolicy, "Evicted and Canceled")
	mustDeny(t, failover.try(t, er, func(s *v1alpha1.EvictionRequestStatus) {
		began(first, now, true)(s)
		s.ProcessedInterceptors, s.ActiveInterceptors = s.ActiveInterceptors, []string{second}
	}), statusPolicy, "status.activeInterceptors, status.processedInterceptors")

	// It does, itself.
	if err := failover.write(t, pod, began(first, m.Clock.Now(), false)); err != nil {
		t.Fatalf("the first interceptor reports: %v", err)
	}
	if err := failover.write(t, pod, began(first, m.Clock.Now(), true)); err != nil {
		t.Fatalf("the first interceptor completes: %v", err)
	}

	// After its turn it waits as all others do, and the next one may.
	waitRequest(t, pod, "in the hands of the second", activeIs(second))
	evictUntil(t, "alice", pod, `waiting for interceptor \"`+second+`\" (2 of 3)`) // The webhook has seen it, too.
	wantEvict(t, failover, byUID, http.StatusTooManyRequests, `waiting for interceptor "`+second+`" (2 of 3)`)
	if er, err := getRequest(t.Context(), pod); err != nil || !slices.Equal(requesters(er), []string{"alice.users.drawbridge.dev"}) {
		t.Errorf("want alice alone to want it, got %v, error %v", requesters(er), err)
	}
	lives(t, pod)
	if err := admin.Delete(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second to evict the pod", func(context.Context) error {
		if code, text := flush.evict(t, byUID); code != http.StatusCreated {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	gone(t, pod)
	er = waitRequest(t, pod, "evicted", isTrue(v1alpha1.ConditionEvicted))
	if slices.Contains(er.Status.ProcessedInterceptors, v1alpha1.ImperativeEvictionInterceptor) {
		t.Errorf("the last resort was asked: %+v", er.Status)
	}
}

// targets are the names of a request's plan.
func targets(er *v1alpha1.EvictionRequest) []string {
	var names []string
	for _, target := range er.Status.TargetInterceptors {
		names = append(names, target.Name)
	}
	return names
}

// wantEvict wants this answer to an account's eviction.
func wantEvict(t *testing.T, who account, eviction *policyv1.Eviction, code int32, text string) {
	t.Helper()
	var gotCode int32
	var gotText string
	// The webhook's cache may be a moment behind what the test has seen: until then the
	// request is only accepted.
	eventually(t, "the webhook to see whose turn it is", func(context.Context) error {
		gotCode, gotText = who.evict(t, eviction)
		if gotCode == http.StatusTooManyRequests && strings.Contains(gotText, "accepted, the pod's interceptors come first") {
			return errors.New(gotText)
		}
		return nil
	})
	if gotCode != code || !strings.Contains(gotText, text) {
		t.Errorf("want %d with %q, got %d %q", code, text, gotCode, gotText)
	}
}

// A call with the UID of the pod that had the name before is the registry's to
// refuse, whose turn it may be.
func TestAnInterceptorsTurnIsForOnePodOnly(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	const name = "only.accounts.example.com"
	registerFor(t, namespace, name, 10000, "failover")
	failover := newAccount(t, namespace, "failover", mayReport(), mayEvict())
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Obj())
	evict(t, "alice", pod, eviction(pod))
	waitRequest(t, pod, "in the hands of its interceptor", activeIs(name))

	other := types.UID("00000000-0000-4000-8000-000000000000")
	wrong := eviction(pod)
	wrong.DeleteOptions.Preconditions = &metav1.Preconditions{UID: &other}
	wantEvict(t, failover, wrong, http.StatusConflict, "another pod has that name now")
	lives(t, pod)
	wantEvict(t, failover, eviction(pod), http.StatusCreated, "")
	gone(t, pod)
}
