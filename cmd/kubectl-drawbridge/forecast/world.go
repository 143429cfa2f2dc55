package forecast

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/listing"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
	"github.com/drawbridge-dev/drawbridge/evacuation/order"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// surgeInterceptor replaces pods before they are evicted.
const surgeInterceptor = "surge.drawbridge.dev"

// turn is one before the eviction.
type turn struct {
	name string
	// elapsed of it already.
	elapsed time.Duration
}

// victim is a pod that has to go.
type victim struct {
	pod  *corev1.Pod
	node int
	// wave is the position of its wave, 0 if it goes before all.
	wave int
	// key orders requests of the same second.
	key string
	// turns that are left, and whether the request exists.
	turns []turn
	asked bool
	// leaving: it is being deleted already.
	leaving bool
	// ready: budgets count it as available.
	ready bool
	owner int
	// target of its replacement; nil if it fits nowhere.
	target *corev1.Node
	// pdbs that select it, and whether it may go while they allow nothing.
	pdbs []int
	// budgets (in its group) that cover it.
	group   int
	budgets []int
	unknown bool
	// responders are the native ones that are left.
	responders []string
	// waitsFor are the pods of the node that leave before it by the order, and circle those that
	// would wait for it in turn, so that it does not wait for them.
	waitsFor, circle []string
	// cutOff is when a deadline ends the turns that are left, from now; nil if none does.
	cutOff *time.Duration
}

// owner is a controller of pods to go.
type owner struct {
	uid      types.UID
	startups samples
	// late: a replacement comes only when the pod has gone.
	late bool
	// surge is its index among the limits of surges, limit what that allows.
	surge int
	// unplaced is how many replacements fit nowhere.
	unplaced int
}

// refill is a pod that is not ready yet, and will be soon.
type refill struct {
	pod   *corev1.Pod
	owner types.UID
	pdbs  []int
}

// world is what the runs have in common.
type world struct {
	in      *Input
	history *history
	drain   []string
	pods    []victim
	owners  []owner
	// surges are the limits of surges, in pods at a time.
	surges   []int
	pdbs     []pdb
	groups   []budgetGroup
	refills  []refill
	blockers []Blocker
	stays    []Pod
	leftOut  []string
	wait     time.Duration
	nodes    map[string]*corev1.Node
	// lost are the nodes of the drain that are lost.
	lost []bool
	// waves are those of the maintenance, and begun the ones that have begun last, by node.
	waves translate.Waves
	begun []begun
	// orders are the pods as the order sees them, and byName where they are; nil if none waits.
	orders []order.Pod
	byName map[string]int
	// evictions are the native ones that count, by the UIDs of their pods.
	evictions map[types.UID]*lifecyclev1alpha1.Eviction
}

// newWorld sorts the pods of the nodes by their fates.
func newWorld(in *Input) *world {
	w := &world{in: in, drain: slices.Compact(slices.Sorted(slices.Values(in.Drain))), nodes: map[string]*corev1.Node{}, wait: ptr.Deref(in.Settings.Wait, 0)}
	w.history = historyOf(in.Requests, in.Pods)
	w.evictions = turns.ByPod(in.Evictions)
	for _, node := range in.Nodes {
		w.nodes[node.Name] = node
	}
	at := map[string]int{}
	for i, name := range w.drain {
		at[name] = i
	}
	requests := map[types.NamespacedName]*v1alpha1.EvictionRequest{}
	for _, er := range in.Requests {
		requests[types.NamespacedName{Namespace: er.Namespace, Name: er.Name}] = er
	}
	w.findLost()
	w.findWaves()
	namespaces := w.namespaceLabels()
	registry := w.registry()
	var going []*corev1.Pod
	for _, pod := range in.Pods {
		if _, ok := at[pod.Spec.NodeName]; ok {
			going = append(going, pod)
		}
	}
	slices.SortFunc(going, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(at[a.Spec.NodeName], at[b.Spec.NodeName]), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(string(a.UID), string(b.UID)))
	})
	known := map[types.UID]int{}
	surges := map[types.UID]int{}
	for _, pod := range going {
		if stays := w.stayOf(pod, namespaces[pod.Namespace]); stays != "" {
			w.stays = append(w.stays, Pod{Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName, Stays: stays})
			continue
		}
		er := requests[v1alpha1.RequestKey(pod)]
		v := victim{pod: pod, node: at[pod.Spec.NodeName], key: string(pod.UID), wave: w.waves.Of(pod, namespaces[pod.Namespace]), owner: -1, group: -1, leaving: pod.DeletionTimestamp != nil, ready: ready(pod)}
		if b := w.blockerOf(&v, er); b != nil {
			w.blockers = append(w.blockers, *b)
		}
		if pods.IsOfDaemonSet(pod) {
			w.pods = append(w.pods, v) // Nobody intercepts it, and it is not made again.
			continue
		}
		w.takeTurns(&v, er, registry)
		if c := metav1.GetControllerOfNoCopy(pod); c != nil {
			i, ok := known[c.UID]
			if !ok {
				i = len(w.owners)
				known[c.UID] = i
				w.owners = append(w.owners, owner{uid: c.UID, startups: w.history.startup(c.UID), late: c.Kind == "StatefulSet", surge: w.surgeOf(c.UID, surges)})
			}
			v.owner = i
		}
		w.pods = append(w.pods, v)
	}
	w.findOrders(requests, namespaces, registry)
	w.findPDBs()
	w.findBudgets()
	return w
}

// stayOf is why a drain leaves the pod where it is; empty if it does not.
func (w *world) stayOf(pod *corev1.Pod, namespace map[string]string) string {
	switch {
	case pods.IsMirror(pod):
		return "static pod"
	case pods.IsOfDaemonSet(pod) && !w.waves.Takes(pod, namespace):
		return "DaemonSet"
	case pods.HasEnded(pod):
		return "has ended"
	default:
		return ""
	}
}

func (w *world) registry() *registration.Registry {
	known := registration.Known{}
	for _, r := range w.in.Interceptors {
		known.Registrations = append(known.Registrations, *r)
	}
	for _, h := range w.in.Hooks {
		known.Hooks = append(known.Hooks, *h)
	}
	for _, b := range w.in.Budgets {
		known.Budgets = append(known.Budgets, *b)
	}
	for _, n := range w.in.Namespaces {
		known.Namespaces = append(known.Namespaces, *n)
	}
	return registration.Static(registration.Options{
		Namespace: w.in.System, AllowedReserved: why.AllowedReserved(known.Registrations), Native: func() bool { return w.in.Native },
	}, known)
}

// takeTurns finds the turns before the eviction, those of the running request if there is
// one.
func (w *world) takeTurns(v *victim, er *v1alpha1.EvictionRequest, registry *registration.Registry) {
	if er != nil && !v1alpha1.IsFinished(er) && len(er.Status.TargetInterceptors) > 0 {
		v.asked = true
		if at := er.Status.Deadline; at != nil {
			v.cutOff = new(max(at.Sub(w.in.Now), 0))
		}
		for _, target := range er.Status.TargetInterceptors {
			if target.Name == v1alpha1.ImperativeEvictionInterceptor || slices.Contains(er.Status.ProcessedInterceptors, target.Name) {
				continue
			}
			t := turn{name: target.Name}
			active := slices.Contains(er.Status.ActiveInterceptors, target.Name)
			if w.lost[v.node] && passedOver(&target, active) {
				continue
			}
			if active && er.Status.ActivationTime != nil {
				t.elapsed = max(w.in.Now.Sub(er.Status.ActivationTime.Time), 0)
			}
			v.turns = append(v.turns, t)
		}
		w.takeResponders(v, er)
		return
	}
	names, err := registry.Resolve(v.pod)
	if err != nil {
		w.leaveOut("interceptors that could not be resolved: " + text.Clean(err.Error()))
	}
	for _, name := range names {
		info, _ := registry.Registration(name)
		info.Planned.Name = name
		if !w.lost[v.node] || !passedOver(&info.Planned, false) {
			v.turns = append(v.turns, turn{name: name})
		}
	}
	w.takeResponders(v, nil)
}

// takeResponders finds the native responders that are left. If they all are done, or have begun
// without a request of ours, so has the turn that stands for them.
func (w *world) takeResponders(v *victim, er *v1alpha1.EvictionRequest) {
	i := slices.IndexFunc(v.turns, func(t turn) bool { return t.name == v1alpha1.NativeInterceptor })
	if i < 0 {
		return
	}
	e := w.evictions[v.pod.UID]
	if !turns.Runs(e) || len(e.Status.TargetResponders) == 0 {
		v.responders = listing.Responders(v.pod)
		return
	}
	var began *time.Time
	for _, t := range turns.Of(er, e, v.pod) {
		if !t.Native || t.Name == v1alpha1.NativeResponder || t.Name == lifecyclev1alpha1.EvictionResponderImperativeEviction {
			continue
		}
		if began == nil {
			began = t.Since
		}
		if t.State == turns.Waits || t.State == turns.Active {
			v.responders = append(v.responders, text.Clean(t.Name))
		}
	}
	switch {
	case len(v.responders) == 0:
		v.turns = slices.Delete(v.turns, i, i+1)
	case er == nil && began != nil:
		v.turns[i].elapsed = max(w.in.Now.Sub(*began), 0)
	}
}

// podsOf are the pods of a node, which stand side by side: from the first to before the end.
func (w *world) podsOf(node int) (first, end int) {
	by := func(v victim, node int) int { return v.node - node }
	first, _ = slices.BinarySearchFunc(w.pods, node, by)
	end, _ = slices.BinarySearchFunc(w.pods, node+1, by)
	return first, end
}

func (w *world) leaveOut(what string) {
	if !slices.Contains(w.leftOut, what) && len(w.leftOut) < maxUnplaced {
		w.leftOut = append(w.leftOut, what)
	}
}

// surgeOf is the limit of the owner's surges: that of its Deployment.
func (w *world) surgeOf(uid types.UID, known map[types.UID]int) int {
	load := w.in.Workloads[uid]
	key := cmp.Or(load.Deployment, uid)
	i, ok := known[key]
	if !ok {
		i = len(w.surges)
		known[key] = i
		w.surges = append(w.surges, max(load.MaxSurge, 1))
	}
	return i
}

// blockerOf is why the pod never goes, whatever the budgets say; nil if it does.
func (w *world) blockerOf(v *victim, er *v1alpha1.EvictionRequest) *Blocker {
	pod := v.pod
	m := &v1alpha1.NodeMaintenance{}
	if w.in.Settings.KeepUnmanaged {
		m.Spec.UnmanagedPods = v1alpha1.PodsKeep
	}
	if w.in.Settings.KeepEmptyDir {
		m.Spec.EmptyDirPods = v1alpha1.PodsKeep
	}
	b := &Blocker{Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName}
	if pod.DeletionTimestamp != nil {
		if len(pod.Finalizers) > 0 && !w.lost[v.node] && pod.DeletionTimestamp.Add(10*time.Second).Before(w.in.Now) {
			b.Who, b.Why, b.Do = "finalizers", "it is being deleted, and "+text.Clean(strings.Join(pod.Finalizers, ", "))+" hold it", "find out who should remove them"
			return b
		}
		return nil
	}
	switch m.Keeps(pod) {
	case v1alpha1.BlockEmptyDirData:
		b.Who, b.Why, b.Do = "the drain", "it has emptyDir data, which would be lost", "drain with --delete-emptydir-data, or move the data"
		return b
	case v1alpha1.BlockUnmanagedPod:
		b.Who, b.Why, b.Do = "the drain", "no controller would recreate it", "drain with --force, or delete the pod"
		return b
	}
	if pod.Spec.SchedulingGroup != nil {
		b.Who, b.Why, b.Do = "its scheduling group", "it belongs to a Workload/PodGroup, which cannot be evicted", "delete the pod, or its group"
		return b
	}
	if er == nil {
		return nil
	}
	canceled := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCanceled)
	if requester.Observe(er).State == v1alpha1.StateCanceled && canceled != nil && canceled.Reason == v1alpha1.ReasonValidationFailed {
		b.Who, b.Why, b.Do = "Drawbridge", "its eviction was refused: "+text.Clean(canceled.Message), "see kubectl drawbridge why"
		return b
	}
	for _, hook := range w.in.Hooks {
		for i := range hook.Status.Runs {
			run := &hook.Status.Runs[i]
			if run.RequestUID != string(er.UID) || hook.Namespace != pod.Namespace {
				continue
			}
			b.Who = "EvacuationHook " + hook.Name
			switch run.Phase {
			case v1alpha1.HookHeld:
				b.Why, b.Do = "its last attempt has failed, and it holds the pod: "+text.Clean(run.Message), "let it try again: kubectl drawbridge hooks retry; or skip it: kubectl drawbridge skip"
				return b
			case v1alpha1.HookRefused:
				b.Why, b.Do = "it waits: "+text.Clean(run.Message), "change what refuses it, and it continues by itself"
				return b
			default:
			}
		}
	}
	return nil
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// byNamespace are pods in the order in which they were given.
func byNamespace(all []*corev1.Pod) map[string][]*corev1.Pod {
	found := map[string][]*corev1.Pod{}
	for _, pod := range all {
		found[pod.Namespace] = append(found[pod.Namespace], pod)
	}
	return found
}

// starting is how long a pod may be expected to become ready.
const starting = 5 * time.Minute

func (w *world) isStarting(pod *corev1.Pod) bool {
	return !ready(pod) && pod.DeletionTimestamp == nil && !pods.HasEnded(pod) && w.in.Now.Sub(pod.CreationTimestamp.Time) < starting
}

func (w *world) blocker(v *victim, who, why, do string) Blocker {
	return Blocker{Namespace: v.pod.Namespace, Pod: v.pod.Name, Node: v.pod.Spec.NodeName, Who: who, Why: why, Do: do}
}
