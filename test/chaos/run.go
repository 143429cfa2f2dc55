//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/builder"
	"github.com/drawbridge-dev/drawbridge/test/cluster"
)

// Times of the manager under test, short enough for a run to see them pass.
const (
	heartbeatDeadline = 8 * time.Second
	clockSkew         = 5 * time.Second
	// setUpPatience and patience bound the beginning and the end of a run.
	setUpPatience   = 2 * time.Minute
	defaultPatience = 90 * time.Second
	// testLabel is on the nodes of a run; its value is the run's namespace.
	testLabel = foreign + "run"
)

func managerArgs(mode Mode) []string {
	return []string{
		"--leader-elect=true", "--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms",
		"--heartbeat-deadline=" + heartbeatDeadline.String(), "--clock-skew=" + clockSkew.String(), "--completion-grace=1s", "--startup-grace=2s",
		"--eviction-backoff-min=200ms", "--eviction-backoff-max=2s", "--marker-debounce=1s", "--shutdown-delay=0s", "--shutdown-timeout=3s",
		fmt.Sprintf("--guard=%t", mode != ModeNoGuard),
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
	// platforms of machines.
	platforms []*platform
	group     sync.WaitGroup // All but the actors, who work until the run has come to rest.

	actorsCtx  context.Context //nolint:containedctx // The life of the actors.
	stopActors context.CancelFunc
	actorGroup sync.WaitGroup

	mu      sync.Mutex // Guards history.Away.
	history *History
}

// Run carries a plan out and returns what happened. Error: the run could not be set
// up, so nothing was proved.
func (w *World) Run(ctx context.Context, plan Plan) (h *History, err error) {
	w.runs++
	w.takeFacts()
	r := &run{
		world: w, namespace: fmt.Sprintf("chaos-%d-%d", plan.Seed, w.runs), patience: defaultPatience, ledger: &ledger{},
		history: &History{Plan: plan, Names: map[string][]string{}, Deadline: heartbeatDeadline, Slack: 2 * grain},
	}
	if plan.Skewed() {
		r.history.Slack += 2 * maxSkew
	}
	mark := w.Cluster.RequestLog().Mark()
	defer func() { err = errors.Join(err, r.tearDown(context.WithoutCancel(ctx))) }()
	if err := r.setUp(ctx); err != nil {
		return nil, fmt.Errorf("set up seed %d: %w", plan.Seed, err)
	}
	r.play(ctx)
	if err := r.settle(ctx); err != nil {
		return nil, fmt.Errorf("end of seed %d: %w", plan.Seed, err)
	}
	if err := r.readCalls(ctx, mark); err != nil {
		return nil, err
	}
	r.history.Pods, r.history.Requests = r.observer.seen()
	r.history.Ledger = r.ledger.read()
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
		manager, err := startReplica(w, number, managerArgs(plan.Mode))
		if err != nil {
			return err
		}
		r.replicas = append(r.replicas, manager)
	}
	if err := w.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	r.observer = startObserver(w.admin, r.namespace, w.tell)
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

// populate makes the workloads and their interceptors.
func (r *run) populate(ctx context.Context) error {
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: actors},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: actors},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:" + r.namespace}},
	}
	if err := r.world.admin.Create(ctx, binding); err != nil {
		return fmt.Errorf("bind role of the interceptors: %w", err)
	}
	for i := range r.history.Plan.Workloads {
		workload := &r.history.Plan.Workloads[i]
		interceptors := r.createInterceptors
		if workload.Kind == Machines {
			interceptors = r.createPolicy
		}
		if err := interceptors(ctx, workload); err != nil {
			return err
		}
		if err := r.createWorkload(ctx, workload); err != nil {
			return err
		}
	}
	if err := r.await(ctx, "the workloads to be ready", r.whole); err != nil {
		return err
	}
	return r.await(ctx, "the guards to be closed", func(ctx context.Context) error {
		_, left, err := r.look(ctx)
		if err == nil && left != "" {
			err = errors.New(left)
		}
		return err
	})
}

// accountOf is the service account of an interceptor.
func accountOf(workload *Workload, i int) string { return fmt.Sprintf("%s-i%d", workload.Name, i) }

// createInterceptors registers them, if need be, and begins to act for them.
func (r *run) createInterceptors(ctx context.Context, workload *Workload) error {
	before := ""
	for i, behaviour := range workload.Interceptors {
		name := fmt.Sprintf("i%d.%s.%s.chaos.example.com", i, workload.Name, r.namespace)
		r.history.Names[workload.Name] = append(r.history.Names[workload.Name], name)
		account := accountOf(workload, i)
		conf, err := r.world.Cluster.ConfigForServiceAccount(ctx, r.namespace, account)
		if err != nil {
			return err
		}
		c, err := client.New(conf, client.Options{Scheme: scheme})
		if err != nil {
			return fmt.Errorf("make client of %s: %w", account, err)
		}
		if workload.Registered {
			if err := r.register(ctx, workload, i, name, account); err != nil {
				return err
			}
		}
		a := &actor{name: name, before: before, habit: behaviour, client: c, ledger: r.ledger, ofPod: map[types.UID]bool{}, lied: map[types.UID]bool{}}
		r.actors = append(r.actors, a)
		before = name
	}
	return nil
}

func (r *run) register(ctx context.Context, workload *Workload, i int, name, account string) error {
	registration := builder.EvictionInterceptor(name).InNamespace(r.namespace).Pods(builder.AppLabel, workload.Name).
		Priority(int32(20000-100*i)).ActedBy(r.namespace, account) //nolint:gosec // Small.
	registration.EvictionInterceptor.Generation = 0
	if r.history.Plan.Mode == ModeAlways {
		registration.Guard(v1alpha1.GuardAlways)
	}
	object := registration.Obj()
	if err := r.world.admin.Create(ctx, object); err != nil {
		return fmt.Errorf("register %s: %w", name, err)
	}
	return r.await(ctx, "registration "+name, func(ctx context.Context) error {
		if err := r.world.admin.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(object.Status.Conditions, v1alpha1.ConditionAccepted) {
			return fmt.Errorf("conditions %+v", object.Status.Conditions)
		}
		return nil
	})
}

func (r *run) createWorkload(ctx context.Context, workload *Workload) error {
	pods := func(p *builder.PodWrapper) {
		p.NodeSelector(testLabel, r.namespace)
		switch {
		case workload.Kind == Machines:
			// An annotation to begin with, or the policy could not add another one.
			p.Label(testLabel, r.policyOf(workload)).Annotation(foreign+"machine", "true")
		case workload.Kind == Surging:
			p.Label(surge.OptInLabel, "enabled").Annotation(cluster.StartDelayAnnotation, "500ms")
		case !workload.Registered && len(workload.Interceptors) > 0:
			p.Interceptors(r.history.Names[workload.Name]...)
		}
	}
	var object client.Object
	if workload.Stateful {
		object = builder.StatefulSet(r.namespace, workload.Name).Replicas(workload.Replicas).Pods(pods).Obj()
	} else {
		object = builder.Deployment(r.namespace, workload.Name).Replicas(workload.Replicas).Rolling("1", "0").Pods(pods).Obj()
	}
	if err := r.world.admin.Create(ctx, object); err != nil {
		return fmt.Errorf("create workload %s: %w", workload.Name, err)
	}
	if workload.MaxUnavailable < 0 {
		return nil
	}
	budget := builder.Budget(r.namespace, workload.Name).Selects(builder.AppLabel, workload.Name).MaxUnavailable(fmt.Sprint(workload.MaxUnavailable)).Obj()
	if err := r.world.admin.Create(ctx, budget); err != nil {
		return fmt.Errorf("create budget %s: %w", workload.Name, err)
	}
	return r.await(ctx, "budget "+workload.Name, func(ctx context.Context) error {
		if err := r.world.admin.Get(ctx, client.ObjectKeyFromObject(budget), budget); err != nil {
			return err
		}
		if budget.Status.ObservedGeneration != budget.Generation || budget.Status.CurrentHealthy != workload.Replicas {
			return fmt.Errorf("status %+v", budget.Status)
		}
		return nil
	})
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
	r.began = time.Now()
	r.world.tell("step 0")
	r.actorsCtx, r.stopActors = context.WithCancel(ctx)
	for _, a := range r.actors {
		events := r.observer.requestEvents()
		r.actorGroup.Go(func() { a.run(r.actorsCtx, events) })
	}
	for _, p := range r.platforms {
		events := r.observer.podEvents()
		r.actorGroup.Go(func() { p.run(r.actorsCtx, events) })
	}
	r.group.Go(func() { r.sampleManagers(playing) })
	if r.history.Plan.Writers {
		r.group.Go(func() { r.write(playing) })
	}
	for i, d := range r.history.Plan.Drains {
		r.group.Go(func() { r.drain(playing, d, i) })
	}
	var faults sync.WaitGroup
	for _, f := range r.history.Plan.Faults {
		faults.Go(func() { r.cause(playing, f) })
	}
	r.until(ctx, Steps)
	faults.Wait()
	r.world.tell("all faults have ended")
	if err := r.mend(ctx); err != nil {
		r.world.tell("%v", err)
	}
	rest(ctx, lastSteps*Step) // The drains go on for a moment with everything well.
	r.world.tell("everything is called off")
	cancel()
	r.group.Wait()
}

// lastSteps are those after the faults.
const lastSteps = 10

// settle calls everything off and waits until nothing moves any more.
func (r *run) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	for _, node := range r.nodes {
		r.cordon(ctx, node, false)
	}
	if err := insist(ctx, "clean pods", r.cleanPods); err != nil {
		return err
	}
	err := r.await(ctx, "the run to come to rest", func(ctx context.Context) error {
		if err := r.whole(ctx); err != nil {
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
	})
	if err != nil {
		r.history.Unsettled = err.Error()
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), r.patience)
	defer cancel()
	return insist(ctx, "look at what is left", func(ctx context.Context) error {
		pods, requests := &corev1.PodList{}, &v1alpha1.EvictionRequestList{}
		err := errors.Join(r.world.admin.List(ctx, pods, client.InNamespace(r.namespace)), r.world.admin.List(ctx, requests, client.InNamespace(r.namespace)))
		r.history.LeftPods, r.history.LeftRequests = pods.Items, requests.Items
		return err
	})
}

// look says which request still runs, and what is not put back.
func (r *run) look(ctx context.Context) (running, left string, err error) {
	pods, requests := &corev1.PodList{}, &v1alpha1.EvictionRequestList{}
	if err := errors.Join(r.world.admin.List(ctx, pods, client.InNamespace(r.namespace)), r.world.admin.List(ctx, requests, client.InNamespace(r.namespace))); err != nil {
		return "", "", err
	}
	for i := range requests.Items {
		if outcome(&requests.Items[i]) == "" {
			running = "request for " + requests.Items[i].Name + " runs"
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

// readCalls takes the evictions from the API server's log.
func (r *run) readCalls(ctx context.Context, mark cluster.Mark) error {
	requests, err := r.world.Cluster.RequestLog().Since(ctx, mark)
	if err != nil {
		r.world.tell("the log of the API server: %v", err)
	}
	for _, request := range requests {
		if request.Resource == "pods" && request.Subresource == "eviction" && request.Namespace == r.namespace && !request.DryRun {
			r.history.Calls = append(r.history.Calls, Call{At: request.Time, User: request.User, Name: request.Name, UID: preconditionOf(request.Body), Code: request.Code})
		}
	}
	return nil
}

// preconditionOf is the UID an eviction is for, "" if it does not say.
func preconditionOf(body []byte) types.UID {
	var eviction policyv1.Eviction
	if json.Unmarshal(body, &eviction) != nil || eviction.DeleteOptions == nil || eviction.DeleteOptions.Preconditions == nil || eviction.DeleteOptions.Preconditions.UID == nil {
		return ""
	}
	return *eviction.DeleteOptions.Preconditions.UID
}

// tearDown ends everything and takes away what the run has made.
func (r *run) tearDown(ctx context.Context) error {
	var failures []error
	if r.stopActors != nil {
		r.stopActors()
		r.actorGroup.Wait()
	}
	if r.observer != nil {
		r.observer.stop()
	}
	for _, manager := range r.replicas {
		failures = append(failures, manager.stop())
	}
	if r.proxy != nil {
		failures = append(failures, r.proxy.close())
	}
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	remove := func(object client.Object) {
		failures = append(failures, insist(ctx, "delete "+object.GetName(), func(ctx context.Context) error {
			return client.IgnoreNotFound(r.world.admin.Delete(ctx, object))
		}))
	}
	for _, names := range r.history.Names {
		for _, name := range names {
			remove(&v1alpha1.EvictionInterceptor{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	}
	for i := range r.history.Plan.Workloads {
		if workload := &r.history.Plan.Workloads[i]; workload.Kind == Machines {
			remove(&v1alpha1.EvacuationPolicy{ObjectMeta: metav1.ObjectMeta{Name: r.policyOf(workload)}})
		}
	}
	failures = append(failures, insist(ctx, "clean pods", r.cleanPods))
	remove(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}})
	failures = append(failures, r.await(ctx, "the namespace to be gone", func(ctx context.Context) error {
		if err := r.cleanPods(ctx); err != nil {
			return err
		}
		err := r.world.admin.Get(ctx, client.ObjectKey{Name: r.namespace}, &corev1.Namespace{})
		if client.IgnoreNotFound(err) == nil && err != nil {
			return nil
		}
		return errors.Join(errors.New("it is there"), err)
	}))
	for _, node := range r.nodes {
		remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	}
	return errors.Join(failures...)
}

// Timeline is what happened, in order, for people.
func (h *History) Timeline() string {
	var lines []Fact
	lines = append(lines, h.Facts...)
	for _, e := range h.Ledger {
		lines = append(lines, Fact{e.At, fmt.Sprintf("ledger: %s %s for request %s of pod %s %s", e.Interceptor, e.Deed, e.Request, e.Pod, e.Victim)})
	}
	for _, c := range h.Calls {
		lines = append(lines, Fact{c.At, fmt.Sprintf("eviction of %s %s by %s: %d", c.Name, c.UID, c.User, c.Code)})
	}
	for _, p := range h.Pods {
		at, evicted := admitted(p)
		lines = append(lines, Fact{p.At, fmt.Sprintf("pod %s %s (version %s, node %s): ready %t, deleting %t, gone %t, missed something %t, evicted %t %s, guard %q, handed up %t",
			p.Pod.Name, p.Pod.UID, p.Pod.ResourceVersion, p.Pod.Spec.NodeName, isReady(p.Pod), p.Pod.DeletionTimestamp != nil, p.Gone, p.Gap, evicted, stamp(at),
			p.Pod.Labels[v1alpha1.GuardLabel], p.Pod.Annotations[surge.HandedUpAnnotation] != "")})
	}
	for _, q := range h.Requests {
		s := q.Request.Status
		var requesters []string
		for _, requester := range q.Request.Spec.Requesters {
			requesters = append(requesters, requester.Name)
		}
		lines = append(lines, Fact{q.At, fmt.Sprintf("request %s of pod %s (version %s): active %v, processed %v, outcome %q, requesters %v, gone %t",
			q.Request.UID, q.Request.Name, q.Request.ResourceVersion, s.ActiveInterceptors, s.ProcessedInterceptors, outcome(q.Request), requesters, q.Gone)})
	}
	slices.SortStableFunc(lines, func(a, b Fact) int { return a.At.Compare(b.At) })
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&b, "%s %s\n", stamp(line.At), line.What)
	}
	return b.String()
}
