package events

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestWriteWaitsForTheEvent(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "drawbridge-system", Name: "drawbridge-0", UID: "u1"}
	clientset := fake.NewClientset()
	if err := Write(t.Context(), clientset.EventsV1(), now, pod, StoreRolledBack("pods", "120", "90")); err != nil {
		t.Fatal(err)
	}
	list, err := clientset.EventsV1().Events("drawbridge-system").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []eventsv1.Event{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "drawbridge-system", Name: "drawbridge-0.18ac5afe07968000"},
		EventTime:  metav1.NewMicroTime(now), ReportingController: "drawbridge", Regarding: *pod,
		Type: "Warning", Reason: "StoreRolledBack", Action: "Restart",
		Note: "The API server went back in time: the list of pods is at resource version 90, and 120 was seen before. Was etcd restored? " +
			"Drawbridge restarts to read everything again. Other controllers may need a restart, too.",
	}}
	if diff := cmp.Diff(want, list.Items, cmpopts.IgnoreFields(eventsv1.Event{}, "TypeMeta", "ReportingInstance", "ObjectMeta.ManagedFields")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
