package preemption

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/internal/informers"
	"github.com/drawbridge-dev/drawbridge/internal/podcache/packed"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// View has the informers' data in the form that decisions need: an event changes one
// entry, a question is a lookup. Safe for concurrent use.
type View struct {
	stamped bool
	clock   clock.PassiveClock
	log     logr.Logger

	mu      sync.RWMutex
	pods    map[types.UID]any // As the informer holds them, see pod.
	budgets *budgetIndex
	// classes are the values of the PriorityClasses that have one.
	classes map[string]*int32
	synced  []toolscache.InformerSynced
}

// NewView returns an empty view. Stamped: the API server writes the value of the class
// on each pod that is created, and it is immutable, so the pod's annotation applies;
// otherwise the current class does.
func NewView(stamped bool, clock clock.PassiveClock, log logr.Logger) *View {
	return &View{
		stamped: stamped, clock: clock, log: log,
		pods: map[types.UID]any{}, budgets: newBudgetIndex(), classes: map[string]*int32{},
	}
}

// Setup lets the view follow the informers. It does not block.
func (v *View) Setup(ctx context.Context, cached cache.Informers) error {
	for _, kind := range []struct {
		object  client.Object
		handler toolscache.ResourceEventHandler
	}{
		{&corev1.Pod{}, informers.Keeping{ResourceEventHandler: toolscache.ResourceEventHandlerFuncs{
			AddFunc: v.setPod, UpdateFunc: func(_, held any) { v.setPod(held) }, DeleteFunc: v.removePod,
		}}},
		{&policyv1.PodDisruptionBudget{}, informers.Handlers(v.setBudget, v.removeBudget)},
		{&schedulingv1.PriorityClass{}, informers.Handlers(v.setClass, v.removeClass)},
	} {
		synced, err := informers.Follow(ctx, cached, kind.object, kind.handler)
		if err != nil {
			return err
		}
		v.synced = append(v.synced, synced)
	}
	return nil
}

// Synced reports whether all initial objects are known.
func (v *View) Synced() bool {
	for _, synced := range v.synced {
		if !synced() {
			return false
		}
	}
	return true
}

// setPod keeps a pod as the informer holds it.
func (v *View) setPod(held any) {
	pod := packed.Of(held)
	if pod == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if before := v.pod(pod.UID); before != nil && pod.DeletionTimestamp != nil {
		v.left(before)
	}
	v.pods[pod.UID] = held
}

func (v *View) removePod(held any) {
	if gone, ok := held.(toolscache.DeletedFinalStateUnknown); ok {
		held = gone.Obj
	}
	pod := packed.Of(held)
	if pod == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if before := v.pod(pod.UID); before != nil {
		v.left(before)
	}
	delete(v.pods, pod.UID)
}

// pod is a pod, nil if it is not known. The lock is held.
func (v *View) pod(uid types.UID) *corev1.Pod { return packed.Of(v.pods[uid]) }

// left notes that a pod leaves, if a budget counted it. The lock is held.
func (v *View) left(before *corev1.Pod) {
	if !free(before) && ready(before) {
		v.budgets.left(before, v.clock.Now())
	}
}

func (v *View) setBudget(pdb *policyv1.PodDisruptionBudget) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.budgets.set(pdb)
}

func (v *View) removeBudget(pdb *policyv1.PodDisruptionBudget) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.budgets.remove(types.NamespacedName{Namespace: pdb.Namespace, Name: pdb.Name})
}

func (v *View) setClass(pc *schedulingv1.PriorityClass) {
	value, err := translate.AllowDisruption(pc.Annotations)
	if err != nil {
		// It is older than the policy that would refuse it.
		v.log.Info("A PriorityClass protects nobody's budgets", "priorityclass", pc.Name, "reason", err.Error())
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if value == nil {
		delete(v.classes, pc.Name)
		return
	}
	v.classes[pc.Name] = value
}

func (v *View) removeClass(pc *schedulingv1.PriorityClass) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.classes, pc.Name)
}

// gather completes the scheduler's request: with what is known about the victims, and
// their budgets on nodes where any pod has a value. It holds the lock for the whole
// request, so the result is consistent.
func (v *View) gather(in *Input, sent map[types.UID]*corev1.Pod) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	v.complete(in, sent)
}

// complete is gather with the lock held.
func (v *View) complete(in *Input, sent map[types.UID]*corev1.Pod) {
	highest, now := v.highest(), v.clock.Now()
	in.Charges = map[*Budget]int32{}
	for i := range in.Candidates {
		candidate := &in.Candidates[i]
		valued := false
		pods := make([]*corev1.Pod, len(candidate.Victims))
		for j := range candidate.Victims {
			victim := &candidate.Victims[j]
			pod := v.pod(victim.UID)
			if pod == nil {
				pod = sent[victim.UID]
			}
			pods[j] = pod
			if pod == nil {
				// It is gone, or so new that it can only have a current class.
				victim.Unknown, victim.Value = true, highest
			} else {
				v.describe(victim, pod)
			}
			valued = valued || victim.Value != nil
		}
		if !valued {
			continue
		}
		for j, pod := range pods {
			if pod == nil {
				continue
			}
			victim := &candidate.Victims[j]
			victim.Budgets = v.budgetsOf(pod, in.Charges, now)
		}
	}
}

// budgetsOf are the budgets of a pod, whose charges are noted. The lock is held.
func (v *View) budgetsOf(pod *corev1.Pod, charges map[*Budget]int32, now time.Time) []*Budget {
	budgets := v.budgets.of(pod.Namespace, pod.Labels)
	for _, b := range budgets {
		if _, known := charges[b]; !known {
			charges[b] = v.budgets.entry(b).charge(now)
		}
	}
	return budgets
}

// describe fills in what is known about a pod. The lock is held.
func (v *View) describe(victim *Victim, pod *corev1.Pod) {
	victim.Namespace, victim.Name, victim.NodeName = pod.Namespace, pod.Name, pod.Spec.NodeName
	victim.Value = v.valueOf(pod)
	victim.Free = free(pod)
	victim.Ready = ready(pod)
}

// valueOf is the value that applies to a pod. The lock is held.
func (v *View) valueOf(pod *corev1.Pod) *int32 {
	if v.stamped {
		value, err := translate.AllowDisruption(pod.Annotations)
		if err != nil {
			return nil
		}
		return value
	}
	return v.classes[pod.Spec.PriorityClassName]
}

// highest is the highest value of any class, nil if none has one. The lock is held.
func (v *View) highest() *int32 {
	var highest *int32
	for _, value := range v.classes {
		if highest == nil || *value > *highest {
			highest = value
		}
	}
	return highest
}

// lookUp returns what is known about a pod and its budgets; false if it is gone.
func (v *View) lookUp(uid types.UID) (Victim, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	pod := v.pod(uid)
	if pod == nil {
		return Victim{}, false
	}
	victim := Victim{Pod: Pod{UID: uid}, Budgets: v.budgets.of(pod.Namespace, pod.Labels)}
	v.describe(&victim, pod)
	return victim, true
}

// has reports whether a pod is known.
func (v *View) has(uid types.UID) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.pods[uid] != nil
}

// free is the rule of the eviction API for pods that no budget counts.
func free(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return true
	}
	return pod.DeletionTimestamp != nil
}

func ready(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
