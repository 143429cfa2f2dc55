package v1alpha1

// Names of the rule that kube-scheduler may not violate some budgets (KEP-3280).
const (
	// AllowDisruptionAnnotation is on a PriorityClass: a decimal int32, at most
	// MaxAllowDisruption. Preemptors of a lower priority may not violate the
	// PodDisruptionBudgets of the class's pods. It replaces the KEP's field
	// allowDisruptionByPriorityGreaterThanOrEqual of the class and of the pod: if the
	// API server has MutatingAdmissionPolicies, every pod created with such a class
	// also has it, with the value at that time.
	AllowDisruptionAnnotation = GroupName + "/allow-disruption-by-priority-greater-than-or-equal"

	// MaxAllowDisruption is the largest value of AllowDisruptionAnnotation, the
	// priority of system-cluster-critical: pods that the cluster needs to run may
	// always preempt (KEP-3280, "Design Details").
	MaxAllowDisruption int32 = 2_000_000_000
)
