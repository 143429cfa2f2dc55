package controllers

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestAHandlerCallsTheFunctionOfItsEvent(t *testing.T) {
	var seen []string
	see := func(what, pod string) { seen = append(seen, what+" "+pod) }
	all := Handler{
		CreateFunc: func(_ context.Context, ev event.CreateEvent, _ Queue) { see("create", ev.Object.GetName()) },
		UpdateFunc: func(_ context.Context, ev event.UpdateEvent, _ Queue) {
			see("update", ev.ObjectOld.GetName()+" "+ev.ObjectNew.GetName())
		},
		DeleteFunc: func(_ context.Context, ev event.DeleteEvent, _ Queue) { see("delete", ev.Object.GetName()) },
	}
	pod := func(name string) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	for _, handler := range []Handler{all, {}} {
		handler.Create(t.Context(), event.CreateEvent{Object: pod("a")}, nil)
		handler.Update(t.Context(), event.UpdateEvent{ObjectOld: pod("a"), ObjectNew: pod("b")}, nil)
		handler.Delete(t.Context(), event.DeleteEvent{Object: pod("b")}, nil)
		handler.Generic(t.Context(), event.GenericEvent{Object: pod("c")}, nil)
	}
	if diff := cmp.Diff([]string{"create a", "update a b", "delete b"}, seen); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
