// Package surge is the interceptor surge.drawbridge.dev: a pod of a Deployment
// gets its replacement first and is evicted then, so that a drain makes no gap,
// even where a budget forbids every disruption of a single replica.
//
// The pod is handed up: it loses its label pod-template-hash, and its controller
// is the Deployment instead of the ReplicaSet. The ReplicaSet sees one pod fewer
// and creates a replacement; the old pod goes on serving, because Services select
// by the application's labels; and the budget, which counts by the Deployment's
// scale, sees one healthy pod more than expected and allows a disruption. Neither
// the Deployment nor its replicas, its autoscaler or what GitOps compares is
// touched. What was taken stands in an annotation of the pod, so that any manager
// can go on or give the pod back.
//
// The package is built on the SDK in evacuation/interceptor like anybody's
// interceptor. step and returnStep decide; Surge gathers for them and applies.
package surge

import "k8s.io/apimachinery/pkg/types"

const (
	// Name of the interceptor.
	Name = "surge.drawbridge.dev"

	// OptInLabel on a pod or its namespace says whether its Deployment surges:
	// "enabled" or "disabled". The chart's registration looks at it.
	OptInLabel = "drawbridge.dev/surge"

	// HandedUpAnnotation is on a pod that was handed up; its value says what was
	// taken.
	HandedUpAnnotation = "drawbridge.dev/handed-up"
	// FailedAnnotation is on a pod that was given back because it got no
	// replacement; its value says for which request, and why. It keeps a manager
	// that was killed in between from trying the same again.
	FailedAnnotation = "drawbridge.dev/surge-failed"
)

// keyOf names an object.
func keyOf(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}
