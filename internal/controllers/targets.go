package controllers

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// PodOfRequest is the pod that a request targets. It is a handler.MapFunc.
func PodOfRequest(_ context.Context, obj client.Object) []reconcile.Request {
	er, ok := obj.(*v1alpha1.EvictionRequest)
	if !ok || er.Spec.Target.Pod == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: er.Namespace, Name: er.Spec.Target.Pod.Name}}}
}
