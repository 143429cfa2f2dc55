package state

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/skew"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
)

const (
	// fresh is how old a snapshot may be: building one looks at all objects.
	fresh = 250 * time.Millisecond
	// lookAgain is how often it is asked how the manager is installed.
	lookAgain = 30 * time.Second
	// nativeEvictions are those of Kubernetes' own API, which few clusters serve.
	nativeEvictions = "evictions.lifecycle.k8s.io"
	// maxHeartbeats are kept of a turn: one a minute is the most that an interceptor reports.
	maxHeartbeats = 240
)

// Store watches the cluster.
type Store struct {
	clock     clock.WithTicker
	client    client.WithWatch
	installed func(context.Context) cli.Installation
	kinds     []*kind
	// plugin is the version of this program.
	plugin string

	mu         sync.Mutex
	version    uint64
	newer      chan struct{}
	heartbeats map[HeartbeatKey][]time.Time
	manager    cli.Installation

	building sync.Mutex
	last     *Snapshot
	built    time.Time
}

// New returns a store of what the connection can read.
// The version is that of this program.
func New(o *cli.Options, c *cli.Connection, version string) (*Store, error) {
	config := rest.CopyConfig(c.REST)
	config.Timeout = 0 // It would end watches.
	watching, err := client.NewWithWatch(config, client.Options{Scheme: cli.Scheme})
	if err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	s := newStore(o.Clock, watching, func(ctx context.Context) cli.Installation { return o.Installed(ctx, c) })
	s.plugin = version
	if cli.NativeServed(c.RESTMapper()) {
		s.followNative()
	}
	return s, nil
}

func newStore(c clock.WithTicker, watching client.WithWatch, installed func(context.Context) cli.Installation) *Store {
	return &Store{
		clock: c, client: watching, installed: installed, newer: make(chan struct{}), heartbeats: map[HeartbeatKey][]time.Time{},
		kinds: []*kind{
			{resource: "nodes", object: &corev1.Node{}, list: func() client.ObjectList { return &corev1.NodeList{} }},
			{resource: "pods", object: &corev1.Pod{}, list: func() client.ObjectList { return &corev1.PodList{} }},
			{resource: "namespaces", object: &corev1.Namespace{}, list: func() client.ObjectList { return &corev1.NamespaceList{} }},
			{resource: "nodemaintenances", object: &v1alpha1.NodeMaintenance{}, list: func() client.ObjectList { return &v1alpha1.NodeMaintenanceList{} }},
			{resource: "evictionrequests", object: &v1alpha1.EvictionRequest{}, list: func() client.ObjectList { return &v1alpha1.EvictionRequestList{} }},
			{resource: "evictioninterceptors", object: &v1alpha1.EvictionInterceptor{}, list: func() client.ObjectList { return &v1alpha1.EvictionInterceptorList{} }},
			{resource: "evacuationhooks", object: &v1alpha1.EvacuationHook{}, list: func() client.ObjectList { return &v1alpha1.EvacuationHookList{} }},
			{resource: "poddisruptionbudgets", object: &policyv1.PodDisruptionBudget{}, list: func() client.ObjectList { return &policyv1.PodDisruptionBudgetList{} }},
			{resource: "evictionbudgets", object: &v1alpha1.EvictionBudget{}, list: func() client.ObjectList { return &v1alpha1.EvictionBudgetList{} }},
		},
	}
}

// followNative has the store watch the Evictions of Kubernetes' own API, too.
func (s *Store) followNative() {
	s.kinds = append(s.kinds, &kind{resource: nativeEvictions, object: &lifecyclev1alpha1.Eviction{}, list: func() client.ObjectList { return &lifecyclev1alpha1.EvictionList{} }})
}

// Start begins to watch until the context ends, and waits until each kind is read or known
// not to be readable, but no longer than a call may take.
func (s *Store) Start(ctx context.Context) error {
	for _, k := range s.kinds {
		if err := s.start(ctx, k); err != nil {
			return err
		}
	}
	go s.look(ctx)
	patience, stop := context.WithTimeout(ctx, cli.CallTimeout)
	defer stop()
	tick := s.clock.NewTicker(fresh)
	defer tick.Stop()
	for !s.settled() {
		select {
		case <-tick.C():
		case <-patience.Done():
			return ctx.Err() //nolint:wrapcheck // The user has pressed ^C; or what is late is a gap.
		}
	}
	return nil
}

// settled reports whether each kind is read, or known to be broken.
func (s *Store) settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(s.kinds, func(k *kind) bool { return k.broken == nil && !k.informer.HasSynced() })
}

// look asks from time to time how the manager is installed.
func (s *Store) look(ctx context.Context) {
	tick := s.clock.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		found := s.installed(ctx)
		s.mu.Lock()
		s.manager = found
		s.change()
		s.mu.Unlock()
		select {
		case <-tick.C():
		case <-ctx.Done():
			return
		}
	}
}

// change makes a new version. The caller holds the lock.
func (s *Store) change() {
	s.version++
	close(s.newer)
	s.newer = make(chan struct{})
}

// saw notes that an object was added or has changed.
func (s *Store) saw(object any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if er, ok := object.(*v1alpha1.EvictionRequest); ok {
		s.beat(er)
	}
	s.change()
}

// lost notes that an object is gone.
func (s *Store) lost(object any) {
	if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if er, ok := object.(*v1alpha1.EvictionRequest); ok {
		for _, i := range er.Status.Interceptors {
			delete(s.heartbeats, HeartbeatKey{Request: er.UID, Interceptor: i.Name})
		}
	}
	s.change()
}

// beat keeps the heartbeats of a request.
func (s *Store) beat(er *v1alpha1.EvictionRequest) {
	for _, i := range er.Status.Interceptors {
		if i.HeartbeatTime == nil {
			continue
		}
		key := HeartbeatKey{Request: er.UID, Interceptor: i.Name}
		known := s.heartbeats[key]
		if len(known) > 0 && !i.HeartbeatTime.After(known[len(known)-1]) {
			continue
		}
		// A copy, as snapshots have the old one.
		s.heartbeats[key] = append(slices.Clone(known[max(0, len(known)+1-maxHeartbeats):]), i.HeartbeatTime.Time)
	}
}

// Wait returns when there is something newer than the version, or when the context ends.
func (s *Store) Wait(ctx context.Context, version uint64) {
	for {
		s.mu.Lock()
		now, newer := s.version, s.newer
		s.mu.Unlock()
		if now != version {
			return
		}
		select {
		case <-newer:
		case <-ctx.Done():
			return
		}
	}
}

// Snapshot returns what is known, at most a quarter of a second old.
func (s *Store) Snapshot() *Snapshot {
	s.building.Lock()
	defer s.building.Unlock()
	now := s.clock.Now()
	s.mu.Lock()
	version := s.version
	s.mu.Unlock()
	if s.last == nil || s.last.Version != version && now.Sub(s.built) >= fresh {
		s.last, s.built = s.build(), now
	}
	current := *s.last
	current.Now = now
	return &current
}

// build reads all objects.
func (s *Store) build() *Snapshot {
	snapshot := &Snapshot{}
	s.mu.Lock()
	snapshot.Version, snapshot.Installed = s.version, s.manager
	snapshot.Heartbeats = make(map[HeartbeatKey][]time.Time, len(s.heartbeats))
	for key, times := range s.heartbeats {
		snapshot.Heartbeats[key] = times
	}
	for _, k := range s.kinds {
		if gap, ok := k.gap(); ok && (k.resource != nativeEvictions || !snapshot.Installed.NativeOff) {
			snapshot.Gaps = append(snapshot.Gaps, gap)
		}
	}
	for _, finding := range skew.Check(skew.Versions{Plugin: s.plugin, Manager: snapshot.Installed.Version, Chart: snapshot.Installed.Chart}) {
		snapshot.Gaps = append(snapshot.Gaps, Gap{Resource: "versions", Why: finding.String()})
	}
	s.mu.Unlock()
	for _, k := range s.kinds {
		for _, object := range k.informer.GetStore().List() {
			snapshot.add(object)
		}
	}
	snapshot.index()
	return snapshot
}

// add puts an object into its list.
func (s *Snapshot) add(object any) {
	switch o := object.(type) {
	case *corev1.Node:
		s.Nodes = append(s.Nodes, o)
	case *corev1.Pod:
		s.Pods = append(s.Pods, o)
	case *corev1.Namespace:
		s.Namespaces = append(s.Namespaces, o)
	case *v1alpha1.NodeMaintenance:
		s.Maintenances = append(s.Maintenances, o)
	case *v1alpha1.EvictionRequest:
		if o.Spec.Target.Pod != nil { // Other kinds of targets may come with newer versions.
			s.Requests = append(s.Requests, o)
		}
	case *lifecyclev1alpha1.Eviction:
		s.Evictions = append(s.Evictions, o)
	case *v1alpha1.EvictionInterceptor:
		s.Interceptors = append(s.Interceptors, o)
	case *v1alpha1.EvacuationHook:
		s.Hooks = append(s.Hooks, o)
	case *policyv1.PodDisruptionBudget:
		s.PDBs = append(s.PDBs, o)
	case *v1alpha1.EvictionBudget:
		s.Budgets = append(s.Budgets, o)
	}
}

// NewSnapshot returns a snapshot of the given objects, for tests and for lists that were read
// at once.
func NewSnapshot(now time.Time, objects ...client.Object) *Snapshot {
	s := &Snapshot{Version: 1, Now: now, Heartbeats: map[HeartbeatKey][]time.Time{}}
	for _, o := range objects {
		s.add(o)
	}
	s.index()
	return s
}

// index sorts the lists and makes the maps.
func (s *Snapshot) index() {
	byName(s.Nodes)
	byName(s.Pods)
	byName(s.Namespaces)
	byName(s.Maintenances)
	byName(s.Requests)
	byName(s.Evictions)
	byName(s.Interceptors)
	byName(s.Hooks)
	byName(s.PDBs)
	byName(s.Budgets)
	s.NodeByName = make(map[string]*corev1.Node, len(s.Nodes))
	for _, n := range s.Nodes {
		s.NodeByName[n.Name] = n
	}
	s.PodsByNode, s.PodByUID = map[string][]*corev1.Pod{}, make(map[types.UID]*corev1.Pod, len(s.Pods))
	for _, p := range s.Pods {
		s.PodByUID[p.UID] = p
		s.PodsByNode[p.Spec.NodeName] = append(s.PodsByNode[p.Spec.NodeName], p)
	}
	evictions := s.Evictions
	if s.Installed.NativeOff {
		evictions = nil // Drawbridge does not look at them, either.
	}
	s.ProcessesByNode, s.ProcessByPod = map[string][]turns.Process{}, make(map[types.UID]turns.Process, len(s.Requests))
	for _, p := range turns.Processes(s.Requests, evictions) {
		_, uid := p.Pod()
		s.ProcessByPod[uid] = p
		node := ""
		if p.Request != nil {
			node = p.Request.Status.NodeName
		}
		if pod := s.PodByUID[uid]; node == "" && pod != nil {
			node = pod.Spec.NodeName // The controller has not looked at it yet, or it is only native.
		}
		s.ProcessesByNode[node] = append(s.ProcessesByNode[node], p)
	}
}

func byName[T client.Object](all []T) {
	slices.SortFunc(all, func(a, b T) int {
		if c := strings.Compare(a.GetNamespace(), b.GetNamespace()); c != 0 {
			return c
		}
		return strings.Compare(a.GetName(), b.GetName())
	})
}
