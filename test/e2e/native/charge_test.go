//go:build unix

package native

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/evacuation/native/charge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// The manager is killed after each step of an eviction, and the next one goes on.
func TestTheManagerIsKilledAtEveryStep(t *testing.T) {
	// A leader that is killed keeps its lease until it runs out.
	quick := manager.Options{Change: func(o *app.Options) {
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = 3*time.Second, 2*time.Second, 500*time.Millisecond
	}}
	m := inst.ForTest(t, quick)
	namespace, node := placed(t)
	first, second, third := in(namespace, migrate), in(namespace, save), in(namespace, ours)
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(first, second).Interceptors(third).Obj())
	again := func() {
		t.Helper()
		m.Kill()
		m = inst.ForTest(t, quick)
	}
	r := wants(t, pod)
	again()
	waitEviction(t, pod, "begun", turnOf(first))
	again()
	completes(t, pod, first)
	again()
	completes(t, pod, second)
	again()
	intercepts(t, pod, third)
	again()
	gone(t, pod)
	again()
	e := waitEviction(t, pod, "evicted", isEvicted)
	if len(e.Status.TargetResponders) != 4 || e.Name != "pod-1-db-0" {
		t.Errorf("%s", says(e))
	}
	waitWish(t, r, evicted)
}

// Another controller appears: ours lets go at once, also after a restart, until a person says
// otherwise.
func TestAnotherControllerAppears(t *testing.T) {
	m := inst.ForTest(t, manager.Options{})
	namespace, node := placed(t)
	name := in(namespace, migrate)
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(name).Obj())
	wants(t, pod)
	e := waitEviction(t, pod, "begun", turnOf(name))
	state := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: inst.Namespace, Name: inst.Release + "-native"}}
	inCharge := func(want charge.Mode) {
		t.Helper()
		waiting.Eventually(t, string(want)+" to be in charge", func(ctx context.Context) error {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(state), state); err != nil {
				return err
			}
			if got := state.Data["inCharge"]; got != string(want) {
				return fmt.Errorf("it is %s: %v", got, state.Data)
			}
			return nil
		})
	}
	inCharge(charge.Drawbridge)

	// As the other one would: a status of its own.
	waiting.Eventually(t, "another controller to write", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(e), e); err != nil {
			return err
		}
		e.Status.Requesters = append(e.Status.Requesters, lifecyclev1alpha1.Requester{Name: "other.example.com/x", Intent: lifecyclev1alpha1.RequesterIntentEviction})
		return admin.Status().Update(ctx, e, client.FieldOwner("evictionrequest-controller"))
	})
	inCharge(charge.Cluster)
	mark := kube.RequestLog().Mark()
	responds(t, pod, name, func(r *lifecyclev1alpha1.ResponderStatus) { r.CompletionTime = new(metav1.Now()) })
	m.StopFor(t)
	inst.ForTest(t, manager.Options{})
	second := createPod(t, builder.Pod(namespace, "db-1").Node(node).Obj())
	wants(t, second)
	// It does what it has to, so it would have done that, too.
	plain := createPod(t, builder.Pod(namespace, "db-2").Node(node).Responders(name).Obj())
	calls(t, plain)
	waiting.Eventually(t, "a wish in the caller's name", func(context.Context) error {
		if len(wishes(t, plain)) == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	logged, err := kube.RequestLog().Since(t.Context(), mark)
	if err != nil {
		t.Fatal(err)
	}
	if writes := logged.By(account()).Where(func(r cluster.Request) bool {
		return r.Group == lifecyclev1alpha1.GroupName && r.Writes() && (r.Resource == "evictions" || r.Subresource == "status")
	}); len(writes) > 0 {
		t.Errorf("it has written:\n%s", writes)
	}

	if err := admin.Delete(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	inCharge(charge.Drawbridge) // It looks every 30 seconds.
	gone(t, pod)
	gone(t, second)
}
