//go:build unix

package native

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/evacuation/native/charge"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// Nobody looks at native Evictions any more: what only they needed of our interceptors is called
// off, and what somebody else wants goes on.
func TestSwitchedOffInTheTurnOfOurs(t *testing.T) {
	m := inst.ForTest(t, manager.Options{})
	namespace, node := placed(t)
	alone := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors(in(namespace, ours)).Obj())
	shared := createPod(t, builder.Pod(namespace, "db-1").Node(node).Interceptors(in(namespace, ours)).Obj())
	wants(t, alone)
	wants(t, shared)
	joins(t, shared)
	for _, pod := range []string{alone.Name, shared.Name} {
		cluster.WaitRequest(t, admin, cluster.ReadyPod(t, admin, namespace, pod), "in the hands of ours, for two or for one", func(er *v1alpha1.EvictionRequest) bool {
			return cluster.ActiveIs(in(namespace, ours))(er) && asksAs(er, v1alpha1.NativeInterceptor)
		})
	}
	m.StopFor(t)
	inst.ForTest(t, manager.Options{Change: func(o *app.Options) { o.Native.Controllers = string(charge.Off) }})
	cluster.WaitRequest(t, admin, alone, "canceled", cluster.IsTrue(v1alpha1.ConditionCanceled))
	lives(t, alone)
	cluster.WaitRequest(t, admin, shared, "wanted by one", func(er *v1alpha1.EvictionRequest) bool {
		return !asksAs(er, v1alpha1.NativeInterceptor) && !v1alpha1.IsFinished(er)
	})
	intercepts(t, shared, in(namespace, ours))
	gone(t, shared)
}

func asksAs(er *v1alpha1.EvictionRequest, name string) bool {
	for _, r := range er.Spec.Requesters {
		if r.Name == name {
			return true
		}
	}
	return false
}

// The name by which native Evictions need a request of ours is not for anybody else.
func TestNobodyAsksInTheNameOfNativeEvictions(t *testing.T) {
	t.Parallel()
	namespace, _ := placed(t)
	pod := builder.Pod(namespace, "db-0").UID("11111111-2222-3333-4444-555555555555").Obj()
	_, err := (&requester.Requester{Name: v1alpha1.NativeInterceptor, Client: admin}).Join(t.Context(), pod)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "only Drawbridge asks as native.drawbridge.dev") {
		t.Errorf("the answer is: %v", err)
	}
}
