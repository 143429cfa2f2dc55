package vm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

// createDelay batches changes.
const createDelay = 300 * time.Millisecond

// createRetry is the delay before retrying a migration that the API server refused.
const createRetry = 20 * time.Second

// migrator creates the migrations of the policies that have a template, for
// platforms without a controller that does. One request of its queue is one
// policy.
type migrator struct {
	store    *Store
	client   client.Client
	clock    clock.PassiveClock
	recorder eventsclient.EventRecorder
	metrics  *metrics.VM
	callers  Callers
	queue    controllers.Waker
}

// wake enqueues a policy. Many changes at once are one reconciliation.
func (m *migrator) wake(policy string) {
	m.queue.Wake(types.NamespacedName{Name: policy}, createDelay)
}

func (m *migrator) wakeAll() {
	for _, p := range m.store.all() {
		m.wake(p.name)
	}
}

// evacuee is a workload that is marked for a pod.
type evacuee struct {
	candidate
	er      *v1alpha1.EvictionRequest
	sub     *subject
	attempt int
}

var _ reconcile.Reconciler = &migrator{}

// Reconcile creates what migrations there is room for.
func (m *migrator) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	p := m.store.find(func(p *policy) bool { return p.name == req.Name })
	if p == nil || !p.accepted() || p.migration == nil || p.migration.template == nil {
		return reconcile.Result{}, nil
	}
	evacuees, err := m.evacuees(ctx, p)
	if err != nil || len(evacuees) == 0 {
		return reconcile.Result{}, err
	}
	objects, err := m.store.kinds.list(p.needs[p.migration.kind], "")
	if err != nil {
		return reconcile.Result{RequeueAfter: retryKinds}, nil //nolint:nilerr // The policy's condition Ready says so.
	}
	create, wakeAt, err := m.plan(ctx, p, evacuees, objects)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(create) > 0 {
		create, wakeAt, err = m.createAll(ctx, p)
	}
	result := reconcile.Result{}
	if !wakeAt.IsZero() {
		result.RequeueAfter = max(wakeAt.Sub(m.clock.Now()), time.Millisecond)
	}
	if err != nil {
		m.store.Log.Info("Creating migrations failed", "policy", p.name, "reason", err.Error(), "wanted", len(create))
		if result.RequeueAfter == 0 || result.RequeueAfter > createRetry {
			result.RequeueAfter = createRetry
		}
	}
	return result, nil
}

// evacuees are the marked workloads of the running requests.
func (m *migrator) evacuees(ctx context.Context, p *policy) (map[string]*evacuee, error) {
	var list v1alpha1.EvictionRequestList
	if err := m.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list eviction requests: %w", err)
	}
	found := map[string]*evacuee{}
	for i := range list.Items {
		er := &list.Items[i]
		if !slices.Contains(er.Status.ActiveInterceptors, p.interceptor) || v1alpha1.IsUnwanted(er) || er.Spec.Target.Pod == nil || er.DeletionTimestamp != nil {
			continue
		}
		one, err := m.evacuee(ctx, p, er)
		if err != nil {
			// One that cannot be read must not block the others; the interceptor reports
			// it.
			m.store.Log.V(1).Info("An evacuation cannot be looked at", "request", er.Name, "reason", err.Error())
			continue
		}
		if one != nil {
			found[one.Key] = one
		}
	}
	return found, nil
}

func (m *migrator) evacuee(ctx context.Context, p *policy, er *v1alpha1.EvictionRequest) (*evacuee, error) {
	pod := &corev1.Pod{}
	err := m.client.Get(ctx, types.NamespacedName{Namespace: er.Namespace, Name: er.Spec.Target.Pod.Name}, pod, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) || (err == nil && pod.UID != er.Spec.Target.Pod.UID) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get pod %s/%s: %w", er.Namespace, er.Spec.Target.Pod.Name, err)
	}
	view := viewOf(pod)
	switch counts, err := m.store.policyUnder(ctx, p.interceptor, view); {
	case errors.Is(err, errNotCovered):
		return nil, nil
	case err != nil || counts != p:
		return nil, err
	}
	t := turn{}
	if er.Status.ActivationTime != nil {
		t.activatedAt = er.Status.ActivationTime.Time
	}
	sub, f, v, err := m.store.observe(ctx, p, view, t, false)
	if err != nil {
		return nil, err
	}
	if v.Step != stepFollow || !f.Evacuating || f.Migratable == no || f.Strategy == v1alpha1.StrategyExternal {
		return nil, nil
	}
	vars, err := sub.vars()
	if err != nil {
		return nil, err
	}
	if wanted, err := p.migration.createWhen.Bool(ctx, vars, true); err != nil || !wanted {
		m.store.note(p, view, err)
		return nil, err
	}
	node, err := p.migration.sourceNode.Text(ctx, map[string]any{varWorkload: sub.workload.Object})
	if err != nil {
		return nil, err
	}
	one := &evacuee{er: er, sub: sub, candidate: candidate{
		Key: er.Namespace + "/" + er.Name, Workload: er.Namespace + "/" + sub.name, Node: node, Since: t.activatedAt,
	}}
	return one, nil
}

// plan decides, with the migrations as given.
func (m *migrator) plan(ctx context.Context, p *policy, evacuees map[string]*evacuee, objects []*unstructured.Unstructured) ([]string, time.Time, error) {
	for _, e := range evacuees {
		e.Failures, e.LastFailure, e.attempt = 0, time.Time{}, 0
	}
	byWorkload := map[string]*evacuee{}
	for _, e := range evacuees {
		byWorkload[e.Workload] = e
	}
	var unfinished []running
	for _, object := range objects {
		facts, err := m.store.migrationFacts(ctx, p, object)
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("read %s %s/%s: %w", p.migration.kind.Kind, object.GetNamespace(), object.GetName(), err)
		}
		if !facts.Finished {
			unfinished = append(unfinished, running{Workload: facts.Namespace + "/" + facts.Workload, Node: m.nodeOf(ctx, p, facts)})
		}
		e := byWorkload[facts.Namespace+"/"+facts.Workload]
		if e == nil || !facts.Ours {
			continue
		}
		if attempt, err := strconv.Atoi(facts.Attempt); err == nil && facts.Request == e.er.Name {
			e.attempt = max(e.attempt, attempt)
		}
		if facts.Finished && facts.Failed && !facts.Created.Before(e.Since.Truncate(time.Second)) {
			e.Failures++
			if facts.FinishedAt.After(e.LastFailure) {
				e.LastFailure = facts.FinishedAt
			}
		}
	}
	var candidates []candidate
	for _, key := range slices.Sorted(maps.Keys(evacuees)) {
		candidates = append(candidates, evacuees[key].candidate)
	}
	create, wakeAt := schedule(candidates, unfinished, limits{PerCluster: p.migration.perCluster, PerNode: p.migration.perNode, Retries: p.migration.retryLimit}, m.clock.Now())
	return create, wakeAt, nil
}

// nodeOf is the node that a migration leaves, if known.
func (m *migrator) nodeOf(ctx context.Context, p *policy, facts migrationFacts) string {
	workload, err := m.store.workload(ctx, p, types.NamespacedName{Namespace: facts.Namespace, Name: facts.Workload})
	if err != nil || workload == nil {
		return ""
	}
	node, err := p.migration.sourceNode.Text(ctx, map[string]any{varWorkload: workload.Object})
	if err != nil {
		return ""
	}
	return node
}

// createAll decides again on a live list of the migrations, because memory may lag behind,
// and creates as many as the limits allow.
func (m *migrator) createAll(ctx context.Context, p *policy) (create []string, wakeAt time.Time, err error) {
	m.store.migrating.Lock()
	defer m.store.migrating.Unlock()
	objects, err := m.store.kinds.liveList(ctx, p.needs[p.migration.kind], metav1.NamespaceAll)
	if err != nil {
		return nil, time.Time{}, err
	}
	// A request that was canceled while we waited for the lock is unmarked by now.
	evacuees, err := m.evacuees(ctx, p)
	if err != nil {
		return nil, time.Time{}, err
	}
	if create, wakeAt, err = m.plan(ctx, p, evacuees, objects); err != nil {
		return nil, time.Time{}, err
	}
	var errs []error
	for _, key := range create {
		errs = append(errs, m.create(ctx, p, evacuees[key]))
	}
	return create, wakeAt, errors.Join(errs...)
}

// create creates one migration. Its name is that of the attempt, so that it is not created
// twice.
func (m *migrator) create(ctx context.Context, p *policy, e *evacuee) error {
	object, err := m.render(ctx, p, e)
	if err != nil {
		m.store.note(p, e.sub.pod, err)
		return err
	}
	kind := p.migration.kind.Kind
	key := writeKey{policy: p.name, write: writeCreate, workload: types.NamespacedName{Namespace: e.er.Namespace, Name: e.sub.name}}
	if err := m.store.writes.begin(key); err != nil {
		return err
	}
	err = m.store.kinds.create(refused.AboutRequest(ctx, e.er), p.needs[p.migration.kind], object, p.interceptor)
	switch {
	case apierrors.IsAlreadyExists(err):
		return err
	case err != nil:
		m.emit(e, events.MigrationNotCreated(kind, e.Workload, err))
		return err
	}
	m.metrics.Wrote(p.name, writeCreate)
	m.emit(e, events.MigrationCreated(kind, object.GetName(), e.Workload, e.attempt+1))
	return nil
}

func (m *migrator) render(ctx context.Context, p *policy, e *evacuee) (*unstructured.Unstructured, error) {
	vars, err := e.sub.vars()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, r := range e.er.Spec.Requesters {
		names = append(names, r.Name)
	}
	key, until := client.ObjectKeyFromObject(e.er), time.Time{}
	if e.er.Status.Deadline != nil {
		until = e.er.Status.Deadline.Time
	}
	vars[varRequest] = requestVar(key, names, m.callers(ctx, key), until)
	return p.migration.render(ctx, p, vars, e.er.Namespace, e.er.Name, e.attempt+1)
}

// render makes the object of an attempt for a request.
func (m *migration) render(ctx context.Context, p *policy, vars map[string]any, namespace, request string, attempt int) (*unstructured.Unstructured, error) {
	rendered, err := m.template.Render(ctx, vars)
	if err != nil {
		return nil, err
	}
	content, ok := rendered.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("spec.migration.template: it must be an object")
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(m.kind)
	object.SetNamespace(namespace)
	number := strconv.Itoa(attempt)
	prefix := object.GetGenerateName()
	if prefix == "" {
		prefix = "evacuation-"
	}
	object.SetGenerateName("")
	object.SetName(prefix + request + "-" + number)
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1alpha1.MigrationPolicyLabel] = labelValue(p.name)
	labels[v1alpha1.MigrationRequestLabel] = request
	labels[v1alpha1.MigrationAttemptLabel] = number
	object.SetLabels(labels)
	return object, nil
}

// labelValue cuts a name to what a label can hold.
func labelValue(name string) string {
	const most = 63
	if len(name) > most {
		name = name[:most]
	}
	for name != "" && (name[len(name)-1] == '-' || name[len(name)-1] == '.') {
		name = name[:len(name)-1]
	}
	return name
}

func (m *migrator) emit(e *evacuee, event events.Event) {
	request := &corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "EvictionRequest",
		Namespace: e.er.Namespace, Name: e.er.Name, UID: e.er.UID,
	}
	pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: e.er.Namespace, Name: e.sub.pod.Name, UID: e.sub.pod.UID}
	events.Emit(m.recorder, request, pod, event)
}
