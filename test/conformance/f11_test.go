package conformance

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/clock"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// F11 Metrics, as the endpoint of the program serves them. One request is followed
// from its first interceptor to its deletion.
func TestConformance_F11(t *testing.T) {
	program, err := drawbridge.StartProcess(t.Context(), manager.ProcessOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := program.Kill(); err != nil {
			t.Errorf("kill the manager: %v", err)
		}
	})
	w := newWorld(t, &manager.Manager{Clock: clock.New()}) // A program has the real time.
	pod := w.deployment(t, builder.Deployment(w.ns, "web").Pods(func(p *builder.PodWrapper) {
		p.Interceptors(interceptorA, interceptorB)
	}))[0]
	w.blockWeb(t)
	tr := w.request(t, &pod)

	// shows waits until the series of the request are these, besides the failures,
	// which grow by themselves.
	shows := func(t *testing.T, want map[string]float64) {
		t.Helper()
		await(t, "the metrics of the request", func(context.Context) error {
			got := seriesOf(scrape(t, program.MetricsURL), tr.ObjectKey)
			delete(got, "imperative_evictions")
			if diff := cmp.Diff(want, got); diff != "" {
				return fmt.Errorf("series (-want +got):\n%s", diff)
			}
			return nil
		})
	}

	t.Run("106 the first interceptor is active", func(t *testing.T) {
		shows(t, map[string]float64{
			"active_interceptor " + interceptorA: 1, "processed_interceptor": 0, "active_requester": 1, "pod_interceptors": 3,
		})
	})
	t.Run("106 the requesters follow the spec", func(t *testing.T) {
		w.updateSpec(t, tr.ObjectKey, func(er *v1alpha1.EvictionRequest) {
			er.Spec.Requesters = append(er.Spec.Requesters, v1alpha1.Requester{Name: syncRequester})
		})
		shows(t, map[string]float64{
			"active_interceptor " + interceptorA: 1, "processed_interceptor": 0, "active_requester": 2, "pod_interceptors": 3,
		})
	})
	t.Run("106 a switch ends the series of the old one and begins that of the new one", func(t *testing.T) {
		w.report(t, tr.ObjectKey, completes(interceptorA, w.now()))
		shows(t, map[string]float64{
			"active_interceptor " + interceptorB: 1, "processed_interceptor": 1, "active_requester": 2, "pod_interceptors": 3,
		})
		w.report(t, tr.ObjectKey, completes(interceptorB, w.now()))
		shows(t, map[string]float64{
			"active_interceptor " + imperative: 1, "processed_interceptor": 2, "active_requester": 2, "pod_interceptors": 3,
		})
	})
	t.Run("105 the five metrics have the names of the KEP", func(t *testing.T) {
		retries := w.untilRetries(t, tr.ObjectKey, 1)
		metrics := scrape(t, program.MetricsURL)
		labels := fmt.Sprintf(`{evictionrequest=%q,namespace=%q,pod=%q}`, tr.Name, w.ns, pod.Name)
		active := fmt.Sprintf(`{evictionrequest=%q,interceptor=%q,namespace=%q,pod=%q}`, tr.Name, imperative, w.ns, pod.Name)
		for series, least := range map[string]float64{
			"evictionrequest_controller_imperative_evictions" + labels:  float64(v1alpha1.ReportOf(retries, imperative).Retries),
			"evictionrequest_controller_active_interceptor" + active:    1,
			"evictionrequest_controller_processed_interceptor" + labels: 2,
			"evictionrequest_controller_active_requester" + labels:      2,
			"evictionrequest_controller_pod_interceptors" + labels:      3,
		} {
			if got, ok := metrics[series]; !ok || got < least {
				t.Errorf("%s is %v (there: %t), want at least %v", series, got, ok, least)
			}
		}
	})
	t.Run("107 the queue of the controller is named evictionrequests", func(t *testing.T) {
		metrics := scrape(t, program.MetricsURL)
		for name, least := range map[string]float64{
			"workqueue_depth":                        0,
			"workqueue_adds_total":                   1,
			"workqueue_queue_duration_seconds_count": 1,
			"workqueue_work_duration_seconds_count":  1,
			"workqueue_unfinished_work_seconds":      0,
			"workqueue_retries_total":                0,
		} {
			got, ok := valueOf(metrics, name, `name="evictionrequests"`)
			if !ok || got < least {
				t.Errorf(`%s{name="evictionrequests"} is %v (there: %t), want at least %v`, name, got, ok, least)
			}
		}
	})
	t.Run("106 a request that has ended has nobody active", func(t *testing.T) {
		w.withdrawAll(t, &pod)
		shows(t, map[string]float64{"processed_interceptor": 3, "active_requester": 0, "pod_interceptors": 3})
	})
	t.Run("108 the series of a deleted request disappear, those of others stay", func(t *testing.T) {
		other := w.request(t, w.pod(t, "other", interceptorA))
		w.untilActive(t, other.ObjectKey, interceptorA)
		if got := seriesOf(scrape(t, program.MetricsURL), tr.ObjectKey)["imperative_evictions"]; got == 0 {
			t.Error("no failed eviction is counted")
		}
		if err := w.admin.Delete(t.Context(), w.get(t, tr.ObjectKey)); err != nil {
			t.Fatal(err)
		}
		await(t, "the series to disappear", func(context.Context) error {
			metrics := scrape(t, program.MetricsURL)
			if got := seriesOf(metrics, tr.ObjectKey); len(got) > 0 {
				return fmt.Errorf("there are %v", got)
			}
			if got := seriesOf(metrics, other.ObjectKey); len(got) != 4 {
				return fmt.Errorf("of the other request there are %v", got)
			}
			return nil
		})
	})
}
