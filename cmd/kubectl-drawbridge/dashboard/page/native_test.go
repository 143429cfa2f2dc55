package page

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const responderA, responderB = "a.example.com/a", "b.example.com/b"

// nativeWorld has a pod that both APIs evict, and one that only Kubernetes' own does.
func nativeWorld() *state.Snapshot {
	eviction := func(pod string) *builder.NativeEvictionWrapper {
		return builder.NativeEviction("shop", pod, "").Created(before(8*time.Minute)).Requesters("acme.example.com/scale").Responders(responderA, responderB).
			State(responderA, lifecyclev1alpha1.ResponderStateCompleted, before(8*time.Minute)).
			Report(responderA, func(s *lifecyclev1alpha1.ResponderStatus) {
				s.CompletionTime = new(metav1.NewTime(before(5 * time.Minute)))
			}).
			State(responderB, lifecyclev1alpha1.ResponderStateActive, before(5*time.Minute)).
			Report(responderB, func(s *lifecyclev1alpha1.ResponderStatus) {
				s.Message, s.HeartbeatTime, s.ExpectedCompletionTime = new("copying"), new(metav1.NewTime(before(time.Minute))), new(metav1.NewTime(noon.Add(2*time.Minute)))
			})
	}
	both, only := eviction("db-0"), eviction("db-1")
	both.Spec.Target.Pod.UID, only.Spec.Target.Pod.UID = "db-0", "db-1"
	return state.NewSnapshot(noon, builder.Node("node-1").Obj(), both.Obj(), only.Obj(),
		builder.Pod("shop", "db-0").UID("db-0").Node("node-1").Obj(), builder.Pod("shop", "db-1").UID("db-1").Node("node-1").Obj(),
		builder.EvictionRequest("shop", "db-0", "db-0").Created(before(10*time.Minute)).NodeName("node-1").Requesters("alice.users.drawbridge.dev").
			Interceptors(v1alpha1.NativeInterceptor, first).Active(v1alpha1.NativeInterceptor, before(9*time.Minute)).Obj(),
	)
}

func TestNativeRespondersHaveLanes(t *testing.T) {
	s := nativeWorld()
	want := []seen{{responderA, "turn", "11:52:00", "11:55:00", false, "", 0}, {responderB, "turn", "11:55:00", "12:00:00", true, "12:02:00", 1}}
	for uid, next := range map[types.UID][]string{
		"db-0": {first, v1alpha1.ImperativeEvictionInterceptor},
		"db-1": {lifecyclev1alpha1.EvictionResponderImperativeEviction},
	} {
		l := laneOf(s, s.ProcessByPod[uid])
		if diff := cmp.Diff(want, seenOf(l)); diff != "" {
			t.Errorf("turns of %s (-want +got):\n%s", uid, diff)
		}
		if diff := cmp.Diff(next, l.Next); diff != "" {
			t.Errorf("what is still to come for %s (-want +got):\n%s", uid, diff)
		}
	}
}

func TestWhatPagesSayOfNativeResponders(t *testing.T) {
	story := why.Story{Namespace: "shop", Pod: "db-1", Eviction: "pod-1-db-1", Requesters: []why.Requester{{Name: "acme.example.com/scale"}}, Interceptors: []why.Interceptor{{
		Name: v1alpha1.NativeInterceptor, State: "has its turn",
		Responders: []turns.Turn{{Name: responderB, Native: true, State: turns.Active, Since: new(before(5 * time.Minute)), Expected: new(noon.Add(2 * time.Minute)), Message: "copying"}},
	}}}
	for name, tc := range map[string]struct {
		pattern string
		values  map[string]string
		has     []string
		not     []string
	}{
		"drains": {"/", nil, []string{"2 evictions in progress", "alice.users.drawbridge.dev, acme.example.com/scale", "shop/db-0 " + responderB + ": copying 5m ago"}, nil},
		"a node": {"/nodes/{node}", map[string]string{"node": "node-1"}, []string{
			responderA + ", 11:52:00 to 11:55:00 (3m)", responderB + ", 11:55:00 until now (5m): copying", "still to come: " + first + ", imperative-eviction.k8s.io",
		}, []string{v1alpha1.NativeInterceptor}},
		"a pod": {"/pods/{namespace}/{pod}", map[string]string{"namespace": "shop", "pod": "db-1"}, []string{
			responderB + " has its turn, got its turn 5m ago, done in 2m, copying",
		}, []string{"Cancel eviction"}},
	} {
		t.Run(name, func(t *testing.T) {
			content, err := render(t, tc.pattern, Request{Snapshot: nativeWorld(), Values: tc.values, Backend: teller{story: story}})
			if err != nil {
				t.Fatal(err)
			}
			wantWords(t, content, tc.has, tc.not)
		})
	}
}
