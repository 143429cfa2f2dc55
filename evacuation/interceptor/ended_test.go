package interceptor

import (
	"context"
	"testing"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// midway is an interceptor in whose Evacuate something happens.
type midway struct {
	noted
	happens func()
}

func (m *midway) Evacuate(ctx context.Context, t Target) (Progress, error) {
	m.happens()
	return m.noted.Evacuate(ctx, t)
}

// The end of a request and its deletion may both come during one call. Only the
// deletion's last state tells whether there is something to undo.
func TestSDKUndoesNothingForAPodThatHasEnded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		last *builder.EvictionRequestWrapper
		want int
	}{
		"evicted, then deleted":        {newRequest().Evicted(v1alpha1.ReasonPodDeleted, at(1)), 1},
		"deleted in the middle":        {newRequest(), 2},
		"an older one of the name":     {newRequest().UID("er-0").Evicted(v1alpha1.ReasonPodDeleted, at(1)), 2},
		"canceled first, then deleted": {newRequest().Canceled(v1alpha1.ReasonNoRequesters, at(1)), 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &fakeCluster{cached: newRequest().Obj(), stored: newRequest().Obj()}
			q := workqueue.NewTypedRateLimitingQueue(controllers.SlowBackoff())
			t.Cleanup(q.ShutDown)
			impl := &midway{}
			r := newBench(t, c, impl)
			impl.happens = func() {
				c.cached, c.stored = nil, nil
				r.requestEvents().Delete(context.Background(), event.DeleteEvent{Object: client.Object(tc.last.Obj())}, q)
			}
			for range 2 {
				if _, err := mustLook(t, r); err != nil {
					t.Fatal(err)
				}
			}
			if len(impl.calls) != tc.want {
				t.Errorf("asked to %v, want %d calls", impl.calls, tc.want)
			}
			if state := r.states.get(client.ObjectKeyFromObject(newRequest().Obj())); state.Target.RequestUID != "" {
				t.Errorf("still remembered: %+v", state)
			}
		})
	}
}
