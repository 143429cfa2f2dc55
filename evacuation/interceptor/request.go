package interceptor

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// request is what an object says about this interceptor, whichever of the two APIs it
// belongs to.
type request struct {
	// Key identifies the pod: its namespace and UID.
	Key types.NamespacedName
	// Version is the resourceVersion of the object.
	Version string
	Turn    turn
	Item    item
	// Target has its times by the API server's clock, and labels that are shared with the
	// cache. If there is no turn and nothing to save, it only identifies the request.
	Target Target
	// Start is when the turn began, if the API's controller sets the startTime.
	Start time.Time
	// Evicted: the pod has ended.
	Evicted bool
	// Revocable: it can always be canceled. This is the trial of a hook, or the API has no
	// word for the point of no return.
	Revocable bool
	// MustSave: a requester does not wait, and the turn may never come.
	MustSave bool
	// HeartbeatDeadline is 0 if it is that of the installation.
	HeartbeatDeadline time.Duration
	// OfPod: the object does not have what Target says of the pod itself.
	OfPod bool
}

// same reports whether an interceptor would be told the same. Reports, including its
// own, are no reason to reconcile.
func (q *request) same(other *request) bool {
	a, b := q.Target, other.Target
	return a.NodeName == b.NodeName && a.Deadline.Equal(b.Deadline) && a.NodeLost == b.NodeLost && q.MustSave == other.MustSave &&
		maps.Equal(a.Labels, b.Labels) && slices.Equal(a.Requesters, b.Requesters)
}

// concerns reports whether there is something to do for the interceptor.
func (q *request) concerns() bool { return q.Turn != noTurn || q.MustSave }

// dialect is an API that has evictions, as one interceptor sees it.
type dialect interface {
	// kind is the kind of its requests.
	kind() schema.GroupVersionKind
	// decode returns nil if the object is none of them.
	decode(obj client.Object) *request
	// note tells of an object that the cache has, or does not have any more.
	note(obj client.Object, exists bool)
	// find reads the request of a pod from the cache, nil if there is none.
	find(ctx context.Context, cached client.Reader, pod types.NamespacedName) (*request, error)
	// get reads one request, nil if there is none.
	get(ctx context.Context, reader client.Reader, name types.NamespacedName) (*request, error)
	// write applies only the interceptor's own item, to this version of the request.
	write(ctx context.Context, c client.Client, owner string, to *request, item item) error
}
