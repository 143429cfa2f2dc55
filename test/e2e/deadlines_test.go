//go:build unix

package e2e

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// What a requester's deadline leaves the interceptors of a pod with a grace period of a
// minute, at the default margin.
const reserved = time.Minute + 5*time.Second

// hurried is a pod with two interceptors that nobody runs, behind a budget that allows
// nothing, and a requester that can have a deadline.
func hurried(t *testing.T) (*corev1.Pod, *requester.Requester) {
	t.Helper()
	namespace, node := placed(t)
	create(t, builder.Budget(namespace, "none").Selects(builder.AppLabel, "db").MaxUnavailable("0").Obj())
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Label(builder.AppLabel, "db").GracePeriod(60).Interceptors("a.example.com", "b.example.com").Obj())
	return pod, &requester.Requester{
		Name: "spot.example.com", Client: must(client.NewWithWatch(kube.Config(), client.Options{Scheme: scheme}))(t),
	}
}

// hurry asks with a deadline, and waits until the interceptors have theirs.
func hurry(t *testing.T, r *requester.Requester, pod *corev1.Pod, deadline time.Time) *v1alpha1.EvictionRequest {
	t.Helper()
	r.Deadline = deadline
	must(r.Join(t.Context(), pod))(t)
	want := metav1.NewTime(deadline.Add(-reserved))
	return waitRequest(t, pod, "in a hurry", func(er *v1alpha1.EvictionRequest) bool {
		return er.Status.Deadline.Equal(&want) && er.Status.DeadlineSource == "requester "+r.Name
	})
}

// A deadline may be moved. When it comes, the interceptors lose their turns, and the pod
// goes as soon as its budget lets it.
func TestADeadlineEndsTheTimeOfTheInterceptors(t *testing.T) {
	shareManager(t)
	pod, spot := hurried(t)
	soon := time.Now().Add(time.Hour).Truncate(time.Second)
	for _, deadline := range []time.Time{soon, soon.Add(time.Hour), soon.Add(-30 * time.Minute)} {
		if er := hurry(t, spot, pod, deadline); !activeIs("a.example.com")(er) {
			t.Fatalf("with a deadline at %s: %+v", deadline, er.Status)
		}
	}

	spot.Deadline = soon.Add(-2 * time.Hour)
	must(spot.Join(t.Context(), pod))(t)
	er := waitRequest(t, pod, "blocked by the budget", blocked)
	lives(t, pod)
	if diff := cmp.Diff([]string{"a.example.com", "b.example.com"}, er.Status.ProcessedInterceptors); diff != "" {
		t.Errorf("processed (-want +got):\n%s", diff)
	}
	wanted := "The deadline of requester spot.example.com leaves the interceptors until " + er.Status.Deadline.UTC().Format(time.RFC3339) +
		": a.example.com was not done, and b.example.com got no turn."
	saysAll(t, "the condition", meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCutOff).Message, wanted, "the clock of the requester may be wrong")
	saysAll(t, "the event", waitEvent(t, pod, events.ReasonDeadlineReached).Note, wanted)

	// From here on the deadline says why.
	r := *spot
	r.Deadline = time.Time{}
	must(r.Join(t.Context(), pod))(t)
	er = waitRequest(t, pod, "wanted without a deadline", func(er *v1alpha1.EvictionRequest) bool {
		return er.Spec.Requesters[0].Deadline == nil && er.Status.ObservedGeneration == er.Generation
	})
	if er.Status.Deadline == nil || !blocked(er) {
		t.Errorf("after the deadline was taken away: %+v", er.Status)
	}
	if err := admin.Delete(t.Context(), builder.Budget(pod.Namespace, "none").Obj()); err != nil {
		t.Fatal(err)
	}
	gone(t, pod)
}

// A deadline that is over when the request is made, as by a clock that is wrong, leaves the
// interceptors a moment, and so does a requester that does not wait at all.
func TestADeadlineThatIsOverLeavesAMoment(t *testing.T) {
	for name, change := range map[string]func(*requester.Requester){
		"over": func(r *requester.Requester) { r.Deadline = time.Now().Add(-time.Hour) },
		"hard": func(r *requester.Requester) { r.Type = v1alpha1.RequesterHard },
	} {
		t.Run(name, func(t *testing.T) {
			shareManager(t)
			pod, spot := hurried(t)
			change(spot)
			must(spot.Join(t.Context(), pod))(t)
			er := waitRequest(t, pod, "blocked by the budget", blocked)
			saysAll(t, "the condition", meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCutOff).Message, ": a.example.com was not done, and b.example.com got no turn.")
			if left := er.Status.Deadline.Sub(er.CreationTimestamp.Time); left < 9*time.Second || left > time.Minute {
				t.Errorf("the interceptors had %s, which is not about ten seconds", left)
			}
			if diff := cmp.Diff(v1alpha1.InterceptorStatus{Name: "b.example.com"}, v1alpha1.ReportOf(er, "b.example.com")); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

// No deadline breaks an EvictionBudget, which is an interceptor like the others.
func TestADeadlineBreaksNoEvictionBudget(t *testing.T) {
	shareManager(t)
	namespace, node := placed(t)
	pods := createSet(t, namespace, "ring", 1, node, intercepted("a.example.com", "b.example.com"))
	budget := createEvictionBudget(t, builder.EvictionBudget(namespace, "ring", builder.AppLabel, "ring").MaxUnavailable("0"), 1)
	spot := &requester.Requester{
		Name: "spot.example.com", Deadline: time.Now().Add(-time.Hour), Client: must(client.NewWithWatch(kube.Config(), client.Options{Scheme: scheme}))(t),
	}
	must(spot.Join(t.Context(), &pods[0]))(t)
	waitRequest(t, &pods[0], "held by the budget", func(er *v1alpha1.EvictionRequest) bool {
		return activeIs(v1alpha1.BudgetInterceptor)(er) && v1alpha1.ReportOf(er, v1alpha1.BudgetInterceptor).HeartbeatTime != nil
	})
	lives(t, &pods[0])
	if err := admin.Delete(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	gone(t, &pods[0])
	er := waitRequest(t, &pods[0], "Evicted", isTrue(v1alpha1.ConditionEvicted))
	if v1alpha1.ReportOf(er, v1alpha1.BudgetInterceptor).CompletionTime == nil {
		t.Errorf("the budget did not let it go: %+v", er.Status)
	}
	saysAll(t, "the condition", meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCutOff).Message, "a.example.com was not done, and b.example.com got no turn.")
}

// A deadline goes with its requester.
func TestAWithdrawnDeadlineCutsNobodyOff(t *testing.T) {
	shareManager(t)
	pod, spot := hurried(t)
	patient := &requester.Requester{Name: "patient.example.com", Client: spot.Client}
	must(patient.Join(t.Context(), pod))(t)
	hurry(t, spot, pod, time.Now().Add(time.Hour).Truncate(time.Second))
	if err := spot.Withdraw(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	er := waitRequest(t, pod, "in no hurry", func(er *v1alpha1.EvictionRequest) bool {
		return er.Status.Deadline == nil && er.Status.DeadlineSource == ""
	})
	if !activeIs("a.example.com")(er) || !wantedBy(patient.Name)(er) {
		t.Errorf("without the deadline: %+v, requesters %v", er.Status, requesters(er))
	}
	lives(t, pod)
}
