// Package surge is the interceptor surge.drawbridge.dev: a pod of a Deployment gets its
// replacement first and is evicted afterwards, so that a drain causes no downtime, even
// if a budget forbids every disruption of a single replica.
//
// The pod is handed up: it loses its label pod-template-hash, and its controller is the
// Deployment instead of the ReplicaSet. The ReplicaSet sees one pod fewer and creates a
// replacement. The old pod keeps serving, because Services select by the application's
// labels. The budget, which uses the Deployment's scale, sees one healthy pod more than
// expected and allows a disruption. The Deployment, its replicas, its autoscaler and
// what GitOps compares do not change. An annotation of the pod has what was taken, so
// that any manager can continue or give the pod back.
//
// A pod of another owner of ReplicaSets, such as a Rollout of Argo Rollouts, is set free
// instead: it has no controller until it is evicted or given back. Owner.go says why.
//
// The package uses the SDK in evacuation/interceptor like any interceptor. step and
// returnStep decide; Surge gathers and applies.
//
//   - surge.go: the interceptor
//   - gather.go, input.go: the input of a decision
//   - step.go: the decision
//   - giveback.go: the decision about a pod that is handed up
//   - handups.go: which pods are handed up
//   - patch.go: the writes to pods
//   - owner.go: ReplicaSets of other owners than Deployments
//   - volumes.go: whether two pods can mount a volume
//   - follow.go, cache.go: which requests depend on what
//   - orphans.go: handed-up pods without a request
//   - setup.go: the controllers
package surge

import "k8s.io/apimachinery/pkg/types"

const (
	// Name of the interceptor.
	Name = "surge.drawbridge.dev"

	// OptInLabel on a pod or its namespace says whether its owner surges:
	// "enabled" or "disabled". The chart's registration selects by it.
	OptInLabel = "drawbridge.dev/surge"

	// HandedUpAnnotation is on a pod that was handed up or set free; its value says what
	// was taken.
	HandedUpAnnotation = "drawbridge.dev/handed-up"
	// FailedAnnotation is on a pod that was given back because it got no replacement;
	// its value says for which request, and why. It keeps a manager that was killed in
	// between from repeating the attempt.
	FailedAnnotation = "drawbridge.dev/surge-failed"
)

// keyOf names an object.
func keyOf(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}
