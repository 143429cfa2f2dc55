// Package grant decides which pods of an EvictionBudget may be evicted now. It is pure: the
// input is a value with the time in it, and there is no client.
//
// # What counts
//
// A pod is available if it is ready, has been so for the time to settle, is not being
// deleted and has not been granted. What should run is what the owners' scales say, as for
// a PodDisruptionBudget: a pod that is missing counts as unavailable, in the group of the
// last one that has left and whose place no other pod of that group has taken. A group with
// an unavailable pod is disrupted.
//
// # What is granted
//
// Requests are granted in the order of their age, each by all budgets of its pod or by none.
// A pod that is not ready may go whatever is unavailable, since that makes nothing worse.
// While a group is disrupted its own pods may be granted before older requests of other
// groups, which is what makes a zone go at once; but only those that are at most Overtake
// younger, so that the others get their turn.
//
//   - types.go: input and result
//   - rules.go: a budget's spec
//   - step.go: the decision
//   - count.go: available and disrupted
//   - missing.go: pods that have left and have no successor
//   - window.go: when windows open
package grant
