package forecast

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resources "k8s.io/component-helpers/resource"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// room is what is free on a node.
type room struct {
	node  *corev1.Node
	free  []int64
	total []int64
	ports map[string]bool
}

// placer puts pods on nodes as the scheduler does by default: where they are allowed and
// where relatively most is free.
type placer struct {
	names []corev1.ResourceName
	index map[corev1.ResourceName]int
	rooms []room
	// allowed are the rooms that pods of an owner may go to.
	allowed map[types.UID][]int
}

// newPlacer counts what is free on the nodes that stay.
func newPlacer(in *Input, drained map[string]bool) *placer {
	p := &placer{index: map[corev1.ResourceName]int{}, allowed: map[types.UID][]int{}}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		p.intern(name)
	}
	at := map[string]int{}
	for _, node := range in.Nodes {
		if drained[node.Name] || node.Spec.Unschedulable || !usable(node) {
			continue
		}
		at[node.Name] = len(p.rooms)
		total := p.vector(node.Status.Allocatable)
		p.rooms = append(p.rooms, room{node: node, free: slices.Clone(total), total: total, ports: map[string]bool{}})
	}
	for _, pod := range in.Pods {
		if i, ok := at[pod.Spec.NodeName]; ok && !pods.HasEnded(pod) {
			p.rooms[i].take(p.request(pod), hostPorts(pod))
		}
	}
	return p
}

func usable(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return true // Made by hand, or so new that nobody has looked.
}

// intern gives a resource its index.
func (p *placer) intern(name corev1.ResourceName) {
	if _, ok := p.index[name]; !ok {
		p.index[name] = len(p.names)
		p.names = append(p.names, name)
	}
}

// vector has the amounts by the index of their names.
func (p *placer) vector(list corev1.ResourceList) []int64 {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		p.intern(name)
	}
	v := make([]int64, len(p.names))
	for name, q := range list {
		v[p.index[name]] = amount(name, q)
	}
	return v
}

func amount(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// request is what a pod asks for.
func (p *placer) request(pod *corev1.Pod) []int64 {
	list := resources.PodRequests(pod, resources.PodResourcesOptions{})
	if list == nil {
		list = corev1.ResourceList{}
	}
	list[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return p.vector(list)
}

func hostPorts(pod *corev1.Pod) []string {
	var ports []string
	for i := range pod.Spec.Containers {
		for _, port := range pod.Spec.Containers[i].Ports {
			if port.HostPort > 0 {
				ports = append(ports, fmt.Sprintf("%s/%d", cmp.Or(port.Protocol, corev1.ProtocolTCP), port.HostPort))
			}
		}
	}
	return ports
}

func (r *room) take(asked []int64, ports []string) {
	for i, n := range asked {
		if i < len(r.free) {
			r.free[i] -= n
		}
	}
	for _, port := range ports {
		r.ports[port] = true
	}
}

func (r *room) has(asked []int64, ports []string) bool {
	for i, n := range asked {
		if n > 0 && (i >= len(r.free) || r.free[i] < n) {
			return false
		}
	}
	return !slices.ContainsFunc(ports, func(port string) bool { return r.ports[port] })
}

// share is how much of CPU and memory would be free, at most 2.
func (r *room) share(asked []int64) (share float64) {
	for i := range 2 {
		if r.total[i] > 0 {
			share += float64(r.free[i]-asked[i]) / float64(r.total[i])
		}
	}
	return share
}

// roomsFor are those that the pod may go to, whatever is free there.
func (p *placer) roomsFor(pod *corev1.Pod) []int {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner != nil {
		if known, ok := p.allowed[owner.UID]; ok {
			return known
		}
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	found := []int{}
	for i := range p.rooms {
		node := p.rooms[i].node
		if match, err := affinity.Match(node); err != nil || !match {
			continue
		}
		_, untolerated := schedulingv1.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
			return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
		}, true)
		if !untolerated {
			found = append(found, i)
		}
	}
	if owner != nil {
		p.allowed[owner.UID] = found
	}
	return found
}

// place puts the pod's replacement on a node; nil if it fits nowhere, and why.
func (p *placer) place(pod *corev1.Pod) (*corev1.Node, string) {
	asked, ports := p.request(pod), hostPorts(pod)
	allowed := p.roomsFor(pod)
	best, share := -1, 0.0
	for _, i := range allowed {
		r := &p.rooms[i]
		if !r.has(asked, ports) {
			continue
		}
		if s := r.share(asked); best < 0 || s > share {
			best, share = i, s
		}
	}
	switch {
	case best >= 0:
		p.rooms[best].take(asked, ports)
		return p.rooms[best].node, ""
	case len(p.rooms) == 0:
		return nil, "no other node is ready and schedulable"
	case len(allowed) == 0:
		return nil, fmt.Sprintf("its node selector, its affinity or the taints leave none of %d other nodes", len(p.rooms))
	default:
		return nil, p.lacking(asked, ports, allowed)
	}
}

// lacking says what is not free on the nodes that a pod may go to.
func (p *placer) lacking(asked []int64, ports []string, allowed []int) string {
	var names []string
	for i, n := range asked {
		if n == 0 {
			continue
		}
		if !slices.ContainsFunc(allowed, func(r int) bool { return i < len(p.rooms[r].free) && p.rooms[r].free[i] >= n }) {
			names = append(names, string(p.names[i])+" "+p.quantity(i, n))
		}
	}
	switch {
	case len(names) > 0:
		return fmt.Sprintf("%s is free on none of the %d nodes that it may go to", strings.Join(names, " and "), len(allowed))
	case len(ports) > 0:
		return fmt.Sprintf("none of the %d nodes that it may go to has its host ports and its requests free", len(allowed))
	default:
		return fmt.Sprintf("none of the %d nodes that it may go to has all of its requests free", len(allowed))
	}
}

func (p *placer) quantity(i int, n int64) string {
	switch p.names[i] {
	case corev1.ResourceCPU:
		return resource.NewMilliQuantity(n, resource.DecimalSI).String()
	case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return resource.NewQuantity(n, resource.BinarySI).String()
	default:
		return resource.NewQuantity(n, resource.DecimalSI).String()
	}
}

// fitAll places the replacements in the order of the pods, and says what is missing.
func (w *world) fitAll(p *placer) Fit {
	fit := Fit{}
	var missing []int64
	for i := range w.pods {
		v := &w.pods[i]
		if v.owner < 0 || v.leaving {
			continue
		}
		fit.Asked++
		node, why := p.place(v.pod)
		if v.target = node; node != nil {
			continue
		}
		fit.UnplacedPods++
		w.owners[v.owner].unplaced++
		if len(fit.Unplaced) < maxUnplaced {
			fit.Unplaced = append(fit.Unplaced, Unplaced{Namespace: v.pod.Namespace, Pod: v.pod.Name, Why: why})
		}
		for j, n := range p.request(v.pod) {
			for len(missing) <= j {
				missing = append(missing, 0)
			}
			missing[j] += n
		}
	}
	for i, n := range missing {
		if n > 0 && p.names[i] != corev1.ResourcePods {
			if fit.Missing == nil {
				fit.Missing = map[corev1.ResourceName]string{}
			}
			fit.Missing[p.names[i]] = p.quantity(i, n)
		}
	}
	return fit
}
