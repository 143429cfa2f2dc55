package interceptor

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// A requester that does not wait concerns those that wait for their turn, and a deadline
// that moves, or a node that is lost, the one that has it.
func TestSDKHearsOfTheDeadline(t *testing.T) {
	t.Parallel()
	waiting := func(change func(*v1alpha1.EvictionRequest)) *v1alpha1.EvictionRequest {
		er := builder.EvictionRequest("shop", "web-1", "uid-1").UID("er-1").Requesters("drain.example.com").
			Interceptors(otherName, ourName).Active(otherName, at(1)).Obj()
		change(er)
		return er
	}
	nothing := func(*v1alpha1.EvictionRequest) {}
	until := func(seconds float64) func(*v1alpha1.EvictionRequest) {
		return func(er *v1alpha1.EvictionRequest) { er.Status.Deadline = stamp(seconds) }
	}
	lost := func(er *v1alpha1.EvictionRequest) {
		er.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionNodeLost, Status: metav1.ConditionTrue}}
	}
	hard := func(er *v1alpha1.EvictionRequest) {
		until(10)(er)
		er.Spec.Requesters[0].Type = v1alpha1.RequesterHard
	}
	begun := func(change func(*v1alpha1.EvictionRequest)) *v1alpha1.EvictionRequest {
		er := newRequest().Obj()
		change(er)
		return er
	}
	cases := map[string]struct {
		from, to *v1alpha1.EvictionRequest
		want     int
	}{
		"a deadline before its turn":         {waiting(nothing), waiting(until(10)), 0},
		"somebody does not wait":             {waiting(nothing), waiting(hard), 1},
		"nobody has changed his mind":        {waiting(hard), waiting(hard), 0},
		"a deadline in its turn":             {begun(nothing), begun(until(10)), 1},
		"a deadline in its turn moves":       {begun(until(10)), begun(until(20)), 1},
		"a deadline in its turn is the same": {begun(until(10)), begun(until(10)), 0},
		"the node is lost in its turn":       {begun(nothing), begun(lost), 1},
		"and comes back":                     {begun(lost), begun(nothing), 1},
		"the node is lost before its turn":   {waiting(nothing), waiting(lost), 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := workqueue.NewTypedRateLimitingQueue(controllers.SlowBackoff())
			t.Cleanup(q.ShutDown)
			r := newBench(t, &fakeCluster{}, evacuateFunc(nil))
			r.requestEvents().Update(context.Background(), event.UpdateEvent{ObjectOld: tc.from, ObjectNew: tc.to}, q)
			if q.Len() != tc.want {
				t.Errorf("%d in the queue, want %d", q.Len(), tc.want)
			}
		})
	}
}
