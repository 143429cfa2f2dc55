// Package preemption keeps kube-scheduler from violating some PodDisruptionBudgets
// (KEP-3280). The scheduler itself violates any budget if it finds no other way to
// place a pod of higher priority. A PriorityClass with the annotation
// drawbridge.dev/allow-disruption-by-priority-greater-than-or-equal allows that to
// preemptors of at least this priority only.
//
// It is enforced by a scheduler extender (k8s.io/kube-scheduler/extender/v1) with only
// the verb preempt. The scheduler posts the preemptor and, per candidate node, the
// victims; nodes that are not in the answer are not used. Handler decodes and gathers
// from the View, which follows pods, budgets and classes; Decide decides; Handler
// answers, remembers the decision in RecentDecisions and records an event on the preemptor.
// If no node is left, Alternatives lists the pods of a few nodes, and Alternative finds
// other victims there that free as much. Errors are HTTP errors: with `ignorable: true`
// the scheduler then continues without us.
//
// The scheduler deletes its victims, whereas in the KEP it evicts them. Between our
// answer and the deletion the budget may change. Deletes handles that: called by a
// webhook for deletions by the scheduler only, it refuses if a decision of the last
// seconds covers the victim and the budget has changed since.
//
//   - server.go, handler.go, decode.go: the extender
//   - authenticate.go: who may call
//   - view.go, budgets.go: pods, budgets and classes, in memory
//   - requests.go: what pods request, as schedulers count it
//   - decide.go, explain.go: the decision, in words, too
//   - alternatives.go, view_alternatives.go: looks for other victims on the same node
//   - alternative.go: chooses them
//   - recent.go: the decisions of the last seconds
//   - deletes.go: deletions by the scheduler
//   - emit.go: events
package preemption
