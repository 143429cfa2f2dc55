// Package v1alpha1 is the API of Drawbridge, group drawbridge.dev, version v1alpha1.
// Its EvictionRequest has the shape of the one in KEP-4563, so what is written for one
// reads like the other.
//
// +kubebuilder:object:generate=true
// +groupName=drawbridge.dev
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package="applyconfiguration"
package v1alpha1
