package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func request(active string, processed ...string) *v1alpha1.EvictionRequest {
	er := &v1alpha1.EvictionRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "uid-1"},
		Spec: v1alpha1.EvictionRequestSpec{
			Target:     v1alpha1.EvictionTarget{Pod: &v1alpha1.LocalPodReference{Name: "web-1", UID: "uid-1"}},
			Requesters: []v1alpha1.Requester{{Name: "a.example.com"}, {Name: "b.example.com"}},
		},
		Status: v1alpha1.EvictionRequestStatus{
			TargetInterceptors:    []v1alpha1.Interceptor{{Name: "x.example.com"}, {Name: v1alpha1.ImperativeEvictionInterceptor}},
			ProcessedInterceptors: processed,
		},
	}
	if active != "" {
		er.Status.ActiveInterceptors = []string{active}
	}
	return er
}

// series renders the series of the KEP's metrics, one a line, so that a test states
// only names, labels and values.
func series(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatalf("gather metrics: %v", err)
	}
	var lines []string
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "evictionrequest_controller_") {
			continue
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			value := metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			lines = append(lines, strings.TrimPrefix(family.GetName(), "evictionrequest_controller_")+
				"{"+strings.Join(labels, ",")+"} "+string(rune('0'+int(value))))
		}
	}
	return strings.Join(lines, "\n")
}

func TestRequestsSeriesFollowTheRequest(t *testing.T) {
	const where = "evictionrequest=uid-1"
	const rest = ",namespace=shop,pod=web-1} "
	tests := map[string]struct {
		do   func(*Requests)
		want []string
	}{
		"an active interceptor has the value 1": {
			do: func(m *Requests) { m.Observe(request("x.example.com")) },
			want: []string{
				"active_interceptor{" + where + ",interceptor=x.example.com" + rest + "1",
				"active_requester{" + where + rest + "2",
				"pod_interceptors{" + where + rest + "2",
				"processed_interceptor{" + where + rest + "0",
			},
		},
		"a switch removes the series of the interceptor before": {
			do: func(m *Requests) {
				m.Observe(request("x.example.com"))
				m.Observe(request(v1alpha1.ImperativeEvictionInterceptor, "x.example.com"))
			},
			want: []string{
				"active_interceptor{" + where + ",interceptor=imperative-eviction.k8s.io" + rest + "1",
				"active_requester{" + where + rest + "2",
				"pod_interceptors{" + where + rest + "2",
				"processed_interceptor{" + where + rest + "1",
			},
		},
		"nobody active leaves no series of an interceptor": {
			do: func(m *Requests) {
				m.Observe(request("x.example.com"))
				m.Observe(request("", "x.example.com"))
			},
			want: []string{
				"active_requester{" + where + rest + "2",
				"pod_interceptors{" + where + rest + "2",
				"processed_interceptor{" + where + rest + "1",
			},
		},
		"failed evictions are counted": {
			do: func(m *Requests) {
				m.ImperativeEvictionFailed("shop", "uid-1", "web-1")
				m.ImperativeEvictionFailed("shop", "uid-1", "web-1")
			},
			want: []string{"imperative_evictions{" + where + rest + "2"},
		},
		"a request that is gone leaves nothing": {
			do: func(m *Requests) {
				m.Observe(request("x.example.com"))
				m.ImperativeEvictionFailed("shop", "uid-1", "web-1")
				m.Forget("shop", "uid-1")
				m.Forget("shop", "uid-1")
			},
		},
		"a failure that is told after the request went can be forgotten": {
			do: func(m *Requests) {
				m.Forget("shop", "uid-1")
				m.ImperativeEvictionFailed("shop", "uid-1", "web-1")
				m.Forget("shop", "uid-1")
			},
		},
		"another request keeps its series": {
			do: func(m *Requests) {
				m.ImperativeEvictionFailed("shop", "uid-1", "web-1")
				m.ImperativeEvictionFailed("shop", "uid-2", "web-2")
				m.Forget("shop", "uid-2")
			},
			want: []string{"imperative_evictions{" + where + rest + "1"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewPedanticRegistry()
			tc.do(NewRequests(registry, true))
			if got, want := series(t, registry), strings.Join(tc.want, "\n"); got != want {
				t.Errorf("series:\ngot:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func TestWithoutSeriesPerRequestOnlyTheOthersAreLeft(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewRequests(registry, false)
	m.Observe(request("x.example.com"))
	m.ImperativeEvictionFailed("shop", "uid-1", "web-1")
	if got := series(t, registry); got != "" {
		t.Errorf("series per request:\n%s", got)
	}
	const want = `
# HELP drawbridge_eviction_requests EvictionRequests that are not finished, by stage.
# TYPE drawbridge_eviction_requests gauge
drawbridge_eviction_requests{stage="deleting"} 0
drawbridge_eviction_requests{stage="evicting"} 0
drawbridge_eviction_requests{stage="intercepting"} 1
drawbridge_eviction_requests{stage="starting"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "drawbridge_eviction_requests"); err != nil {
		t.Error(err)
	}
	m.Forget("shop", "uid-1")
	if err := testutil.GatherAndCompare(registry, strings.NewReader(strings.Replace(want, "} 1", "} 0", 1)), "drawbridge_eviction_requests"); err != nil {
		t.Errorf("after the request went: %v", err)
	}
}

func TestRequestsNamesAndHelpPassTheLinter(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewRequests(registry, true)
	m.Observe(request("x.example.com"))
	m.ImperativeEvictionFailed("shop", "uid-1", "web-1")
	families, err := registry.Gather()
	if err != nil {
		t.Fatalf("gather metrics: %v", err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatalf("lint metrics: %v", err)
	}
	for _, p := range problems {
		// The KEP gives the counter this name, without _total (statement 105).
		if p.Metric == "evictionrequest_controller_imperative_evictions" {
			continue
		}
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
