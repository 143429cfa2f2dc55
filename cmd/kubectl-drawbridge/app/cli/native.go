package cli

import (
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NativeServed reports whether the cluster serves lifecycle.k8s.io/v1alpha1: then native
// responders of pods are interceptors, unless the manager keeps out of that API. It is false, too,
// if that could not be found out.
func NativeServed(kinds meta.RESTMapper) bool {
	group := lifecyclev1alpha1.SchemeGroupVersion
	_, err := kinds.RESTMapping(schema.GroupKind{Group: group.Group, Kind: "Eviction"}, group.Version)
	return err == nil
}
