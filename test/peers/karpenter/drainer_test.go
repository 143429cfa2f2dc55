//go:build unix

package karpenter

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/drawbridge-dev/drawbridge/test/peers/situations"
)

// drainer is Karpenter in the situations in which every program is put. It empties the node of a
// NodeClaim that is deleted.
type drainer struct{}

func (drainer) Place(t *testing.T) situations.Place {
	p := newPool(t, "")
	return situations.Place{Namespace: p.name, Selector: map[string]string{poolLabel: p.name}}
}

func (drainer) Drain(t *testing.T, node string) {
	t.Helper()
	claim := claimOf(t, &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}})
	if err := admin.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
}

func (drainer) CallOff(t *testing.T, _ string) {
	t.Fatal("a NodeClaim that is deleted does not come back")
}

// Restart kills Karpenter, and starts it again.
func (drainer) Restart(t *testing.T, _ string) {
	t.Helper()
	if err := running.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := startProgram(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (drainer) Ended(ctx context.Context, node string) (bool, string) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(nodeClaim)
	if err := admin.List(ctx, list); err != nil {
		return false, err.Error()
	}
	for _, claim := range list.Items {
		if name, _, _ := unstructured.NestedString(claim.Object, "status", "nodeName"); name == node {
			return false, fmt.Sprintf("NodeClaim %s is there", claim.GetName())
		}
	}
	return true, "the NodeClaim is gone"
}

// Says are the events of the node that say why it takes so long.
func (drainer) Says(ctx context.Context, node string) ([]string, error) {
	list := &eventsv1.EventList{}
	err := admin.List(ctx, list)
	var says []string
	for _, event := range list.Items {
		if event.Regarding.Kind == "Node" && event.Regarding.Name == node && event.Type == corev1.EventTypeWarning {
			says = append(says, event.Reason+": "+event.Note)
		}
	}
	return says, err
}
