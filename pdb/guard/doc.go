// Package guard protects intercepted pods by a PodDisruptionBudget, so that they
// are safe while Drawbridge is down: the API server refuses their eviction with
// the same 429 that our webhook would answer, and every caller retries that.
//
// There is one budget per namespace that allows nothing and selects the label
// drawbridge.dev/guard=closed. The controller puts the label on pods and takes it
// off: Step decides from what is known of a pod, BudgetStep from what is known of
// a namespace. Everything is level-triggered; what is remembered is a hint.
//
// A budget's selector can express neither CEL nor owners, and the eviction API
// answers 500 for a pod with two budgets. One positive label and one budget per
// namespace avoid both. The API server reads pod and budgets live, so taking the
// label off opens the guard at once.
package guard
