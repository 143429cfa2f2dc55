// Package maintenance is the controller of NodeMaintenances (KEP-4212): it cordons the
// selected nodes, evacuates their pods with EvictionRequests, and releases the nodes.
//
// Three controllers share the work, each with a pure function that decides: PlanStep
// decides, for one maintenance, the stage of each node and the status; NodeStep decides
// about one node, for all its maintenances; PodStep decides about one pod. A fourth one calls the
// evictions of pods of DaemonSets, which may take long.
//
// What must outlive this process is in the API: annotations of the node have the stage
// and the wave of each maintenance and who cordoned the node; the EvictionRequest and the
// conditions of a pod say what was requested. Everything is level-triggered: a request that is no
// longer wanted is withdrawn, whatever happened to its maintenance. The counts of
// pods are a hint; before a node counts as drained, its pods are listed live.
//
//   - controller.go, setup.go: the controllers
//   - plans.go, planstep.go, planstatus.go: one maintenance
//   - selector.go: the nodes that it selects
//   - nodes.go, nodestep.go: one node
//   - entries.go: the annotation of a node
//   - waves.go: the order of the pods of a node
//   - pods.go, podstep.go: one pod
//   - daemons.go, daemonstep.go: pods of DaemonSets, which get no request
//   - podcounts.go: counts of pods by node
//   - decided.go: what maintenances have decided
//   - restored.go: nodes of which a cordon or a taint was made again
//   - failures.go: pods that could not be asked to go
package maintenance
