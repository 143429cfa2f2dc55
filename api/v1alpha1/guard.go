package v1alpha1

// Words of the guard: PodDisruptionBudgets of Drawbridge's that protect
// intercepted pods, also while Drawbridge is down.
const (
	// GuardLabel is on pods that are protected now, with the value GuardClosed. The
	// guard controller puts it on and takes it off.
	GuardLabel = GroupName + "/guard"
	// GuardClosed is the value of GuardLabel that the guard's budgets select.
	GuardClosed = "closed"
	// GuardBudgetLabel is "true" on the guard's budgets, so that alerts can leave
	// them out.
	GuardBudgetLabel = GroupName + "/guard-budget"
	// GuardBudgetName is the name of the guard's budget, one per namespace.
	GuardBudgetName = "drawbridge-guard"
)
