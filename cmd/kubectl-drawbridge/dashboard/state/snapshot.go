// Package state watches what the dashboard shows.
package state

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
)

// Snapshot is everything that was watched, at one moment. Nothing of it may be changed: the
// objects are those of the watches. All lists are sorted by namespace and name.
type Snapshot struct {
	// Version is greater after each change of an object; two snapshots with the same version
	// have the same objects.
	Version uint64
	// Now is the time of the snapshot.
	Now time.Time

	Nodes        []*corev1.Node
	Pods         []*corev1.Pod
	Namespaces   []*corev1.Namespace
	Maintenances []*v1alpha1.NodeMaintenance
	Requests     []*v1alpha1.EvictionRequest
	Evictions    []*lifecyclev1alpha1.Eviction
	Interceptors []*v1alpha1.EvictionInterceptor
	Hooks        []*v1alpha1.EvacuationHook
	PDBs         []*policyv1.PodDisruptionBudget
	Budgets      []*v1alpha1.EvictionBudget

	// NodeByName, PodsByNode, PodByUID, and those that evict pods of a node, or a pod (by its UID).
	NodeByName      map[string]*corev1.Node
	PodsByNode      map[string][]*corev1.Pod
	PodByUID        map[types.UID]*corev1.Pod
	ProcessesByNode map[string][]turns.Process
	ProcessByPod    map[types.UID]turns.Process

	// Heartbeats are those that were seen since the dashboard began, by request (its UID) and
	// interceptor. The requests themselves have only the last one.
	Heartbeats map[HeartbeatKey][]time.Time

	// Gaps say what is left out or may be old; empty if all is well.
	Gaps []Gap
	// Installed is how the manager was installed.
	Installed cli.Installation
}

// HeartbeatKey is the turn of an interceptor.
type HeartbeatKey struct {
	Request     types.UID
	Interceptor string
}

// Gap is a kind that could not be read, or whose watch is broken.
type Gap struct {
	// Resource, for example "evictionrequests".
	Resource string
	// Why, for people.
	Why string
	// Since when what is shown of it is old; zero if nothing of it is shown.
	Since time.Time
}
