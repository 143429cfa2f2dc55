package hook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// maxRuns is how many runs a hook's status keeps.
const maxRuns = 256

// writes is how often a write is tried that conflicts with others'.
const writes = 5

// errFull: there is no room in the status for another run.
var errFull = fmt.Errorf("%d pods of this hook are being evicted, held or retried already", maxRuns)

// errUnchanged ends an update that would write nothing.
var errUnchanged = errors.New("unchanged")

// ledger is the status of all hooks, in which every run is recorded before it begins. It
// is written by the leader only and read from memory after the first, live read; the
// resourceVersion of every write finds out if another leader has written meanwhile.
type ledger struct {
	live   client.Reader
	client client.Client

	// wrote is told every version that was written or read.
	wrote func(*v1alpha1.EvacuationHook)

	mu    sync.Mutex
	books map[types.NamespacedName]*book
	// stale are the hooks whose status somebody else has written.
	stale map[types.NamespacedName]bool
}

// book is the newest known version of one hook; its mutex also makes one write follow
// the other.
type book struct {
	mu   sync.Mutex
	hook *v1alpha1.EvacuationHook
	// over are the requests whose runs go with the next write.
	over map[string]bool
}

func newLedger(c client.Client, live client.Reader, wrote func(*v1alpha1.EvacuationHook)) *ledger {
	return &ledger{client: c, live: live, wrote: wrote, books: map[types.NamespacedName]*book{}, stale: map[types.NamespacedName]bool{}}
}

func (l *ledger) book(key types.NamespacedName) *book {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.books[key] == nil {
		l.books[key] = &book{}
	}
	return l.books[key]
}

// forget forgets a hook that is gone.
func (l *ledger) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.books, key)
	delete(l.stale, key)
}

// reread has a hook read again before it is used next. It does not wait for a write.
func (l *ledger) reread(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale[key] = true
}

// takeStale reports whether reread was called.
func (l *ledger) takeStale(key types.NamespacedName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	stale := l.stale[key]
	delete(l.stale, key)
	return stale
}

// run returns the record of a request's run, nil if there is none. The hook must be the
// one of that UID, else the error is that it does not exist.
func (l *ledger) run(ctx context.Context, hook *v1alpha1.EvacuationHook, request types.UID) (*v1alpha1.HookRun, error) {
	b := l.book(client.ObjectKeyFromObject(hook))
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := l.read(ctx, b, hook); err != nil {
		return nil, err
	}
	if i := indexOf(b.hook.Status.Runs, request); i >= 0 {
		return b.hook.Status.Runs[i].DeepCopy(), nil
	}
	return nil, nil
}

// runs returns all records of a hook.
func (l *ledger) runs(ctx context.Context, hook *v1alpha1.EvacuationHook) ([]v1alpha1.HookRun, error) {
	b := l.book(client.ObjectKeyFromObject(hook))
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := l.read(ctx, b, hook); err != nil {
		return nil, err
	}
	return slices.Clone(b.hook.Status.Runs), nil
}

// drop removes the run of a request with the next write of the hook: it needs none of its
// own. See flush.
func (l *ledger) drop(hook types.NamespacedName, request types.UID) {
	b := l.book(hook)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over == nil {
		b.over = map[string]bool{}
	}
	b.over[string(request)] = true
}

// isOver reports whether drop was called for a run that is still there.
func (l *ledger) isOver(hook types.NamespacedName, request types.UID) bool {
	b := l.book(hook)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over[string(request)]
}

// flush writes what drop has left.
func (l *ledger) flush(ctx context.Context, hook *v1alpha1.EvacuationHook) error {
	return l.update(ctx, hook, func(*v1alpha1.EvacuationHookStatus) error { return errUnchanged })
}

func indexOf(runs []v1alpha1.HookRun, request types.UID) int {
	return slices.IndexFunc(runs, func(r v1alpha1.HookRun) bool { return r.RequestUID == string(request) })
}

// read fills a book that is empty or old.
func (l *ledger) read(ctx context.Context, b *book, hook *v1alpha1.EvacuationHook) error {
	key := client.ObjectKeyFromObject(hook)
	if stale := l.takeStale(key); b.hook != nil && b.hook.UID == hook.UID && !stale {
		return nil
	}
	b.hook = nil
	found := &v1alpha1.EvacuationHook{}
	if err := l.live.Get(ctx, key, found); err != nil {
		return fmt.Errorf("get EvacuationHook %s: %w", key, err)
	}
	if found.UID != hook.UID {
		return fmt.Errorf("get EvacuationHook %s: %w", key, apierrors.NewNotFound(v1alpha1.Resource("evacuationhooks"), hook.Name))
	}
	b.hook = found
	l.wrote(found)
	return nil
}

// update writes the status of a hook. The function changes it, or returns errUnchanged.
func (l *ledger) update(ctx context.Context, hook *v1alpha1.EvacuationHook, change func(*v1alpha1.EvacuationHookStatus) error) error {
	b := l.book(client.ObjectKeyFromObject(hook))
	b.mu.Lock()
	defer b.mu.Unlock()
	var last error
	for range writes {
		if err := l.read(ctx, b, hook); err != nil {
			return err
		}
		next := b.hook.DeepCopy()
		before := len(next.Status.Runs)
		next.Status.Runs = slices.DeleteFunc(next.Status.Runs, func(r v1alpha1.HookRun) bool { return b.over[r.RequestUID] })
		switch err := change(&next.Status); {
		case errors.Is(err, errUnchanged):
			if before == len(next.Status.Runs) {
				return nil
			}
		case err != nil:
			return err
		}
		last = l.client.Status().Update(ctx, next, client.FieldOwner(fieldOwner))
		if last == nil {
			b.hook, b.over = next, nil
			l.wrote(next)
			return nil
		}
		// Whether it was stored or not, the next one reads.
		b.hook = nil
		if !apierrors.IsConflict(last) {
			break
		}
	}
	return fmt.Errorf("write the status of EvacuationHook %s: %w", client.ObjectKeyFromObject(hook), last)
}

// put records a run.
func put(status *v1alpha1.EvacuationHookStatus, run v1alpha1.HookRun) error {
	if i := slices.IndexFunc(status.Runs, func(r v1alpha1.HookRun) bool { return r.RequestUID == run.RequestUID }); i >= 0 {
		status.Runs[i] = run
		return nil
	}
	if len(status.Runs) >= maxRuns {
		return errFull
	}
	status.Runs = append(status.Runs, run)
	return nil
}
