package registration

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Errors of Registry.Resolve. Both end by themselves, soon.
var (
	// ErrNotSynced: the registry has not yet seen all registrations and namespaces.
	ErrNotSynced = errors.New("the registrations of interceptors are not known yet")
	// ErrNativeUnknown: the pod has responders, and it is not known yet whether they are ours to
	// wait for.
	ErrNativeUnknown = errors.New("it is not known yet whether the API server serves lifecycle.k8s.io")
	// ErrNamespaceUnknown: the pod was seen before its namespace, and a registration
	// depends on the namespace.
	ErrNamespaceUnknown = errors.New("the pod's namespace is not known yet")
)

// Metrics follow the EvictionInterceptors. EvacuationHooks are not measured: see hooks.go.
type Metrics interface {
	// Registrations sets how many are accepted and refused.
	Registrations(accepted, refused int)
	// EvaluationFailed counts an expression of a registration that failed for a pod.
	EvaluationFailed(name string)
	// Forget removes what belongs to a registration that is gone.
	Forget(name string)
}

// Options of a Registry. Namespace is required; without it our own pods would not be
// left out.
type Options struct {
	// Namespace is our own. Like kube-system, it is never intercepted by a
	// registration.
	Namespace string
	// AllowedReserved are the names under k8s.io and kubernetes.io which pods may
	// name and registrations may have (ruling R14).
	AllowedReserved []string
	// Hooks also feeds the registry from EvacuationHooks. Without it (the feature gate
	// EvacuationHooks is off) their CustomResourceDefinition may be missing.
	Hooks bool
	// Budgets also feeds the registry from EvictionBudgets, in the same way (feature gate
	// EvictionBudgets).
	Budgets bool
	// Native reports whether Drawbridge takes part in lifecycle.k8s.io: while it does, the
	// responders of a pod are an interceptor (see native.go). It must answer from memory.
	// Whoever changes the answer calls Registry.NativeChanged. Nil: never.
	Native func() bool
	// NativeKnown reports whether what Native answers is certain. Nil: always.
	NativeKnown func() bool
	// Account is our own, which acts for hooks, budgets and native responders
	// ("system:serviceaccount:NAMESPACE:NAME"). It is required with Hooks, Budgets or Native: else
	// any account with the permission could report for them. A command has none.
	Account string
	// Metrics follow the registrations. A command, which looks once, has none.
	Metrics Metrics
}

// unmeasured is for a Registry without metrics.
type unmeasured struct{}

var _ Metrics = unmeasured{}

func (unmeasured) Registrations(_, _ int) {}

func (unmeasured) EvaluationFailed(string) {}

func (unmeasured) Forget(string) {}

// Registry knows who intercepts which pod, from the pods' annotations and responders and from
// all EvictionInterceptors, EvacuationHooks and EvictionBudgets. It is a Resolver, a Lookup
// and a PodLookup, for every replica. It is fed by informers and answers from memory, without a lock.
type Registry struct {
	options   Options
	annotated annotation
	memo      *memo
	current   atomic.Pointer[snapshot]

	mu sync.Mutex // Guards next, dirty and the subscribers.
	// next is the coming value of current, and dirty says that they differ: during the
	// informers' initial lists every change would otherwise copy everything.
	next        *snapshot
	dirty       atomic.Bool
	subscribers []func(change)

	feeds  []toolscache.InformerSynced
	synced atomic.Bool
}

// change says what has changed: a registration (by its key), a namespace, the budgets of a
// namespace, whether native responders count, or, when the registry has come into sync,
// everything.
type change struct {
	registration, namespace, budgets string
	native                           bool
}

// NewRegistry returns an empty registry: see SetupWithCache.
func NewRegistry(o Options) *Registry {
	if o.Metrics == nil {
		o.Metrics = unmeasured{}
	}
	r := &Registry{options: o, annotated: annotation{allowReserved: o.AllowedReserved}, memo: newMemo(), next: newSnapshot()}
	r.current.Store(newSnapshot())
	return r
}

var (
	_ Resolver  = &Registry{}
	_ Lookup    = &Registry{}
	_ PodLookup = &Registry{}

	_ manager.LeaderElectionRunnable = &Registry{}
)

// Start notifies the subscribers when the registry is in sync.
func (r *Registry) Start(ctx context.Context) error {
	if !toolscache.WaitForCacheSync(ctx.Done(), r.Synced) {
		return nil // We are to stop.
	}
	r.mu.Lock()
	subscribers := slices.Clone(r.subscribers)
	r.mu.Unlock()
	for _, f := range subscribers {
		f(change{})
	}
	return nil
}

// NeedLeaderElection is false: every replica answers admission from its registry.
func (r *Registry) NeedLeaderElection() bool { return false }

// OnChange calls f when the registry is in sync, and after every later change that may
// change answers. f must return soon. There is no way to unsubscribe.
func (r *Registry) OnChange(f func()) { r.subscribe(func(change) { f() }) }

func (r *Registry) subscribe(f func(change)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subscribers = append(r.subscribers, f)
}

// Resolve returns the pod's interceptors, in order (see order). An error means that one
// may be missing, because the informers lag behind: retry later, and neither allow an
// eviction nor make a plan. It is ErrNotSynced, ErrNamespaceUnknown or ErrNativeUnknown, and
// never depends on the expressions of a registration.
//
// The pod may come from the cache or from the API server.
func (r *Registry) Resolve(pod *corev1.Pod) ([]string, error) {
	if !r.Synced() {
		names, _ := r.annotated.Resolve(pod)
		if r.native(pod) {
			names = withNative(names, pod)
		}
		return names, ErrNotSynced
	}
	if len(pod.Spec.EvictionResponders) > 0 && r.options.NativeKnown != nil && !r.options.NativeKnown() {
		names, _ := r.annotated.Resolve(pod)
		return names, ErrNativeUnknown
	}
	s := r.snapshot()
	names, native, err := r.intercepting(s, pod, true)
	names = s.withOrder(names)
	if native {
		names = withNative(names, pod)
	}
	return names, err
}

// intercepting are the pod's interceptors without those that stand for others: that of the
// order, and that of native responders, of which it is said whether there are any. With measure,
// expressions that fail are counted.
func (r *Registry) intercepting(s *snapshot, pod *corev1.Pod, measure bool) (names []string, native bool, _ error) {
	answered := r.native(pod)
	var selected []*entry
	err := r.each(s, pod, func(_ int, e *entry, match bool, failure error) {
		if measure && failure != nil && !e.isHook() {
			r.options.Metrics.EvaluationFailed(e.Name)
		}
		if match && (!answered || !e.answersNatively(pod)) {
			selected = append(selected, e)
		}
	})
	if _, covered := r.budgeted(s, pod); covered {
		selected = append(selected, ofBudgets)
	}
	annotated := r.named(s, pod)
	if answered {
		annotated = notNatively(s, annotated, pod)
	}
	return order(annotated, selected), answered, err
}

// each calls yield for the registrations whose selectors select the pod, with the
// answer of their conditions.
func (r *Registry) each(s *snapshot, pod *corev1.Pod, yield func(slot int, e *entry, match bool, failure error)) error {
	if r.excludes(pod.Namespace) {
		return nil
	}
	var err error
	namespace := s.namespaces[pod.Namespace]
	in := namespace.input(pod)
	s.candidates(pod, namespace, func(slot int, e *entry) {
		switch {
		case !e.pods.Matches(labels.Set(pod.Labels)):
		case namespace == nil && e.seesNamespace:
			err = ErrNamespaceUnknown
		default:
			match, failure := r.memo.matchConditions(e, &in)
			yield(slot, e, match, failure)
		}
	})
	return err
}

// ask is each for one registration.
func (r *Registry) ask(s *snapshot, slot int, pod *corev1.Pod) (match bool, failure error) {
	e, namespace := s.slots[slot], s.namespaces[pod.Namespace]
	switch {
	case e == nil || e.refused != nil || r.excludes(pod.Namespace):
		return false, nil
	case !s.looksAt(slot, pod.Namespace, namespace), namespace == nil && e.seesNamespace:
		return false, nil
	case !e.pods.Matches(labels.Set(pod.Labels)):
		return false, nil
	}
	in := namespace.input(pod)
	return r.memo.matchConditions(e, &in)
}

// excludes reports whether registrations ignore a namespace: the webhook is not called
// for its pods.
func (r *Registry) excludes(namespace string) bool {
	return namespace == metav1.NamespaceSystem || namespace == r.options.Namespace
}

// Registration returns the accepted registration of that name.
func (r *Registry) Registration(name string) (Info, bool) {
	switch name {
	case v1alpha1.BudgetInterceptor:
		return r.ofBudgets()
	case v1alpha1.NativeInterceptor:
		return r.ofNative()
	case v1alpha1.OrderInterceptor:
		return r.ofOrder(), true
	}
	known, _, ok := r.snapshot().known(keyOf(name))
	if !ok || known.refused != nil || known.Name != name {
		return Info{}, false
	}
	found := known.Info
	found.Usernames = slices.Clone(found.Usernames)
	return found, true
}

// snapshot returns the newest state.
func (r *Registry) snapshot() *snapshot {
	if r.dirty.Load() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.publish()
	}
	return r.current.Load()
}

func (r *Registry) publish() {
	if r.dirty.Load() {
		r.current.Store(r.next.clone())
		r.dirty.Store(false)
	}
}
