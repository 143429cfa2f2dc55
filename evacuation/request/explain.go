package request

// Explain returns the class of an answer to a call of the eviction subresource, as
// the evictor sees it, and the server's own words. Budgets is the number of budgets
// that select the pod. It is for those who tell people about an answer.
func Explain(err error, budgets int) (EvictResult, string) {
	refusal := classifyEviction(err, budgets)
	return refusal.Result, refusal.Detail
}
