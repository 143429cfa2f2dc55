//go:build unix

package chaos

import (
	"context"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// ledger is where interceptors write down what they do.
type ledger struct {
	mu      sync.Mutex
	entries []Entry
}

func (l *ledger) write(e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.At = time.Now()
	l.entries = append(l.entries, e)
}

func (l *ledger) read() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries)
}

// actor is an interceptor of one workload.
type actor struct {
	name string
	// before is the interceptor whose turn comes before, "" for the first one.
	before string
	habit  Behaviour
	// client acts under the interceptor's own account.
	client client.Client
	ledger *ledger
	// ofPod are the requests that it has begun to serve.
	ofPod map[types.UID]bool
	lied  map[types.UID]bool
}

// run serves every request in which it is this interceptor's turn.
func (a *actor) run(ctx context.Context, events <-chan *v1alpha1.EvictionRequest) {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case er := <-events:
			active := er.Status.ActiveInterceptors
			switch {
			case slices.Contains(active, a.name) && !a.ofPod[er.UID]:
				a.ofPod[er.UID] = true
				group.Go(func() { a.serve(ctx, er) })
			case a.habit.Habit == Liar && a.before != "" && slices.Contains(active, a.before) && !a.lied[er.UID]:
				a.lied[er.UID] = true
				group.Go(func() { a.lie(ctx, er) })
			}
		}
	}
}

// serve is one turn.
func (a *actor) serve(ctx context.Context, er *v1alpha1.EvictionRequest) {
	h := a.habit
	if h.Habit == Silent || !rest(ctx, h.Delay) {
		return
	}
	if h.Habit == Future {
		// The webhook refuses it while it can be reached.
		if accepted, told := a.begin(ctx, er, time.Hour); accepted {
			a.note(er, Entry{Deed: Began, Told: told})
		}
		return
	}
	accepted, told := a.begin(ctx, er, 0)
	if !accepted {
		return
	}
	a.note(er, Entry{Deed: Began, Told: told})
	switch h.Habit {
	case Hangs:
		return
	case Crashes:
		if !rest(ctx, h.Work) || !rest(ctx, h.Delay) { // What the first process did is lost.
			return
		}
	}
	if !rest(ctx, h.Work) {
		return
	}
	a.note(er, Entry{Deed: Finished})
	completed := a.complete(ctx, er, a.name)
	if h.Habit == Twice && completed && rest(ctx, time.Second) {
		a.complete(ctx, er, a.name)
	}
}

// lie completes in the name of the interceptor before.
func (a *actor) lie(ctx context.Context, er *v1alpha1.EvictionRequest) {
	for range 5 { // As often as it takes to fall into an outage.
		if a.complete(ctx, er, a.before) {
			a.note(er, Entry{Deed: Lied, Victim: a.before})
			return
		}
		if !rest(ctx, a.habit.Delay+100*time.Millisecond) {
			return
		}
	}
}

func (a *actor) note(er *v1alpha1.EvictionRequest, e Entry) {
	e.Request, e.Pod, e.Interceptor = er.UID, types.UID(er.Name), a.name
	a.ledger.write(e)
}

// begin reports the start, with a heartbeat that far ahead. A start that is stored
// already, by an earlier process or by a call whose answer was lost, is as good.
func (a *actor) begin(ctx context.Context, er *v1alpha1.EvictionRequest, ahead time.Duration) (accepted bool, told time.Time) {
	accepted = a.report(ctx, er, a.name, func(item *v1alpha1.InterceptorStatus) (change bool) {
		if item.StartTime != nil {
			told = item.HeartbeatTime.Time
			return false
		}
		told = time.Now().Truncate(time.Second)
		item.StartTime, item.HeartbeatTime = new(metav1.NewTime(told)), new(metav1.NewTime(told.Add(ahead)))
		item.Message = "working"
		if a.habit.Forbids {
			item.Cancellation = v1alpha1.CancellationForbidden
		}
		return true
	})
	return accepted, told
}

// complete reports a completion in the name of an interceptor. One that is stored
// already counts if it is ours, because the answer may have been lost.
func (a *actor) complete(ctx context.Context, er *v1alpha1.EvictionRequest, name string) bool {
	message, asked := "done by "+a.name, false
	return a.report(ctx, er, name, func(item *v1alpha1.InterceptorStatus) (change bool) {
		if asked && item.CompletionTime != nil && item.Message == message {
			return false
		}
		asked = true
		now := metav1.NewTime(time.Now().Truncate(time.Second))
		if item.StartTime == nil {
			item.StartTime, item.HeartbeatTime = &now, &now
		}
		item.CompletionTime, item.Message = &now, message
		return true
	})
}

// report changes an item of the status until the API server has said yes or no. It
// reports whether it said yes, or there was nothing to change.
func (a *actor) report(ctx context.Context, er *v1alpha1.EvictionRequest, name string, change func(*v1alpha1.InterceptorStatus) bool) bool {
	accepted := false
	_ = insist(ctx, "report", func(ctx context.Context) error { // It only ends without an answer when ctx does.
		now := &v1alpha1.EvictionRequest{}
		if err := a.client.Get(ctx, client.ObjectKeyFromObject(er), now); err != nil {
			return client.IgnoreNotFound(err)
		}
		i := slices.IndexFunc(now.Status.Interceptors, func(s v1alpha1.InterceptorStatus) bool { return s.Name == name })
		if now.UID != er.UID || i < 0 || (!slices.Contains(now.Status.ActiveInterceptors, name) && now.Status.Interceptors[i].CompletionTime == nil) {
			return nil
		}
		if !change(&now.Status.Interceptors[i]) {
			accepted = true
			return nil
		}
		err := a.client.Status().Update(ctx, now)
		accepted = err == nil
		if isOver(err) || apierrors.IsForbidden(err) {
			return nil
		}
		return err
	})
	return accepted
}

// isOver reports whether to try again is of no use.
func isOver(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsNotFound(err) }
