// Package index declares the indexes of the informer cache, so that no look-up
// walks over all objects.
package index

import (
	"context"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// Names of the indexes, for client.MatchingFields.
const (
	// RequestsByPodName finds EvictionRequests by the name of their pod. Combine it
	// with client.InNamespace: the name alone says nothing.
	RequestsByPodName = "podname"
	// RequestsByLease finds EvictionRequests, of all namespaces, by the lease name
	// of any of their requesters.
	RequestsByLease = "leasename"
	// RequestsByMaintenance finds EvictionRequests, of all namespaces, by the name of
	// any requester that is a NodeMaintenance.
	RequestsByMaintenance = "maintenance"
	// PodsByNode finds pods, of all namespaces, by the node they run on.
	PodsByNode = "nodename"
	// LeasesByNode finds the Leases of legacy requesters by the node they drain.
	LeasesByNode = "node"
)

// one is an index of one kind.
type one struct {
	object  client.Object
	name    string
	extract client.IndexerFunc
}

// all lists the indexes. The fake clients of tests get the same list, see All.
var all = []one{
	{&v1alpha1.EvictionRequest{}, RequestsByPodName, podName},
	{&v1alpha1.EvictionRequest{}, RequestsByLease, leaseNames},
	{&v1alpha1.EvictionRequest{}, RequestsByMaintenance, maintenances},
	{&corev1.Pod{}, PodsByNode, podNode},
	{&coordinationv1.Lease{}, LeasesByNode, leaseNode},
}

// Setup adds the indexes to a cache that has not been started.
func Setup(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range all {
		if err := indexer.IndexField(ctx, i.object, i.name, i.extract); err != nil {
			return fmt.Errorf("index %T by %s: %w", i.object, i.name, err)
		}
	}
	return nil
}

// All calls add for every index, for the builders of fake clients.
func All(add func(object client.Object, name string, extract client.IndexerFunc)) {
	for _, i := range all {
		add(i.object, i.name, i.extract)
	}
}

func podName(obj client.Object) []string {
	request, ok := obj.(*v1alpha1.EvictionRequest)
	if !ok || request.Spec.Target.Pod == nil {
		return nil
	}
	return []string{request.Spec.Target.Pod.Name}
}

func leaseNames(obj client.Object) []string {
	request, ok := obj.(*v1alpha1.EvictionRequest)
	if !ok {
		return nil
	}
	var names []string
	for _, r := range request.Spec.Requesters {
		if r.LeaseName != "" {
			names = append(names, r.LeaseName)
		}
	}
	return names
}

func maintenances(obj client.Object) []string {
	request, ok := obj.(*v1alpha1.EvictionRequest)
	if !ok {
		return nil
	}
	var names []string
	for _, r := range request.Spec.Requesters {
		if strings.HasSuffix(r.Name, "."+v1alpha1.MaintenanceRequesterSuffix) {
			names = append(names, r.Name)
		}
	}
	return names
}

func podNode(obj client.Object) []string {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return nil
	}
	return []string{pod.Spec.NodeName}
}

// leaseNode is nothing for a Lease that is not ours or cannot be read.
func leaseNode(obj client.Object) []string {
	lease, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return nil
	}
	rec, err := translate.DecodeLease(lease)
	if err != nil || rec.Node == "" {
		return nil
	}
	return []string{rec.Node}
}
