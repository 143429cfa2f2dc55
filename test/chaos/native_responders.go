//go:build unix

package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	lifecycleapply "k8s.io/client-go/applyconfigurations/lifecycle/v1alpha1"
	"k8s.io/client-go/kubernetes"
)

// nativeResponders is the group of those who may report in Evictions: Kubernetes has no role for
// them.
const nativeResponders = "chaos-native-responders"

const (
	// silence is after how long without a word a native responder is made to look as if it had
	// been silent for nativeDeadline: nobody can wait for that.
	silence = 2500 * time.Millisecond
	// agedBy is by how much its Eviction becomes older then.
	agedBy = nativeDeadline + time.Minute
)

// responder is a native responder of one workload. It uses client-go and nothing else.
type responder struct {
	name   string
	habit  Behaviour
	client kubernetes.Interface
	ledger *ledger
	// age makes a version of an Eviction older.
	age func(context.Context, *lifecyclev1alpha1.Eviction) error
	// now are the Evictions there are.
	now   func() map[types.UID]*lifecyclev1alpha1.Eviction
	tellf func(format string, args ...any)
	begun map[types.UID]bool // By Eviction.
}

// createResponders begins to act for the native responders of a workload.
func (r *run) createResponders(workload *Workload) error {
	for i, name := range responderNames(workload, r.namespace) {
		conf, err := r.world.Cluster.ConfigFor(fmt.Sprintf("responder-%s-%d", workload.Name, i), nativeResponders)
		if err != nil {
			return err
		}
		c, err := kubernetes.NewForConfig(conf)
		if err != nil {
			return fmt.Errorf("make client of responder %s: %w", name, err)
		}
		of := workload.Responders[i]
		r.history.Responders[workload.Name] = append(r.history.Responders[workload.Name], lifecyclev1alpha1.TargetResponder{Name: name, Priority: &of.Priority})
		r.responders = append(r.responders, &responder{
			name: name, habit: of.Behaviour, client: c, ledger: r.ledger, now: r.observer.evictionsNow, tellf: r.world.tellf, begun: map[types.UID]bool{},
			age: func(ctx context.Context, e *lifecyclev1alpha1.Eviction) error {
				return r.world.Cluster.AgeVersion(ctx, e, agedBy)
			},
		})
	}
	return nil
}

// run serves every Eviction in which it has the turn. Like the programs of others it looks only at
// those that have its label.
func (a *responder) run(ctx context.Context, events <-chan *lifecyclev1alpha1.Eviction) {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			role := lifecyclev1alpha1.EvictionParticipantRole(e.Labels[a.name])
			labeled := role == lifecyclev1alpha1.EvictionParticipantRoleResponder || role == lifecyclev1alpha1.EvictionParticipantRoleRequesterResponder
			if labeled && activeResponder(e) == a.name && !a.begun[e.UID] {
				a.begun[e.UID] = true
				group.Go(func() { a.serve(ctx, e) })
			}
		}
	}
}

// serve is one turn.
func (a *responder) serve(ctx context.Context, e *lifecyclev1alpha1.Eviction) {
	h := a.habit
	if h.Habit == Silent {
		a.beSilent(ctx, e)
		return
	}
	heartbeat := metav1.Time{}
	begin := func() bool {
		heartbeat = metav1.NewTime(time.Now().Truncate(time.Second))
		return a.report(ctx, e, func() *lifecycleapply.ResponderStatusApplyConfiguration {
			heartbeat = metav1.NewTime(time.Now().Truncate(time.Second))
			return lifecycleapply.ResponderStatus().WithHeartbeatTime(heartbeat).WithMessage("at work")
		})
	}
	if !rest(ctx, h.Delay) || !begin() {
		return
	}
	a.note(e, Began)
	switch h.Habit {
	case Hangs:
		a.beSilent(ctx, e)
		return
	case Crashes: // Its second process knows nothing of the first one.
		if !rest(ctx, h.Work) || !rest(ctx, h.Delay) || !begin() {
			return
		}
	}
	if !rest(ctx, h.Work) {
		return
	}
	complete := func() bool {
		return a.report(ctx, e, func() *lifecycleapply.ResponderStatusApplyConfiguration {
			return lifecycleapply.ResponderStatus().WithHeartbeatTime(heartbeat).WithMessage("done").WithCompletionTime(metav1.NewTime(time.Now().Truncate(time.Second)))
		})
	}
	a.note(e, Finished)
	if complete() && h.Habit == Twice && rest(ctx, time.Second) {
		complete()
	}
}

func (a *responder) note(e *lifecyclev1alpha1.Eviction, deed Deed) {
	a.ledger.write(Entry{Deed: deed, Request: e.UID, Pod: e.Spec.Target.Pod.UID, Interceptor: a.name})
}

// beSilent lets the API server believe that nothing was heard of it for the whole deadline.
func (a *responder) beSilent(ctx context.Context, e *lifecyclev1alpha1.Eviction) {
	for rest(ctx, silence) {
		now := a.now()[e.UID]
		if now == nil || activeResponder(now) != a.name {
			return
		}
		// Only the version in which it has the turn: nobody else may look silent.
		if err := within(ctx, func(ctx context.Context) error { return a.age(ctx, now) }); err == nil {
			a.tellf("%s is silent, Eviction %s is %s older now", a.name, e.Name, agedBy)
		}
	}
}

// report says something about a turn until the API server has taken it, or the turn is over. It
// reports whether it was taken.
func (a *responder) report(ctx context.Context, e *lifecyclev1alpha1.Eviction, what func() *lifecycleapply.ResponderStatusApplyConfiguration) bool {
	taken := false
	evictions := a.client.LifecycleV1alpha1().Evictions(e.Namespace)
	_ = insist(ctx, "report", func(ctx context.Context) error { // It only ends without an answer when ctx does.
		mine := lifecycleapply.Eviction(e.Name, e.Namespace).WithUID(e.UID).WithStatus(lifecycleapply.EvictionStatus().WithResponders(what().WithName(a.name)))
		_, err := evictions.ApplyStatus(ctx, mine, metav1.ApplyOptions{FieldManager: a.name, Force: true})
		if taken = err == nil; taken {
			return nil
		}
		now, lookErr := evictions.Get(ctx, e.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(lookErr) || lookErr == nil && (now.UID != e.UID || activeResponder(now) != a.name || isCompleted(now, a.name)) {
			return nil // Its turn is over. A report whose answer was lost may have ended it.
		}
		return err // Such as a clock that is behind that of the controller.
	})
	return taken
}
