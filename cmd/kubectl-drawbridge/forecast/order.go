package forecast

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/evacuation/order"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	shorten "github.com/drawbridge-dev/drawbridge/internal/text"
)

// waiter is a pod with a turn of the order: since when, and for which other pods it still waits.
type waiter struct {
	pod   int
	since time.Time
	left  []int
}

// findOrders finds out which pods wait for others of their node, and for whom.
func (w *world) findOrders(requests map[types.NamespacedName]*v1alpha1.EvictionRequest, namespaces map[string]map[string]string, registry *registration.Registry) {
	if !slices.ContainsFunc(w.pods, func(v victim) bool { return v.waits() }) {
		return
	}
	if len(namespaces) == 0 {
		w.leaveOut("spec.after that selects by the labels of namespaces, which are not known")
	}
	w.orders, w.byName = make([]order.Pod, len(w.pods)), make(map[string]int, len(w.pods))
	for i := range w.pods {
		pod := w.pods[i].pod
		w.byName[nameOf(&w.pods[i])] = i
		var err error
		if w.orders[i], err = order.PodOf(pod, namespaces[pod.Namespace], requests[v1alpha1.RequestKey(pod)], registry); err != nil {
			w.leaveOut("spec.after that could not be read: " + text.Clean(err.Error()))
		}
	}
	for i := range w.pods {
		v := &w.pods[i]
		if v.waits() {
			d := w.decideOrder(i, w.in.Now, w.in.Now, func(int) bool { return true })
			v.waitsFor, v.circle = d.Left, d.Circle
		}
	}
}

func (v *victim) waits() bool {
	return slices.ContainsFunc(v.turns, func(t turn) bool { return t.name == v1alpha1.OrderInterceptor })
}

func nameOf(v *victim) string { return v.pod.Namespace + "/" + v.pod.Name }

// decideOrder is the decision of the manager's own rules about a pod, among those of its node
// that are there. All of these leave: their node is drained.
func (w *world) decideOrder(i int, at, since time.Time, there func(int) bool) order.Decision {
	v := &w.pods[i]
	in := order.Input{Now: at, Since: since, Node: w.drain[v.node], Self: w.orders[i]}
	first, end := w.podsOf(v.node)
	for j := first; j < end; j++ {
		if j != i && there(j) {
			in.Others = append(in.Others, w.orders[j])
		}
	}
	return order.Decide(&in)
}

// await begins a turn of the order.
func (r *run) await(i int) {
	v, f := &r.world.pods[i], &r.pods[i]
	since := r.in.Now.Add(r.now)
	if elapsed := v.turns[f.turn].elapsed; elapsed > 0 {
		since = r.in.Now.Add(-elapsed)
	}
	f.waits = v1alpha1.OrderInterceptor
	r.waiters[v.node] = append(r.waiters[v.node], waiter{pod: i, since: since.Truncate(time.Second)}) // As the API has it.
	r.push(r.now+stepDelay, looks, i)
}

// look decides whether a pod still waits for others.
func (r *run) look(i int) {
	v, f := &r.world.pods[i], &r.pods[i]
	at := slices.IndexFunc(r.waiters[v.node], func(w waiter) bool { return w.pod == i })
	if at < 0 {
		return // It went on before its time was over.
	}
	waiting := &r.waiters[v.node][at]
	d := r.decideOrder(i, r.in.Now.Add(r.now), waiting.since, func(j int) bool { return !r.pods[j].ended })
	first, end := r.podsOf(v.node)
	r.work += end - first
	f.cut = f.cut || !d.Done && v.cutOff != nil && r.now >= *v.cutOff
	if !d.Done && !f.cut {
		waiting.left = waiting.left[:0]
		for _, name := range d.Left {
			waiting.left = append(waiting.left, r.byName[name])
		}
		again := d.Again.Sub(r.in.Now)
		if v.cutOff != nil {
			again = min(again, *v.cutOff)
		}
		r.push(again, looks, i)
		return
	}
	if len(d.Late) > 0 {
		r.late[i] = d.Late
	}
	r.waiters[v.node] = slices.Delete(r.waiters[v.node], at, at+1)
	r.push(r.now+stepDelay, turnEnds, i)
}

// tellWaiters wakes those who waited for a pod as the last one. Until then they wait anyway.
func (r *run) tellWaiters(gone int) {
	waiters := r.waiters[r.world.pods[gone].node]
	for n := range waiters {
		w := &waiters[n]
		at := slices.Index(w.left, gone)
		if at < 0 {
			continue
		}
		if w.left = slices.Delete(w.left, at, at+1); len(w.left) == 0 {
			r.push(r.now+stepDelay, looks, w.pod)
		}
	}
}

// spreadUnknown marks those that wait for a pod about which something is not known: by the order, or
// because their wave is a later one.
func (w *world) spreadUnknown() {
	first := make([]int, len(w.drain)) // The first wave of a node with such a pod.
	for i := range first {
		first[i] = len(w.waves)
	}
	for again := true; again; {
		again = false
		for i := range w.pods {
			v := &w.pods[i]
			was := v.unknown
			v.unknown = was || v.wave > first[v.node] || slices.ContainsFunc(v.waitsFor, func(name string) bool { return w.pods[w.byName[name]].unknown })
			if v.unknown {
				first[v.node] = min(first[v.node], v.wave)
			}
			again = again || v.unknown != was
		}
	}
}

// waitsFor says for people whom the pod waits for, and whom not; empty if nobody is there.
func (p *Pod) waitsFor() string {
	var parts []string
	if len(p.WaitsFor) > 0 {
		parts = append(parts, named(p.WaitsFor))
	}
	if len(p.TimedOut) > 0 {
		parts = append(parts, "for "+named(p.TimedOut)+" until its timeout")
	}
	if len(p.Circle) > 0 {
		parts = append(parts, "not for "+named(p.Circle)+", a circle")
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

// maxNamed is how many pods are named in a line.
const maxNamed = 3

func named(pods []string) string { return shorten.Few(pods, maxNamed) }
