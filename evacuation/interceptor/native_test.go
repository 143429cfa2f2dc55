package interceptor

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/drawbridge-dev/drawbridge/internal/controllers"
)

const (
	ourKey   = "db.example.com/checkpoint"
	otherKey = "queue.example.com/flush"
)

// newEviction is one of pod web-1, with our key and another one after it.
func newEviction(change ...func(*lifecyclev1alpha1.Eviction)) *lifecyclev1alpha1.Eviction {
	ev := &lifecyclev1alpha1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pod-1-web-1", UID: "ev-1", ResourceVersion: "7"},
		Spec:       lifecyclev1alpha1.EvictionSpec{Target: lifecyclev1alpha1.EvictionTarget{Pod: &lifecyclev1alpha1.EvictionPodReference{Name: "web-1", UID: "uid-1"}}},
	}
	for _, key := range []string{ourKey, otherKey} {
		ev.Status.TargetResponders = append(ev.Status.TargetResponders, lifecyclev1alpha1.TargetResponder{Name: key, State: lifecyclev1alpha1.ResponderStateInactive})
		ev.Status.Responders = append(ev.Status.Responders, lifecyclev1alpha1.ResponderStatus{Name: key})
	}
	for _, c := range change {
		c(ev)
	}
	return ev
}

func stamp(seconds float64) *metav1.Time { return new(metav1.NewTime(at(seconds))) }

// is gives the i-th responder a state; it started at that second.
func is(i int, state lifecyclev1alpha1.ResponderStateType, started float64) func(*lifecyclev1alpha1.Eviction) {
	return func(ev *lifecyclev1alpha1.Eviction) {
		ev.Status.TargetResponders[i].State = state
		ev.Status.Responders[i].StartTime = stamp(started)
	}
}

func beats(seconds float64) func(*lifecyclev1alpha1.Eviction) {
	return func(ev *lifecyclev1alpha1.Eviction) { ev.Status.Responders[0].HeartbeatTime = stamp(seconds) }
}

func finally(condition lifecyclev1alpha1.EvictionConditionType) func(*lifecyclev1alpha1.Eviction) {
	return func(ev *lifecyclev1alpha1.Eviction) {
		ev.Status.Conditions = append(ev.Status.Conditions, metav1.Condition{Type: string(condition), Status: metav1.ConditionTrue})
	}
}

func TestTurnsOfTheNativeAPI(t *testing.T) {
	t.Parallel()
	const (
		running     = lifecyclev1alpha1.ResponderStateActive
		completed   = lifecyclev1alpha1.ResponderStateCompleted
		interrupted = lifecyclev1alpha1.ResponderStateInterrupted
		canceled    = lifecyclev1alpha1.ResponderStateCanceled
		evicted     = lifecyclev1alpha1.EvictionConditionTargetEvicted
		failed      = lifecyclev1alpha1.EvictionConditionFailed
	)
	deleted := func(ev *lifecyclev1alpha1.Eviction) { ev.DeletionTimestamp = stamp(9) }
	reported := func(ev *lifecyclev1alpha1.Eviction) { ev.Status.Responders[0].CompletionTime = stamp(8) }
	cases := map[string]struct {
		eviction *lifecyclev1alpha1.Eviction
		want     turn
	}{
		"it waits for its turn":                           {newEviction(), noTurn},
		"nobody has a state yet":                          {newEviction(func(ev *lifecyclev1alpha1.Eviction) { ev.Status = lifecyclev1alpha1.EvictionStatus{} }), noTurn},
		"it is no responder of the pod":                   {newEviction(is(0, running, 0), func(ev *lifecyclev1alpha1.Eviction) { ev.Status.TargetResponders[0].Name = "a.example.com/b" }), noTurn},
		"the target is no pod":                            {newEviction(is(0, running, 0), func(ev *lifecyclev1alpha1.Eviction) { ev.Spec.Target.Pod = nil }), noTurn},
		"it is its turn":                                  {newEviction(is(0, running, 0)), active},
		"it has reported its end":                         {newEviction(is(0, running, 0), reported), noTurn},
		"it has completed":                                {newEviction(is(0, completed, 0), reported), noTurn},
		"it has completed, and the eviction is canceled":  {newEviction(is(0, completed, 0), reported, finally(failed)), noTurn},
		"it was too slow":                                 {newEviction(is(0, interrupted, 0), is(1, running, 1200)), passedOver},
		"it was too slow, and the eviction is canceled":   {newEviction(is(0, interrupted, 0), is(1, canceled, 1200), finally(failed)), calledOff},
		"the requesters have left":                        {newEviction(is(0, canceled, 0), finally(failed)), calledOff},
		"they have left, but the condition is not there":  {newEviction(is(0, canceled, 0)), calledOff},
		"it has failed in its turn":                       {newEviction(is(0, running, 0), finally(failed)), calledOff},
		"it is canceled before its turn":                  {newEviction(finally(failed)), noTurn},
		"the eviction is being deleted":                   {newEviction(is(0, running, 0), deleted), calledOff},
		"the pod ends in its turn":                        {newEviction(is(0, interrupted, 0), finally(evicted)), podGone},
		"the pod ends in its turn, which is still active": {newEviction(is(0, running, 0), finally(evicted)), podGone},
		"the pod ends in another's turn":                  {newEviction(is(0, interrupted, 0), is(1, interrupted, 1200), finally(evicted)), noTurn},
		"the pod ends after its turn":                     {newEviction(is(0, completed, 0), reported, is(1, running, 9), finally(evicted)), noTurn},
		"the pod ends before its turn":                    {newEviction(finally(evicted)), noTurn},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := nativeTurn(tc.eviction, ourKey); got != tc.want {
				t.Errorf("turn %d, want %d", got, tc.want)
			}
		})
	}
}

func TestWhatAnEvictionSaysAboutAResponder(t *testing.T) {
	t.Parallel()
	ev := newEviction(is(0, lifecyclev1alpha1.ResponderStateActive, 5), func(ev *lifecyclev1alpha1.Eviction) {
		ev.Status.Requesters = []lifecyclev1alpha1.Requester{
			{Name: "acme.example.com/drain", Intent: lifecyclev1alpha1.RequesterIntentEviction},
			{Name: "acme.example.com/gone", Intent: lifecyclev1alpha1.RequesterIntentWithdrawn},
		}
	})
	want := &request{
		Key: types.NamespacedName{Namespace: "shop", Name: "uid-1"}, Version: "7", Turn: active, Start: at(5), Revocable: true, OfPod: true,
		Target: Target{
			Native: true, Request: types.NamespacedName{Namespace: "shop", Name: "pod-1-web-1"}, RequestUID: "ev-1",
			Pod: types.NamespacedName{Namespace: "shop", Name: "web-1"}, PodUID: "uid-1",
			Requesters: []string{"acme.example.com/drain"}, ActivatedAt: at(5),
		},
	}
	if diff := cmp.Diff(want, decodeNative(ev, ourKey)); diff != "" {
		t.Errorf("before its first report (-want +got):\n%s", diff)
	}
	beats(65)(ev)
	ev.Status.Responders[0].Message, ev.Status.Responders[0].ExpectedCompletionTime = new("copying"), stamp(90)
	want.Item = item{StartedAt: at(5), HeartbeatAt: at(65), ExpectedFinishAt: at(90), Message: "copying"}
	if diff := cmp.Diff(want, decodeNative(ev, ourKey)); diff != "" {
		t.Errorf("after it (-want +got):\n%s", diff)
	}
}

// The server demands that no time of a report is before the startTime, which is set by
// another clock.
func TestReportsFollowTheStartTime(t *testing.T) {
	t.Parallel()
	in := input{Turn: active, Start: at(20), Revocable: true, Interval: 3 * time.Minute}
	cases := map[string]struct {
		answer Progress
		want   item
	}{
		"it works": {Progress{Message: "copying"}, item{StartedAt: at(20), HeartbeatAt: at(20), Message: "copying"}},
		"it expects to be done before it has begun": {Progress{ExpectedFinishTime: at(15)}, item{StartedAt: at(20), HeartbeatAt: at(20)}},
		"it expects to be done":                     {Progress{ExpectedFinishTime: at(30)}, item{StartedAt: at(20), HeartbeatAt: at(20), ExpectedFinishAt: at(30)}},
		"it expects that in eleven years":           {Progress{ExpectedFinishTime: at(11 * 365 * 24 * 3600)}, item{StartedAt: at(20), HeartbeatAt: at(20)}},
		"there is no way back, which cannot be said": {
			Progress{PointOfNoReturn: true}, item{StartedAt: at(20), HeartbeatAt: at(20)},
		},
		"it declines": {Progress{Done: true, Message: "not mine"}, item{CompletedAt: at(20), Message: "not mine"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := in
			in.Answer = &tc.answer
			if diff := cmp.Diff(&tc.want, step(in, at(10)).Report); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhichEvictionOfAPodCounts(t *testing.T) {
	t.Parallel()
	called := func(name string, turn turn, start float64) *request {
		q := &request{Turn: turn, Target: Target{Request: types.NamespacedName{Name: name}}}
		if start > 0 {
			q.Start = at(start)
		}
		return q
	}
	cases := map[string]struct {
		of   []*request
		want string
	}{
		"there is none":                      {nil, ""},
		"no turn has begun":                  {[]*request{called("pod-1", noTurn, 0)}, ""},
		"one is over, the next has not come": {[]*request{called("pod-1", calledOff, 5), called("pod-2", noTurn, 0)}, "pod-1"},
		"the active one":                     {[]*request{called("pod-1", calledOff, 5), called("pod-2", active, 9)}, "pod-2"},
		"the active one is older":            {[]*request{called("pod-1", active, 5), called("pod-2", calledOff, 9)}, "pod-1"},
		"the last turn was completed":        {[]*request{called("pod-2", noTurn, 9), called("pod-1", calledOff, 5)}, "pod-2"},
		"two turns in one second":            {[]*request{called("pod-10", noTurn, 5), called("pod-9", calledOff, 5)}, "pod-10"},
		"two are active":                     {[]*request{called("pod-2", active, 5), called("pod-1", active, 5)}, "pod-1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if q := choose(tc.of); q != nil {
				got = q.Target.Request.Name
			}
			if got != tc.want {
				t.Errorf("it is %q, want %q", got, tc.want)
			}
		})
	}
}

// Keys in the queue are pods, so that Options.Watches need not know the names of Evictions.
func TestNativeEventsAreQueuedByPod(t *testing.T) {
	t.Parallel()
	api := &native{key: ourKey, indexed: true}
	r := newReconciler(api, nil, nil, evacuateFunc(nil), forNative(Options{NativeKey: ourKey}))
	queue := workqueue.NewTypedRateLimitingQueue(controllers.SlowBackoff())
	t.Cleanup(queue.ShutDown)
	handler, pod := r.requestEvents(), types.NamespacedName{Namespace: "shop", Name: "uid-1"}
	want := func(what string, names, queued int) {
		t.Helper()
		if len(api.names(pod)) != names || queue.Len() != queued {
			t.Errorf("%s: %d known evictions, want %d; %d in the queue, want %d", what, len(api.names(pod)), names, queue.Len(), queued)
		}
		for queue.Len() > 0 {
			got, _ := queue.Get()
			if got.NamespacedName != pod {
				t.Errorf("%s: %s is queued, want %s", what, got, pod)
			}
			queue.Done(got)
		}
	}
	create := func(ev *lifecyclev1alpha1.Eviction) {
		handler.Create(context.Background(), event.CreateEvent{Object: client.Object(ev)}, queue)
	}
	update := func(from, to *lifecyclev1alpha1.Eviction) {
		handler.Update(context.Background(), event.UpdateEvent{ObjectOld: from, ObjectNew: to}, queue)
	}
	empty := newEviction(func(ev *lifecyclev1alpha1.Eviction) { ev.Status = lifecyclev1alpha1.EvictionStatus{} })
	working := newEviction(is(0, lifecyclev1alpha1.ResponderStateActive, 1))
	create(empty)
	want("without responders", 0, 0)
	update(empty, newEviction())
	want("before its turn", 1, 0)
	update(newEviction(), working)
	want("its turn", 1, 1)
	update(working, newEviction(is(0, lifecyclev1alpha1.ResponderStateActive, 1), beats(2)))
	want("its own report", 1, 0)
	handler.Delete(context.Background(), event.DeleteEvent{Object: working}, queue)
	want("deleted", 0, 1)
}
