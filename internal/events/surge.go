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

// PodHandedUp says that the pod's ReplicaSet makes a replacement for it. The owner is named
// with its kind, as in "Deployment web".
func PodHandedUp(pod, owner string) Event {
	return normal(ReasonPodHandedUp, actionSurge, "Pod %s was handed up to %s; a replacement is made before it is evicted.", pod, owner)
}

// PodSetFree says the same of a pod of a ReplicaSet that is of no Deployment: it has no
// controller for a while. The owner is named with its kind, as in "ReplicaSet web-5d4f".
func PodSetFree(pod, owner string) Event {
	return normal(ReasonPodHandedUp, actionSurge, "Pod %s was set free from %s; a replacement is made before it is evicted.", pod, owner)
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

// PodNotGivenBack says that a pod stays handed up until it is evicted. The owner is named
// with its kind.
func PodNotGivenBack(owner string) Event {
	return normal(ReasonPodNotGivenBack, actionSurge, "%s does not want a pod of this revision any more; it is evicted once all replicas are available without it.", owner)
}

// SurgeDeclined says why a pod is not replaced beforehand.
func SurgeDeclined(message string) Event {
	return Event{Type: corev1.EventTypeNormal, Reason: ReasonSurgeDeclined, Action: actionSurge, Note: message}
}
