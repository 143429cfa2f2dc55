//go:build unix

package native

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// waitEvent waits for an event about a pod, and returns its note.
func waitEvent(t *testing.T, about client.Object, reason string) (note string) {
	t.Helper()
	waiting.Eventually(t, "event "+reason+" of "+about.GetName(), func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := admin.List(ctx, &list, client.InNamespace(about.GetNamespace())); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.UID == about.GetUID() && e.Reason == reason {
				note = e.Note
				return nil
			}
		}
		return fmt.Errorf("%d events, none of them", len(list.Items))
	})
	return note
}

// A responder that is silent for 20 minutes is passed over, and the eviction goes on.
func TestASilentResponderIsPassedOver(t *testing.T) {
	// The API server goes by its own clock, so the manager's must stay with it.
	inst.ForTest(t, manager.Options{Change: func(o *app.Options) { o.Policy.StartupGrace = time.Second }})
	namespace, node := placed(t)
	name := in(namespace, migrate)
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(name).Obj())
	wants(t, pod)
	e := waitEviction(t, pod, "in the hands of its responder", turnOf(name))
	ctx, cancel := context.WithTimeout(t.Context(), cluster.Patience)
	defer cancel()
	if err := kube.Age(ctx, e, 20*time.Minute); err != nil {
		t.Fatal(err)
	}
	gone(t, pod)
	e = waitEviction(t, pod, "evicted", isEvicted)
	if diff := cmp.Diff("pod-1-db-0: "+name+"=Interrupted "+evictor+"=Completed"+evicted, says(e)); diff != "" {
		t.Errorf("Eviction (-want +got):\n%s", diff)
	}
	want := "Responder " + name + " has not reported for 20 minutes, so the eviction continues without it. It may have ended its work or not: look at its program."
	if diff := cmp.Diff(want, waitEvent(t, pod, events.ReasonNativeResponderPassedOver)); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}

// A pod that names ten responders has no place for ours in its Eviction, so ours run first.
func TestTenResponders(t *testing.T) {
	shareManager(t)
	for how, ask := range map[string]func(*testing.T, *corev1.Pod){
		"asked for natively":  func(t *testing.T, pod *corev1.Pod) { wants(t, pod) },
		"asked for by a call": func(t *testing.T, pod *corev1.Pod) { calls(t, pod) },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			namespace, node := placed(t)
			var names []string
			for i := range v1alpha1.MaxNativeResponders {
				names = append(names, in(namespace, fmt.Sprintf("r%d.example.com/work", i)))
			}
			pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(names...).Interceptors(in(namespace, ours)).Obj())
			ask(t, pod)
			cluster.WaitRequest(t, admin, pod, "in the hands of ours", func(er *v1alpha1.EvictionRequest) bool {
				return slices.Contains(er.Status.ActiveInterceptors, in(namespace, ours))
			})
			if found, err := evictions(t.Context(), pod); err != nil || slices.ContainsFunc(found, func(e lifecyclev1alpha1.Eviction) bool { return len(e.Status.TargetResponders) > 0 }) {
				t.Errorf("the Eviction has begun, or error %v", err)
			}
			if how == "asked for natively" {
				want := "Pod db-0 names 10 responders, so its Eviction has no place for Drawbridge's interceptors: they run first, and the responders after them."
				if diff := cmp.Diff(want, waitEvent(t, pod, events.ReasonInterceptorsBeforeNative)); diff != "" {
					t.Errorf("event (-want +got):\n%s", diff)
				}
			}
			intercepts(t, pod, in(namespace, ours))
			for _, name := range names {
				completes(t, pod, name)
			}
			gone(t, pod)
			e := waitEviction(t, pod, "evicted", isEvicted)
			if len(e.Status.TargetResponders) != 11 {
				t.Errorf("%s", says(e))
			}
		})
	}
}

// A deadline ends the time of our interceptors. Native responders know none, so they keep their
// turns, in whatever order the two run.
func TestADeadlineLeavesNativeRespondersTheirTurns(t *testing.T) {
	shareManager(t)
	for order, responders := range map[string]int{"responders first": 1, "responders last": v1alpha1.MaxNativeResponders} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			namespace, node := placed(t)
			var names []string
			for i := range responders {
				names = append(names, in(namespace, fmt.Sprintf("r%d.example.com/work", i)))
			}
			pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).GracePeriod(0).Responders(names...).Interceptors(in(namespace, ours)).Obj())
			hurried := requesterOf()
			hurried.Deadline = time.Now().Add(8 * time.Second) // 5 of them are the margin.
			if _, err := hurried.Join(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			waitEviction(t, pod, "in the hands of its responder", turnOf(names[0]))
			cluster.WaitRequest(t, admin, pod, "at the native responders a second after its deadline", func(er *v1alpha1.EvictionRequest) bool {
				return er.Status.Deadline != nil && time.Since(er.Status.Deadline.Time) > time.Second && slices.Contains(er.Status.ActiveInterceptors, v1alpha1.NativeInterceptor)
			})
			lives(t, pod)
			for _, name := range names {
				completes(t, pod, name)
			}
			gone(t, pod)
			er := cluster.WaitRequest(t, admin, pod, "evicted", v1alpha1.IsFinished)
			if v1alpha1.ReportOf(er, v1alpha1.NativeInterceptor).CompletionTime == nil {
				t.Errorf("%s has not completed: %+v", v1alpha1.NativeInterceptor, er.Status)
			}
			if report := v1alpha1.ReportOf(er, in(namespace, ours)); report.CompletionTime != nil || !meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionCutOff) {
				t.Errorf("%s was not cut off: %+v", report.Name, er.Status)
			}
		})
	}
}

// Many requesters, at the same second, and a target that is replaced under its name.
func TestManyRequestersAndASuccessor(t *testing.T) {
	shareManager(t)
	namespace, node := placed(t)
	name := in(namespace, migrate)
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(name).Obj())
	for i := range 105 {
		create(t, wish(pod, fmt.Sprintf("wish-%d", i), fmt.Sprintf("drain.example.com/r-%d", i)))
	}
	waitEviction(t, pod, "wanted by a hundred", func(e *lifecyclev1alpha1.Eviction) bool {
		return len(e.Status.Requesters) == 100 && len(e.OwnerReferences) == 105 && turnOf(name)(e)
	})
	completes(t, pod, name)
	gone(t, pod)
	first := waitEviction(t, pod, "evicted", isEvicted)
	successor := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(name).Obj())
	lives(t, successor)
	r := wish(successor, "next", "drain.example.com/me")
	create(t, r)
	e := waitEviction(t, successor, "begun", turnOf(name))
	if first.Name != "pod-1-db-0" || e.Name != "pod-2-db-0" {
		t.Errorf("the names are %s and %s", first.Name, e.Name)
	}
	withdraw(t, r)
	waitEviction(t, successor, "canceled", isCanceled)
	lives(t, successor)
}

// What must not be evicted, or is not there, and what others write.
func TestBadInput(t *testing.T) {
	shareManager(t)
	namespace, node := placed(t)
	name := in(namespace, migrate)
	absent := builder.Pod(namespace, "nobody").UID("11111111-2222-3333-4444-555555555555").Obj()
	waitWish(t, wants(t, absent), invalid)

	// The scheduler waits for its group, so it does not run.
	grouped := builder.Pod(namespace, "trainer").Change(func(p *corev1.Pod) {
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("training")}
	}).Obj()
	create(t, grouped)
	said := waitWish(t, wants(t, grouped), invalid)
	if diff := cmp.Diff("Target Pod trainer is part of a Workload/PodGroup. Eviction of such pods is currently not supported.", messageOf(said.Status.Conditions)); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	lives(t, grouped)

	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "agent"}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}
	set.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: set.Spec.Selector.MatchLabels}, Spec: builder.Pod(namespace, "agent").Obj().Spec}
	set.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	create(t, set)
	of := &corev1.Pod{}
	waiting.Eventually(t, "the pod of the DaemonSet", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := admin.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels(set.Spec.Selector.MatchLabels)); err != nil {
			return err
		}
		if len(pods.Items) != 1 {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		*of = pods.Items[0]
		return nil
	})
	wants(t, of)
	e := waitEviction(t, of, "explained", func(e *lifecyclev1alpha1.Eviction) bool {
		return turnOf(evictor)(e) && e.Status.Responders[0].Message != nil
	})
	if diff := cmp.Diff("API-initiated eviction of DaemonSet and mirror pods is not supported", *e.Status.Responders[0].Message); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	lives(t, of)

	renamed := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(name).Obj())
	other := wish(renamed, "other", "drain.example.com/me")
	other.Spec.Target.Pod.Name = "db-9"
	create(t, other)
	waitWish(t, other, invalid)

	byHand := &lifecyclev1alpha1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "by-hand"},
		Spec:       lifecyclev1alpha1.EvictionSpec{Target: lifecyclev1alpha1.EvictionTarget{Pod: &lifecyclev1alpha1.EvictionPodReference{Name: renamed.Name, UID: renamed.UID}}},
	}
	create(t, byHand)
	waitEviction(t, renamed, "canceled, as nobody wants it", isCanceled)
	lives(t, renamed)
}

// A person writes garbage into the status of an Eviction. What only the controller says comes back,
// nobody loses a turn, and a lie about the end counts as a failure, which is tried again.
func TestGarbageInTheStatus(t *testing.T) {
	shareManager(t)
	namespace, node := placed(t)
	name := in(namespace, migrate)
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(name).Obj())
	wants(t, pod)
	e := waitEviction(t, pod, "in the hands of its responder", turnOf(name))
	started := e.Status.Responders[0].StartTime
	edit := func(change func(*lifecyclev1alpha1.Eviction)) {
		t.Helper()
		waiting.Eventually(t, "a person to edit the status", func(ctx context.Context) error {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(e), e); err != nil {
				return err
			}
			change(e)
			return admin.Status().Update(ctx, e, client.FieldOwner("kubectl-edit"))
		})
	}
	edit(func(e *lifecyclev1alpha1.Eviction) {
		e.Status.Requesters = []lifecyclev1alpha1.Requester{{Name: "mallory.example.com/x", Intent: lifecyclev1alpha1.RequesterIntentWithdrawn}}
		e.Status.Conditions = []metav1.Condition{{Type: "example.com/Garbage", Status: metav1.ConditionTrue, Reason: "Garbage", LastTransitionTime: metav1.Now()}}
		slices.Reverse(e.Status.TargetResponders)
	})
	e = waitEviction(t, pod, "as it was", func(e *lifecyclev1alpha1.Eviction) bool {
		return turnOf(name)(e) && slices.ContainsFunc(e.Status.Requesters, func(r lifecyclev1alpha1.Requester) bool {
			return r.Name == "drain.example.com/me" && r.Intent == lifecyclev1alpha1.RequesterIntentEviction
		}) && len(e.Status.Conditions) == 3
	})
	if !e.Status.Responders[0].StartTime.Equal(started) {
		t.Errorf("the turn began at %s, and begins at %s now", started, e.Status.Responders[0].StartTime)
	}
	edit(func(e *lifecyclev1alpha1.Eviction) {
		for i := range e.Status.TargetResponders {
			if e.Status.TargetResponders[i].Name == name {
				e.Status.TargetResponders[i].State = lifecyclev1alpha1.ResponderStateCanceled
			}
		}
		e.Status.Conditions = []metav1.Condition{{
			Type: string(lifecyclev1alpha1.EvictionConditionTargetEvicted), Status: metav1.ConditionTrue,
			Reason: string(lifecyclev1alpha1.EvictionConditionReasonPodDeleted), LastTransitionTime: metav1.Now(),
		}}
	})
	waitEviction(t, pod, "tried again", func(e *lifecyclev1alpha1.Eviction) bool { return e.Name == "pod-2-db-0" && turnOf(name)(e) })
	lives(t, pod)
	completes(t, pod, name)
	gone(t, pod)
	waitEviction(t, pod, "evicted", isEvicted)
}
