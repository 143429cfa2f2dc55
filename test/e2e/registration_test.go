//go:build unix

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// nameIn is the name of an interceptor that no other test has: registrations are
// cluster-scoped. It is short, so that answers repeat it in full.
func nameIn(namespace, name string) string {
	return name + "." + namespace[strings.LastIndex(namespace, "-")+1:] + ".example.com"
}

// register creates a registration and waits until it has been judged. It goes with
// the test.
func register(t *testing.T, w *builder.EvictionInterceptorWrapper) *v1alpha1.EvictionInterceptor {
	t.Helper()
	object := w.Clone().Generation(0).Obj()
	create(t, object)
	t.Cleanup(func() {
		// The test's own context has ended by now.
		if err := admin.Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete registration %s: %v", object.Name, err)
		}
	})
	return waitRegistration(t, object.Name, "judged", func(r *v1alpha1.EvictionInterceptor) bool {
		return r.Status.ObservedGeneration == r.Generation
	})
}

func waitRegistration(t *testing.T, name, what string, wanted func(*v1alpha1.EvictionInterceptor) bool) *v1alpha1.EvictionInterceptor {
	t.Helper()
	var object v1alpha1.EvictionInterceptor
	eventually(t, "registration "+name+" to be "+what, func(ctx context.Context) error {
		object = v1alpha1.EvictionInterceptor{}
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, &object); err != nil {
			return err
		}
		if !wanted(&object) {
			return fmt.Errorf("its status is %+v", object.Status)
		}
		return nil
	})
	return &object
}

// matches wants that a registration selects so many pods.
func matches(n int32) func(*v1alpha1.EvictionInterceptor) bool {
	return func(r *v1alpha1.EvictionInterceptor) bool {
		return r.Status.MatchingPods != nil && *r.Status.MatchingPods == n
	}
}

// condition checks a condition of a registration and returns its message.
func condition(t *testing.T, r *v1alpha1.EvictionInterceptor, kind string, status metav1.ConditionStatus, reason string) string {
	t.Helper()
	c := meta.FindStatusCondition(r.Status.Conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason || c.ObservedGeneration != r.Generation {
		t.Fatalf("condition %s: want %s because of %s at generation %d, have %+v", kind, status, reason, r.Generation, r.Status.Conditions)
	}
	return c.Message
}

// Two interceptors of different sources run in their order: the registrations by
// priority, the annotation in the middle.
func TestRegistrationsAndAnnotationRunInOrder(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	before, annotated, after := nameIn(namespace, "z-before"), nameIn(namespace, "m-annotated"), nameIn(namespace, "a-after")
	for _, name := range []string{before, annotated, after} {
		startInterceptor(t, namespace, name, 0)
	}
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Label("app", "db").Interceptors(annotated).Obj())
	plain := createPod(t, builder.Pod(namespace, "web-0").Node(node).Label("app", "web").Obj())
	register(t, builder.EvictionInterceptor(after).InNamespace(namespace).Pods("app", "db").Priority(10))
	register(t, builder.EvictionInterceptor(before).InNamespace(namespace).PodsWhere("app", "In", "db", "cache").Priority(20000).
		When("object.spec.nodeName == '"+node+"'"))

	finishWell(t, startDrain(t, "alice", node))
	er := waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	want := []string{before, annotated, after, v1alpha1.ImperativeEvictionInterceptor}
	if diff := cmp.Diff(want, targets(er)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, er.Status.ProcessedInterceptors); diff != "" {
		t.Errorf("processed (-want +got):\n%s", diff)
	}
	reports := er.Status.Interceptors
	for i := range reports[:2] {
		if done, next := reports[i].CompletionTime, reports[i+1].StartTime; done == nil || next == nil || done.After(next.Time) {
			t.Errorf("%s completed at %v, after %s began at %v", reports[i].Name, done, reports[i+1].Name, next)
		}
	}
	noRequest(t, plain)
}

// Whatever is wrong with an expression, evictions go on.
func TestBadExpressionsNeverBlockAnEviction(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	bare := createPod(t, builder.Pod(namespace, "bare").Node(node).Obj())
	db := createPod(t, builder.Pod(namespace, "db-0").Node(node).Label("app", "db").Obj())

	unreadable := register(t, builder.EvictionInterceptor(nameIn(namespace, "unreadable")).InNamespace(namespace).When("object.spec.containers.size() > 0"))
	message := condition(t, unreadable, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalidExpression)
	saysAll(t, "the message", message, `spec.matchConditions[0] "c0" does not compile: line 1, column 12: undefined field 'containers'`, "The registration selects no pods.")
	if !matches(0)(unreadable) {
		t.Errorf("it selects pods: %+v", unreadable.Status)
	}

	fragile := register(t, builder.EvictionInterceptor(nameIn(namespace, "fragile")).InNamespace(namespace).When("object.metadata.labels['tier'] == 'back'"))
	condition(t, fragile, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	fragile = waitRegistration(t, fragile.Name, "judged with both pods", func(r *v1alpha1.EvictionInterceptor) bool {
		c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionEvaluated)
		return c != nil && strings.Contains(c.Message, "for 2 pods")
	})
	message = condition(t, fragile, v1alpha1.ConditionEvaluated, metav1.ConditionFalse, v1alpha1.ReasonEvaluationFailed)
	saysAll(t, "the message", message, "An expression fails for 2 pods", "for example pod "+namespace+"/bare: matchConditions[0]", "no such key")

	finishWell(t, startDrain(t, "alice", node))
	for _, pod := range []*corev1.Pod{bare, db} {
		gone(t, pod)
		noRequest(t, pod)
	}
	fragile = waitRegistration(t, fragile.Name, "without a pod that fails", func(r *v1alpha1.EvictionInterceptor) bool {
		return meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionEvaluated)
	})
	condition(t, fragile, v1alpha1.ConditionEvaluated, metav1.ConditionTrue, v1alpha1.ReasonEvaluated)
}

func TestRegistrationsSelectNamespacesAndCountTheirPods(t *testing.T) {
	shareManager(t)
	inside, outside := kube.Namespace(t), kube.Namespace(t)
	nodes := addNodes(t, inside, 2)
	node := nodes[0]
	label := func(namespace string) {
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, testLabel, inside))
		if err := admin.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, patch); err != nil {
			t.Fatal(err)
		}
	}
	label(inside)
	selected := createPod(t, builder.Pod(inside, "a").Node(node).Obj())
	other := createPod(t, builder.Pod(outside, "b").Node(node).Obj())
	name := nameIn(inside, "checkpoint")
	register(t, builder.EvictionInterceptor(name).Namespaces(testLabel, inside))
	waitRegistration(t, name, "for 1 pod", matches(1))

	drain := startDrain(t, "alice", node)
	gone(t, other)
	noRequest(t, other)
	waitRequest(t, selected, "with the interceptor", activeIs(name))
	createPod(t, builder.Pod(outside, "c").Node(nodes[1]).Obj())
	label(outside)
	waitRegistration(t, name, "for 2 pods", matches(2))
	startInterceptor(t, inside, name, 0)
	finishWell(t, drain)
	waitRegistration(t, name, "for 1 pod", matches(1))
}

func TestRegistrationsThatTheSchemaRefuses(t *testing.T) {
	shareManager(t)
	valid := func() *builder.EvictionInterceptorWrapper {
		return builder.EvictionInterceptor("valid.example.com").Generation(0)
	}
	accounts := valid()
	for i := range 17 {
		accounts.ActedBy("shop", fmt.Sprintf("a%d", i))
	}
	conditions := valid()
	for range 65 {
		conditions.When("true")
	}
	named := func(name string) *builder.EvictionInterceptorWrapper {
		w := valid().When("true")
		w.Spec.MatchConditions[0].Name = name
		return w
	}
	const fqdn = "metadata.name must be a fully qualified domain name"
	cases := map[string]struct {
		from *builder.EvictionInterceptorWrapper
		want string // Empty if it is fine.
	}{
		"as simple as can be":           {valid(), ""},
		"everything":                    {valid().Pods("app", "db").PodsWhere("zone", "Exists").NamespacesWhere("team", "NotIn", "a").When("true").Priority(100000).ActedBy("shop", "mover").Evicts().Guard(v1alpha1.GuardAlways), ""},
		"a name without a dot":          {builder.EvictionInterceptor("surge").Generation(0), fqdn},
		"a label of a name is too long": {builder.EvictionInterceptor(strings.Repeat("a", 64) + ".example.com").Generation(0), fqdn},
		"the name of the last resort":   {builder.EvictionInterceptor(v1alpha1.ImperativeEvictionInterceptor).Generation(0), "it always comes last by itself"},
		"the shortest deadline":         {valid().HeartbeatDeadline(2 * time.Minute), ""},
		"the longest deadline":          {valid().HeartbeatDeadline(24 * time.Hour), ""},
		"a deadline nobody can keep":    {valid().HeartbeatDeadline(2*time.Minute - time.Second), "heartbeatDeadline must be at least 2m, as heartbeats may come once a minute, and at most 24h"},
		"a deadline of more than a day": {valid().HeartbeatDeadline(24*time.Hour + time.Second), "heartbeatDeadline must be at least 2m"},
		"a native key without a domain": {valid().NativeKey("checkpoint"), "nativeKey must be a domain, '/' and"},
		"a native key in capitals":      {valid().NativeKey("DB.example.com/checkpoint"), "nativeKey must be a domain, '/' and"},
		"a native key with two slashes": {valid().NativeKey("db.example.com/a/b"), "nativeKey must be a domain, '/' and"},
		"a native key of Kubernetes":    {valid().NativeKey("imperative-eviction.k8s.io/evictor"), "no key under k8s.io or kubernetes.io"},
		"the native key of Drawbridge":  {valid().NativeKey(v1alpha1.NativeResponder), "nativeKey must not be drawbridge.dev/interceptors"},
		"the shortest minimum":          {valid().Minimum(time.Second, ""), ""},
		"the longest minimum":           {valid().Minimum(24*time.Hour, v1alpha1.ShortNoticeSkip), ""},
		"a minimum of nothing":          {valid().Minimum(0, ""), "minimum must be at least 1s and at most 24h"},
		"a minimum of more than a day":  {valid().Minimum(24*time.Hour+time.Second, ""), "minimum must be at least 1s and at most 24h"},
		"an unknown way to begin":       {valid().Minimum(time.Hour, "Wait"), "spec.onShortNotice"},
		"a way to begin, but no minimum": {func() *builder.EvictionInterceptorWrapper {
			w := valid()
			w.Spec.OnShortNotice = v1alpha1.ShortNoticeSkip
			return w
		}(), "onShortNotice needs a minimum"},
		"an unknown way to be lost":   {valid().OnNodeLost("Begin"), "spec.onNodeLost"},
		"a way to be lost":            {valid().OnNodeLost(v1alpha1.NodeLostInterrupt), ""},
		"a negative priority":         {valid().Priority(-1), "spec.priority"},
		"a priority that is too high": {valid().Priority(100001), "spec.priority"},
		"an unknown guard":            {valid().Guard("Sometimes"), "spec.guard"},
		"too many accounts":           {accounts, "spec.serviceAccounts"},
		"an account twice":            {valid().ActedBy("shop", "a").ActedBy("shop", "a"), "Duplicate value"},
		"no namespace of an account":  {valid().ActedBy("Shop_", "a"), "must be the name of a namespace"},
		"no name of an account":       {valid().ActedBy("shop", "A!"), "must be the name of a service account"},
		"too many conditions":         {conditions, "spec.matchConditions"},
		"a condition twice": {func() *builder.EvictionInterceptorWrapper {
			w := named("a").When("true")
			w.Spec.MatchConditions[1].Name = "a"
			return w
		}(), "Duplicate value"},
		"a qualified condition":        {named("example.com/is-db"), ""},
		"a condition with a bad name":  {named("-a"), "must be a qualified name"},
		"a condition with a long name": {named(strings.Repeat("a", 64)), "must be a qualified name"},
		"an empty expression":          {valid().When(""), "expression"},
		"an unknown operator":          {valid().PodsWhere("app", "Near", "db"), "must be In, NotIn, Exists or DoesNotExist"},
		"an operator without values":   {valid().NamespacesWhere("app", "In"), "must be given for the operators In and NotIn"},
		"an operator with values":      {valid().PodsWhere("app", "Exists", "db"), "must be given for the operators In and NotIn, and for no others"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := admin.Create(t.Context(), tc.from.Obj(), client.DryRunAll)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got error %v, want %q", err, tc.want)
			}
		})
	}

	// Reserved names may be allowed by the administrator, which the schema does not know
	// and a policy of the chart does.
	for _, name := range []string{"e2e-registration.k8s.io", "a.b.kubernetes.io", "k8s.io", "kubernetes.io"} {
		err := admin.Create(t.Context(), builder.EvictionInterceptor(name).Obj())
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `metadata.name must not be "`+name+`": k8s.io and kubernetes.io are reserved`) {
			t.Errorf("%s: got error %v, want a refusal of the name", name, err)
		}
	}
	for _, name := range []string{"notk8s.io", "a.mykubernetes.io", "k8s.io.example.com"} {
		if err := admin.Create(t.Context(), builder.EvictionInterceptor(name).PodsWhere("app", "In", "none").Obj(), client.DryRunAll); err != nil {
			t.Errorf("%s is refused: %v", name, err)
		}
	}
}
