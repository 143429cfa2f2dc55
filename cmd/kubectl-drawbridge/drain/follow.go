package drain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
)

const (
	// redraw is how often the view is drawn or new lines are printed.
	redraw = 250 * time.Millisecond
	// undoTimeout limits the work after ^C.
	undoTimeout = 15 * time.Second
	// lookPatience is how long a manager may take to observe a maintenance before the
	// user is told that none does, and askAgain how often the reason is checked.
	lookPatience = 4 * time.Second
	askAgain     = 10 * time.Second
)

// requesterIndex finds the requests of a requester in the cache.
const requesterIndex = "requester"

// follower follows one maintenance.
type follower struct {
	*cli.Options
	*cli.Connection
	name string
	// again and stop are the commands that follow and stop it.
	again, stop string
	timeout     time.Duration
	// onInterrupt runs after ^C; nil leaves the drain running.
	onInterrupt func(context.Context) error

	// native: native responders have turns, so their Evictions are followed, too.
	native bool
	// trouble is why no manager has observed the maintenance, once checked; wait is
	// maintenance.evacuationWait.
	trouble, wait string
	// asked is when that was checked, and told the trouble that was printed where there
	// is no view.
	asked time.Time
	told  string
	// caughtUp: the cache has seen our initial write.
	caughtUp bool
	teller   teller
	terminal text.Terminal
}

// follow shows the drain until it has ended, the time is over, or ^C is pressed.
func (f *follower) follow(ctx context.Context, m *v1alpha1.NodeMaintenance) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	objects, err := f.watch(watching, m)
	if err != nil {
		if ctx.Err() != nil {
			return f.interrupted(ctx)
		}
		return err
	}
	f.terminal = terminal(f.Options)
	began := f.Clock.Now()
	tick := f.Clock.NewTicker(redraw)
	defer tick.Stop()
	for {
		s, err := f.snapshot(ctx, objects, m, began)
		switch {
		case ctx.Err() != nil:
			return f.interrupted(ctx)
		case err != nil:
			return err
		}
		f.seeWhetherAnybodyWorks(ctx, &s)
		if err := f.show(s); err != nil {
			return err
		}
		if outcome := outcomeOf(s.Maintenance); outcome != running {
			return f.ended(outcome)
		}
		if f.timeout > 0 && s.Now.Sub(began) >= f.timeout {
			return fmt.Errorf("not drained after %s; the drain continues\n%s", f.timeout, f.hints())
		}
		select {
		case <-tick.C():
		case <-ctx.Done():
			return f.interrupted(ctx)
		}
	}
}

// terminal draws to standard output.
func terminal(o *cli.Options) text.Terminal {
	return text.Terminal{Out: o.Out, Color: o.Color()}
}

// watch fills a cache with the maintenance and all requests. The first lists are made
// here, because a cache does not report errors.
func (f *follower) watch(ctx context.Context, m *v1alpha1.NodeMaintenance) (cache.Cache, error) {
	if err := f.List(ctx, &v1alpha1.EvictionRequestList{}, client.Limit(1)); err != nil {
		return nil, fmt.Errorf("list evictionrequests, to follow the drain, which has begun: %w", err)
	}
	if err := f.tryNative(ctx); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(f.REST)
	config.Timeout = 0 // It would end watches.
	kept := map[client.Object]cache.ByObject{
		&v1alpha1.NodeMaintenance{}: {Field: fields.OneTermEqualSelector("metadata.name", m.Name)},
		&v1alpha1.EvictionRequest{}: {Transform: cache.TransformStripManagedFields()},
	}
	if f.native {
		kept[&lifecyclev1alpha1.Eviction{}] = cache.ByObject{Transform: cache.TransformStripManagedFields()}
	}
	objects, err := cache.New(config, cache.Options{Scheme: cli.Scheme, ByObject: kept})
	if err != nil {
		return nil, fmt.Errorf("watch the drain: %w", err)
	}
	err = objects.IndexField(ctx, &v1alpha1.EvictionRequest{}, requesterIndex, func(object client.Object) []string {
		var names []string
		if er, ok := object.(*v1alpha1.EvictionRequest); ok {
			for _, r := range er.Spec.Requesters {
				names = append(names, r.Name)
			}
		}
		return names
	})
	if err != nil {
		return nil, fmt.Errorf("watch the drain: %w", err)
	}
	if _, err := objects.GetInformer(ctx, &v1alpha1.NodeMaintenance{}, cache.BlockUntilSynced(false)); err != nil {
		return nil, fmt.Errorf("watch nodemaintenances: %w", err)
	}
	if f.native {
		if _, err := objects.GetInformer(ctx, &lifecyclev1alpha1.Eviction{}, cache.BlockUntilSynced(false)); err != nil {
			return nil, fmt.Errorf("watch native Evictions: %w", err)
		}
	}
	go func() {
		// It ends with ctx; failed watches are retried.
		_ = objects.Start(ctx)
	}()
	syncing, cancel := context.WithTimeout(ctx, cli.CallTimeout)
	defer cancel()
	if !objects.WaitForCacheSync(syncing) {
		return nil, errors.New("watch the drain, which has begun: there was no answer in time; you need the verbs list and watch on nodemaintenances and evictionrequests")
	}
	return objects, nil
}

// tryNative finds out whether native Evictions can be read. Without them the drain is followed all
// the same: native.drawbridge.dev says in whose hands its pod is.
func (f *follower) tryNative(ctx context.Context) error {
	if !f.native {
		return nil
	}
	var list lifecyclev1alpha1.EvictionList
	err := f.List(ctx, &list, client.Limit(1))
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		f.native = false
		fmt.Fprintf(f.ErrOut, "Warning: whose turn it is among native responders is not followed: %v\n", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("list native Evictions, to follow the drain, which has begun: %w", err)
	}
	return nil
}

// evictions are the native Evictions that count, by the UIDs of their pods.
func (f *follower) evictions(ctx context.Context, objects client.Reader) (map[types.UID]*lifecyclev1alpha1.Eviction, error) {
	if !f.native {
		return nil, nil
	}
	var list lifecyclev1alpha1.EvictionList
	if err := objects.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("read native Evictions: %w", err)
	}
	return turns.ByPod(turns.Pointers(list.Items)), nil
}

// snapshot returns the current state of the drain.
func (f *follower) snapshot(ctx context.Context, objects client.Reader, began *v1alpha1.NodeMaintenance, since time.Time) (snapshot, error) {
	s := snapshot{Now: f.Clock.Now(), Began: since}
	m, err := f.current(ctx, objects, began)
	if err != nil {
		return s, err
	}
	s.Maintenance = m
	var requests v1alpha1.EvictionRequestList
	if err := objects.List(ctx, &requests, client.MatchingFields{requesterIndex: began.RequesterName()}, client.UnsafeDisableDeepCopy); err != nil {
		return s, fmt.Errorf("read evictionrequests: %w", err)
	}
	evictions, err := f.evictions(ctx, objects)
	if err != nil {
		return s, err
	}
	for i := range requests.Items {
		s.Pods = append(s.Pods, podOf(&requests.Items[i], evictions))
	}
	return s, nil
}

// current returns the current maintenance; nil if it is gone. A cache may start with a
// state older than our last write: until it has caught up, the API server is asked.
func (f *follower) current(ctx context.Context, objects client.Reader, began *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, error) {
	for _, reader := range []client.Reader{objects, f.Client} {
		m := &v1alpha1.NodeMaintenance{}
		err := reader.Get(ctx, client.ObjectKey{Name: f.name}, m)
		switch {
		case apierrors.IsNotFound(err) && (f.caughtUp || reader != objects):
			return nil, nil
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("read nodemaintenance %s: %w", f.name, err)
		case m.UID == began.UID && m.Generation >= began.Generation:
			f.caughtUp = f.caughtUp || reader == objects
			return m, nil
		case f.caughtUp || reader != objects:
			return nil, nil
		}
	}
	return began, nil
}

// seeWhetherAnybodyWorks sets in the snapshot why nothing happens, if no manager has
// observed the maintenance for a while.
func (f *follower) seeWhetherAnybodyWorks(ctx context.Context, s *snapshot) {
	s.Wait = f.wait
	if s.Maintenance == nil || s.Maintenance.Status.ObservedGeneration == s.Maintenance.Generation || s.Now.Sub(s.Began) < lookPatience {
		f.trouble = ""
		return
	}
	if f.trouble == "" || s.Now.Sub(f.asked) >= askAgain {
		f.asked = s.Now
		f.trouble = "the manager has not observed it yet: " + text.Clean(f.Installed(ctx, f.Connection).NobodyWorks(f.System))
	}
	s.Trouble = f.trouble
}

// show shows a snapshot: on a terminal a view, otherwise lines, with -o nothing.
func (f *follower) show(s snapshot) error {
	if f.Output != "" {
		if s.Trouble != "" && s.Trouble != f.told {
			f.told = s.Trouble
			fmt.Fprintf(f.ErrOut, "nodemaintenance/%s: %s\n", f.name, s.Trouble)
		}
		return nil
	}
	if wide, high, ok := f.Canvas(); ok {
		if s.Maintenance == nil {
			return nil
		}
		return f.terminal.Draw(view(s, screen{Width: wide, Height: high, ASCII: f.ASCIIOnly()}))
	}
	for _, line := range f.teller.next(s) {
		if _, err := fmt.Fprintln(f.Out, line); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}

// ended reports how the drain ended.
func (f *follower) ended(outcome outcome) error {
	switch outcome {
	case drained:
		if f.Output == "" {
			fmt.Fprintf(f.ErrOut, "Drained. The nodes stay cordoned. To make them schedulable: %s\n", strings.Replace(f.stop, " cancel ", " uncordon ", 1))
		}
		return nil
	case deleted:
		return fmt.Errorf("nodemaintenance %s was deleted while it was followed: the nodes are not drained any further, and those that it cordoned become schedulable", f.name)
	case stopped:
		return fmt.Errorf("the drain was stopped (nodemaintenance %s): its requests that are not finished are withdrawn, and the nodes stay cordoned", f.name)
	default:
		return fmt.Errorf("nodemaintenance %s selects no node any more: the nodes are gone, or have other labels", f.name)
	}
}

// interrupted reports what ^C did.
func (f *follower) interrupted(ctx context.Context) error {
	if f.onInterrupt == nil {
		fmt.Fprintf(f.ErrOut, "\nThe drain continues without you.\n%s\n", f.hints())
		return cli.ErrInterrupted
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := f.onInterrupt(ctx); err != nil {
		return fmt.Errorf("stop the drain: %w\nIt continues.\n%s", err, f.hints())
	}
	fmt.Fprintf(f.ErrOut, "\nThe drain is stopped; the nodes stay cordoned: %s\n", strings.Replace(f.stop, " cancel ", " uncordon ", 1))
	return cli.ErrInterrupted
}

func (f *follower) hints() string {
	return "  to follow it: " + f.again + "\n  to cancel it: " + f.stop
}
