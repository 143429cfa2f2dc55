package guard

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/test/framework/allocation"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// indexed is what the informers' cache is to an event: requests by key, and the
// budgets of the namespace. Nothing else may be asked of it, and nothing written.
type indexed struct {
	client.Client
	requests map[client.ObjectKey]*v1alpha1.EvictionRequest
	budgets  []policyv1.PodDisruptionBudget
}

func (i *indexed) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	er, ok := obj.(*v1alpha1.EvictionRequest)
	if !ok {
		return errors.New("only requests are asked for")
	}
	found, ok := i.requests[key]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "evictionrequests"}, key.Name)
	}
	*er = *found
	return nil
}

func (i *indexed) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	budgets, ok := list.(*policyv1.PodDisruptionBudgetList)
	if !ok {
		return errors.New("only budgets are listed")
	}
	budgets.Items = i.budgets
	return nil
}

// BenchmarkPodEvent is what an event of a pod costs about which nothing is to be done,
// by what is known of it and by how many such pods and other budgets there are. Each
// reports its cost as a multiple of that of a plain pod among few.
func BenchmarkPodEvent(b *testing.B) {
	base := 0.0
	for _, kind := range []struct {
		name    string
		pod     func(*builder.PodWrapper) *builder.PodWrapper
		budgets int
	}{
		{"plain", func(p *builder.PodWrapper) *builder.PodWrapper { return p }, 0},
		{"guarded", guardedPod, 1},
		{"guarded, 100 budgets", guardedPod, 100},
	} {
		for _, pods := range []int{100, 10_000} {
			b.Run(fmt.Sprintf("%s, %d pods", kind.name, pods), func(b *testing.B) {
				cached := &indexed{requests: map[client.ObjectKey]*v1alpha1.EvictionRequest{}, budgets: []policyv1.PodDisruptionBudget{*ours()}}
				for i := range kind.budgets - 1 {
					cached.budgets = append(cached.budgets, *builder.Budget("shop", fmt.Sprint("db-", i)).Selects("app", fmt.Sprint("db-", i)).MinAvailable("1").Obj())
				}
				c := benchController(cached)
				queue := controllers.NewQueue(c.Clock)("test", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
				defer queue.ShutDown()
				events := make([]event.UpdateEvent, pods)
				for i := range events {
					name := fmt.Sprint("web-", i)
					pod := kind.pod(builder.Pod("shop", name).UID(types.UID("uid-"+name)).Label("app", "web").Ready()).Obj()
					if labeled(pod) {
						er := request(name, interA).Active(interA, t0).Obj()
						cached.requests[client.ObjectKeyFromObject(er)] = er
					}
					events[i] = event.UpdateEvent{ObjectOld: pod, ObjectNew: pod}
				}
				handler, ctx, i := c.podEvents(), b.Context(), 0
				b.ReportAllocs()
				for b.Loop() {
					handler.Update(ctx, events[i%pods], queue)
					i++
				}
				if n := queue.Len(); n > 0 {
					b.Fatalf("%d pods are looked at again", n)
				}
				perEvent := float64(b.Elapsed()) / float64(b.N)
				if base == 0 {
					base = perEvent
				}
				b.ReportMetric(perEvent/base, "times-a-plain-pod")
			})
		}
	}
}

func benchController(c client.Client) *Controller {
	return &Controller{
		Client: c, Clock: testingclock.NewFakeClock(t0), Resolver: registration.FromAnnotation(), Synced: func() bool { return true },
		Registrations: registrations{}, Preflights: asks(nil), Holds: holds{}, Native: nativeTurns{},
		Metrics: metrics.NewGuard(prometheus.NewRegistry()), use: newBudgetUse(), written: newLastWritten(),
	}
}

// noRequest is a cache without requests, which costs nothing itself.
type noRequest struct{ client.Client }

var errNoRequest = apierrors.NewNotFound(schema.GroupResource{Resource: "evictionrequests"}, "any")

func (noRequest) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errNoRequest
}

// Most events are of pods that nobody intercepts.
func TestAnEventOfAPlainPodAllocatesLittle(t *testing.T) {
	c := benchController(noRequest{})
	queue := controllers.NewQueue(c.Clock)("test", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	pod := builder.Pod("shop", "web").UID("uid-web").Label("app", "web").Ready().Obj()
	changed, handler := event.UpdateEvent{ObjectOld: pod, ObjectNew: pod}, c.podEvents()
	ctx := t.Context()
	allocation.AtMost(t, allocation.Cost{Allocs: 3, Bytes: 560}, func() { handler.Update(ctx, changed, queue) })
}

// guardedPod is one as it should be.
func guardedPod(p *builder.PodWrapper) *builder.PodWrapper {
	return p.Interceptors(interA).Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed)
}
