package v1alpha1

// Names of the guard: Drawbridge's PodDisruptionBudgets that protect intercepted pods,
// even while Drawbridge is down.
const (
	// GuardLabel is on protected pods, with the value GuardClosed. The guard controller
	// adds and removes it.
	GuardLabel = GroupName + "/guard"
	// GuardClosed is the value of GuardLabel that the guard's budgets select.
	GuardClosed = "closed"
	// GuardBudgetLabel is "true" on the guard's budgets, so that alerts can exclude
	// them.
	GuardBudgetLabel = GroupName + "/guard-budget"
	// GuardBudgetName is the name of the guard's budget, one per namespace.
	GuardBudgetName = "drawbridge-guard"
)
