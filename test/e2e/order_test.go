//go:build unix

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/order"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// lastIn is a registration without an interceptor that no other test has: pods of a tier of the
// namespace leave after those of another tier.
func lastIn(namespace, name, value, after string) *builder.EvictionInterceptorWrapper {
	suffix := namespace[strings.LastIndex(namespace, "-")+1:]
	return builder.EvictionInterceptor(name+"-"+suffix+v1alpha1.OrderInterceptorSuffix).
		InNamespace(namespace).Pods(tier, value).After(tier, after).AfterNamespaces(corev1.LabelMetadataName, namespace)
}

// ordered makes a pod of each tier on a node: storage, and web with an interceptor that the test
// plays.
func ordered(t *testing.T, namespace, node string) (storage, web *corev1.Pod) {
	t.Helper()
	storage = createPod(t, builder.Pod(namespace, "storage-0").Node(node).Label(tier, "storage").Obj())
	return storage, createPod(t, ofTier(namespace, "web-0", "web", node).Obj())
}

// waitsFor wants that it is the turn of the order, because of another pod, and that it goes on.
func waitsFor(other *corev1.Pod) func(*v1alpha1.EvictionRequest) bool {
	return func(er *v1alpha1.EvictionRequest) bool {
		return activeIs(order.Name)(er) && says(order.Name, other.Namespace+"/"+other.Name)(er) && v1alpha1.ReportOf(er, order.Name).CompletionTime == nil
	}
}

// kubectl drain asks for the pods of a node in any order. Storage leaves after who uses it.
func TestKubectlDrainKeepsTheOrderOfRegistrations(t *testing.T) {
	shareManager(t)
	namespace, node := placed(t)
	storage, web := ordered(t, namespace, node)
	register(t, lastIn(namespace, "storage", "storage", "web"))

	drain := startDrain(t, "alice", node)
	waitRequest(t, storage, "waiting for the other one", waitsFor(web))
	waitRequest(t, web, "in the hands of its own interceptor", activeIs("db.example.com"))
	lives(t, storage)
	told := plugin(t, "why", storage.Name, "-n", namespace)
	saysAll(t, "why", told, order.Name, "Waiting for 1 pod of node "+node)

	complete(t, web, "db.example.com", time.Now)
	gone(t, web)
	gone(t, storage)
	finishWell(t, drain)
	er := waitRequest(t, storage, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	want := []string{order.Name, v1alpha1.ImperativeEvictionInterceptor}
	if diff := cmp.Diff(want, targets(er)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if got := v1alpha1.ReportOf(er, order.Name); got.CompletionTime == nil || got.Message != "No pod is left on node "+node+" that leaves before this one." {
		t.Errorf("report: %+v", got)
	}
	if diff := cmp.Diff([]string{"db.example.com", v1alpha1.ImperativeEvictionInterceptor}, targets(waitRequest(t, web, "Evicted", isTrue(v1alpha1.ConditionEvicted)))); diff != "" {
		t.Errorf("plan of the pod that waits for nobody (-want +got):\n%s", diff)
	}
}

// The wait is right before the interceptor whose registration asks for it.
func TestTheOrderIsBeforeTheInterceptorOfItsRegistration(t *testing.T) {
	shareManager(t)
	namespace, node := placed(t)
	first, second := nameIn(namespace, "first"), nameIn(namespace, "second")
	for _, name := range []string{first, second} {
		startInterceptor(t, namespace, name, 0)
	}
	storage, web := ordered(t, namespace, node)
	register(t, builder.EvictionInterceptor(first).InNamespace(namespace).Pods(tier, "storage").Priority(30000))
	register(t, builder.EvictionInterceptor(second).InNamespace(namespace).Pods(tier, "storage").Priority(20000).
		After(tier, "web").AfterNamespaces(corev1.LabelMetadataName, namespace))

	drain := startDrain(t, "alice", node)
	waitRequest(t, storage, "waiting for the other one", waitsFor(web))
	complete(t, web, "db.example.com", time.Now)
	gone(t, storage)
	finishWell(t, drain)
	er := waitRequest(t, storage, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	want := []string{first, order.Name, second, v1alpha1.ImperativeEvictionInterceptor}
	if diff := cmp.Diff(want, targets(er)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, er.Status.ProcessedInterceptors); diff != "" {
		t.Errorf("processed (-want +got):\n%s", diff)
	}
}

// Who never goes holds nobody up for good.
func TestAPodWaitsForOthersUntilItsTimeout(t *testing.T) {
	m := startManager(t, nil)
	namespace, node := placed(t)
	storage, web := ordered(t, namespace, node)
	register(t, lastIn(namespace, "storage", "storage", "web").AfterTimeout(5*time.Minute))
	unschedulable(t, node, true)
	wants(t, storage)
	waitRequest(t, storage, "waiting for the other one", waitsFor(web))
	lives(t, storage)

	m.Clock.Advance(5 * time.Minute)
	gone(t, storage)
	saysAll(t, "the event", waitEvent(t, storage, events.ReasonOrderTimedOut).Note, "waits no longer after 5m", namespace+"/web-0")
	lives(t, web)
	noRequest(t, web)
}

// Where nobody drains the node any more, a pod that nobody asks for is not waited for.
func TestNobodyWaitsForPodsThatStay(t *testing.T) {
	shareManager(t)
	namespace, node := placed(t)
	storage, web := ordered(t, namespace, node)
	register(t, lastIn(namespace, "storage", "storage", "web"))
	unschedulable(t, node, true)
	wants(t, storage)
	waitRequest(t, storage, "waiting for the other one", waitsFor(web))
	unschedulable(t, node, false)
	gone(t, storage)
	lives(t, web)
	noRequest(t, web)
}

// Two registrations may be a circle together. Whoever sees that first does not wait.
func TestACircleOfRegistrationsIsBroken(t *testing.T) {
	shareManager(t)
	namespace, node := placed(t)
	storage, web := ordered(t, namespace, node)
	register(t, lastIn(namespace, "storage", "storage", "web"))
	register(t, lastIn(namespace, "web", "web", "storage").Priority(1))
	drain := startDrain(t, "alice", node)
	waitRequest(t, web, "in the hands of its own interceptor", activeIs("db.example.com"))
	gone(t, storage)
	saysAll(t, "the event", waitEvent(t, storage, events.ReasonOrderCircle).Note, "does not wait for pods that wait for it", namespace+"/web-0")
	lives(t, web)
	complete(t, web, "db.example.com", time.Now)
	gone(t, web)
	finishWell(t, drain)
}

// What cannot be an order is refused, or said in a condition.
func TestOrdersThatCannotWork(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	name := nameIn(namespace, "a")
	after := func() *builder.EvictionInterceptorWrapper {
		return builder.EvictionInterceptor(name).InNamespace(namespace).Pods(tier, "storage").After(tier, "web")
	}
	empty := builder.EvictionInterceptor(name)
	empty.Spec.After = &v1alpha1.EvictionOrder{PodSelector: &metav1.LabelSelector{}, NamespaceSelector: &metav1.LabelSelector{}}
	refused := map[string]struct {
		registration *builder.EvictionInterceptorWrapper
		want         string
	}{
		"no selector":          {builder.EvictionInterceptor(name).AfterTimeout(time.Minute), "after must select pods"},
		"empty selectors":      {empty, "after must select pods"},
		"no time":              {after().AfterTimeout(0), "timeout must be at least 1s and at most 24h"},
		"more time than a day": {after().AfterTimeout(25 * time.Hour), "timeout must be at least 1s and at most 24h"},
		"nothing but a name":   {builder.EvictionInterceptor("a" + v1alpha1.OrderInterceptorSuffix), "needs spec.after"},
	}
	for what, tc := range refused {
		t.Run(what, func(t *testing.T) {
			err := admin.Create(t.Context(), tc.registration.Clone().Generation(0).Obj(), client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("want an error with %q, got %v", tc.want, err)
			}
		})
	}

	judged := map[string]struct {
		registration *builder.EvictionInterceptorWrapper
		reason, want string
	}{
		"a circle":    {builder.EvictionInterceptor(nameIn(namespace, "circle")).InNamespace(namespace).Pods(tier, "storage").After(tier, "storage"), v1alpha1.ReasonOrderCircle, "so they would wait for each other"},
		"no selector": {builder.EvictionInterceptor(nameIn(namespace, "bad")).InNamespace(namespace).AfterWhere(tier, "Resembles", "web"), v1alpha1.ReasonInvalidSelector, "spec.after.podSelector cannot be read: "},
	}
	for what, tc := range judged {
		t.Run(what, func(t *testing.T) {
			r := register(t, tc.registration)
			if got := condition(t, r, v1alpha1.ConditionAccepted, metav1.ConditionFalse, tc.reason); !strings.Contains(got, tc.want) {
				t.Errorf("message %q, want %q in it", got, tc.want)
			}
		})
	}
	for i, w := range []*builder.EvictionInterceptorWrapper{after().AfterTimeout(24 * time.Hour), lastIn(namespace, "last", "storage", "web").AfterWhere("app", "NotIn", "a", "b")} {
		t.Run(fmt.Sprintf("accepted %d", i), func(t *testing.T) {
			condition(t, register(t, w), v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
		})
	}
}
