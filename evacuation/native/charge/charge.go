package charge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	k8sevents "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

// Manager is the field manager of Drawbridge's controllers.
const Manager = "drawbridge-native"

const (
	// lookEvery is how often is checked whether the API is served, and what is remembered.
	lookEvery = 30 * time.Second
	// callTimeout bounds each look.
	callTimeout = 10 * time.Second
	// longestPause is that after what fails.
	longestPause = 5 * time.Minute
)

// Discovery tells which kinds of a group the API server has.
type Discovery interface {
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// Metrics show who is in charge.
type Metrics interface {
	// InCharge is called with one of the constants of package metrics.
	InCharge(who string)
}

// Charge knows who is in charge. All fields are required.
type Charge struct {
	Mode      Mode
	Discovery Discovery
	// Client reads and writes the ConfigMap of that name without a cache.
	Client    client.Client
	ConfigMap types.NamespacedName
	Clock     clock.WithTicker
	Recorder  k8sevents.EventRecorder
	Metrics   Metrics
	Log       logr.Logger
	// Serve runs on every replica as long as the API is served. It calls ready once every
	// Eviction that there is was given to Saw: before that, nobody takes charge.
	Serve func(ctx context.Context, ready func()) error
	// Taken is called when this replica has taken charge.
	Taken func()

	once sync.Once
	// hint wakes the look at the API, leaderHint that of the leader.
	hint, leaderHint chan struct{}

	mu       sync.Mutex
	served   bool
	known    bool
	failures int // Of Serve, one after the other.
	unheard  int // How often the API server has not said what it serves, one after the other.
	inCharge bool
	since    time.Time
	// seen is the last write of another controller, running the last one to an Eviction that ran.
	seen, running Evidence
	who           string
	// remembered: the ConfigMap was seen. Only the leader's loop uses it.
	remembered bool
}

func (c *Charge) init() {
	c.once.Do(func() { c.hint, c.leaderHint = make(chan struct{}, 1), make(chan struct{}, 1) })
}

// InCharge reports whether this replica's controllers may write now.
func (c *Charge) InCharge() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inCharge
}

// Known reports whether it is known what there is natively: nothing, because the API is not
// served, or what Serve has. A replica that has just begun does not know, and must not evict a pod
// whose native responders it may have to wait for. If the API server does not say what it serves, or
// Serve fails, again and again, as without the permission, nobody waits for it any more.
func (c *Charge) Known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known || c.Mode == Off
}

// heard notes what the API server has said about what it serves, and returns it.
func (c *Charge) heard(served bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unheard = 0
	c.known = c.known || !served
	return served
}

// notHeard notes that it has said nothing.
func (c *Charge) notHeard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unheard++
	c.known = c.known || c.unheard >= toleratedFailures
}

// toleratedFailures is how often that may fail, one after the other, until nobody waits for it.
const toleratedFailures = 2

// begins notes that Serve runs, and has nothing yet.
func (c *Charge) begins() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = c.failures >= toleratedFailures
}

// isReady notes that Serve has everything.
func (c *Charge) isReady() {
	c.mu.Lock()
	c.known, c.failures = true, 0
	c.mu.Unlock()
	c.setServed(true)
}

// failed notes that Serve has failed.
func (c *Charge) failed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures++
	c.known = c.failures >= toleratedFailures
}

// Recheck looks at once whether the API is served.
func (c *Charge) Recheck() {
	c.init()
	select {
	case c.hint <- struct{}{}:
	default:
	}
}

// Saw is told of each Eviction. If another controller has written it since Drawbridge is in
// charge, that has ended when Saw returns.
func (c *Charge) Saw(e *lifecyclev1alpha1.Eviction) {
	found := Foreign(e, Manager)
	if found.Manager == "" {
		return
	}
	c.mu.Lock()
	if !found.At.Before(c.seen.At) {
		c.seen = found
	}
	if found.Running {
		c.running = found
	}
	lost := c.inCharge && !found.At.Before(c.since)
	if lost {
		c.inCharge = false
	}
	c.mu.Unlock()
	if lost {
		c.wakeLeader() // To remember it. Nothing else that others write is a reason to look.
	}
}

// wakeLeader makes the leader look at once.
func (c *Charge) wakeLeader() {
	c.init()
	select {
	case c.leaderHint <- struct{}{}:
	default:
	}
}

// Start looks for the API on every replica, until the context ends.
func (c *Charge) Start(ctx context.Context) error {
	c.init()
	for ctx.Err() == nil {
		if !c.isServed(false) {
			c.pause(ctx, c.hint, lookEvery)
			continue
		}
		c.serve(ctx)
	}
	return nil
}

// NeedLeaderElection is false: every replica looks.
func (c *Charge) NeedLeaderElection() bool { return false }

// serve runs Serve until the API is served no longer.
func (c *Charge) serve(ctx context.Context) {
	c.Log.Info("The API server serves lifecycle.k8s.io/v1alpha1")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	c.begins()
	go func() { ended <- c.Serve(ctx, c.isReady) }()
	defer c.setServed(false)
	ticker := c.Clock.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil && ctx.Err() == nil {
				c.failed()
				c.Log.Error(err, "The native API cannot be followed, trying again")
				c.pause(ctx, nil, lookEvery)
			}
			return
		case <-c.hint:
		case <-ticker.C():
		}
		if c.isServed(true) {
			continue
		}
		c.Log.Info("The API server serves lifecycle.k8s.io/v1alpha1 no longer")
		cancel()
		if err := <-ended; err != nil {
			c.Log.V(1).Info("The view of the native API has ended", "cause", err.Error())
		}
		return
	}
}

// isServed asks the API server. Without an answer, it is as before.
func (c *Charge) isServed(before bool) bool {
	found, err := c.Discovery.ServerResourcesForGroupVersion(lifecyclev1alpha1.SchemeGroupVersion.String())
	switch {
	case apierrors.IsNotFound(err):
		return c.heard(false)
	case err != nil:
		c.notHeard()
		c.Log.V(1).Info("Could not ask which APIs are served", "cause", err.Error())
		return before
	}
	has := func(name string) bool {
		return slices.ContainsFunc(found.APIResources, func(r metav1.APIResource) bool { return r.Name == name })
	}
	return c.heard(has("evictions") && has("evictionrequests"))
}

func (c *Charge) setServed(served bool) {
	c.mu.Lock()
	c.served = served
	c.mu.Unlock()
	c.wakeLeader()
}

// pause waits, for a hint at most.
func (c *Charge) pause(ctx context.Context, hint <-chan struct{}, long time.Duration) {
	timer := c.Clock.NewTimer(long)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-hint:
	case <-timer.C():
	}
}

// Leader takes and leaves charge, on the leader only.
type Leader struct{ *Charge }

// NeedLeaderElection is true.
func (Leader) NeedLeaderElection() bool { return true }

// Start decides, again after each change and each 30 seconds, until the context ends.
func (l Leader) Start(ctx context.Context) error {
	l.init()
	wait := lookEvery
	for ctx.Err() == nil {
		if err := l.look(ctx); err != nil && ctx.Err() == nil {
			l.Log.Error(err, "Who moves native Evictions cannot be read or remembered, so nothing changes for now")
			l.pause(ctx, nil, wait)
			wait = min(2*wait, longestPause)
			continue
		}
		wait = lookEvery
		l.pause(ctx, l.leaderHint, wait)
	}
	l.let(false, time.Time{}, metrics.NativeNobody)
	return nil
}

// look decides once.
func (l Leader) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	l.mu.Lock()
	in := Input{Mode: l.Mode, Served: l.served, Seen: l.seen, Running: l.running, Now: l.Clock.Now().Truncate(time.Second)}
	l.mu.Unlock()
	if !in.Served || in.Mode == Cluster {
		l.let(false, time.Time{}, map[bool]string{true: metrics.NativeCluster, false: metrics.NativeNobody}[in.Served])
		return nil
	}
	stored := &corev1.ConfigMap{}
	if err := l.Client.Get(ctx, l.ConfigMap, stored); apierrors.IsNotFound(err) {
		stored = nil
	} else if err != nil {
		return fmt.Errorf("get ConfigMap %s: %w", l.ConfigMap, err)
	}
	in.State, in.Deleted = StateOf(stored), stored == nil && l.remembered
	l.remembered = l.remembered || stored != nil
	d := Decide(in)
	if d.Remember != nil {
		if !d.InCharge {
			l.let(false, time.Time{}, metrics.NativeCluster) // Before anything else.
		}
		written, err := l.remember(ctx, stored, *d.Remember)
		if err != nil {
			return err
		}
		in.State, l.remembered = *d.Remember, true
		l.say(written, d)
	}
	who := metrics.NativeCluster
	if d.InCharge {
		who = metrics.NativeDrawbridge
	}
	l.let(d.InCharge, in.State.Since, who)
	return nil
}

// let sets who is in charge.
func (c *Charge) let(inCharge bool, since time.Time, who string) {
	c.mu.Lock()
	overtaken := inCharge && c.seen.Manager != "" && !c.seen.At.Before(since)
	if overtaken {
		inCharge, who = false, metrics.NativeCluster // The next look remembers it.
	}
	taken := inCharge && !c.inCharge
	c.inCharge, c.since = inCharge, since
	changed := c.who != who
	c.who = who
	c.mu.Unlock()
	if changed {
		c.Metrics.InCharge(who)
	}
	if overtaken {
		c.wakeLeader()
	}
	if taken {
		c.Taken()
	}
}

// say tells a person, in the log and by an event.
func (l Leader) say(about *corev1.ConfigMap, d Decision) {
	event := events.NativeControllersReleased(d.Remember.Because)
	if d.InCharge {
		event = events.NativeControllersTaken(d.Remember.Because)
	}
	l.Log.Info(event.Note, "event", event.Reason)
	events.Emit(l.Recorder, about, nil, event)
}

// The keys of the ConfigMap.
const (
	keyInCharge = "inCharge"
	keySince    = "since"
	keyBecause  = "because"
)

// StateOf reads a ConfigMap, nil if there is none. What cannot be read says that the cluster is in charge: it is safe,
// and a person who deletes it starts over.
func StateOf(stored *corev1.ConfigMap) State {
	if stored == nil {
		return State{}
	}
	since, err := time.Parse(time.RFC3339, stored.Data[keySince])
	if mode := Mode(stored.Data[keyInCharge]); mode == Drawbridge && err == nil {
		return State{InCharge: Drawbridge, Since: since, Because: stored.Data[keyBecause]}
	}
	return State{InCharge: Cluster, Since: since, Because: stored.Data[keyBecause]}
}

// remember writes the ConfigMap.
func (l Leader) remember(ctx context.Context, stored *corev1.ConfigMap, s State) (*corev1.ConfigMap, error) {
	next := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.ConfigMap.Namespace, Name: l.ConfigMap.Name}}
	if stored != nil {
		next = stored.DeepCopy()
	}
	next.Data = map[string]string{keyInCharge: string(s.InCharge), keySince: s.Since.UTC().Format(time.RFC3339), keyBecause: s.Because}
	write := func() error { return l.Client.Create(ctx, next, client.FieldOwner(Manager)) }
	if stored != nil {
		write = func() error { return l.Client.Update(ctx, next, client.FieldOwner(Manager)) }
	}
	if err := write(); err != nil {
		return nil, errors.Join(fmt.Errorf("remember in ConfigMap %s who moves native Evictions", l.ConfigMap), err)
	}
	return next, nil
}
