// Package preemption keeps kube-scheduler from breaking some PodDisruptionBudgets
// (KEP-3280). The scheduler itself breaks any budget when it finds no other way to
// place a pod of higher priority. A PriorityClass with the annotation
// drawbridge.dev/allow-disruption-by-priority-greater-than-or-equal allows that to
// preemptors of at least this priority only.
//
// It is enforced by a scheduler extender (k8s.io/kube-scheduler/extender/v1) with
// only the verb preempt. The scheduler posts the preemptor and, per candidate node,
// the victims; nodes that are not in the answer are not used. Handler decodes and
// gathers from the View, which follows pods, budgets and classes; Decide decides;
// Handler answers, remembers the decision in the Ledger and tells the preemptor by
// an event. Where no node is left, Substitutes lists the pods of a few nodes, and
// Substitute names other victims there that free as much. Errors are HTTP errors: with
// `ignorable: true` the scheduler then goes on as without us.
//
// The scheduler deletes its victims where the KEP has it evict them. Between our
// answer and the deletion the budget may change. Deletes is about that: asked by a
// webhook for deletions by the scheduler only, it refuses where a decision of the
// last seconds covers the victim and the budget has changed since.
package preemption
