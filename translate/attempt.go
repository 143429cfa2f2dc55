package translate

// Result is the class of an answer to a call of the eviction subresource: a
// closed set, used as a metric label.
type Result string

// The first three are not failures (statement 89); every other one is counted,
// reported and tried again.
const (
	// ResultEvicted means accepted, the pod is being deleted.
	ResultEvicted Result = "evicted"
	// ResultGone means 404, there is no such pod.
	ResultGone Result = "gone"
	// ResultReplaced means 409, another pod has the name.
	ResultReplaced Result = "replaced"

	// ResultBudget means 429, the pod's budget allows no disruption now.
	ResultBudget Result = "budget"
	// ResultBudgetNever means 429, the pod's budget can never allow a disruption as long as
	// its spec and the replicas stay.
	ResultBudgetNever Result = "budget-never-allows"
	// ResultBudgetNotSynced means 429, the budget's status is behind its spec.
	ResultBudgetNotSynced Result = "budget-not-synced"
	// ResultBudgetRefuses means 403, the budget cannot count any more evictions.
	ResultBudgetRefuses Result = "budget-refuses"
	// ResultSeveralBudgets means 500, more than one budget selects the pod.
	ResultSeveralBudgets Result = "several-budgets"
	// ResultOwnWebhook means 429 of our own webhook; that replica has not seen yet that
	// the last stage was reached.
	ResultOwnWebhook Result = "own-webhook"
	// ResultWebhook means 429 of somebody else's webhook.
	ResultWebhook Result = "webhook"
	// ResultOverloaded means 429, the server sheds load.
	ResultOverloaded Result = "overloaded"
	// ResultForbidden means 403 of RBAC or of an admission plugin.
	ResultForbidden Result = "forbidden"
	// ResultNamespaceTerminating means 403, the namespace is being deleted.
	ResultNamespaceTerminating Result = "namespace-terminating"
	// ResultConflict means 409 although the pod is the right one.
	ResultConflict Result = "conflict"
	// ResultServerTimeout means the server gave up on the call, for example because the
	// budget changed all the time (504).
	ResultServerTimeout Result = "server-timeout"
	// ResultDeadline means no answer within our own deadline. The eviction may have
	// happened.
	ResultDeadline Result = "deadline"
	// ResultServerError means any other answer of 500 and above.
	ResultServerError Result = "server-error"
	// ResultOther means everything else, connection failures among it.
	ResultOther Result = "other"
)

// Results are all classes. Metrics and their reference have them in this order.
func Results() []Result {
	return []Result{
		ResultEvicted, ResultGone, ResultReplaced,
		ResultBudget, ResultBudgetNever, ResultBudgetNotSynced, ResultBudgetRefuses, ResultSeveralBudgets, ResultOwnWebhook, ResultWebhook,
		ResultOverloaded, ResultForbidden, ResultNamespaceTerminating, ResultConflict, ResultServerTimeout, ResultDeadline,
		ResultServerError, ResultOther,
	}
}

// Failed reports whether an answer of this class counts as a failed eviction.
func (r Result) Failed() bool {
	return r != "" && r != ResultEvicted && r != ResultGone && r != ResultReplaced
}

// BlockedByBudget reports whether a change of a budget can make a difference.
func (r Result) BlockedByBudget() bool {
	switch r {
	case ResultBudget, ResultBudgetNever, ResultBudgetNotSynced, ResultBudgetRefuses, ResultSeveralBudgets:
		return true
	default:
		return false
	}
}

// Trigger is what makes an attempt happen: a closed set, used as a metric
// label.
type Trigger string

const (
	// TriggerFirst is the first attempt of this process.
	TriggerFirst Trigger = "first"
	// TriggerBackoff says that the time to wait is over.
	TriggerBackoff Trigger = "backoff"
	// TriggerBudget says that a budget that selects the pod started to allow
	// disruptions, or stopped to select it.
	TriggerBudget Trigger = "budget"
)

// Triggers are all of them.
func Triggers() []Trigger { return []Trigger{TriggerFirst, TriggerBackoff, TriggerBudget} }
