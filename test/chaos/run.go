//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// Times of the manager under test, short enough for a run to see them pass.
const (
	heartbeatDeadline = 8 * time.Second
	// longDeadline is the same for runs with a rollout group, whose pods wait for each
	// other, singletons, whose EvictionBudget may be asked while nobody answers, a hook, or
	// native responders, for whom one of ours stands: no built-in interceptor tells of itself
	// more than once a minute.
	longDeadline = 30 * time.Second
	clockSkew    = 5 * time.Second
	// setUpPatience and patience bound the beginning and the end of a run.
	setUpPatience   = 2 * time.Minute
	defaultPatience = 90 * time.Second
	// testLabel is on the nodes of a run; its value is the run's namespace.
	testLabel = foreign + "run"
)

// deadline is how long an interceptor may be silent in a run.
func (p *Plan) deadline() time.Duration {
	if p.Rollout != nil || p.Singletons != nil || p.Serves || slices.ContainsFunc(p.Workloads, func(w Workload) bool { return w.Kind == Hooked }) {
		return longDeadline
	}
	return heartbeatDeadline
}

// patience is how long a run may take to come to rest.
func (p *Plan) patience() time.Duration {
	patience := defaultPatience + p.deadline() - heartbeatDeadline
	for _, f := range p.Faults {
		if f.Kind == RefuseWrites { // It is followed by a pause of that length.
			patience += time.Duration(f.Lasts)*Step + firstPause
		}
	}
	return patience
}

func managerArgs(plan *Plan) []string {
	return []string{
		"--leader-elect=true", "--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms",
		"--allow-short-heartbeat-deadline", "--heartbeat-deadline=" + plan.deadline().String(), "--clock-skew=" + clockSkew.String(), "--completion-grace=1s", "--startup-grace=2s",
		"--eviction-backoff-min=200ms", "--eviction-backoff-max=2s", "--marker-debounce=1s", "--shutdown-delay=0s", "--shutdown-timeout=3s",
		"--maintenance-evacuation-wait=2s", "--budgets-exhausted", fmt.Sprintf("--guard=%t", plan.Mode != ModeNoGuard),
	}
}

// run is one run of a plan.
type run struct {
	world     *World
	namespace string
	nodes     []string
	began     time.Time
	patience  time.Duration

	proxy    *proxy
	replicas []*replica
	observer *observer
	ledger   *ledger
	actors   []*actor
	guests   []*guest
	// responders are the native ones.
	responders []*responder
	// platforms of machines.
	platforms []*platform
	group     sync.WaitGroup // All but the actors, who work until the run has come to rest.

	actorsCtx  context.Context //nolint:containedctx // The life of the actors.
	stopActors context.CancelFunc
	actorGroup sync.WaitGroup

	// registered are names of registrations besides those of the workloads.
	registered []string

	mu      sync.Mutex // Guards history.Away and history.Attempts.
	trouble troublemakers
	history *History
}

// Run carries a plan out and returns what happened. Error: the run could not be set
// up, so nothing was proved.
func (w *World) Run(ctx context.Context, plan Plan) (h *History, err error) {
	w.runs++
	w.takeFacts()
	r := &run{
		world: w, namespace: fmt.Sprintf("chaos-%d-%d", plan.Seed, w.runs), patience: plan.patience(), ledger: &ledger{},
		history: &History{
			Plan: plan, Names: map[string][]string{}, Responders: map[string][]lifecyclev1alpha1.TargetResponder{}, Manager: w.managerUser(),
			Deadline: plan.deadline(), Slack: 2 * grain,
		},
	}
	if plan.Serves && !w.native {
		return nil, fmt.Errorf("seed %d: the control plane does not serve lifecycle.k8s.io", plan.Seed)
	}
	if plan.Skewed() {
		r.history.Slack += 2 * maxSkew
	}
	mark := w.Cluster.RequestLog().Mark()
	defer func() {
		err = errors.Join(err, r.stop())
		if ctx.Err() == nil { // Or the control plane is left as it is, maybe in ruins.
			err = errors.Join(err, r.cleanUp(ctx))
		}
	}()
	if err := r.setUp(ctx); err != nil {
		return nil, fmt.Errorf("set up seed %d: %w", plan.Seed, err)
	}
	r.play(ctx)
	if err := r.settle(ctx); err != nil {
		return nil, fmt.Errorf("end of seed %d: %w", plan.Seed, err)
	}
	if plan.Finale && r.history.Unsettled == "" {
		if err := r.finale(ctx); err != nil {
			return nil, fmt.Errorf("finale of seed %d: %w", plan.Seed, err)
		}
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("seed %d was interrupted: %w", plan.Seed, context.Cause(ctx))
	}
	if err := r.readCalls(ctx, mark); err != nil {
		return nil, err
	}
	r.observer.seen(r.history)
	r.history.Ledger = append(r.history.Ledger, r.ledger.read()...)
	r.history.Facts = w.takeFacts()
	return r.history, nil
}

// until waits for a step.
func (r *run) until(ctx context.Context, step int) bool {
	return rest(ctx, time.Until(r.began.Add(time.Duration(step)*Step)))
}

// setUp starts the managers and makes the workloads.
func (r *run) setUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, setUpPatience)
	defer cancel()
	plan, w := r.history.Plan, r.world
	policy := admissionregistrationv1.Fail
	if plan.Mode.Ignores() {
		policy = admissionregistrationv1.Ignore
	}
	if err := w.setFailurePolicy(ctx, policy); err != nil {
		return err
	}
	if err := client.IgnoreNotFound(w.admin.Delete(ctx, r.lease())); err != nil {
		return fmt.Errorf("delete the leader's lease: %w", err)
	}
	var err error
	if r.proxy, err = startProxy(w.inst.WebhookPort, w.webhookPorts); err != nil {
		return err
	}
	for number := range Replicas {
		manager, err := startReplica(w, number, managerArgs(&plan))
		if err != nil {
			return err
		}
		r.replicas = append(r.replicas, manager)
	}
	if err := w.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	r.observer = startObserver(w.admin, r.namespace, w.native, w.tellf)
	if r.nodes, err = w.Cluster.AddNodes(ctx, Nodes, func(node *corev1.Node) { node.Labels[testLabel] = r.namespace }); err != nil {
		return err
	}
	if err := r.await(ctx, "the managers to be ready", r.managersReady); err != nil {
		return err
	}
	return r.populate(ctx)
}

func (r *run) await(ctx context.Context, what string, check func(context.Context) error) error {
	return insist(ctx, "wait for "+what, check)
}

func (r *run) managersReady(ctx context.Context) error {
	var failures []error
	for _, manager := range r.replicas {
		failures = append(failures, manager.ready(ctx))
	}
	return errors.Join(failures...)
}

// whole wants that every workload has as many ready pods as it should, and no others.
func (r *run) whole(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := r.world.admin.List(ctx, pods, client.InNamespace(r.namespace)); err != nil {
		return err
	}
	want, got, ready := int32(0), int32(0), int32(0)
	for _, workload := range r.history.Plan.Workloads {
		want += workload.Replicas
	}
	for i := range pods.Items {
		if ofHook(&pods.Items[i]) {
			continue
		}
		got++
		if isReady(&pods.Items[i]) {
			ready++
		}
	}
	if got != want || ready != want {
		return fmt.Errorf("%d pods, %d of them ready, want %d", got, ready, want)
	}
	return nil
}

// play lets everything happen and returns when all faults have ended.
func (r *run) play(ctx context.Context) {
	playing, cancel := context.WithCancel(ctx)
	defer cancel()
	r.actorsCtx, r.stopActors = context.WithCancel(ctx)
	for _, a := range r.actors {
		events := r.observer.requestEvents()
		r.actorGroup.Go(func() { a.run(r.actorsCtx, events) })
	}
	for _, g := range r.guests {
		r.actorGroup.Go(func() {
			if err := g.manager.Start(r.actorsCtx); err != nil {
				r.world.tellf("%s: %v", g.name, err)
			}
		})
	}
	for _, a := range r.responders {
		events := r.observer.evictionEvents()
		r.actorGroup.Go(func() { a.run(r.actorsCtx, events) })
	}
	for _, p := range r.platforms {
		events := r.observer.podEvents()
		r.actorGroup.Go(func() { p.run(r.actorsCtx, events) })
	}
	r.askForSingletons(ctx)
	r.began = time.Now()
	r.world.tellf("step 0")
	if r.history.Plan.Singletons != nil {
		r.group.Go(func() { r.stopAsking(playing) })
	}
	r.group.Go(func() { r.sampleManagers(playing) })
	if r.history.Plan.Writers {
		r.group.Go(func() { r.write(playing) })
		r.group.Go(func() { r.writeNative(playing) })
	}
	for i, d := range r.history.Plan.Drains {
		r.group.Go(func() { r.drain(playing, d, i) })
	}
	var faults sync.WaitGroup
	for _, f := range r.history.Plan.Faults {
		faults.Go(func() { r.cause(playing, f) })
	}
	for _, t := range r.history.Plan.Troubles {
		faults.Go(func() { r.makeTrouble(playing, t) })
	}
	if group := r.history.Plan.Rollout; group != nil {
		for _, l := range group.Losses {
			faults.Go(func() { r.lose(playing, l) })
		}
	}
	r.until(ctx, Steps)
	faults.Wait()
	r.world.tellf("all faults have ended")
	if err := r.mend(ctx); err != nil {
		r.world.tellf("%v", err)
	}
	rest(ctx, lastSteps*Step) // The drains go on for a moment with everything well.
	r.world.tellf("everything is called off")
	cancel()
	r.group.Wait()
}

// lastSteps are those after the faults.
const lastSteps = 10

// settle calls everything off, the maintenances first: a node is not uncordoned before.
// Then it waits until nothing moves any more.
func (r *run) settle(ctx context.Context) error {
	err := r.release(ctx)
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	r.comeToRest(ctx, err)
	return r.lookAround(context.WithoutCancel(ctx))
}

// comeToRest makes all nodes schedulable and waits until nothing moves any more. That it
// does not, or the error of what was to come before, is noted.
func (r *run) comeToRest(ctx context.Context, err error) {
	for _, node := range r.nodes {
		r.cordon(ctx, node, false)
	}
	err = errors.Join(err, insist(ctx, "clean pods", r.cleanPods), insist(ctx, "end troubles", r.endTroubles))
	err = errors.Join(err, r.await(ctx, "the run to come to rest", func(ctx context.Context) error {
		r.revive(ctx)
		// A call that an API server never answers must not use up the time of all others.
		if err := errors.Join(within(ctx, r.expire), within(ctx, r.whole)); err != nil {
			return err
		}
		running, left, err := r.look(ctx)
		if err == nil && running != "" {
			err = errors.New(running)
		}
		if err == nil && left != "" {
			err = errors.New(left)
		}
		return err
	}))
	if err != nil {
		r.history.Unsettled = err.Error()
	}
}

// lookAround notes what there is in the end.
func (r *run) lookAround(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	return insist(ctx, "look at what is left", func(ctx context.Context) error {
		pods, requests := &corev1.PodList{}, &v1alpha1.EvictionRequestList{}
		err := errors.Join(r.world.admin.List(ctx, pods, client.InNamespace(r.namespace)), r.world.admin.List(ctx, requests, client.InNamespace(r.namespace)))
		r.history.LeftPods, r.history.LeftRequests = pods.Items, requests.Items
		if err == nil && r.world.native {
			r.history.LeftEvictions, r.history.LeftWishes, err = r.lookNatively(ctx)
		}
		return err
	})
}

// look says which request still runs, and what is not put back.
func (r *run) look(ctx context.Context) (running, left string, err error) {
	pods, requests := &corev1.PodList{}, &v1alpha1.EvictionRequestList{}
	if err := within(ctx, func(ctx context.Context) error {
		return errors.Join(r.world.admin.List(ctx, pods, client.InNamespace(r.namespace)), r.world.admin.List(ctx, requests, client.InNamespace(r.namespace)))
	}); err != nil {
		return "", "", err
	}
	for i := range requests.Items {
		if er := &requests.Items[i]; runs(er, pods.Items) {
			running = "request for " + er.Name + " runs"
		}
	}
	if r.world.native {
		evictions, wishes, err := r.lookNatively(ctx)
		if err != nil {
			return "", "", err
		}
		if found := unfinishedNatively(evictions, wishes); running == "" && len(found) > 0 {
			running = found[0].String()
		}
	}
	c := &checker{History: r.history}
	for i := range pods.Items {
		if what := c.leftOn(&pods.Items[i]); what != "" {
			left = "pod " + pods.Items[i].Name + ": " + what
		}
	}
	return running, left, nil
}

// expire makes leases old that have no marker to miss: their node was not cordoned when
// the caller asked, so only two minutes of silence withdraw it, or ten of one of no known
// kind. All others must go by themselves.
func (r *run) expire(ctx context.Context) error {
	leases := &coordinationv1.LeaseList{}
	if err := r.world.admin.List(ctx, leases, client.InNamespace(r.world.inst.Namespace), client.MatchingLabels{translate.LeaseLabel: translate.LeaseLabelValue}); err != nil {
		return err
	}
	long := metav1.NewMicroTime(time.Now().Add(-time.Hour))
	for i := range leases.Items {
		lease := &leases.Items[i]
		if lease.Annotations[translate.LeaseMarkersAnnotation] != "" || lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Before(&long) {
			continue
		}
		lease.Spec.RenewTime = new(metav1.NewMicroTime(long.Add(-time.Hour)))
		if err := r.world.admin.Update(ctx, lease); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}
