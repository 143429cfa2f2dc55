package preemption

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

var t0 = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// named returns a budget that allows so many.
func named(name string, allowed int32) *Budget {
	return &Budget{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1", Allowed: allowed}
}

// victim is one that is Ready and has a value of 1000.
func victim(name string, budgets ...*Budget) Victim {
	value := int32(1000)
	return Victim{Pod: Pod{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)}, Value: &value, Ready: true, Budgets: budgets}
}

func with(v Victim, change func(*Victim)) Victim {
	change(&v)
	return v
}

func withoutValue(v *Victim) { v.Value = nil }

// preemptor has a priority.
func preemptor(priority int32) Preemptor {
	return Preemptor{Pod: Pod{Namespace: "batch", Name: "big", UID: "uid-big"}, Priority: priority}
}

// fill puts objects into a view as its informers would.
func fill(v *View, objects ...client.Object) {
	for _, object := range objects {
		switch o := object.(type) {
		case *corev1.Pod:
			v.setPod(o)
		case *policyv1.PodDisruptionBudget:
			v.setBudget(o)
		case *schedulingv1.PriorityClass:
			v.setClass(o)
		default:
			panic(fmt.Sprintf("a view does not know %T", o))
		}
	}
}

func priorityClass(name, guard string) *schedulingv1.PriorityClass {
	pc := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if guard != "" {
		pc.Annotations = map[string]string{v1alpha1.AllowDisruptionAnnotation: guard}
	}
	return pc
}

// pod is Ready, has the label app=web and a UID of its name.
func pod(name string) *builder.PodWrapper {
	return builder.Pod("shop", name).UID(types.UID("uid-"+name)).Label("app", "web").Node("node-1").Ready()
}

func web(allowed int32, version string) *policyv1.PodDisruptionBudget {
	pdb := builder.Budget("shop", "web").UID("uid-web").Selects("app", "web").Allows(allowed).Obj()
	pdb.ResourceVersion = version
	return pdb
}

func newTestView(stamped bool, objects ...client.Object) (*View, *testingclock.FakeClock) {
	fake := testingclock.NewFakeClock(t0)
	v := NewView(stamped, fake, logr.Discard())
	fill(v, objects...)
	return v, fake
}

// event as it was recorded.
type event struct {
	About, Related       types.UID
	Type, Reason, Action string
	Note                 string
}

// recorder keeps events.
type recorder struct{ events []event }

func (r *recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	e := event{About: uidOfReference(regarding), Related: uidOfReference(related), Type: kind, Reason: reason, Action: action, Note: fmt.Sprintf(note, args...)}
	r.events = append(r.events, e)
}

func uidOfReference(object runtime.Object) types.UID {
	if reference, ok := object.(*corev1.ObjectReference); ok && reference != nil {
		return reference.UID
	}
	return ""
}

// reader answers GETs from a map and counts them.
type reader struct {
	client.Reader
	t       testing.TB
	objects map[string]client.Object
	calls   []string
	err     error
}

func (r *reader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	name := fmt.Sprintf("%T %s", into, key.Name)
	r.calls = append(r.calls, name)
	if r.err != nil {
		return r.err
	}
	object, ok := r.objects[name]
	if !ok {
		return notFound(key.Name)
	}
	switch into := into.(type) {
	case *corev1.Pod:
		object.(*corev1.Pod).DeepCopyInto(into)
	case *policyv1.PodDisruptionBudget:
		object.(*policyv1.PodDisruptionBudget).DeepCopyInto(into)
	}
	return nil
}
