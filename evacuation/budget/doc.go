// Package budget enforces EvictionBudgets: the interceptor budgets.drawbridge.dev has its
// turn for each pod that one covers, and ends it when all of them grant the eviction. Which
// they grant is decided by package grant. A grant is recorded in the status of the budget,
// with the resourceVersion that was read last, and only then reported to the request; so it is
// given once whoever dies when.
//
//   - state.go, requests.go: budgets, pods and waiting requests, in memory
//   - compiled.go: one generation of a budget
//   - grants.go: what is recorded of a budget
//   - cache.go: the informers, and what they keep
//   - owners.go: the scales of owners
//   - gather.go: the input of a decision
//   - runner.go, apply.go: decides about a namespace and writes
//   - sequence.go: one decision of a namespace after the other
//   - status.go: the status of a budget
//   - interceptor.go: the turn of a pod
//   - exhausted.go: consent that a pod goes in spite of a PodDisruptionBudget
//   - setup.go: controllers and informers
package budget
