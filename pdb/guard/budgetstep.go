package guard

import (
	"maps"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// minAvailable can never be met. It refuses like maxUnavailable 0, but the disruption
// controller need not read the pods' owners, and does not warn about unmanaged pods.
// Unready pods are protected, too: evicting them requires a budget that is met
// (kubernetes: pkg/registry/core/pod/storage/eviction.go).
const minAvailable = 2147483647

// managedBy is the value of the label app.kubernetes.io/managed-by.
const managedBy = "drawbridge"

// descriptionAnnotation is Kubernetes' own, for the purpose of an object. kubectl get -o
// yaml and dashboards show it; kubectl describe has no annotations of budgets.
const descriptionAnnotation = "kubernetes.io/description"

// description explains the budget to people who find it blocking a drain.
const description = "Drawbridge's guard. It protects pods whose interceptors come before their eviction while Drawbridge is down: nothing can meet 2147483647, " +
	"so no pod with the label " + v1alpha1.GuardLabel + "=" + v1alpha1.GuardClosed + " is evicted. Drawbridge takes the label off when it is the pod's turn to go. " +
	"If drains stay refused, see whether Drawbridge runs: kubectl drawbridge doctor."

// NewBudget returns the budget of a namespace.
func NewBudget(namespace string, owner *metav1.OwnerReference) *policyv1.PodDisruptionBudget {
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.GuardBudgetName, Labels: budgetLabels(),
			Annotations: map[string]string{descriptionAnnotation: description}},
		Spec: budgetSpec(),
	}
	if owner != nil {
		pdb.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return pdb
}

func budgetLabels() map[string]string {
	return map[string]string{v1alpha1.GuardBudgetLabel: "true", "app.kubernetes.io/managed-by": managedBy}
}

func budgetSpec() policyv1.PodDisruptionBudgetSpec {
	return policyv1.PodDisruptionBudgetSpec{
		MinAvailable: new(intstr.FromInt32(minAvailable)),
		Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.GuardLabel: v1alpha1.GuardClosed}},
	}
}

// isGuard reports whether a budget is the guard's, and not another one with our name.
func isGuard(pdb *policyv1.PodDisruptionBudget) bool {
	return pdb.Name == v1alpha1.GuardBudgetName &&
		(pdb.Labels[v1alpha1.GuardBudgetLabel] == "true" || apiequality.Semantic.DeepEqual(pdb.Spec.Selector, budgetSpec().Selector))
}

// asWanted reports whether our budget is as it should be, including its owner, a
// ClusterRole; empty for none.
func asWanted(pdb *policyv1.PodDisruptionBudget, owner string) bool {
	return len(differences(pdb, owner)) == 0
}

// differences are the fields in which our budget differs from what the guard writes.
func differences(pdb *policyv1.PodDisruptionBudget, owner string) []string {
	var fields []string
	differs := func(field string, is bool) {
		if is {
			fields = append(fields, field)
		}
	}
	for key, value := range budgetLabels() {
		if pdb.Labels[key] != value {
			fields = append(fields, "metadata.labels")
			break
		}
	}
	// Other descriptions are allowed.
	differs("metadata.annotations", pdb.Annotations[descriptionAnnotation] == "")
	want, rest := budgetSpec(), pdb.Spec
	differs("metadata.ownerReferences", !ownedBy(pdb, owner))
	differs("spec.minAvailable", !apiequality.Semantic.DeepEqual(pdb.Spec.MinAvailable, want.MinAvailable))
	differs("spec.maxUnavailable", pdb.Spec.MaxUnavailable != nil)
	differs("spec.selector", !apiequality.Semantic.DeepEqual(pdb.Spec.Selector, want.Selector))
	differs("spec.unhealthyPodEvictionPolicy", pdb.Spec.UnhealthyPodEvictionPolicy != nil)
	// A field that this build knows and the ones above are not.
	rest.MinAvailable, rest.MaxUnavailable, rest.Selector, rest.UnhealthyPodEvictionPolicy = nil, nil, nil, nil
	differs("spec", !apiequality.Semantic.DeepEqual(rest, policyv1.PodDisruptionBudgetSpec{}))
	return fields
}

// ownedBy reports whether the budget is deleted with the ClusterRole of that name:
// another owner would keep it. The garbage collector removes it if the role's UID has
// changed.
func ownedBy(pdb *policyv1.PodDisruptionBudget, owner string) bool {
	if owner == "" {
		return true
	}
	if len(pdb.OwnerReferences) != 1 {
		return false
	}
	ref := pdb.OwnerReferences[0]
	return ref.APIVersion == rbacv1.SchemeGroupVersion.String() && ref.Kind == "ClusterRole" && ref.Name == owner
}

// refuses reports whether the budget allows no eviction of pods with the guard's label,
// whatever else it says. Only pods that are not Ready may be excepted, see
// exceptsUnready.
func refuses(pdb *policyv1.PodDisruptionBudget) bool {
	want := budgetSpec()
	return apiequality.Semantic.DeepEqual(pdb.Spec.MinAvailable, want.MinAvailable) && apiequality.Semantic.DeepEqual(pdb.Spec.Selector, want.Selector)
}

// exceptsUnready reports whether the budget allows evictions of running pods that are not
// Ready.
func exceptsUnready(pdb *policyv1.PodDisruptionBudget) bool {
	policy := pdb.Spec.UnhealthyPodEvictionPolicy
	return policy != nil && *policy == policyv1.AlwaysAllow
}

// repaired returns the budget as it should be. The owner may be nil: then its owners stay
// as they are.
func repaired(pdb *policyv1.PodDisruptionBudget, owner *metav1.OwnerReference) *policyv1.PodDisruptionBudget {
	repaired := pdb.DeepCopy()
	if repaired.Labels == nil {
		repaired.Labels = map[string]string{}
	}
	maps.Copy(repaired.Labels, budgetLabels())
	if repaired.Annotations[descriptionAnnotation] == "" {
		metav1.SetMetaDataAnnotation(&repaired.ObjectMeta, descriptionAnnotation, description)
	}
	repaired.Spec = budgetSpec()
	if owner != nil {
		repaired.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return repaired
}

// inForce reports whether the budget refuses evictions with its final answer. Until the
// disruption controller has observed it, the eviction API would send callers a
// Retry-After of 10 s, in which client-go sleeps silently (callers.md, section 5). Other
// fields do not matter: a policy engine may add a field to every budget, and no repair
// would ever last.
func inForce(pdb *policyv1.PodDisruptionBudget) bool {
	return isGuard(pdb) && refuses(pdb) && pdb.DeletionTimestamp == nil &&
		pdb.Status.ObservedGeneration >= max(pdb.Generation, 1)
}

// BudgetInput is everything that a decision about a namespace's budget depends on.
type BudgetInput struct {
	// Budget of our name in the namespace, nil if there is none.
	Budget *policyv1.PodDisruptionBudget
	// Needed: a pod of the namespace has the label, or waits for it.
	Needed bool
	// LastNeeded is when it was needed last; zero means that it is not known to have
	// been.
	LastNeeded time.Time
	// Owner is the name of the ClusterRole that should own it; empty for none.
	Owner string
	// Wait is how long it must not be written yet, because it was written often.
	Wait time.Duration
}

// BudgetAction is what to do about a namespace's budget.
type BudgetAction int

const (
	// BudgetKeep changes nothing.
	BudgetKeep BudgetAction = iota
	// BudgetCreate makes one.
	BudgetCreate
	// BudgetRepair restores it.
	BudgetRepair
	// BudgetDelete removes it.
	BudgetDelete
	// BudgetBlocked says that another budget has our name. It is not changed, and the
	// namespace has no guard.
	BudgetBlocked
)

func (a BudgetAction) String() string {
	return [...]string{"Keep", "Create", "Repair", "Delete", "Blocked"}[a]
}

// BudgetDecision is what to do now, and when to look again; zero means never.
type BudgetDecision struct {
	Action BudgetAction
	WakeAt time.Time
}

// BudgetStep decides about the budget of a namespace. A budget outlives its last
// pod for the delay: the next eviction needs one that is in force already.
func BudgetStep(in BudgetInput, now time.Time, delay time.Duration) BudgetDecision {
	pdb := in.Budget
	switch {
	case pdb == nil && in.Needed && in.Wait > 0:
		return BudgetDecision{WakeAt: now.Add(in.Wait)}
	case pdb == nil && in.Needed:
		return BudgetDecision{Action: BudgetCreate}
	case pdb == nil, pdb.DeletionTimestamp != nil:
		return BudgetDecision{} // Its end is an event.
	case !isGuard(pdb) && in.Needed:
		return BudgetDecision{Action: BudgetBlocked}
	case !isGuard(pdb):
		return BudgetDecision{}
	case !in.Needed && !now.Before(in.LastNeeded.Add(delay)):
		return BudgetDecision{Action: BudgetDelete}
	}
	d := BudgetDecision{}
	if !in.Needed {
		// After a clock jump, no wait is longer than intended.
		d.WakeAt = in.LastNeeded.Add(delay)
		if latest := now.Add(delay); latest.Before(d.WakeAt) {
			d.WakeAt = latest
		}
	}
	switch {
	case asWanted(pdb, in.Owner):
	case in.Wait > 0:
		if again := now.Add(in.Wait); d.WakeAt.IsZero() || again.Before(d.WakeAt) {
			d.WakeAt = again
		}
	default:
		d.Action = BudgetRepair
	}
	return d
}
