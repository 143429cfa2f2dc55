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

// errFull: the status takes no further run.
var errFull = fmt.Errorf("%d pods of this hook are being evicted, held or retried already", maxRuns)

// errUnchanged ends an update that would write nothing.
var errUnchanged = errors.New("unchanged")

// recordedRuns is the status of all hooks, in which every run is recorded before it begins. It
// is written by the leader only and read from memory after the first, live read; the
// resourceVersion of every write finds out if another leader has written meanwhile.
type recordedRuns struct {
	live   client.Reader
	client client.Client

	// wrote is told every version that was written or read.
	wrote func(*v1alpha1.EvacuationHook)

	mu    sync.Mutex
	hooks map[types.NamespacedName]*hookStatus
	// stale are the hooks whose status somebody else has written.
	stale map[types.NamespacedName]bool
}

// hookStatus is the newest known version of one hook; its mutex also makes one write follow
// the other.
type hookStatus struct {
	mu   sync.Mutex
	hook *v1alpha1.EvacuationHook
	// over are the requests whose runs go with the next write.
	over map[string]bool
}

func newRecordedRuns(c client.Client, live client.Reader, wrote func(*v1alpha1.EvacuationHook)) *recordedRuns {
	return &recordedRuns{client: c, live: live, wrote: wrote, hooks: map[types.NamespacedName]*hookStatus{}, stale: map[types.NamespacedName]bool{}}
}

func (r *recordedRuns) status(key types.NamespacedName) *hookStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hooks[key] == nil {
		r.hooks[key] = &hookStatus{}
	}
	return r.hooks[key]
}

// forget forgets a hook that is gone.
func (r *recordedRuns) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.hooks, key)
	delete(r.stale, key)
}

// reread has a hook read again before it is used next. It does not wait for a write.
func (r *recordedRuns) reread(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stale[key] = true
}

// takeStale reports whether reread was called.
func (r *recordedRuns) takeStale(key types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	stale := r.stale[key]
	delete(r.stale, key)
	return stale
}

// of returns the record of a request's run, nil if there is none. The hook must be the
// one of that UID, else the error is that it does not exist.
func (r *recordedRuns) of(ctx context.Context, hook *v1alpha1.EvacuationHook, request types.UID) (*v1alpha1.HookRun, error) {
	s := r.status(client.ObjectKeyFromObject(hook))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := r.read(ctx, s, hook); err != nil {
		return nil, err
	}
	if i := indexOf(s.hook.Status.Runs, request); i >= 0 {
		return s.hook.Status.Runs[i].DeepCopy(), nil
	}
	return nil, nil
}

// all returns all records of a hook.
func (r *recordedRuns) all(ctx context.Context, hook *v1alpha1.EvacuationHook) ([]v1alpha1.HookRun, error) {
	s := r.status(client.ObjectKeyFromObject(hook))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := r.read(ctx, s, hook); err != nil {
		return nil, err
	}
	return slices.Clone(s.hook.Status.Runs), nil
}

// drop removes the run of a request with the next write of the hook: it needs none of its
// own. See flush.
func (r *recordedRuns) drop(hook types.NamespacedName, request types.UID) {
	s := r.status(hook)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.over = map[string]bool{}
	}
	s.over[string(request)] = true
}

// isOver reports whether drop was called for a run that is still there.
func (r *recordedRuns) isOver(hook types.NamespacedName, request types.UID) bool {
	s := r.status(hook)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over[string(request)]
}

// flush writes what drop has left.
func (r *recordedRuns) flush(ctx context.Context, hook *v1alpha1.EvacuationHook) error {
	return r.update(ctx, hook, func(*v1alpha1.EvacuationHookStatus) error { return errUnchanged })
}

func indexOf(runs []v1alpha1.HookRun, request types.UID) int {
	return slices.IndexFunc(runs, func(r v1alpha1.HookRun) bool { return r.RequestUID == string(request) })
}

// read fills a status that is empty or old.
func (r *recordedRuns) read(ctx context.Context, s *hookStatus, hook *v1alpha1.EvacuationHook) error {
	key := client.ObjectKeyFromObject(hook)
	if stale := r.takeStale(key); s.hook != nil && s.hook.UID == hook.UID && !stale {
		return nil
	}
	s.hook = nil
	found := &v1alpha1.EvacuationHook{}
	if err := r.live.Get(ctx, key, found); err != nil {
		return fmt.Errorf("get EvacuationHook %s: %w", key, err)
	}
	if found.UID != hook.UID {
		return fmt.Errorf("get EvacuationHook %s: %w", key, apierrors.NewNotFound(v1alpha1.Resource("evacuationhooks"), hook.Name))
	}
	s.hook = found
	r.wrote(found)
	return nil
}

// update writes the status of a hook. The function changes it, or returns errUnchanged.
func (r *recordedRuns) update(ctx context.Context, hook *v1alpha1.EvacuationHook, change func(*v1alpha1.EvacuationHookStatus) error) error {
	s := r.status(client.ObjectKeyFromObject(hook))
	s.mu.Lock()
	defer s.mu.Unlock()
	var last error
	for range writes {
		if err := r.read(ctx, s, hook); err != nil {
			return err
		}
		next := s.hook.DeepCopy()
		before := len(next.Status.Runs)
		next.Status.Runs = slices.DeleteFunc(next.Status.Runs, func(r v1alpha1.HookRun) bool { return s.over[r.RequestUID] })
		switch err := change(&next.Status); {
		case errors.Is(err, errUnchanged):
			if before == len(next.Status.Runs) {
				return nil
			}
		case err != nil:
			return err
		}
		last = r.client.Status().Update(ctx, next, client.FieldOwner(fieldOwner))
		if last == nil {
			s.hook, s.over = next, nil
			r.wrote(next)
			return nil
		}
		// Whether it was stored or not, the next one reads.
		s.hook = nil
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
