// Package native is the controller that Kubernetes 1.37 lacks for its own API of KEP-4563,
// lifecycle.k8s.io/v1alpha1, and what joins that API to ours: one pod has one sequence,
// whatever asks for its eviction.
//
// A native EvictionRequest is the wish of one requester, a native Eviction the process of one
// pod. Everything about a pod is handled under one key, its UID: its EvictionRequests of both
// kinds and its Evictions. So no two workers ever decide about the same pod, and the races of
// several queues cannot happen. Decide is the pure decision; process.Step decides about the
// responders.
//
// The native Eviction is always on top: ours is nested in one turn of it.
//
//	native EvictionRequest(s) -> Eviction pod-1-web
//	    responders of the pod, by priority
//	    drawbridge.dev/interceptors          = our EvictionRequest of the pod
//	    imperative-eviction.k8s.io/evictor   the evictor of both
//
// A wish that arrives as our EvictionRequest asks natively first: native.drawbridge.dev is then
// an interceptor of its plan, and done as soon as drawbridge.dev/interceptors has its turn.
package native
