package conformance

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// F8: a PodDisruptionBudget says no. One pod is followed through its failed
// evictions until the budget lets it go.
func TestConformance_F8_Backoff(t *testing.T) {
	const failures = 12 // With 5 s to begin with, the ninth pause is the first of 15 min.
	mgr := startManager(t, manager.Options{})
	w := &timeline{world: newWorld(t, mgr)}
	pod := w.deployment(t, builder.Deployment(w.ns, "web"))[0]
	budget := w.blockWeb(t)
	tr := w.request(t, &pod)
	longest := 15 * time.Minute

	t.Run("85 the pauses double up to 15 minutes and not beyond", func(t *testing.T) {
		pause := func(n int) time.Duration { return min(5*time.Second<<(n-1), longest) }
		var calls cluster.Requests
		for n := 1; n <= failures; n++ {
			w.untilRetries(t, tr.ObjectKey, int32(n))
			calls = w.evictionsOf(t, &pod)
			if len(calls) != n {
				t.Fatalf("%d evictions, want %d:\n%s", len(calls), n, calls)
			}
			if n == failures {
				break
			}
			due := w.when(calls[n-1]).Add(pause(n))
			w.advanceTo(due.Add(-2 * time.Second)) // Who is too early is so now.
			w.sync(t, tr.ObjectKey)
			w.advanceTo(due)
		}
		for n := 1; n < failures; n++ {
			// That the call came when it was due was waited for in real time.
			if got := w.when(calls[n]).Sub(w.when(calls[n-1])); got < pause(n) || got > pause(n)+awaitTimeout {
				t.Errorf("pause %d is %s, want %s", n, got, pause(n))
			}
		}
		w.lives(t, &pod)
	})
	t.Run("84 the message tells the number of retries, one by one", func(t *testing.T) {
		var messages []string
		for _, er := range tr.all(t) {
			if message := v1alpha1.ReportOf(er, imperative).Message; message != "" && (len(messages) == 0 || messages[len(messages)-1] != message) {
				messages = append(messages, message)
			}
		}
		if len(messages) != failures {
			t.Errorf("%d messages, want %d:\n%s", len(messages), failures, strings.Join(messages, "\n"))
		}
		for i, message := range messages {
			if want := fmt.Sprintf(failedMessage, i+1); message != want {
				t.Errorf("message %d is %q, want %q", i+1, message, want)
			}
		}
	})
	t.Run("83 every failure is counted", func(t *testing.T) {
		if got := seriesOf(ownMetrics(t, mgr), tr.ObjectKey)["imperative_evictions"]; got != failures {
			t.Errorf("imperative_evictions is %v, want %d", got, failures)
		}
	})
	t.Run("87, 111 the reports are never refused and never stop", func(t *testing.T) {
		refused := w.asked(t, func(r cluster.Request) bool {
			return r.Resource == "evictionrequests" && r.Subresource == "status" && r.Code >= http.StatusBadRequest && r.Code != http.StatusConflict
		})
		if len(refused) > 0 {
			t.Errorf("refused:\n%s", refused)
		}
		var last time.Time
		beats := 0
		for _, er := range tr.all(t) {
			item := v1alpha1.ReportOf(er, imperative)
			if item.HeartbeatTime == nil || item.HeartbeatTime.Time.Equal(last) {
				continue
			}
			if gap := item.HeartbeatTime.Sub(last); beats > 0 && (gap < time.Minute || gap >= deadline) {
				t.Errorf("heartbeat %d comes %s after the one before", beats+1, gap)
			}
			last = item.HeartbeatTime.Time
			beats++
		}
		if beats < 5 {
			t.Errorf("only %d heartbeats in %s", beats, w.mgr.Clock.Offset())
		}
		if got := progress(w.get(t, tr.ObjectKey)); got != "[IE]" {
			t.Errorf("progress %q, want [IE]", got)
		}
	})
	t.Run("112 the events are about the request, and few", func(t *testing.T) {
		const most = 2 // One about the request and one about its pod.
		var told []corev1.Event
		await(t, "events", func(ctx context.Context) error {
			list := &corev1.EventList{}
			if err := w.admin.List(ctx, list, client.InNamespace(w.ns)); err != nil {
				return err
			}
			told = nil
			for _, e := range list.Items {
				if e.ReportingController == "drawbridge" && e.Reason == "BudgetNeverAllows" {
					told = append(told, e)
				}
			}
			if len(told) == 0 {
				return fmt.Errorf("none among %d", len(list.Items))
			}
			return nil
		})
		if len(told) > most {
			t.Errorf("%d events for %d failures, want at most %d", len(told), failures, most)
		}
		er := w.get(t, tr.ObjectKey)
		about := map[string]string{}
		for _, e := range told {
			about[e.InvolvedObject.Kind] = string(e.InvolvedObject.UID)
		}
		want := map[string]string{"EvictionRequest": string(er.UID), "Pod": string(pod.UID)}
		if diff := cmp.Diff(want, about); diff != "" {
			t.Errorf("involved objects (-want +got):\n%s", diff)
		}
	})
	t.Run("86 the pod goes within one pause after the budget allows it", func(t *testing.T) {
		before := len(w.evictionsOf(t, &pod))
		w.allow(t, budget)
		w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)
		w.gone(t, &pod)
		calls := w.evictionsOf(t, &pod)
		if got := len(calls) - before; got == 0 || calls[len(calls)-1].Code != http.StatusCreated {
			t.Errorf("evictions:\n%s\nwant an accepted one after the first %d", calls, before)
		}
		if got := w.when(calls[len(calls)-1]).Sub(w.when(calls[before-1])); got > longest+awaitTimeout {
			t.Errorf("it went %s after the last failure, want %s at most", got, longest)
		}
		if diff := cmp.Diff([]string{"", "[IE]", "IE Evicted"}, tr.turns(t)); diff != "" {
			t.Errorf("turns (-want +got):\n%s", diff)
		}
	})
}

// allow lets the budget permit one disruption.
func (w *world) allow(t *testing.T, budget *policyv1.PodDisruptionBudget) {
	t.Helper()
	patch := client.MergeFrom(budget.DeepCopy())
	budget.Spec.MaxUnavailable = new(intstr.FromInt32(1))
	if err := w.admin.Patch(t.Context(), budget, patch); err != nil {
		t.Fatalf("relax budget: %v", err)
	}
}

// F8: a cancellation during the backoff.
func TestConformance_F8_Cancel(t *testing.T) {
	mgr := startManager(t, manager.Options{})
	cases := map[string]struct {
		// free takes the budget out of the way.
		free func(*testing.T, *world, *policyv1.PodDisruptionBudget)
	}{
		"88 a canceled request evicts no more, even if the budget is deleted": {func(t *testing.T, w *world, budget *policyv1.PodDisruptionBudget) {
			t.Helper()
			if err := w.admin.Delete(t.Context(), budget); err != nil {
				t.Fatal(err)
			}
		}},
		"88 a canceled request evicts no more, even if the budget allows it": {func(t *testing.T, w *world, budget *policyv1.PodDisruptionBudget) {
			t.Helper()
			w.allow(t, budget)
		}},
		"88 a canceled request evicts no more when the pause is over": {func(*testing.T, *world, *policyv1.PodDisruptionBudget) {}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, mgr)
			pod := w.deployment(t, builder.Deployment(w.ns, "web"))[0]
			budget := w.blockWeb(t)
			tr := w.request(t, &pod)
			w.untilRetries(t, tr.ObjectKey, 1)
			w.updateSpec(t, tr.ObjectKey, func(er *v1alpha1.EvictionRequest) { er.Spec.Requesters = nil })
			w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionCanceled)
			calls := len(w.evictionsOf(t, &pod))

			tc.free(t, w, budget)
			w.witness(t, "witness-1")
			w.advanceTo(w.now().Add(deadline)) // Longer than the longest pause.
			w.witness(t, "witness-2")
			if got := w.evictionsOf(t, &pod); len(got) != calls {
				t.Errorf("evictions:\n%s\nwant no more than the first %d", got, calls)
			}
			w.lives(t, &pod)
			if diff := cmp.Diff([]string{"", "[IE]", "IE Canceled"}, tr.turns(t)); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
		})
	}
}

// F8: the pod is gone and the evictor does not know yet.
func TestConformance_F8_Gone(t *testing.T) {
	cases := map[string]struct {
		// replace puts another pod in the place of the one that was deleted.
		replace bool
		code    int
		result  string
	}{
		"89 that the pod is not found is no failure": {code: http.StatusNotFound, result: "gone"},
		"89 that another pod has the name is no failure": {
			replace: true, code: http.StatusConflict, result: "replaced",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			lag := &podLag{}
			// Without the guard, whose label the evictor would wait for as long as the watch lags.
			unguarded := func(o *app.Options) { o.Guard.Enabled = false }
			mgr := startManager(t, manager.Options{Wrap: lag.wrap, Change: unguarded})
			w := newWorld(t, mgr)
			pod := w.pod(t, "web", interceptorA)
			tr := w.request(t, pod)
			w.untilActive(t, tr.ObjectKey, interceptorA)
			release := lag.hold(t)
			w.deletePod(t, pod)
			successor := pod
			if tc.replace {
				successor = w.pod(t, "web", interceptorA)
			}
			w.report(t, tr.ObjectKey, completes(interceptorA, w.now()))
			await(t, "the eviction call", func(context.Context) error {
				if calls := w.evictionsOf(t, pod); len(calls) == 0 || calls[0].Code != tc.code {
					return fmt.Errorf("calls %v, want code %d", calls, tc.code)
				}
				return nil
			})
			release()
			er := w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)
			if item := v1alpha1.ReportOf(er, imperative); item.Retries != 0 || item.Message != "" {
				t.Errorf("it reports a failure: %+v", item)
			}
			metrics := ownMetrics(t, mgr)
			if n, ok := seriesOf(metrics, tr.ObjectKey)["imperative_evictions"]; ok {
				t.Errorf("imperative_evictions is %v, want no series", n)
			}
			attempt := fmt.Sprintf(`drawbridge_imperative_eviction_attempts_total{result=%q,trigger="first"}`, tc.result)
			if metrics[attempt] != 1 {
				t.Errorf("%s is %v, want 1", attempt, metrics[attempt])
			}
			if diff := cmp.Diff([]string{"", "[a]", "a [IE]", "a IE Evicted"}, tr.turns(t)); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
			if tc.replace {
				w.lives(t, successor)
			}
		})
	}
}
