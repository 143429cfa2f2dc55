// Package guard protects intercepted pods by a PodDisruptionBudget, so that they are
// safe while Drawbridge is down: the API server refuses their eviction with the same
// 429 as our webhook, which every caller retries.
//
// There is one budget per namespace that allows nothing and selects the label
// drawbridge.dev/guard=closed. The controller adds and removes the label: Step decides
// from what is known about a pod, BudgetStep from what is known about a namespace.
// Everything is level-triggered; what is remembered is a hint.
//
// A budget's selector can express neither CEL nor owners, and the eviction API answers
// 500 for a pod with two budgets. One positive label and one budget per namespace avoid
// both. The API server reads pod and budgets live, so removing the label opens the
// guard immediately.
//
//   - controller.go, setup.go: the controller
//   - gather.go, step.go: one pod
//   - budget.go, budgetstep.go: the budget of a namespace
//   - budgetuse.go: who needs that budget
//   - lastwritten.go: what was written, and how often
//   - owners.go: controllers that select by the label
//   - patch.go: the write to a pod
//   - gate.go: the webhook's question
package guard
