package maintenance_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// one is a world with one node and a pod on it that has an interceptor.
func one(t *testing.T) (*world, *corev1.Node, *corev1.Pod) {
	t.Helper()
	w := newWorld(t, time.Minute)
	node := builder.Node("n1").UID("uid-n1").Label("rack", "r7").Obj()
	pod := builder.Pod("shop", "db").UID("uid-db").Node("n1").Interceptors("db.example.com").Obj()
	w.put(node)
	w.put(pod)
	return w, node, pod
}

// drainOf is a maintenance of the node of one.
func drainOf(name string) *v1alpha1.NodeMaintenance {
	m := builder.NodeMaintenance(name).UID(types.UID("uid-"+name)).Term("rack", corev1.NodeSelectorOpIn, "r7").Drain().Reason("kernel").Obj()
	m.Generation = 1
	return m
}

// plan is the maintenance as it is stored; nil if it is gone.
func (w *world) plan(name string) *v1alpha1.NodeMaintenance {
	m, _ := w.plans[types.NamespacedName{Name: name}].(*v1alpha1.NodeMaintenance)
	return m
}

// change stores another generation of a maintenance.
func (w *world) change(name string, how func(*v1alpha1.NodeMaintenance)) {
	m := w.plan(name).DeepCopy()
	m.Generation++
	how(m)
	w.put(m)
}

// annotations are those of the node that are ours, and whether it takes pods.
func (w *world) annotations(name string) map[string]string {
	node := w.nodes[types.NamespacedName{Name: name}].(*corev1.Node)
	ours := map[string]string{}
	for _, key := range []string{v1alpha1.MaintenancesAnnotation, v1alpha1.CordonAnnotation, v1alpha1.MaintenancePhaseAnnotation} {
		if value, ok := node.Annotations[key]; ok {
			ours[strings.TrimPrefix(key, v1alpha1.GroupName+"/")] = value
		}
	}
	if node.Spec.Unschedulable {
		ours["unschedulable"] = "true"
	}
	return ours
}

// requesters are those of the pod's request.
func (w *world) requesters(pod *corev1.Pod) []string {
	er := w.requests[v1alpha1.RequestKey(pod)]
	if er == nil {
		return nil
	}
	var names []string
	for _, r := range er.Spec.Requesters {
		names = append(names, r.Name)
	}
	return names
}

// conditions are the types of the pod's conditions, with their reasons.
func (w *world) conditions(pod *corev1.Pod) []string {
	now := w.pods[client.ObjectKeyFromObject(pod)].(*corev1.Pod)
	var found []string
	for _, c := range now.Status.Conditions {
		found = append(found, string(c.Type)+"="+string(c.Status)+" "+c.Reason)
	}
	slices.Sort(found)
	return found
}

// told are the reasons of the events since the last call.
func (w *world) told() []string {
	var reasons []string
	for {
		select {
		case said := <-w.events.Events:
			reasons = append(reasons, strings.Fields(said)[1])
		default:
			return reasons
		}
	}
}
