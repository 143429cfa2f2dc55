// Package order is the interceptor order.drawbridge.dev: a pod waits until the pods of its node
// have left that leave first, as spec.after of its registrations says. Package registration
// gives it its place among the interceptors of a pod. It changes nothing, so it has nothing to
// undo.
//
// A pod waits for another one on the same node that
//
//   - is selected by spec.after of one of the registrations of its interceptors,
//   - leaves: it is being deleted, its eviction is requested, or the node is drained, because
//     drain tools ask for the pods of a node in any order,
//   - has not ended, and is neither a mirror pod nor one of a DaemonSet, which drains leave where
//     they are,
//   - and does not wait for the first one in turn, directly or by way of others. Who waits for
//     whom depends on the pods and their registrations alone, and not on how far each is. So
//     all pods of such a circle find it, and none of them waits for another one of it.
//
// When the timeout has passed since its turn began, it waits no longer. So no drain is without
// an end.
//
//   - decide.go: the decision
//   - gather.go: the input of a decision
//   - order.go: the interceptor
//   - follow.go: which events matter to whom
//   - setup.go: the controller
package order
