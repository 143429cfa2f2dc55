//go:build unix

// Package situations puts programs that empty nodes into the same ten situations, with Drawbridge
// and without, and records what happens to the pods and what the user of the program is told.
// docs/guides/callers.md shows the records.
//
// The tests of a program give a [Drainer]; `make test-peers PEER=NAME CHECKOUT=FOLDER` runs them.
package situations

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// end is how a situation ends.
type end int

const (
	// goes: the pod is gone, and the program is done with the node, or begins again with its successor.
	goes end = iota
	// stays: the program is refused the pod again and again.
	stays
	// abandoned: the pod lives, and nobody wants its eviction any more.
	abandoned
	// declined: the program does not begin to empty the node.
	declined
	// untouched: the program is done with the node, and has not called for the pod.
	untouched
)

// situation is one in which every program is put.
type situation struct {
	// name is its sentence in the tables.
	name string
	// needs is how long the interceptor of the pod works; it has none if this is 0.
	needs time.Duration
	// create creates the pod and what is around it, and returns it when it is Ready.
	create func(*run) *corev1.Pod
	// middle is done once Drawbridge has accepted the eviction, or once the program has
	// called for it without Drawbridge. May be nil.
	middle func(*run)
	// without and with are how it ends without Drawbridge, and with it.
	without, with end
	// held says that a budget refuses the pod, and nothing makes room before the program begins.
	held bool
	// alone says that it disturbs the others.
	alone bool
}

// What is different for some programs: a pod that they leave alone, and one that they replace themselves.
const (
	tolerates = "a StatefulSet's pod that tolerates all, and comes back on its node"
	single    = "a single replica behind a budget of 0, to be replaced first"
)

// ten are all situations. Each has a plain pod beside the one that it is about.
var ten = []situation{
	{name: "a plain pod", create: barePod},
	{name: "an interceptor of 3 s", needs: 3 * time.Second, create: barePod},
	{name: "an interceptor of 5 min", needs: 5 * time.Minute, create: barePod},
	{name: single, create: singleReplica, without: stays, held: true},
	{name: "a budget that never allows it", create: heldPod, without: stays, with: stays, held: true},
	{name: "a StatefulSet's pod, which comes back elsewhere", needs: 3 * time.Second, create: setPod},
	{name: tolerates, needs: 3 * time.Second, create: tolerantPod},
	{
		name: "canceled in the middle, behind a budget of 0", needs: 5 * time.Minute, create: heldPod,
		middle: callOff, without: abandoned, with: abandoned, held: true,
	},
	{name: "Drawbridge is killed in the middle", needs: 20 * time.Second, create: barePod, middle: killManager, alone: true},
	{name: "the tool is restarted in the middle", needs: 20 * time.Second, create: barePod, middle: restart, alone: true},
}

const (
	podName      = "solo"
	neighborName = "neighbor"
	// workload is the name of the owner of a pod that has one.
	workload = "work"
)

func barePod(r *run) *corev1.Pod { return r.pod(podName, r.intercepted) }

// heldPod is behind a budget that allows nothing.
func heldPod(r *run) *corev1.Pod {
	r.create(builder.Budget(r.place.Namespace, "none").Selects(builder.AppLabel, "held").MinAvailable("1").Obj())
	return r.pod(podName, r.intercepted, func(w *builder.PodWrapper) { w.Label(builder.AppLabel, "held") })
}

// singleReplica is the pod of a Deployment that surges, behind a budget that wants one, and so
// allows nothing.
func singleReplica(r *run) *corev1.Pod {
	r.create(
		builder.Deployment(r.place.Namespace, workload).Rolling("1", "0").Pods(func(w *builder.PodWrapper) {
			r.placed(w)
			w.Label(surge.OptInLabel, "enabled")
		}).Obj(),
		builder.Budget(r.place.Namespace, "one").Selects(builder.AppLabel, workload).MinAvailable("1").Obj())
	return r.ready(workload + "-")
}

func setPod(r *run) *corev1.Pod {
	r.create(builder.StatefulSet(r.place.Namespace, workload).Pods(func(w *builder.PodWrapper) {
		r.placed(w)
		r.intercepted(w)
	}).Obj())
	return r.ready(workload + "-0")
}

// tolerantPod can run on the node of the plain pod only.
func tolerantPod(r *run) *corev1.Pod {
	r.create(builder.StatefulSet(r.place.Namespace, workload).Pods(func(w *builder.PodWrapper) {
		r.placed(w)
		w.Tolerate().Change(func(pod *corev1.Pod) {
			// By its name: a label has no room for every name of a node.
			pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{r.neighbor.Spec.NodeName}}},
			}}}
		})
		r.intercepted(w)
	}).Obj())
	return r.ready(workload + "-0")
}

func callOff(r *run) { r.suite.Drainer.CallOff(r.T, r.node()) }

func restart(r *run) { r.suite.Drainer.Restart(r.T, r.node()) }

// killManager kills the manager, and starts another one.
func killManager(r *run) {
	if r.suite.installation == nil {
		return
	}
	if err := r.suite.manager.Kill(); err != nil {
		r.Fatal(err)
	}
	r.suite.startManager(r.T)
}
