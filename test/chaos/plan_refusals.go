package chaos

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// RefusedWrite is a kind of write of the managers that a policy engine refuses.
type RefusedWrite string

// The writes that are refused.
const (
	RefusedRequests           RefusedWrite = "requests"
	RefusedRequestStatus      RefusedWrite = "status of requests"
	RefusedLeases             RefusedWrite = "leases of callers"
	RefusedGuardBudget        RefusedWrite = "guard budget"
	RefusedPods               RefusedWrite = "pods"
	RefusedBudgetStatus       RefusedWrite = "status of EvictionBudgets"
	RefusedNodes              RefusedWrite = "nodes"
	RefusedMaintenancesStatus RefusedWrite = "status of NodeMaintenances"
	RefusedJobs               RefusedWrite = "Jobs"
	RefusedHookStatus         RefusedWrite = "status of hooks"
	// Those to lifecycle.k8s.io.
	RefusedWishes         RefusedWrite = "native requests"
	RefusedWishStatus     RefusedWrite = "status of native requests"
	RefusedEvictions      RefusedWrite = "native Evictions"
	RefusedEvictionStatus RefusedWrite = "status of native Evictions"
)

// refusalReasons are those of the answers.
var refusalReasons = []metav1.StatusReason{"", metav1.StatusReasonForbidden}

// refusedWrites are all of them but nativeWrites.
var refusedWrites = []RefusedWrite{
	RefusedRequests, RefusedRequestStatus, RefusedLeases, RefusedGuardBudget, RefusedPods, RefusedBudgetStatus, RefusedNodes, RefusedMaintenancesStatus,
	RefusedJobs, RefusedHookStatus,
}

// Refusal is what a policy engine refuses, and with which reason.
type Refusal struct {
	Write RefusedWrite
	// Reason of the answer; empty is the default of policies, Invalid.
	Reason metav1.StatusReason
}

func (r Refusal) String() string {
	reason := r.Reason
	if reason == "" {
		reason = metav1.StatusReasonInvalid
	}
	return string(r.Write) + ", " + string(reason)
}

const (
	// refusalPercent is how likely a plan has a policy engine that refuses something.
	refusalPercent = 50
	// minRefusalSteps and maxRefusalSteps are how long it lasts: the product pauses for 5, 10
	// and 20 seconds after the first refusals. It may be longer than all other faults.
	minRefusalSteps, maxRefusalSteps = 4, 40
	// maxHookSteps is how long Jobs are refused: the pause after that ends before the hook would
	// be passed over.
	maxHookSteps = 28
)

// addRefusal draws the policy engine, and an application with a hook if it is about hooks. It has dice of its own, so that plans that have none
// are as they were.
func (p *Plan) addRefusal() {
	d := diceFor(p.Seed, "policy engine")
	if !d.chance(refusalPercent) {
		return
	}
	f := Fault{Kind: RefuseWrites, At: 1 + d.IntN(Steps-4), Lasts: minRefusalSteps + d.IntN(maxRefusalSteps-minRefusalSteps+1)}
	if d.chance(50) {
		f.Refusal.Reason = metav1.StatusReasonForbidden
	}
	writes := slices.DeleteFunc(slices.Clone(refusedWrites), func(w RefusedWrite) bool { return !p.writes(w) })
	f.Refusal.Write = writes[d.IntN(len(writes))]
	if w := f.Refusal.Write; w == RefusedJobs || w == RefusedHookStatus {
		f.Lasts = min(f.Lasts, maxHookSteps)
		p.Workloads = append(p.Workloads, Workload{
			Name: "hooked", Kind: Hooked, Replicas: int32(1 + d.IntN(3)), Stateful: true, MaxUnavailable: -1, Registered: true,
			Interceptors: []Behaviour{{Habit: Works, Work: d.upTo(maxWork)}},
		})
	}
	p.addFault(f)
}

// refusal is what the plan's policy engine refuses; nil if there is none.
func (p *Plan) refusal() *Refusal {
	for i := range p.Faults {
		if p.Faults[i].Kind == RefuseWrites {
			return &p.Faults[i].Refusal
		}
	}
	return nil
}

// writes reports whether a run of the plan is likely to have such writes: to refuse others
// would show nothing.
func (p *Plan) writes(w RefusedWrite) bool {
	drains := func(kinds ...DrainKind) bool {
		return slices.ContainsFunc(p.Drains, func(d Drain) bool { return slices.Contains(kinds, d.Kind) })
	}
	switch w {
	case RefusedLeases:
		return drains(Kubectl, Loop)
	case RefusedGuardBudget:
		return p.Mode != ModeNoGuard
	case RefusedPods: // The guard's label, pods that are handed up, and marks.
		return p.Mode != ModeNoGuard || slices.ContainsFunc(p.Workloads, func(w Workload) bool { return w.Kind == Surging || w.Kind == Machines })
	case RefusedBudgetStatus:
		return p.Rollout != nil
	case RefusedNodes, RefusedMaintenancesStatus:
		return drains(Maintained)
	case RefusedWishes, RefusedWishStatus, RefusedEvictions, RefusedEvictionStatus:
		return p.Serves
	default:
		return true
	}
}

// rule matches the write; leases have a condition besides, see refusingPolicy.
func (w RefusedWrite) rule() admissionregistrationv1.RuleWithOperations {
	group, version, resource := v1alpha1.GroupName, "v1alpha1", ""
	switch w {
	case RefusedRequests:
		resource = "evictionrequests"
	case RefusedRequestStatus:
		resource = "evictionrequests/status"
	case RefusedBudgetStatus:
		resource = "evictionbudgets/status"
	case RefusedMaintenancesStatus:
		resource = "nodemaintenances/status"
	case RefusedJobs:
		group, version, resource = batchv1.GroupName, "v1", "jobs"
	case RefusedHookStatus:
		resource = "evacuationhooks/status"
	case RefusedLeases:
		group, version, resource = coordinationv1.GroupName, "v1", "leases"
	case RefusedGuardBudget:
		group, version, resource = policyv1.GroupName, "v1", "poddisruptionbudgets"
	case RefusedPods:
		group, version, resource = corev1.GroupName, "v1", "pods"
	case RefusedNodes:
		group, version, resource = corev1.GroupName, "v1", "nodes"
	case RefusedWishes:
		group, resource = lifecyclev1alpha1.GroupName, "evictionrequests"
	case RefusedWishStatus:
		group, resource = lifecyclev1alpha1.GroupName, "evictionrequests/status"
	case RefusedEvictions:
		group, resource = lifecyclev1alpha1.GroupName, "evictions"
	case RefusedEvictionStatus:
		group, resource = lifecyclev1alpha1.GroupName, "evictions/status"
	}
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
	}
}
