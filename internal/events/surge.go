package events

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of the events of the surge interceptor.
const (
	ReasonPodHandedUp     = "PodHandedUp"
	ReasonPodGivenBack    = "PodGivenBack"
	ReasonPodNotGivenBack = "PodNotGivenBack"
	ReasonSurgeDeclined   = "SurgeDeclined"
)

// actionSurge is the action of the events of the surge interceptor.
const actionSurge = "ReplacePod"

// PodHandedUp says that the pod's ReplicaSet makes a replacement for it.
func PodHandedUp(pod, deployment string) Event {
	return normal(ReasonPodHandedUp, actionSurge, "Pod %s was handed up to Deployment %s; a replacement is made before it is evicted.", pod, deployment)
}

// PodGivenBack says that the pod belongs to its ReplicaSet again. The reason is a
// word, the message, which may be empty, explains it.
func PodGivenBack(pod, set, reason, message string) Event {
	e := Event{
		Type: corev1.EventTypeNormal, Reason: ReasonPodGivenBack, Action: actionSurge,
		Note: fmt.Sprintf("Pod %s was given back to ReplicaSet %s (%s).", pod, set, reason),
	}
	if message != "" {
		e.Type = corev1.EventTypeWarning
		e.Note += " " + message
	}
	return e
}

// PodNotGivenBack says that a pod stays handed up until it is evicted.
func PodNotGivenBack(deployment string) Event {
	return normal(ReasonPodNotGivenBack, actionSurge, "Deployment %s does not want a pod of this revision any more; it is evicted once the Deployment is available without it.", deployment)
}

// SurgeDeclined says why a pod is not replaced beforehand.
func SurgeDeclined(message string) Event {
	return Event{Type: corev1.EventTypeNormal, Reason: ReasonSurgeDeclined, Action: actionSurge, Note: message}
}
