package deadline

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/index"
	"github.com/drawbridge-dev/drawbridge/internal/informers"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// Sources are what deadlines are learnt from.
type Sources struct {
	// Kinds are the options of translate.DeadlineKinds.
	Kinds []string
	// Taints says how long after a taint of that key its node goes.
	Taints map[string]time.Duration
	// Patience says how long callers of a class wait, from their first call for a node.
	Patience map[translate.CallerClass]time.Duration
}

// Book knows the deadlines of nodes and of callers, and which nodes are lost. All fields but
// Sources are required.
type Book struct {
	Sources

	// Cache has nodes, pods, requests, and the Leases of callers.
	Cache cache.Cache
	// Live reads a Lease, or a node, that the cache does not have yet.
	Live client.Reader
	// Dynamic and Mapper read the kinds of others.
	Dynamic dynamic.Interface
	Mapper  meta.RESTMapper
	Clock   clock.PassiveClock
	Log     logr.Logger
	// Namespace is where the Leases are.
	Namespace string

	mu sync.Mutex
	// begin reads a kind, and wake wakes the controller for the requests of a node, for as
	// long as the controller lives.
	begin func(translate.DeadlineKind, *kind) error
	wake  func(node string)
	// kinds are those that some node has objects of, by option.
	kinds map[string]*kind
	// learnt are the deadlines that objects say, by node and by object; objects has the same by
	// object.
	learnt  map[string]map[types.NamespacedName]translate.Learnt
	objects map[types.NamespacedName]entry
	// shown is what the taints of a node, and its condition Ready if it is not True, say.
	shown map[string]string
}

// entry is what one object says, of which node.
type entry struct {
	translate.Learnt

	node string
}

// Start follows the nodes. It is a source.Func of the controller of requests, which is woken
// for the requests of a node when a deadline of that changes, or when it may be lost or back.
func (b *Book) Start(ctx context.Context, queue controllers.Queue) error {
	b.reset()
	b.begin = func(of translate.DeadlineKind, begun *kind) error { return b.run(ctx, of, begun) }
	b.wake = func(node string) { b.wakeRequests(ctx, queue, node) }
	_, err := informers.Follow(ctx, b.Cache, &corev1.Node{}, informers.Handlers(b.nodeSeen, b.nodeGone))
	return err //nolint:wrapcheck // It says what could not be watched.
}

func (b *Book) reset() {
	b.kinds, b.shown = map[string]*kind{}, map[string]string{}
	b.learnt, b.objects = map[string]map[types.NamespacedName]translate.Learnt{}, map[types.NamespacedName]entry{}
}

func (b *Book) nodeSeen(node *corev1.Node) {
	for _, of := range translate.DeadlineKinds() {
		if slices.Contains(b.Kinds, of.Option) && of.Concerns(node) {
			b.follow(of)
		}
	}
	says := ""
	for _, d := range translate.TaintDeadlines(node, b.Taints) {
		says += fmt.Sprintln(d.Source, d.At.Unix())
	}
	if loss := translate.NodeLossOf(node); loss != (translate.NodeLoss{}) {
		says += fmt.Sprintln(loss.Why, loss.At.Unix())
	}
	b.mu.Lock()
	changed := b.shown[node.Name] != says
	if b.shown[node.Name] = says; says == "" {
		delete(b.shown, node.Name)
	}
	b.mu.Unlock()
	if changed {
		b.wake(node.Name)
	}
}

func (b *Book) nodeGone(node *corev1.Node) {
	b.mu.Lock()
	delete(b.shown, node.Name)
	b.mu.Unlock()
	b.wake(node.Name)
}

// NodeLoss is the loss of a node. That it is gone is confirmed by a live GET: a pod's event
// may come before that of its node.
func (b *Book) NodeLoss(ctx context.Context, name string) (translate.NodeLoss, error) {
	if name == "" {
		return translate.NodeLoss{}, nil
	}
	node, key := &corev1.Node{}, types.NamespacedName{Name: name}
	err := b.Cache.Get(ctx, key, node, client.UnsafeDisableDeepCopy) // It is only read.
	if apierrors.IsNotFound(err) {
		node = &corev1.Node{}
		err = b.Live.Get(ctx, key, node)
	}
	switch {
	case apierrors.IsNotFound(err):
		return translate.NoNode(), nil
	case err != nil:
		return translate.NodeLoss{}, fmt.Errorf("get node %s to see whether it is lost: %w", name, err)
	}
	return translate.NodeLossOf(node), nil
}

// put notes what an object says of its node; no node takes it back.
func (b *Book) put(object types.NamespacedName, node string, d translate.Learnt) {
	b.mu.Lock()
	before, had := b.objects[object]
	after := entry{node: node, Learnt: d}
	if node == "" || d == (translate.Learnt{}) {
		after = entry{}
	}
	if before == after {
		b.mu.Unlock()
		return
	}
	if had {
		if delete(b.learnt[before.node], object); len(b.learnt[before.node]) == 0 {
			delete(b.learnt, before.node)
		}
		delete(b.objects, object)
	}
	if after != (entry{}) {
		if b.learnt[node] == nil {
			b.learnt[node] = map[types.NamespacedName]translate.Learnt{}
		}
		b.learnt[node][object], b.objects[object] = d, after
	}
	b.mu.Unlock()
	for _, name := range []string{before.node, after.node} {
		if name != "" {
			b.wake(name)
		}
	}
}

// wakeRequests lets the requests of a node's pods be decided again.
func (b *Book) wakeRequests(ctx context.Context, queue controllers.Queue, node string) {
	var pods corev1.PodList
	if err := b.Cache.List(ctx, &pods, client.MatchingFields{index.PodsByNode: node}, client.UnsafeDisableDeepCopy); err != nil {
		b.Log.Error(err, "Could not list the pods of a node whose deadline has changed", "node", node)
		return
	}
	for i := range pods.Items {
		key := v1alpha1.RequestKey(&pods.Items[i])
		if err := b.Cache.Get(ctx, key, &v1alpha1.EvictionRequest{}); !apierrors.IsNotFound(err) {
			queue.Add(reconcile.Request{NamespacedName: key})
		}
	}
}

// Of are the deadlines of a pod that a request does not have itself. An error means that
// one may be missing.
func (b *Book) Of(ctx context.Context, er *v1alpha1.EvictionRequest, pod *corev1.Pod) ([]translate.Learnt, error) {
	learnt, err := b.ofNode(ctx, pod.Spec.NodeName)
	if err != nil || len(b.Patience) == 0 {
		return learnt, err
	}
	for _, requester := range er.Spec.Requesters {
		if requester.LeaseName == "" {
			continue
		}
		lease, err := b.lease(ctx, requester.LeaseName)
		if err != nil {
			return nil, err
		}
		if lease == nil {
			continue
		}
		rec, err := translate.DecodeLease(lease)
		if err != nil {
			continue // The controller of leases says so, and withdraws by what every Lease has.
		}
		if d, ok := translate.PatienceDeadline(rec, lease.CreationTimestamp.Time, b.Patience); ok {
			learnt = append(learnt, d)
		}
	}
	return learnt, nil
}

func (b *Book) ofNode(ctx context.Context, name string) ([]translate.Learnt, error) {
	if name == "" || len(b.Kinds) == 0 && len(b.Taints) == 0 {
		return nil, nil
	}
	node := &corev1.Node{}
	if err := b.Cache.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("get node %s for its deadline: %w", name, err)
	}
	learnt := translate.TaintDeadlines(node, b.Taints)
	for _, of := range translate.DeadlineKinds() {
		if slices.Contains(b.Kinds, of.Option) && of.Concerns(node) {
			b.await(ctx, of)
		}
	}
	return append(learnt, b.says(name)...), nil
}

// says are the deadlines that objects say of a node.
func (b *Book) says(node string) []translate.Learnt {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.SortedFunc(maps.Values(b.learnt[node]), func(x, y translate.Learnt) int { return strings.Compare(x.Source, y.Source) })
}

// lease is nil if there is none.
func (b *Book) lease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	for _, reader := range []client.Reader{b.Cache, b.Live} {
		lease := &coordinationv1.Lease{}
		switch err := reader.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: name}, lease); {
		case err == nil:
			return lease, nil
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("get lease %s for its deadline: %w", name, err)
		}
	}
	return nil, nil
}
