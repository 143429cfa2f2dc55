//go:build unix

package karpenter

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
)

const (
	// podGrace is the grace period of pods that say nothing, and margin what Drawbridge
	// leaves the eviction by default.
	podGrace, margin = 30 * time.Second, 5 * time.Second
	// given is what the interceptors of such a pod have on a node that has a minute.
	given = time.Minute - podGrace - margin
	// late is how much of it may be over when an interceptor is first called.
	late = 10 * time.Second
)

// cutOff is what happens to a pod whose interceptor was cut off.
var cutOff = outcome{Ends: []string{evicted}, Refused: true, Node: gone}

// inAMinute deletes the NodeClaim of a pod with an interceptor, on a node that has a minute
// to go, and waits until it has gone. It returns when Karpenter may delete the pod.
func inAMinute(t *testing.T, interceptor string) (*victim, time.Time) {
	t.Helper()
	p := newPool(t, "60s")
	v := onItsNode(t, p.pod(t, "intercepted", func(pod *builder.PodWrapper) { pod.Interceptors(interceptor) }))
	v.deleteClaim(t)
	deletes := terminationTime(t, v.claim).Add(-podGrace)
	v.waitGone(t)
	return v, deletes
}

// wasTold fails the test unless the interceptor was told how long it has.
func wasTold(t *testing.T, v *victim, w *peer.Worker) {
	t.Helper()
	if told := w.ToldFor(v.pod.UID); told < given-late || told > given {
		t.Errorf("in its first call the interceptor was told to have %s, want %s to %s", told, given-late, given)
	}
}

// An interceptor that needs less than the NodeClaim's terminationGracePeriod leaves it is
// not disturbed.
func TestAnInterceptorThatIsDoneBeforeTheNodeHasToGo(t *testing.T) {
	together(t)
	w := startWorker(t, "quick.example.com", 15*time.Second)
	v, deletes := inAMinute(t, "quick.example.com")
	wasTold(t, v, w)
	if diff := cmp.Diff(prepared, v.outcome(t, w)); diff != "" {
		t.Errorf("what became of the pod (-want +got):\n%s", diff)
	}
	endsBefore(t, v, deletes)
	er := cluster.WaitRequest(t, admin, v.pod, "Evicted", cluster.IsTrue(v1alpha1.ConditionEvicted))
	saysDeadline(t, v, er, deletes.Add(-margin))
	if c := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCutOff); c != nil {
		t.Errorf("it was in time, and is said to be cut off: %+v", c)
	}
	if w.WasCanceled(v.pod.UID) {
		t.Error("it was canceled")
	}
}

// An interceptor that needs more is cut off before Karpenter would delete the pod, which is
// evicted instead.
func TestAnInterceptorIsCutOffBeforeTheNodeHasToGo(t *testing.T) {
	m := together(t)
	w := startWorker(t, "slow.example.com", 2*time.Minute)
	v, deletes := inAMinute(t, "slow.example.com")
	wasTold(t, v, w)
	if diff := cmp.Diff(cutOff, v.outcome(t, w)); diff != "" {
		t.Errorf("what became of the pod (-want +got):\n%s", diff)
	}
	endsBefore(t, v, deletes)
	er := cluster.WaitRequest(t, admin, v.pod, "Evicted", cluster.IsTrue(v1alpha1.ConditionEvicted))
	saysDeadline(t, v, er, deletes.Add(-margin))
	c := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCutOff)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonDeadlineReached {
		t.Errorf("it is not said that the interceptor was cut off: %+v", er.Status.Conditions)
	} else {
		t.Logf("the condition says: %s", c.Message)
	}
	waitEvent(t, v.pod, events.ReasonDeadlineReached)
	eventually(t, "the interceptor to be canceled", func(context.Context) error {
		if !w.WasCanceled(v.pod.UID) {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	// The other tests share the manager, and some pods there may have less than they need.
	if turns := builder.Series(t, m.Metrics, "drawbridge_interceptor_turns_total"); turns[metrics.TurnCutOff] < 1 {
		t.Errorf("no turn was cut off: %v", turns)
	}
}

// What interceptors are told goes with the NodeClaim.
func TestWhatInterceptorsAreToldOfANode(t *testing.T) {
	together(t)
	for name, tc := range map[string]struct {
		terminationGracePeriod string
		told                   time.Duration
	}{
		"a node that has all the time": {"", 0},
		"a node that has an hour":      {"1h", time.Hour - podGrace - margin},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := onItsNode(t, interceptedPod(t, newPool(t, tc.terminationGracePeriod)))
			v.deleteClaim(t)
			v.waitGone(t)
			if told := preparing.ToldFor(v.pod.UID); told < tc.told-late || told > tc.told {
				t.Errorf("in its first call the interceptor was told to have %s, want about %s", told, tc.told)
			}
			if diff := cmp.Diff(prepared, v.outcome(t, preparing)); diff != "" {
				t.Errorf("what became of the pod (-want +got):\n%s", diff)
			}
		})
	}
}

// A NodeClaim may have to go earlier than it has said: Karpenter's repair of nodes brings the
// time forward, as people can.
func TestANodeThatHasToGoEarlierThanItSaid(t *testing.T) {
	together(t)
	const name = "overtaken.example.com"
	w := startWorker(t, name, 2*time.Minute)
	p := newPool(t, "1h")
	v := onItsNode(t, p.pod(t, "intercepted", func(pod *builder.PodWrapper) { pod.Interceptors(name) }))
	v.deleteClaim(t)
	terminationTime(t, v.claim)
	cluster.WaitRequest(t, admin, v.pod, "intercepted", cluster.ActiveIs(name))

	deletes := time.Now().Add(late).Truncate(time.Second)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, terminationTimestamp, deletes.Add(podGrace).UTC().Format(time.RFC3339))
	if err := admin.Patch(t.Context(), v.claim.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	v.waitGone(t)
	if diff := cmp.Diff(cutOff, v.outcome(t, w)); diff != "" {
		t.Errorf("what became of the pod (-want +got):\n%s", diff)
	}
	endsBefore(t, v, deletes)
	saysDeadline(t, v, cluster.WaitRequest(t, admin, v.pod, "Evicted", cluster.IsTrue(v1alpha1.ConditionEvicted)), deletes.Add(-margin))
}

// saysDeadline fails the test unless the request has this deadline, from the NodeClaim.
func saysDeadline(t *testing.T, v *victim, er *v1alpha1.EvictionRequest, want time.Time) {
	t.Helper()
	at := metav1.NewTime(want)
	if !er.Status.Deadline.Equal(&at) {
		t.Errorf("status.deadline is %v, want %v", er.Status.Deadline, at)
	}
	if diff := cmp.Diff("NodeClaim "+v.claim.GetName(), er.Status.DeadlineSource); diff != "" {
		t.Errorf("status.deadlineSource (-want +got):\n%s", diff)
	}
}

// endsBefore fails the test unless an eviction was carried out before a time.
func endsBefore(t *testing.T, v *victim, at time.Time) {
	t.Helper()
	for _, r := range v.calls(t) {
		if r.Subresource == "eviction" && r.Code == http.StatusCreated && r.Time.Before(at) {
			return
		}
	}
	t.Errorf("the pod was not evicted before %s", at.Format(time.TimeOnly))
}

// waitEvent waits for an event about the very pod.
func waitEvent(t *testing.T, about *corev1.Pod, reason string) {
	t.Helper()
	eventually(t, "event "+reason+" of "+about.Name, func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		if err := admin.List(ctx, list, client.InNamespace(about.Namespace)); err != nil {
			return err
		}
		var seen []string
		for _, event := range list.Items {
			if event.Regarding.UID == about.UID && event.Reason == reason {
				return nil
			}
			seen = append(seen, event.Regarding.Name+" "+event.Reason)
		}
		return fmt.Errorf("there are %v", seen)
	})
}
