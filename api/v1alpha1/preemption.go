package v1alpha1

// Words of the rule that kube-scheduler may not break some budgets (KEP-3280).
const (
	// AllowDisruptionAnnotation is on a PriorityClass: a decimal int32, at most
	// MaxAllowDisruption. Preemptors of a lower priority may not violate the
	// PodDisruptionBudgets of the class's pods. It stands in for the KEP's field
	// allowDisruptionByPriorityGreaterThanOrEqual, of the class and of the pod: where
	// the API server has MutatingAdmissionPolicies, it is also on every pod that was
	// created with such a class, with the value of that time.
	AllowDisruptionAnnotation = GroupName + "/allow-disruption-by-priority-greater-than-or-equal"

	// MaxAllowDisruption is the largest value of AllowDisruptionAnnotation, the
	// priority of system-cluster-critical: what the cluster needs to run may always
	// preempt (KEP-3280, "Design Details").
	MaxAllowDisruption int32 = 2_000_000_000
)
