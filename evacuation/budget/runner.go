package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/budget/grant"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/waitfor"
)

const (
	// fieldOwner is the field manager of what is written.
	fieldOwner = "drawbridge-budgets"
	// busyEvery is the least time between two writes of a status that grant nothing, while
	// requests wait; idleEvery while none does: pods change all the time.
	busyEvery = 10 * time.Second
	idleEvery = 30 * time.Second
	// configEvery is after how long a config that cannot be read is tried again.
	configEvery = 15 * time.Second
	// decideDelay is how long a change waits for others: a decision looks at all pods of the
	// budget, whose pods often change together.
	decideDelay = 100 * time.Millisecond
	// callTimeout limits one call of the API server.
	callTimeout = 10 * time.Second
)

// runner decides, on the leader.
type runner struct {
	client   client.Client // Reads from the cache.
	live     client.Reader
	clock    clock.WithTicker
	recorder eventsclient.EventRecorder
	metrics  *metrics.Budgets
	watches  *waitfor.Watches
	scales   *scales
	state    *state
	// deletes: the manager may delete pods that a PodDisruptionBudget can never let go.
	deletes bool
	// synced reports whether the state knows what there was at the start.
	synced func() bool

	// requests and budgets wake the controllers.
	requests, budgets controllers.Waker
}

var _ reconcile.Reconciler = &runner{}

// changed asks for a decision about a budget, wake for a look at a request.
func (r *runner) changed(budget types.NamespacedName) {
	r.budgets.Wake(budget, decideDelay)
}

func (r *runner) wake(request types.NamespacedName) {
	r.requests.Wake(request, 0)
}

// Reconcile decides about one budget, and those that share pods with it.
func (r *runner) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.synced() {
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	after, err := r.decide(ctx, req.NamespacedName)
	if apierrors.IsConflict(err) || errors.Is(err, errStale) || errors.Is(err, errBusy) {
		// Somebody else has written it: it is read anew, or the cache catches up.
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	return reconcile.Result{RequeueAfter: after}, err
}

// decide gathers, decides and applies. It returns after how long to come again.
func (r *runner) decide(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	s := r.state.space(key.Namespace)
	if s == nil {
		return 0, nil
	}
	if err := s.deciding.begin(ctx, r.clock); err != nil {
		return 0, err
	}
	defer s.deciding.end()
	entries, waiting := r.state.component(s, key.Name)
	if len(entries) == 0 { // It was deleted.
		r.watches.Release(key.String())
		r.metrics.Waiting(key.Namespace, key.Name, 0, time.Time{})
		return 0, nil
	}
	if left := r.tooEarly(entries, waiting); left > 0 {
		return left, nil
	}
	if err := r.read(ctx, entries); err != nil {
		return 0, err
	}
	blocked := map[string]string{}
	var unreadable time.Duration
	for _, e := range entries {
		if !e.asked {
			r.watches.Release(e.key.String()) // What an older generation read.
			e.asked = true
		}
		why, err := r.blocked(ctx, e.compiled)
		if err != nil { // Nobody says when that is over, for example when a permission is granted.
			unreadable = configEvery
		}
		blocked[e.key.Name] = why
	}
	over, lasts, err := r.over(ctx, s, entries)
	if err != nil {
		return 0, err
	}
	again := r.scales.refresh(ctx, key.Namespace)
	now := r.clock.Now()
	gather := func() (grant.Input, map[types.UID]identity) {
		return r.state.gather(s, entries, waiting, blocked, over, &owners{client: r.client, scales: r.scales, found: map[string]found{}}, now)
	}
	in, pods := gather()
	if r.scales.unread(key.Namespace) { // Owners that are new to it.
		again = r.scales.refresh(ctx, key.Namespace)
		in, pods = gather()
	}
	d := grant.Step(in)
	after, err := r.apply(ctx, s, entries, d, pods, now)
	for _, wait := range []time.Duration{again, unreadable, lasts, d.WakeAt.Sub(now)} {
		if wait > 0 && (after == 0 || wait < after) {
			after = wait
		}
	}
	return after, err
}

// tooEarly is how long a budget for which nobody waits is left alone: its status is all
// that may change.
func (r *runner) tooEarly(entries []*entry, waiting []*request) time.Duration {
	if len(waiting) > 0 || len(entries) != 1 || !r.state.described(entries[0]) {
		return 0
	}
	return entries[0].wrote.Add(idleEvery).Sub(r.clock.Now())
}

// read reads the budgets that this process has not yet read itself: the cache may be older
// than the last grant of the leader before.
func (r *runner) read(ctx context.Context, entries []*entry) error {
	for _, e := range entries {
		if r.state.isRead(e) {
			continue
		}
		object := &v1alpha1.EvictionBudget{}
		switch err := r.get(ctx, e.key, object); {
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("get EvictionBudget %s: %w", e.key, err)
		case err != nil, object.UID != e.uid, object.Generation != e.generation:
			return fmt.Errorf("EvictionBudget %s: %w", e.key, errStale)
		}
		r.state.took(e, object)
	}
	return nil
}

// get reads an object from the API server.
func (r *runner) get(ctx context.Context, key types.NamespacedName, object client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return r.live.Get(ctx, key, object)
}

// errStale: the cache has an older spec than the API server. It catches up.
var errStale = errors.New("it has just been changed")

// over asks the API server about the requests of grants that the cache does not have: they
// are gone or want no eviction any more, or it is late. It returns after how long to come again,
// because the record of one that is gone has to last.
func (r *runner) over(ctx context.Context, s *space, entries []*entry) (map[types.UID]bool, time.Duration, error) {
	over, again := map[types.UID]bool{}, time.Duration(0)
	for _, g := range r.state.unseen(s, entries) {
		er := &v1alpha1.EvictionRequest{}
		// A request has the name of its pod's UID.
		err := r.get(ctx, types.NamespacedName{Namespace: entries[0].key.Namespace, Name: g.PodUID}, er)
		if client.IgnoreNotFound(err) != nil {
			return nil, 0, fmt.Errorf("get the eviction request of pod %s: %w", g.Pod, err)
		}
		waits, past := turnOf(er)
		if err == nil && string(er.UID) == g.Request && (waits || past) {
			continue
		}
		// Its pod may have been evicted before, which the cache does not have yet.
		stays, err := r.stays(ctx, entries[0].key.Namespace, g)
		if err != nil {
			return nil, 0, err
		}
		if stays {
			if left := s.lasts(&g, r.clock.Now()); left > 0 {
				stays = false
				if again == 0 || left < again {
					again = left
				}
			}
		}
		over[types.UID(g.Request)] = stays
	}
	return over, again, nil
}

// stays asks the API server whether a granted pod is there and not being deleted.
func (r *runner) stays(ctx context.Context, namespace string, g v1alpha1.BudgetGrant) (bool, error) {
	pod := &corev1.Pod{}
	err := r.get(ctx, types.NamespacedName{Namespace: namespace, Name: g.Pod}, pod)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("get pod %s: %w", g.Pod, err)
	}
	return err == nil && string(pod.UID) == g.PodUID && pod.DeletionTimestamp == nil, nil
}

// blocked says which condition of a budget is not true. The error is that of an object that
// cannot be read; what is said has it as well.
func (r *runner) blocked(ctx context.Context, p *compiled) (why string, unreadable error) {
	if len(p.conditions) == 0 {
		return "", nil
	}
	var config map[string]any
	if p.config != nil {
		var err error
		key := p.key
		if config, err = r.watches.Get(ctx, *p.config, key.String(), func() { r.changed(key) }); err != nil {
			return "its config cannot be read: " + strings.TrimSuffix(err.Error(), "."), err
		}
	}
	return p.blocked(ctx, config), nil
}

// apply records what was granted and then tells the requests. If a record cannot be written,
// the requests that need it wait: those of which another budget has a record already get
// it later, or that is released.
func (r *runner) apply(ctx context.Context, s *space, entries []*entry, d grant.Decision, pods map[types.UID]identity, now time.Time) (after time.Duration, err error) {
	failed := len(entries)
	granted := map[int]int{}
	for _, g := range d.Granted {
		for _, b := range g.Budgets {
			granted[b]++
		}
	}
	for i, e := range entries {
		again, writeErr := r.record(ctx, e, d.States[i], granted[i] > 0, pods, now)
		if writeErr != nil {
			failed, err = i, writeErr
			break // The others come after it in the order in which grants are taken.
		}
		if again > 0 && (after == 0 || again < after) {
			after = again
		}
		if granted[i] > 0 {
			e.since = now
			r.metrics.Granted(granted[i])
		}
		r.waits(e, d.States[i], now)
	}
	for _, g := range d.Granted {
		done := true
		var by []string
		for _, b := range g.Budgets {
			done = done && b < failed
			by = append(by, entries[b].key.Name)
		}
		if done {
			r.tellGranted(s, g, by)
		}
	}
	for _, w := range d.Waiting {
		r.state.tellWaits(s, w)
	}
	return after, err
}

// record writes the status of a budget: at once if it grants, or if the place of a pod is filled
// that went in spite of a PodDisruptionBudget, else if it has changed and
// the last write was not just before.
func (r *runner) record(ctx context.Context, e *entry, state grant.State, grants bool, pods map[types.UID]identity, now time.Time) (after time.Duration, err error) {
	before := &e.object.Status
	records := e.recorded(state.Grants, pods)
	status := describe(before, e.compiled, state, records, r.deletes, now)
	if apiequality.Semantic.DeepEqual(before, status) {
		r.state.kept(e, nil, records, state)
		return 0, nil
	}
	every := idleEvery
	if state.Waiting > 0 {
		every = busyEvery
	}
	filled := exhausting(records) < exhausting(before.Grants) // The next one waits for that.
	if left := e.wrote.Add(every).Sub(now); left > 0 && !grants && !filled && !e.wrote.IsZero() && e.object.Status.ObservedGeneration == e.generation {
		r.state.kept(e, nil, records, state)
		return left, nil
	}
	object := e.object.DeepCopy()
	object.Status = *status
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := r.client.Status().Update(ctx, object, client.FieldOwner(fieldOwner)); err != nil {
		r.state.lost(e)
		return 0, fmt.Errorf("write the status of EvictionBudget %s: %w", e.key, err)
	}
	e.wrote = now
	r.tellBudget(before, object)
	r.state.kept(e, object, records, state)
	return 0, nil
}

// waits notes and measures how many requests wait, and since when in vain.
func (r *runner) waits(e *entry, state grant.State, now time.Time) {
	switch w := state.Wait; {
	case state.Waiting == 0, w != nil && w.Reason == v1alpha1.ReasonOutsideWindow:
		e.since = time.Time{} // Nobody expects anything before the next window.
	case e.since.IsZero():
		e.since = now
	}
	r.metrics.Waiting(e.key.Namespace, e.key.Name, state.Waiting, e.since)
}

// tellGranted answers a request, and records that in an event.
func (r *runner) tellGranted(s *space, g grant.Granted, by []string) {
	message := "The pod is leaving already."
	if names := r.state.grantedBy(s, g.Pod); len(names) > 0 {
		message = "Granted by EvictionBudget " + strings.Join(names, ", ") + "."
	}
	request, group := r.state.tellGranted(s, g, message)
	if request == nil {
		return
	}
	if len(by) > 0 {
		r.emit(request, events.EvictionGranted(request.podName, strings.Join(by, ", "), group))
	}
	r.wake(request.key)
}

// emit records an event about a request and its pod.
func (r *runner) emit(of *request, event events.Event) {
	er := &corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "EvictionRequest", Namespace: of.key.Namespace, Name: of.key.Name, UID: of.uid,
	}
	pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: of.key.Namespace, Name: of.podName, UID: of.pod}
	events.Emit(r.recorder, er, pod, event)
	events.Emit(r.recorder, pod, er, event)
}

// tellBudget records why a budget lets evictions wait, when that has become another reason.
func (r *runner) tellBudget(before *v1alpha1.EvictionBudgetStatus, object *v1alpha1.EvictionBudget) {
	reason, message := granting(&object.Status)
	if was, _ := granting(before); was == reason || reason == v1alpha1.ReasonGranting {
		return
	}
	events.Emit(r.recorder, object, nil, events.BudgetWaits(message))
}

func granting(status *v1alpha1.EvictionBudgetStatus) (reason, message string) {
	i := slices.IndexFunc(status.Conditions, func(c metav1.Condition) bool { return c.Type == v1alpha1.ConditionGranting })
	if i < 0 {
		return "", ""
	}
	return status.Conditions[i].Reason, status.Conditions[i].Message
}
