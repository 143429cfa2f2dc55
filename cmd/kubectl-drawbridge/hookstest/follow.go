package hookstest

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/listing"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/internal/events"
)

const (
	// lookEvery is how often a test looks at the clock.
	lookEvery = 250 * time.Millisecond
	// withdrawTimeout limits the work after ^C.
	withdrawTimeout = 15 * time.Second
	// newsBuffer is how many versions of objects may wait to be printed.
	newsBuffer = 64
)

// follower runs one test.
type follower struct {
	*options
	*cli.Connection
	facts     facts
	requester *requester.Requester
	// warned: it was said that no manager works.
	warned bool
}

// news is a version of the hook or of the request; gone if it was deleted.
type news struct {
	hook    *v1alpha1.EvacuationHook
	request *v1alpha1.EvictionRequest
	gone    bool
}

// begin makes the request and follows the test to its end.
func (f *follower) begin(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	// First, so that no version of the hook is missed.
	seen, err := f.watch(watching)
	if err != nil {
		if ctx.Err() != nil {
			return cli.ErrInterrupted
		}
		return err
	}
	t := &progress{hook: f.facts.Hook, pod: f.facts.Pod.Name}
	fmt.Fprintln(f.Out, announced(t))
	er, err := f.requester.Join(ctx, f.facts.Pod)
	switch {
	case ctx.Err() != nil:
		return f.interrupted(ctx, t)
	case err != nil:
		return err //nolint:wrapcheck // It says all.
	}
	t.request = er.UID
	return f.follow(ctx, t, er, seen)
}

// announced is the line about what begins.
func announced(t *progress) string {
	line := fmt.Sprintf("hook %s runs for pod %s (%s)", t.hook.Name, t.pod, listing.Action(t.hook))
	if t.undoes() {
		line += ", and then its undo"
	}
	return line + "; the pod is not evicted"
}

func (f *follower) follow(ctx context.Context, t *progress, er *v1alpha1.EvictionRequest, seen <-chan news) error {
	tick := f.Clock.NewTicker(lookEvery)
	defer tick.Stop()
	began := f.Clock.Now()
	f.print(t.seesRequest(er, began))
	for {
		now := f.Clock.Now()
		over, err := t.result(now)
		switch {
		case errors.Is(err, errWrongTurn):
			return errors.Join(err, f.withdraw(ctx))
		case over:
			return f.conclude(ctx, t, err)
		case f.timeout > 0 && now.Sub(began) >= f.timeout:
			return f.late(ctx, t)
		case !t.planned && !f.warned && now.Sub(began) >= cli.ConfirmPatience:
			f.warned = true
			fmt.Fprintf(f.ErrOut, "The manager has not responded to the request within %s: %s\n", cli.ConfirmPatience, f.Installed(ctx, f.Connection).NobodyWorks(f.System))
		}
		select {
		case n := <-seen:
			if n.hook != nil {
				f.print(t.seesHook(unlessGone(n.hook, n.gone)))
			} else if n.request.UID == t.request {
				f.print(t.seesRequest(unlessGone(n.request, n.gone), f.Clock.Now()))
			}
		case <-tick.C():
		case <-ctx.Done():
			return f.interrupted(ctx, t)
		}
	}
}

func unlessGone[T any](object *T, gone bool) *T {
	if gone {
		return nil
	}
	return object
}

// print prints lines with the time.
func (f *follower) print(lines []string) {
	for _, line := range lines {
		fmt.Fprintf(f.Out, "%s  %s\n", f.Clock.Now().Format(time.TimeOnly), line)
	}
}

// conclude prints how it ended, or returns why it is no success.
func (f *follower) conclude(ctx context.Context, t *progress, failed error) error {
	if t.run.Phase == v1alpha1.HookUndone || t.undoes() && t.forgotten {
		if err := f.undoFailed(ctx, t); err != nil {
			return errors.Join(failed, err)
		}
	}
	if failed == nil {
		fmt.Fprintln(f.Out, t.summary())
	}
	return failed
}

// eventPatience is how long to wait for an event of something that has happened: a busy manager
// writes its events some seconds later.
const eventPatience = 30 * time.Second

// undoFailed returns an error if the undo has failed. Its record does not tell, so the
// events of the request are asked; if they cannot be read, or say nothing, nothing is known.
func (f *follower) undoFailed(ctx context.Context, t *progress) error {
	known, failed := false, false
	about := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("involvedObject.uid", string(t.request))}
	err := f.HoldsWithin(ctx, eventPatience, func() (bool, error) {
		var list corev1.EventList
		if err := f.List(ctx, &list, client.InNamespace(f.facts.Pod.Namespace), about); err != nil {
			return false, fmt.Errorf("list events: %w", err)
		}
		known, failed = undoTold(list.Items)
		return known, nil
	})
	t.unknown = !known
	if err != nil && !errors.Is(err, cli.ErrInterrupted) {
		fmt.Fprintf(f.ErrOut, "Warning: whether the undo has succeeded is not known: %v\n", err)
	}
	if failed {
		return fmt.Errorf("what hook %s did could not be undone: %s. Undo it by hand", t.hook.Name, t.run.Message)
	}
	return nil
}

// undoTold is what the events of a request say of an undo that has ended.
func undoTold(told []corev1.Event) (known, failed bool) {
	for i := range told {
		switch told[i].Reason {
		case events.ReasonHookUndoFailed:
			return true, true
		case events.ReasonHookUndone:
			return true, false
		}
	}
	return false, false
}

// late ends a test that takes longer than --timeout.
func (f *follower) late(ctx context.Context, t *progress) error {
	if !t.over.IsZero() {
		return fmt.Errorf("the undo of hook %s has not ended after %s; it continues without this command", t.hook.Name, f.timeout)
	}
	if err := f.withdraw(ctx); err != nil {
		return err
	}
	return fmt.Errorf("hook %s has not ended after %s: %s", t.hook.Name, f.timeout, canceled(t))
}

func (f *follower) interrupted(ctx context.Context, t *progress) error {
	if !t.over.IsZero() {
		fmt.Fprintln(f.ErrOut, "\nThe undo continues without this command.")
		return cli.ErrInterrupted
	}
	if err := f.withdraw(ctx); err != nil {
		return fmt.Errorf("%w\nThe test continues. To cancel it: kubectl drawbridge cancel pod/%s -n %s", err, t.pod, t.hook.Namespace)
	}
	fmt.Fprintf(f.ErrOut, "\n%s.\n", canceled(t))
	return cli.ErrInterrupted
}

// canceled says what follows when nobody wants the eviction any more.
func canceled(t *progress) string {
	switch {
	case t.hook.Spec.PointOfNoReturn:
		return "the test is canceled, but the hook finishes what it has begun"
	case t.undoes():
		return "the test is canceled; what runs is stopped, and then the undo runs"
	default:
		return "the test is canceled, and what runs is stopped"
	}
}

// withdraw says that the test is not wanted any more, also after ^C.
func (f *follower) withdraw(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTimeout)
	defer cancel()
	if err := f.requester.Withdraw(ctx, f.facts.Pod); err != nil {
		return fmt.Errorf("cancel the test: %w", err)
	}
	return nil
}

// watch sends every version of the hook and of the pod's request.
func (f *follower) watch(ctx context.Context) (<-chan news, error) {
	config := rest.CopyConfig(f.REST)
	config.Timeout = 0 // It would end watches.
	hook, request := client.ObjectKeyFromObject(f.facts.Hook), v1alpha1.RequestKey(f.facts.Pod)
	only := func(key client.ObjectKey) cache.ByObject {
		return cache.ByObject{
			Namespaces: map[string]cache.Config{key.Namespace: {}},
			Field:      fields.OneTermEqualSelector("metadata.name", key.Name),
		}
	}
	// A cache does not report errors.
	for _, list := range []client.ObjectList{&v1alpha1.EvacuationHookList{}, &v1alpha1.EvictionRequestList{}} {
		if err := f.List(ctx, list, client.InNamespace(hook.Namespace), client.Limit(1)); err != nil {
			return nil, fmt.Errorf("watch the test: %w", err)
		}
	}
	objects, err := cache.New(config, cache.Options{Scheme: cli.Scheme, ByObject: map[client.Object]cache.ByObject{
		&v1alpha1.EvacuationHook{}: only(hook), &v1alpha1.EvictionRequest{}: only(request),
	}})
	if err != nil {
		return nil, fmt.Errorf("watch the test: %w", err)
	}
	seen := make(chan news, newsBuffer)
	tell := func(object any, gone bool) {
		if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		n := news{gone: gone}
		switch object := object.(type) {
		case *v1alpha1.EvacuationHook:
			n.hook = object
		case *v1alpha1.EvictionRequest:
			n.request = object
		default:
			return
		}
		select {
		case seen <- n:
		case <-ctx.Done():
		}
	}
	for _, object := range []client.Object{&v1alpha1.EvacuationHook{}, &v1alpha1.EvictionRequest{}} {
		informer, err := objects.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc:    func(object any) { tell(object, false) },
				UpdateFunc: func(_, object any) { tell(object, false) },
				DeleteFunc: func(object any) { tell(object, true) },
			})
		}
		if err != nil {
			return nil, fmt.Errorf("watch the test: %w", err)
		}
	}
	go func() {
		// It ends with ctx; failed watches are retried.
		_ = objects.Start(ctx)
	}()
	syncing, cancel := context.WithTimeout(ctx, cli.CallTimeout)
	defer cancel()
	if !objects.WaitForCacheSync(syncing) {
		return nil, errors.New("watch the test: there was no answer in time; you need the verbs list and watch on evacuationhooks and evictionrequests")
	}
	return seen, nil
}
