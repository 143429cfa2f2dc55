// Package taints asks for the eviction of pods that the taint eviction controller of
// kube-controller-manager is about to delete, so that their interceptors begin while there
// is time. It cannot hold that deletion, which is no eviction.
package taints
