package native

import (
	"fmt"
	"slices"
	"testing"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/evacuation/process"
)

// began is when the worlds of the tests begin.
var began = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

const podUID = types.UID("11111111-2222-3333-4444-555555555555")

const (
	first      = "acme.example.com/first"
	second     = "acme.example.com/second"
	theEvictor = lifecyclev1alpha1.EvictionResponderImperativeEviction
)

// world is one pod with its objects in memory. It applies decisions as the API server would.
type world struct {
	*testing.T
	Situation
	// writes are how many there were.
	writes int
	serial int
}

// newWorld is a pod with these responders, each with the priority 10000 less its place.
func newWorld(t *testing.T, responders ...string) *world {
	t.Helper()
	w := &world{T: t, Situation: Situation{
		Now: began, Namespace: "shop", UID: podUID, PodName: "web", InCharge: true, Priority: 1000,
		Target: process.Target{Presence: process.Present}, Policy: DefaultPolicy(),
	}}
	for i, name := range responders {
		w.Responders = append(w.Responders, lifecyclev1alpha1.TargetResponder{Name: name, Priority: new(int32(10000 - i))})
	}
	return w
}

func (w *world) meta(name string) metav1.ObjectMeta {
	w.serial++
	return metav1.ObjectMeta{
		Namespace: w.Namespace, Name: name, UID: types.UID(fmt.Sprintf("uid-%d", w.serial)), Generation: 1,
		ResourceVersion: fmt.Sprint(w.serial), CreationTimestamp: metav1.NewTime(w.Now.Truncate(time.Second)),
	}
}

// wants creates a native request.
func (w *world) wants(name, requester string) *lifecyclev1alpha1.EvictionRequest {
	r := &lifecyclev1alpha1.EvictionRequest{ObjectMeta: w.meta(name), Spec: lifecyclev1alpha1.EvictionRequestSpec{
		Target:    lifecyclev1alpha1.EvictionRequestTarget{Pod: &lifecyclev1alpha1.EvictionRequestPodReference{Name: w.PodName, UID: w.UID}},
		Requester: requester, Intent: lifecyclev1alpha1.EvictionRequestIntentEviction,
	}}
	w.Requests = append(w.Requests, r)
	return r
}

// byHand creates an Eviction that is not ours.
func (w *world) byHand(name string) *lifecyclev1alpha1.Eviction {
	e := &lifecyclev1alpha1.Eviction{ObjectMeta: w.meta(name), Spec: lifecyclev1alpha1.EvictionSpec{
		Target: lifecyclev1alpha1.EvictionTarget{Pod: &lifecyclev1alpha1.EvictionPodReference{Name: w.PodName, UID: w.UID}},
	}}
	w.Evictions = append(w.Evictions, e)
	return e
}

// step decides and applies once, and returns the decision.
func (w *world) step() Decision {
	w.Helper()
	ended := w.targetEnded()
	if ended && w.Target.EndSeenAt.IsZero() {
		w.Target.EndSeenAt = w.Now
	}
	d := Decide(w.Situation)
	if d.Create != nil {
		e := d.Create
		created := w.meta(e.Name)
		created.Labels, created.OwnerReferences = e.Labels, e.OwnerReferences
		e.ObjectMeta = created
		w.Evictions = append(w.Evictions, e)
		w.writes++
		return d
	}
	for _, after := range d.Wishes {
		w.writes++
		if after.ResourceVersion == "" {
			created := w.meta(after.Name)
			created.OwnerReferences = after.OwnerReferences
			after.ObjectMeta = created
			w.Requests = append(w.Requests, after)
			continue
		}
		w.replaceRequest(after)
	}
	for _, after := range d.Metadata {
		w.writes++
		for i, e := range w.Evictions {
			if e.UID == after.UID {
				next := e.DeepCopy()
				next.Labels, next.OwnerReferences = after.Labels, after.OwnerReferences
				w.Evictions[i] = next
			}
		}
	}
	for _, after := range d.Statuses {
		w.writes++
		for i, e := range w.Evictions {
			if e.UID == after.UID {
				next := e.DeepCopy()
				next.Status = after.Status
				w.Evictions[i] = next
			}
		}
	}
	for _, after := range d.RequestStatuses {
		w.writes++
		w.replaceRequest(after)
	}
	w.Evictions = slices.DeleteFunc(w.Evictions, func(e *lifecyclev1alpha1.Eviction) bool {
		return slices.ContainsFunc(d.Prune, func(p *lifecyclev1alpha1.Eviction) bool { return p.UID == e.UID })
	})
	return d
}

func (w *world) replaceRequest(after *lifecyclev1alpha1.EvictionRequest) {
	for i, r := range w.Requests {
		if r.UID == after.UID {
			w.Requests[i] = after
		}
	}
}

// settle steps until nothing is written any more.
func (w *world) settle() {
	w.Helper()
	for range 20 {
		before := w.writes
		if w.step(); w.writes == before {
			return
		}
	}
	w.Fatal("it writes for ever")
}

// reports changes the item of a responder, as its program does.
func (w *world) reports(eviction int, name string, change func(*lifecyclev1alpha1.ResponderStatus)) {
	w.Helper()
	e := w.Evictions[eviction].DeepCopy()
	for i := range e.Status.Responders {
		if e.Status.Responders[i].Name == name {
			change(&e.Status.Responders[i])
		}
	}
	w.Evictions[eviction] = e
}

func (w *world) completes(eviction int, name string) {
	w.Helper()
	w.reports(eviction, name, func(r *lifecyclev1alpha1.ResponderStatus) { r.CompletionTime = new(metav1.NewTime(w.Now)) })
}

func (w *world) after(d time.Duration) { w.Now = w.Now.Add(d) }

// says is what the status of an Eviction says in one line.
func (w *world) says(eviction int) string {
	e := w.Evictions[eviction]
	line := e.Name + ":"
	plan := slices.Clone(e.Status.TargetResponders)
	slices.SortFunc(plan, compareResponders)
	for _, r := range plan {
		line += fmt.Sprintf(" %s=%s", r.Name, r.State)
	}
	return line + endOf(e.Status.Conditions)
}

// endOf is what the conditions say.
func endOf(conditions []metav1.Condition) (text string) {
	for _, c := range conditions {
		text += fmt.Sprintf(" %s=%s/%s", c.Type, c.Status, c.Reason)
	}
	return text
}
