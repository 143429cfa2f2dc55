package cluster_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

const (
	responder = "acme.example.com/migrate"
	deadline  = 20 * time.Minute // As kube-apiserver has it.
)

// oneAndTheEvictor is the status of an Eviction whose first responder is in this state.
func oneAndTheEvictor(state, next lifecyclev1alpha1.ResponderStateType) lifecyclev1alpha1.EvictionStatus {
	const evictor = lifecyclev1alpha1.EvictionResponderImperativeEviction
	return lifecyclev1alpha1.EvictionStatus{
		TargetResponders: []lifecyclev1alpha1.TargetResponder{
			{Name: responder, Priority: ptr.To[int32](2000), State: state},
			{Name: evictor, Priority: ptr.To[int32](100), State: next},
		},
		Responders: []lifecyclev1alpha1.ResponderStatus{{Name: responder}, {Name: evictor}},
	}
}

// createActive creates an Eviction and gives its first responder the turn.
func createActive(t *testing.T) *lifecyclev1alpha1.Eviction {
	t.Helper()
	client := shared.Client().LifecycleV1alpha1().Evictions(shared.Namespace(t))
	eviction := must(client.Create(t.Context(), &lifecyclev1alpha1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: "pod-1-web"},
		Spec: lifecyclev1alpha1.EvictionSpec{Target: lifecyclev1alpha1.EvictionTarget{
			Pod: &lifecyclev1alpha1.EvictionPodReference{Name: "web", UID: uuid.NewUUID()},
		}},
	}, metav1.CreateOptions{}))(t)
	eviction.Status = oneAndTheEvictor(lifecyclev1alpha1.ResponderStateActive, lifecyclev1alpha1.ResponderStateInactive)
	now := metav1.Now()
	eviction.Status.Responders[0].StartTime, eviction.Status.Responders[0].HeartbeatTime = &now, &now
	eviction.Status.Responders[0].ExpectedCompletionTime = ptr.To(metav1.NewTime(now.Add(time.Hour)))
	eviction.Status.Conditions = []metav1.Condition{{
		Type: string(lifecyclev1alpha1.EvictionConditionFailed), Status: metav1.ConditionFalse, Reason: "AwaitingEviction", LastTransitionTime: now,
	}}
	return must(client.UpdateStatus(t.Context(), eviction, metav1.UpdateOptions{}))(t)
}

func TestAgeLetsASilentResponderBeInterrupted(t *testing.T) {
	eviction := createActive(t)
	client := shared.Client().LifecycleV1alpha1().Evictions(eviction.Namespace)
	interrupt := func() error {
		t.Helper()
		now := must(client.Get(t.Context(), eviction.Name, metav1.GetOptions{}))(t)
		now.Status.TargetResponders = oneAndTheEvictor(lifecyclev1alpha1.ResponderStateInterrupted, lifecyclev1alpha1.ResponderStateActive).TargetResponders
		now.Status.Responders[1].StartTime = ptr.To(metav1.Now())
		_, err := client.UpdateStatus(t.Context(), now, metav1.UpdateOptions{})
		return err
	}
	if err := interrupt(); !apierrors.IsInvalid(err) {
		t.Errorf("kube-apiserver lets nobody be interrupted at once, got: %v", err)
	}
	if err := shared.Age(t.Context(), eviction, deadline-time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := interrupt(); !apierrors.IsInvalid(err) {
		t.Errorf("nor a minute early, got: %v", err)
	}
	if err := shared.Age(t.Context(), eviction, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := interrupt(); err != nil {
		t.Errorf("after 20 minutes it does, got: %v", err)
	}
}

func TestAgeMovesAllTimesAndNothingElse(t *testing.T) {
	eviction := createActive(t)
	client := shared.Client().LifecycleV1alpha1().Evictions(eviction.Namespace)
	watch := must(client.Watch(t.Context(), metav1.SingleObject(eviction.ObjectMeta)))(t)
	defer watch.Stop()
	if err := shared.Age(t.Context(), eviction, deadline); err != nil {
		t.Fatal(err)
	}
	want := eviction.DeepCopy()
	earlier := func(t *metav1.Time) { t.Time = t.Add(-deadline) }
	earlier(&want.CreationTimestamp)
	for i := range want.ManagedFields {
		earlier(want.ManagedFields[i].Time)
	}
	earlier(&want.Status.Conditions[0].LastTransitionTime)
	earlier(want.Status.Responders[0].StartTime)
	earlier(want.Status.Responders[0].HeartbeatTime)
	earlier(want.Status.Responders[0].ExpectedCompletionTime)
	version := cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion")
	if diff := cmp.Diff(want, must(client.Get(t.Context(), eviction.Name, metav1.GetOptions{}))(t), version); diff != "" {
		t.Errorf("the aged Eviction (-want +got):\n%s", diff)
	}
	select {
	case event := <-watch.ResultChan():
		if diff := cmp.Diff(want, event.Object, version); diff != "" {
			t.Errorf("what a watcher sees (-want +got):\n%s", diff)
		}
	case <-time.After(cluster.Patience):
		t.Error("who watches sees no change")
	}
}

func TestAgeRefusesAnother(t *testing.T) {
	eviction := createActive(t)
	for name, change := range map[string]func(*lifecyclev1alpha1.Eviction){
		"one that is not there":              func(e *lifecyclev1alpha1.Eviction) { e.Name = "pod-2-web" },
		"an earlier one under the same name": func(e *lifecyclev1alpha1.Eviction) { e.UID = uuid.NewUUID() },
	} {
		t.Run(name, func(t *testing.T) {
			other := eviction.DeepCopy()
			change(other)
			if err := shared.Age(t.Context(), other, deadline); err == nil {
				t.Error("no error")
			}
		})
	}
}

// Somebody else may have its turn in a newer version.
func TestAgeVersionLeavesOtherVersionsAlone(t *testing.T) {
	eviction := createActive(t)
	if err := shared.AgeVersion(t.Context(), eviction, deadline); err != nil {
		t.Fatal(err)
	}
	if err := shared.AgeVersion(t.Context(), eviction, deadline); err == nil {
		t.Error("no error although the Eviction has another version by now")
	}
	client := shared.Client().LifecycleV1alpha1().Evictions(eviction.Namespace)
	got := must(client.Get(t.Context(), eviction.Name, metav1.GetOptions{}))(t)
	want := metav1.NewTime(eviction.CreationTimestamp.Add(-deadline))
	if diff := cmp.Diff(want, got.CreationTimestamp); diff != "" {
		t.Errorf("when it was created (-want +got):\n%s", diff)
	}
}
