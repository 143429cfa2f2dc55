package cli

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/evacuation/native/charge"
)

// DefaultNativeState is the name of the ConfigMap that says who moves native Evictions.
const DefaultNativeState = "drawbridge-native"

// NativeServed reports whether the cluster serves lifecycle.k8s.io/v1alpha1: then native
// responders of pods are interceptors, unless the manager keeps out of that API. It is false, too,
// if that could not be found out.
func NativeServed(kinds meta.RESTMapper) bool {
	group := lifecyclev1alpha1.SchemeGroupVersion
	_, err := kinds.RESTMapping(schema.GroupKind{Group: group.Group, Kind: "Eviction"}, group.Version)
	return err == nil
}

// NativeEvictions lists the Evictions of Kubernetes' own API. There are none where that is not
// served, which costs no call, and none if the manager keeps out of it.
func (o *Options) NativeEvictions(ctx context.Context, c *Connection, options ...client.ListOption) ([]lifecyclev1alpha1.Eviction, error) {
	if !NativeServed(c.RESTMapper()) || !o.Installed(ctx, c).Native {
		return nil, nil
	}
	var list lifecyclev1alpha1.EvictionList
	err := c.listIfKnown(ctx, &list, "evictions.lifecycle.k8s.io", options)
	return list.Items, err
}

// NativeEvictionsIfAllowed lists them for commands that have an answer without them. Who may not
// read them is warned.
func (o *Options) NativeEvictionsIfAllowed(ctx context.Context, c *Connection, options ...client.ListOption) ([]lifecyclev1alpha1.Eviction, error) {
	evictions, err := o.NativeEvictions(ctx, c, options...)
	return evictions, o.warnIfForbidden("native Evictions, and with them whose turn it is among native responders,", err)
}

// NativeRequestsIfAllowed lists the EvictionRequests of Kubernetes' own API, whoever moves them. There
// are none where that is not served, which costs no call. Who may not read them is warned.
func (o *Options) NativeRequestsIfAllowed(ctx context.Context, c *Connection, options ...client.ListOption) ([]lifecyclev1alpha1.EvictionRequest, error) {
	if !NativeServed(c.RESTMapper()) {
		return nil, nil
	}
	var list lifecyclev1alpha1.EvictionRequestList
	err := c.listIfKnown(ctx, &list, "evictionrequests.lifecycle.k8s.io", options)
	return list.Items, o.warnIfForbidden("native EvictionRequests", err)
}

// InCharge says who moves native Evictions, in words; empty where the API is not served.
func (o *Options) InCharge(ctx context.Context, c *Connection, installed Installation) string {
	switch {
	case !NativeServed(c.RESTMapper()):
		return ""
	case installed.NativeOff:
		return "not Drawbridge (native.controllers is Off)"
	case installed.NativeMode == charge.Cluster:
		return "the cluster (native.controllers is Cluster)"
	}
	stored := &corev1.ConfigMap{}
	err := c.Get(ctx, client.ObjectKey{Namespace: o.System, Name: cmp.Or(installed.NativeState, DefaultNativeState)}, stored)
	switch {
	case apierrors.IsNotFound(err) && installed.Unread != "":
		return "not known"
	case apierrors.IsNotFound(err):
		return "nobody yet"
	case err != nil:
		return fmt.Sprintf("not known (%v)", err)
	default:
		return string(charge.StateOf(stored).InCharge)
	}
}
