// Package maintenance is the controller of NodeMaintenances (KEP-4212): it cordons
// the nodes that are selected, has their pods evacuated by EvictionRequests, and
// gives the nodes back.
//
// Three controllers share the work, each with a pure function that decides:
// PlanStep says for one maintenance which node is to be in which stage and what
// the status is; NodeStep says what becomes of one node, on behalf of all its
// maintenances; PodStep says what becomes of one pod.
//
// What must outlive this process stands in the API: the stage of a maintenance on
// a node, and who has cordoned the node, are annotations of the node; what has been
// asked of a pod is in its EvictionRequest and its conditions. Everything is
// level-triggered: a wish that nobody has any more is withdrawn wherever it is
// seen, whatever happened to its maintenance. The tally, which counts pods, is a
// hint; before a node counts as drained, its pods are listed live.
package maintenance
