//go:build unix

package native

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/evacuation/native/charge"
	"github.com/drawbridge-dev/drawbridge/test/e2e/native/upstream"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// nativeOurs is the responder that stands for all interceptors of ours.
const nativeOurs = v1alpha1.NativeResponder

// installed has the chart say that controllers of the cluster's own move Evictions, or that ours
// may.
func installed(t *testing.T, mode charge.Mode) *manager.Installation {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cluster.Patience)
	defer cancel()
	o := manager.InstallOptions{WebhookPort: inst.WebhookPort, Values: map[string]any{"native": map[string]any{"controllers": string(mode)}}}
	return cluster.Must(manager.Install(ctx, kube, o))(t)
}

// policies are those that put our responder into pods.
func policies(t *testing.T) (names []string) {
	t.Helper()
	var list admissionregistrationv1.MutatingAdmissionPolicyList
	if err := admin.List(context.WithoutCancel(t.Context()), &list); err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	return names
}

// named waits until the API server puts our responder into new pods like this one.
func named(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	waiting.Eventually(t, "the API server to put our responder into pods like "+pod.Name, func(ctx context.Context) error {
		tried := pod.DeepCopy()
		if err := admin.Create(ctx, tried, client.DryRunAll); err != nil {
			return err
		}
		if len(tried.Spec.EvictionResponders) != len(pod.Spec.EvictionResponders)+1 {
			return fmt.Errorf("it has %v", respondersOf(tried))
		}
		return nil
	})
}

// respondersOf are those that a pod names, with their priorities.
func respondersOf(pod *corev1.Pod) (names []string) {
	for _, r := range pod.Spec.EvictionResponders {
		names = append(names, fmt.Sprintf("%s=%d", r.Name, *r.Priority))
	}
	return names
}

// The cluster has controllers of its own, played by a stand-in: Drawbridge asks in the name of
// others, and answers for its interceptors.
func TestTheClusterHasControllers(t *testing.T) {
	startOver(t) // The stand-in would move on what other tests have left.
	theirs := installed(t, charge.Cluster)
	t.Cleanup(func() {
		startOver(t) // Else the next manager finds that somebody else writes, and lets go.
		installed(t, charge.Auto)
		if left := policies(t); len(left) > 0 {
			t.Errorf("where Drawbridge moves Evictions there are %v", left)
		}
	})
	stop := cluster.Must(upstream.Start(cluster.Must(kube.ConfigFor("upstream-controllers", "system:masters"))(t)))(t)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("the stand-in: %v", err)
		}
	})
	quick := manager.Options{Change: func(o *app.Options) {
		o.Native.Controllers = string(charge.Cluster)
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = 3*time.Second, 2*time.Second, 500*time.Millisecond
	}}
	m := theirs.ForTest(t, quick)
	mark := kube.RequestLog().Mark()
	named(t, builder.Pod(kube.Namespace(t), "probe").Interceptors(ours).Obj())

	t.Run("together", func(t *testing.T) {
		t.Run("everybody has one turn", theyMoveEvictions)
		t.Run("a registration selects", aRegistrationSelects)
		t.Run("withdrawn", theyCancel)
		t.Run("no interceptor is there in the turn", nobodyIsThere)
		t.Run("the surge", theSurge)
		t.Run("a pod from before its registration", aPodFromBefore)
		t.Run("a budget is in the way", aBudgetIsInTheWay)
	})
	t.Run("the manager is killed at every step", func(t *testing.T) {
		namespace, node := placed(t)
		first, third := in(namespace, migrate), in(namespace, ours)
		pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(first).Interceptors(third).Obj())
		calls(t, pod)
		for _, next := range []func(){
			func() { waitEviction(t, pod, "begun", turnOf(first)) },
			func() { completes(t, pod, first) },
			func() { intercepts(t, pod, third) },
		} {
			m.Kill()
			m = theirs.ForTest(t, quick)
			next()
		}
		gone(t, pod)
		e := waitEviction(t, pod, "evicted", isEvicted)
		if diff := cmp.Diff(fmt.Sprintf("pod-1-db-0: %s=Completed %s=Completed %s=Completed%s", first, nativeOurs, evictor, evicted), says(e)); diff != "" {
			t.Errorf("Eviction (-want +got):\n%s", diff)
		}
	})

	// What belongs to the controllers in charge.
	logged := cluster.Must(kube.RequestLog().Since(t.Context(), mark))(t)
	writes := logged.By(account()).Where(func(r cluster.Request) bool {
		return r.Group == lifecyclev1alpha1.GroupName && r.Writes() &&
			(r.Resource == "evictions" && (r.Subresource != "status" || r.Verb != "patch") || r.Resource == "evictionrequests" && r.Subresource != "")
	})
	if len(writes) > 0 {
		t.Errorf("Drawbridge has written what is not its own:\n%s", writes)
	}
	ownItems(t)
}

// startOver removes all that there is natively, and what is remembered of who moves it.
func startOver(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cluster.Patience)
	defer cancel()
	var requests lifecyclev1alpha1.EvictionRequestList
	var evictions lifecyclev1alpha1.EvictionList
	state := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: inst.Namespace, Name: inst.Release + "-native"}}
	objects := []client.Object{state}
	if err := errors.Join(admin.List(ctx, &requests), admin.List(ctx, &evictions)); err != nil {
		t.Fatal(err)
	}
	for i := range requests.Items { // First, or they would begin another Eviction.
		objects = append(objects, &requests.Items[i])
	}
	for i := range evictions.Items {
		objects = append(objects, &evictions.Items[i])
	}
	for _, object := range objects {
		if err := admin.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	}
}

// ownItems wants that Drawbridge owns nothing of any Eviction but what its responder says.
func ownItems(t *testing.T) {
	t.Helper()
	var list lifecyclev1alpha1.EvictionList
	if err := admin.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	known := []string{upstream.Manager, upstream.Evictor, nativeOurs}
	for i := range list.Items {
		e := &list.Items[i]
		if !slices.ContainsFunc(e.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == upstream.Manager && f.Subresource == "" }) {
			continue // It began in another test.
		}
		for _, f := range e.ManagedFields {
			if f.Subresource == "status" && f.Manager == charge.Manager {
				t.Errorf("%s/%s: %s has written %s; only %v may", e.Namespace, e.Name, f.Manager, f.FieldsV1, known)
			}
		}
	}
}

// theyMoveEvictions is for what may ask, and what may answer.
func theyMoveEvictions(t *testing.T) {
	for kind, build := range kinds {
		for how, ask := range asks {
			t.Run(how+" for a pod with "+kind, func(t *testing.T) {
				t.Parallel()
				namespace, node := placed(t)
				pod := createPod(t, build(builder.Pod(namespace, "db-0").Node(node), namespace).Obj())
				ask(t, pod)
				want := "pod-1-db-0:"
				if kind != "interceptors" {
					completes(t, pod, in(namespace, migrate))
					want += " " + in(namespace, migrate) + "=Completed"
				}
				if kind == "interceptors" && natively(how) {
					// Nobody but ours has a turn, so they do not wait for the cluster's controllers.
					waitEviction(t, pod, "in the hands of ours", turnOf(nativeOurs))
				}
				if kind != "native responders" {
					intercepts(t, pod, in(namespace, ours))
					want += " " + nativeOurs + "=Completed"
				}
				gone(t, pod)
				found, err := evictions(t.Context(), pod)
				if kind == "interceptors" && !natively(how) {
					if err != nil || len(found) != 0 {
						t.Errorf("nobody has asked natively, and no responder is native: %d Evictions, error %v", len(found), err)
					}
					return
				}
				if err != nil || len(found) != 1 {
					t.Errorf("%d Evictions, error %v", len(found), err)
				}
				if kind == "native responders" && how == "a native request" {
					noRequest(t, pod)
				}
				if diff := cmp.Diff(want+" "+evictor+"=Completed"+evicted, says(waitEviction(t, pod, "evicted", isEvicted))); diff != "" {
					t.Errorf("Eviction (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// aRegistrationSelects pods by their labels and their namespace; others are left as they are.
func aRegistrationSelects(t *testing.T) {
	t.Parallel()
	namespace, node := placed(t)
	elsewhere := kube.Namespace(t)
	registration := builder.EvictionInterceptor(in(namespace, ours)).InNamespace(namespace).Obj()
	registration.Spec.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	create(t, registration)
	t.Cleanup(func() { _ = admin.Delete(context.Background(), registration) })
	selected := func(namespace string) *builder.PodWrapper { return builder.Pod(namespace, "db-0").Label("app", "db") }
	named(t, selected(namespace).Obj())
	group := selected(namespace).Obj()
	group.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("g")}
	// charts/native_pods_test.go has all cases; here are those in which the API server has a say.
	for what, tc := range map[string]struct {
		pod  *corev1.Pod
		want []string
	}{
		"after another responder": {selected(namespace).Responders(migrate).Obj(), []string{migrate + "=10000", nativeOurs + "=1000"}},
		"names ours itself":       {selected(namespace).Responders(nativeOurs).Obj(), []string{nativeOurs + "=10000"}},
		"another namespace":       {selected(elsewhere).Obj(), nil},
		"of a group":              {group, nil},
		"of Drawbridge":           {selected(inst.Namespace).Interceptors(ours).Obj(), nil},
	} {
		tried := tc.pod.DeepCopy()
		if err := admin.Create(t.Context(), tried, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if diff := cmp.Diff(tc.want, respondersOf(tried)); diff != "" {
			t.Errorf("%s: responders (-want +got):\n%s", what, diff)
		}
	}
	pod := createPod(t, selected(namespace).Node(node).Obj())
	calls(t, pod)
	intercepts(t, pod, in(namespace, ours))
	gone(t, pod)
	again := createPod(t, selected(namespace).Node(node).Obj())
	wants(t, again)
	intercepts(t, again, in(namespace, ours))
	gone(t, again)
	waitEviction(t, again, "evicted", isEvicted)
}

// theyCancel: a wish is withdrawn in the turn of ours, and comes again.
func theyCancel(t *testing.T) {
	t.Parallel()
	namespace, node := placed(t)
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(in(namespace, migrate)).Interceptors(in(namespace, ours)).Obj())
	r := wants(t, pod)
	completes(t, pod, in(namespace, migrate))
	cluster.WaitRequest(t, admin, pod, "in the hands of ours", cluster.ActiveIs(in(namespace, ours)))
	withdraw(t, r)
	waitEviction(t, pod, "canceled", isCanceled)
	cluster.WaitRequest(t, admin, pod, "canceled", v1alpha1.IsFinished)
	lives(t, pod)
	joins(t, pod)
	waitEviction(t, pod, "begun again", func(e *lifecyclev1alpha1.Eviction) bool {
		return e.Name == "pod-2-db-0" && turnOf(in(namespace, migrate))(e)
	})
	leaves(t, pod)
	waitEviction(t, pod, "canceled again", isCanceled)
	cluster.WaitRequest(t, admin, pod, "canceled again", v1alpha1.IsFinished)
	lives(t, pod)
}

// nobodyIsThere: the selectors say yes, and the expression no. The turn ends at once.
func nobodyIsThere(t *testing.T) {
	t.Parallel()
	namespace, node := placed(t)
	registration := builder.EvictionInterceptor(in(namespace, ours)).InNamespace(namespace).Obj()
	registration.Spec.MatchConditions = []v1alpha1.MatchCondition{{Name: "no", Expression: "object.metadata.name == 'other'"}}
	create(t, registration)
	t.Cleanup(func() { _ = admin.Delete(context.Background(), registration) })
	plain := builder.Pod(namespace, "db-0").Node(node)
	named(t, plain.Obj())
	pod := createPod(t, plain.Obj())
	wants(t, pod)
	gone(t, pod)
	e := waitEviction(t, pod, "evicted", isEvicted)
	if diff := cmp.Diff(fmt.Sprintf("pod-1-db-0: %s=Completed %s=Completed%s", nativeOurs, evictor, evicted), says(e)); diff != "" {
		t.Errorf("Eviction (-want +got):\n%s", diff)
	}
	noRequest(t, pod)
}

// aPodFromBefore does not name our responder, so the Eviction has no turn for our interceptors. The
// evictor waits for them, and wishes nothing itself.
func aPodFromBefore(t *testing.T) {
	t.Parallel()
	namespace, node := placed(t)
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(in(namespace, migrate)).Obj())
	registration := builder.EvictionInterceptor(in(namespace, ours)).InNamespace(namespace).Obj()
	create(t, registration)
	t.Cleanup(func() { _ = admin.Delete(context.Background(), registration) })
	named(t, builder.Pod(namespace, "db-1").Obj()) // Drawbridge knows it, too, by then.
	wants(t, pod)
	completes(t, pod, in(namespace, migrate))
	er := cluster.WaitRequest(t, admin, pod, "in the hands of ours", cluster.ActiveIs(in(namespace, ours)))
	waitEviction(t, pod, "held up", func(e *lifecyclev1alpha1.Eviction) bool {
		return turnOf(evictor)(e) && slices.ContainsFunc(e.Status.Responders, func(r lifecyclev1alpha1.ResponderStatus) bool {
			return r.Message != nil && strings.Contains(*r.Message, "Eviction triggered evacuation")
		})
	})
	lives(t, pod)
	intercepts(t, pod, in(namespace, ours))
	gone(t, pod)
	waitEviction(t, pod, "evicted", isEvicted)
	if len(er.Spec.Requesters) != 1 || er.Spec.Requesters[0].Name != v1alpha1.NativeInterceptor {
		t.Errorf("requesters: %+v", er.Spec.Requesters)
	}
}

// aBudgetIsInTheWay of the cluster's evictor, whose calls must keep no wish alive.
func aBudgetIsInTheWay(t *testing.T) {
	t.Parallel()
	namespace, node := placed(t)
	create(t, builder.Budget(namespace, "db").Selects("app", "db").MinAvailable("1").Obj())
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Label("app", "db").Responders(in(namespace, migrate)).Interceptors(in(namespace, ours)).Obj())
	r := wants(t, pod)
	completes(t, pod, in(namespace, migrate))
	intercepts(t, pod, in(namespace, ours))
	// It goes on trying while we look away.
	waitEviction(t, pod, "refused twice, or more often", func(e *lifecyclev1alpha1.Eviction) bool {
		return slices.ContainsFunc(e.Status.Responders, func(r lifecyclev1alpha1.ResponderStatus) bool {
			return r.Message != nil && !strings.Contains(*r.Message, "(attempts=1)") && strings.Contains(*r.Message, "disruption budget")
		})
	})
	withdraw(t, r)
	waitEviction(t, pod, "canceled", isCanceled)
	cluster.WaitRequest(t, admin, pod, "canceled", v1alpha1.IsFinished)
	lives(t, pod)
	if n := len(wishes(t, pod)); n != 1 {
		t.Errorf("%d native requests, want the one that was withdrawn", n)
	}
}

// theSurge works in the turn of ours as ever: a replacement is there before the pod goes.
func theSurge(t *testing.T) {
	t.Parallel()
	namespace, _ := placed(t)
	create(t, builder.Deployment(namespace, "web").Replicas(1).Pods(func(p *builder.PodWrapper) { p.Label("drawbridge.dev/surge", "enabled") }).Obj())
	running := func(ctx context.Context) (*corev1.PodList, error) {
		list := &corev1.PodList{}
		return list, admin.List(ctx, list, client.InNamespace(namespace))
	}
	var pod *corev1.Pod
	waiting.Eventually(t, "the pod of the Deployment", func(ctx context.Context) error {
		list, err := running(ctx)
		if err != nil || len(list.Items) != 1 {
			return errors.Join(err, errors.New("not one pod"))
		}
		pod = &list.Items[0]
		return nil
	})
	pod = cluster.ReadyPod(t, admin, namespace, pod.Name)
	if diff := cmp.Diff([]string{nativeOurs + "=1000"}, respondersOf(pod)); diff != "" {
		t.Errorf("responders (-want +got):\n%s", diff)
	}
	wants(t, pod)
	gone(t, pod)
	list, err := running(t.Context())
	if err != nil || len(list.Items) != 1 || !cluster.IsReady(&list.Items[0]) {
		t.Errorf("want a replacement that is ready, got %v, error %v", list, err)
	}
	waitEviction(t, pod, "evicted", isEvicted)
}
