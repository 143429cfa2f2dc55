//go:build unix

package e2e

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// A registration says how long its interceptor needs. If a requester leaves it less, that is
// told when its turn comes, and the registration decides whether it begins.
func TestAnInterceptorThatNeedsLongerThanThereIsTime(t *testing.T) {
	const minimum = 10 * time.Minute
	for policy, tc := range map[v1alpha1.ShortNoticePolicy]struct {
		planned v1alpha1.ShortNoticePolicy
		says    string
	}{
		v1alpha1.ShortNoticeBegin: {"", ": it begins nevertheless."},
		v1alpha1.ShortNoticeSkip:  {v1alpha1.ShortNoticeSkip, ": it is skipped."},
	} {
		t.Run(string(policy), func(t *testing.T) {
			shareManager(t)
			namespace, node := placed(t)
			first, second := nameIn(namespace, "first"), nameIn(namespace, "second")
			register(t, builder.EvictionInterceptor(first).InNamespace(namespace).Priority(20000).Minimum(minimum, policy))
			register(t, builder.EvictionInterceptor(second).InNamespace(namespace).Minimum(time.Second, policy))
			pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).GracePeriod(60).Obj())
			spot := &requester.Requester{
				Name: "spot.example.com", Deadline: time.Now().Add(reserved + 5*time.Minute),
				Client: must(client.NewWithWatch(kube.Config(), client.Options{Scheme: scheme}))(t),
			}
			must(spot.Join(t.Context(), pod))(t)

			want, processed := first, []string(nil)
			if policy == v1alpha1.ShortNoticeSkip {
				want, processed = second, []string{first}
			}
			er := waitRequest(t, pod, "active", activeIs(want))
			if diff := cmp.Diff(processed, er.Status.ProcessedInterceptors); diff != "" {
				t.Errorf("processed (-want +got):\n%s", diff)
			}
			item := v1alpha1.Interceptor{Name: first, Minimum: &metav1.Duration{Duration: minimum}, OnShortNotice: tc.planned}
			if diff := cmp.Diff(item, er.Status.TargetInterceptors[0]); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			saysAll(t, "the event", waitEvent(t, pod, events.ReasonShortNotice).Note, first+" needs 10m0s and has ", ", because of requester spot.example.com"+tc.says)
			waitEvent(t, er, events.ReasonShortNotice)

			// What was skipped stays so.
			spot.Deadline = time.Now().Add(time.Hour)
			must(spot.Join(t.Context(), pod))(t)
			er = waitRequest(t, pod, "in less of a hurry", func(er *v1alpha1.EvictionRequest) bool {
				return er.Status.Deadline != nil && time.Until(er.Status.Deadline.Time) > 30*time.Minute
			})
			if !activeIs(want)(er) {
				t.Errorf("with more time: %+v", er.Status)
			}
		})
	}
}
