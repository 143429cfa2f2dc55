package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/cel"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

// ErrNotLoaded says that the policies are not known yet; that resolves itself soon.
var ErrNotLoaded = errors.New("the EvacuationPolicies are not known yet")

// StoreOptions are what a Store needs; all fields but Log are required.
type StoreOptions struct {
	// Client reads pods and policies from the informers and writes pods.
	Client client.Client
	// Live reads pods from the API server.
	Live client.Reader
	// Dynamic reads and writes objects of all kinds.
	Dynamic dynamic.Interface
	Mapper  meta.RESTMapper
	// Resolver returns the interceptors of a pod: policies apply only to the pods of
	// their own interceptors.
	Resolver registration.Resolver
	// Put sends a PUT to a path of the API server, for marks that only the platform
	// itself takes back.
	Put   func(ctx context.Context, path string, body []byte) error
	Clock clock.PassiveClock
	// Writes tracks the writes that are refused.
	Writes *refused.Tracker
	Log    logr.Logger
}

// Store knows all EvacuationPolicies and the objects behind the pods they cover.
// It lives on every replica: the webhook asks it (Preflight), and so does the
// guard (Held).
type Store struct {
	StoreOptions
	kinds *kinds

	// loaded holds the policies in order of precedence; nil before the first load.
	loaded atomic.Pointer[[]*policy]

	index    podIndex
	failures failures
	overlaps overlaps
	stuck    stuck
	unheard  unheard
	writes   writeLimiter
	ends     ends
	// migrationMemo caches the results of the expressions for a version of a migration.
	migrationMemo *lru.Cache
	// migrating is held while migrations are created, and while an evacuation is
	// canceled.
	migrating sync.Mutex

	mu sync.Mutex
	// problems are the problems of kinds.
	problems map[schema.GroupVersionKind]*kindError
	wakers   []func(types.NamespacedName)
	pods     []func(types.NamespacedName)
	reload   func()
	policies []func()
	changes  []func(policy string)
}

// NewStore returns an empty store: see Setup.
func NewStore(o StoreOptions) *Store {
	o.Log = logger(o.Log)
	s := &Store{StoreOptions: o, migrationMemo: lru.New(mostMigrations), problems: map[schema.GroupVersionKind]*kindError{}, reload: func() {}}
	s.index.init()
	s.failures.init(o.Clock)
	s.overlaps.init()
	s.stuck.init()
	s.unheard.init()
	s.writes.init(o.Clock)
	s.ends.init()
	s.kinds = &kinds{
		dynamic: o.Dynamic, mapper: o.Mapper, access: o.Client, writes: o.Writes, log: o.Log,
		changed:  s.objectChanged,
		synced:   func() { s.wakeAll(); s.policiesChanged() },
		troubled: func() { s.askReload() },
		of:       map[schema.GroupVersionKind]*kind{}, next: map[schema.GroupVersionKind]*kind{},
	}
	return s
}

// Loaded reports whether the policies are known. Before that, do not rely on the
// store's answers.
func (s *Store) Loaded() bool { return s.loaded.Load() != nil }

// all returns the policies in order of precedence.
func (s *Store) all() []*policy {
	if p := s.loaded.Load(); p != nil {
		return *p
	}
	return nil
}

// find returns the first matching policy, nil if there is none.
func (s *Store) find(like func(*policy) bool) *policy {
	for _, p := range s.all() {
		if like(p) {
			return p
		}
	}
	return nil
}

// load stores the policies, and starts what they need. It returns when to retry
// problems; zero for never. ctx is that of the process.
func (s *Store) load(ctx context.Context, list []v1alpha1.EvacuationPolicy) time.Duration {
	known := map[types.UID]*policy{}
	for _, p := range s.all() {
		known[p.uid] = p
	}
	wanted := map[schema.GroupVersionKind]tree{}
	policies := make([]*policy, 0, len(list))
	changed := !s.Loaded() || len(list) != len(known)
	for i := range list {
		p := known[list[i].UID]
		if p == nil || p.generation != list[i].Generation {
			p, changed = compilePolicy(&list[i]), true
		}
		policies = append(policies, p)
		for kind, n := range p.needs {
			fields := n.fields
			if before, ok := wanted[kind]; ok {
				fields = merge(before, fields)
			}
			wanted[kind] = fields
		}
	}
	slices.SortFunc(policies, func(a, b *policy) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.name, b.name))
	})
	problems := s.kinds.ensure(ctx, wanted)
	s.mu.Lock()
	before := s.problems
	s.problems = problems
	s.mu.Unlock()
	s.loaded.Store(&policies)
	if changed {
		s.forgetChanged(known, policies)
	}
	if changed || !maps.EqualFunc(before, problems, func(a, b *kindError) bool { return a.Error() == b.Error() }) {
		s.wakeAll()
		s.policiesChanged()
	}
	if len(problems) > 0 {
		return retryKinds
	}
	return 0
}

// forgetChanged forgets what was noted about policies that have changed.
func (s *Store) forgetChanged(before map[types.UID]*policy, now []*policy) {
	changed := maps.Clone(before)
	for _, p := range now {
		if changed[p.uid] == p {
			delete(changed, p.uid)
		}
	}
	for _, p := range changed {
		s.failures.forget(p)
		s.overlaps.forget(p)
		s.writes.forget(p.name) // What did not last before may last now.
	}
}

// problem is the problem of a kind: it is missing, or not read yet.
func (s *Store) problem(p *policy, kind schema.GroupVersionKind) *kindError {
	if kind.Empty() || kind == podKind {
		return nil
	}
	s.mu.Lock()
	problem := s.problems[kind]
	s.mu.Unlock()
	if problem != nil {
		return problem
	}
	if _, err := s.kinds.ready(p.needs[kind]); err != nil {
		return &kindError{v1alpha1.ReasonNotSynced, err}
	}
	return nil
}

// subject finds the objects behind a pod. With live, the workload is read from the
// API server.
func (s *Store) subject(ctx context.Context, p *policy, pod *podView, live bool) (*subject, error) {
	if p.refused != nil {
		return nil, fmt.Errorf("EvacuationPolicy %s is not accepted", p.name)
	}
	sub := &subject{policy: p, pod: pod}
	if err := sub.identify(ctx); err != nil {
		return nil, err
	}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: sub.name}
	var err error
	switch {
	case sub.name == "":
	case p.workload.Empty():
		sub.workload, err = s.itself(ctx, pod, live)
	case p.workload == podKind:
		sub.workload, err = s.pod(ctx, key, live)
	case live:
		sub.workload, err = s.kinds.live(ctx, p.needs[p.workload], key)
	default:
		sub.workload, err = s.kinds.get(p.needs[p.workload], key)
	}
	if err != nil {
		return nil, err
	}
	if sub.config, err = s.config(p); err != nil {
		return nil, err
	}
	sub.migrations, err = s.migrationsOf(ctx, p, key)
	return sub, err
}

// workload is an object of the policy's kind, from memory; nil if there is none.
func (s *Store) workload(ctx context.Context, p *policy, key types.NamespacedName) (*unstructured.Unstructured, error) {
	if p.workload.Empty() || p.workload == podKind {
		return s.pod(ctx, key, false)
	}
	return s.kinds.get(p.needs[p.workload], key)
}

// itself is the pod as its own workload.
func (s *Store) itself(ctx context.Context, pod *podView, live bool) (*unstructured.Unstructured, error) {
	if !live {
		return pod.asWorkload()
	}
	return s.pod(ctx, client.ObjectKeyFromObject(pod.Pod), live)
}

// pod reads a pod that is a workload.
func (s *Store) pod(ctx context.Context, key types.NamespacedName, live bool) (*unstructured.Unstructured, error) {
	reader := client.Reader(s.Client)
	if live {
		reader = s.Live
	}
	pod := &corev1.Pod{}
	switch err := reader.Get(ctx, key, pod); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get pod %s: %w", key, err)
	}
	return viewOf(pod).asWorkload()
}

// config is the policy's object with defaults, nil if there is none or, without a
// name, more than one.
func (s *Store) config(p *policy) (*unstructured.Unstructured, error) {
	if p.config == nil {
		return nil, nil
	}
	if p.config.Name != "" && p.config.Namespace != "" {
		return s.kinds.get(p.needs[p.configKind], types.NamespacedName{Namespace: p.config.Namespace, Name: p.config.Name})
	}
	objects, err := s.kinds.list(p.needs[p.configKind], p.config.Namespace)
	if err != nil {
		return nil, err
	}
	var only *unstructured.Unstructured
	for _, object := range objects {
		if p.config.Name != "" && object.GetName() != p.config.Name {
			continue
		}
		if only != nil {
			return nil, nil // It is unknown which one applies.
		}
		only = object
	}
	return only, nil
}

// migrationsOf are the migrations of a workload.
func (s *Store) migrationsOf(ctx context.Context, p *policy, workload types.NamespacedName) ([]migrationFacts, error) {
	if p.migration == nil {
		return nil, nil
	}
	objects, err := s.kinds.list(p.needs[p.migration.kind], workload.Namespace)
	if err != nil {
		return nil, err
	}
	var of []migrationFacts
	for _, object := range objects {
		facts, err := s.migrationFacts(ctx, p, object)
		if err != nil {
			return nil, err
		}
		if facts.Workload == workload.Name {
			of = append(of, facts)
		}
	}
	return of, nil
}

// mostMigrations bounds the memory of migrationFacts.
const mostMigrations = 50_000

// memoKey is a version of a migration, as one generation of a policy sees it.
type memoKey struct {
	policy     types.UID
	generation int64
	migration  types.UID
	version    string
}

// migrationFacts is factsOf with a cache: there may be thousands of finished
// migrations, and every reconciliation of a pod reads all of its namespace.
func (s *Store) migrationFacts(ctx context.Context, p *policy, object *unstructured.Unstructured) (migrationFacts, error) {
	key := memoKey{p.uid, p.generation, object.GetUID(), object.GetResourceVersion()}
	if known, ok := s.migrationMemo.Get(key); ok {
		if facts, ok := known.(migrationFacts); ok {
			return facts, nil
		}
	}
	facts, err := p.migration.factsOf(ctx, object)
	if err == nil && key.version != "" {
		s.migrationMemo.Add(key, facts)
	}
	return facts, err
}

// observe gathers and decides about one pod.
func (s *Store) observe(ctx context.Context, p *policy, pod *podView, t turn, live bool) (*subject, facts, verdict, error) {
	sub, err := s.subject(ctx, p, pod, live)
	if err != nil {
		s.note(p, pod, err)
		return nil, facts{}, verdict{}, err
	}
	f, soft, err := sub.facts(ctx, t.activatedAt)
	s.note(p, pod, errors.Join(soft, err))
	if err != nil {
		return nil, facts{}, verdict{}, err
	}
	in := input{Facts: f, Overdue: p.deadline > 0 && !t.activatedAt.IsZero() && s.Clock.Since(t.activatedAt) > p.deadline}
	if p.migration != nil {
		in.RetryLimit = p.migration.retryLimit
	}
	return sub, f, decide(in), nil
}

// turn is what is known about a request; the zero value is for no request.
type turn struct {
	activatedAt time.Time
}

// note remembers that an expression failed for a pod, or that none fails any more.
func (s *Store) note(p *policy, pod *podView, err error) {
	var failure *cel.EvaluationError
	if errors.As(err, &failure) {
		if s.failures.add(p, pod.Pod, failure) {
			s.policyChanged(p.name)
		}
		return
	}
	if err == nil && s.failures.remove(p, pod.Pod) {
		s.policyChanged(p.name)
	}
}
