// Package rules proves the alerts of the chart with Prometheus' own engine, and that
// alerts and dashboard ask for metrics that exist. It is a module of its own, as
// nothing else needs Prometheus.
package rules

import (
	"encoding/json"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// interval between two evaluations of the rules, and between two samples below.
const interval = time.Minute

// rendered is what the chart has for Prometheus and Grafana.
type rendered struct {
	rules     []rule
	dashboard []byte
}

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func render(t *testing.T) rendered {
	t.Helper()
	objects, err := install.Render(t.Context(), install.Options{Values: map[string]any{
		"prometheusRule": map[string]any{"enabled": true}, "grafanaDashboard": map[string]any{"enabled": true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var r rendered
	for _, object := range objects {
		switch {
		case object.GetKind() == "PrometheusRule":
			var typed struct {
				Spec struct {
					Groups []struct {
						Rules []rule `json:"rules"`
					} `json:"groups"`
				} `json:"spec"`
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed); err != nil {
				t.Fatal(err)
			}
			r.rules = typed.Spec.Groups[0].Rules
		case object.GetLabels()["grafana_dashboard"] != "":
			text, _, err := unstructured.NestedString(object.Object, "data", "drawbridge.json")
			if err != nil {
				t.Fatal(err)
			}
			r.dashboard = []byte(text)
		}
	}
	if len(r.rules) == 0 || len(r.dashboard) == 0 {
		t.Fatalf("the chart has %d rules and a dashboard of %d bytes", len(r.rules), len(r.dashboard))
	}
	return r
}

func parse(t *testing.T, expr string) parser.Expr {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return parsed
}

// fires evaluates the rule every minute until the given time, over the series, and
// returns the descriptions of the alerts that fire then.
func fires(t *testing.T, r rule, series string, at time.Duration) []string {
	t.Helper()
	hold := time.Duration(0)
	if r.For != "0m" {
		var err error
		if hold, err = time.ParseDuration(r.For); err != nil {
			t.Fatal(err)
		}
	}
	storage := promqltest.LoadedStorage(t, "load "+interval.String()+"\n"+series)
	t.Cleanup(func() { _ = storage.Close() })
	engine := promqltest.NewTestEngine(t, false, 0, 1_000_000)
	query := rules.EngineQueryFunc(engine, storage)
	alert := rules.NewAlertingRule(r.Alert, parse(t, r.Expr), hold, 0, labels.FromMap(r.Labels), labels.FromMap(r.Annotations),
		labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	for now := time.Duration(0); now <= at; now += interval {
		if _, err := alert.Eval(t.Context(), 0, time.Unix(0, 0).Add(now), query, &url.URL{}, 0); err != nil {
			t.Fatal(err)
		}
	}
	var firing []string
	for _, active := range alert.ActiveAlerts() {
		if active.State == rules.StateFiring {
			firing = append(firing, active.Annotations.Get("description"))
		}
	}
	return firing
}

// Each alert is silent while all is well, and fires when it should, with a text that
// tells what was measured. Samples are a minute apart and begin at zero.
func TestAlertsFireWhenTheyShould(t *testing.T) {
	const verdicts = `drawbridge_eviction_verdicts_total{verdict="denied",caller_class="kubectl",`
	cases := map[string]struct {
		well, bad string
		at        time.Duration
		want      string
	}{
		"DrawbridgeDown": {
			well: `drawbridge_interceptor_registrations{accepted="true"} 0x20`,
			bad:  `drawbridge_interceptor_registrations{accepted="true"} 0x1`,
			at:   20 * time.Minute, want: "no metrics of Drawbridge for 5 minutes",
		},
		"DrawbridgeNoLeader": {
			well: `leader_election_master_status{name="drawbridge-leader",pod="a"} 0x10` + "\n" + `leader_election_master_status{name="drawbridge-leader",pod="b"} 1x10`,
			bad:  `leader_election_master_status{name="drawbridge-leader",pod="a"} 0x10` + "\n" + `leader_election_master_status{name="drawbridge-leader",pod="b"} 0x10`,
			at:   10 * time.Minute, want: "no EvictionRequest makes progress",
		},
		"DrawbridgeWebhookUnreachable": {
			well: `apiserver_admission_webhook_fail_open_count{name="other.example.com"} 0+1x20`,
			bad:  `apiserver_admission_webhook_fail_open_count{name="eviction-requests.drawbridge.dev"} 0+1x20`,
			at:   20 * time.Minute, want: "API servers counted 10 evictions in 10 minutes",
		},
		"DrawbridgeWebhookErrors": {
			well: verdicts + `reason="waiting"} 0+100x40` + "\n" + verdicts + `reason="not-synced"} 0+1x40`,
			bad:  verdicts + `reason="waiting"} 0+100x40` + "\n" + verdicts + `reason="write-failed"} 0+100x40`,
			at:   30 * time.Minute, want: "50% of the evictions were deferred",
		},
		"DrawbridgeWebhookSlow": {
			well: `drawbridge_eviction_handler_duration_seconds_bucket{le="0.1"} 0+10x40` + "\n" + `drawbridge_eviction_handler_duration_seconds_bucket{le="+Inf"} 0+10x40`,
			bad: `drawbridge_eviction_handler_duration_seconds_bucket{le="1"} 0+1x40` + "\n" +
				`drawbridge_eviction_handler_duration_seconds_bucket{le="2.5"} 0+10x40` + "\n" + `drawbridge_eviction_handler_duration_seconds_bucket{le="+Inf"} 0+10x40`,
			at: 30 * time.Minute, want: "One answer in a hundred takes more than 2.4",
		},
		"DrawbridgeFailurePolicyChanged": {
			well: `drawbridge_webhook_failure_policy{policy="Ignore"} 1x40` + "\n" + `drawbridge_webhook_failure_policy{policy="Fail"} 0x40`,
			bad:  `drawbridge_webhook_failure_policy{policy="Ignore"} 0x40` + "\n" + `drawbridge_webhook_failure_policy{policy="Fail"} 1x40`,
			at:   30 * time.Minute, want: "The failure policy should be Ignore.",
		},
		"DrawbridgeCertificateExpires": {
			well: `drawbridge_webhook_certificate_expiry_timestamp_seconds{pod="a"} 7776000x40`,
			bad:  `drawbridge_webhook_certificate_expiry_timestamp_seconds{pod="a"} 7776000x40` + "\n" + `drawbridge_webhook_certificate_expiry_timestamp_seconds{pod="b"} 90000x40`,
			at:   30 * time.Minute, want: "a certificate that expires in 1d 0h 30m 0s",
		},
		"DrawbridgeRequestStuck": {
			well: `drawbridge_eviction_requests_oldest_timestamp_seconds{stage="intercepting"} 0+60x300` + "\n" +
				`drawbridge_eviction_requests_oldest_timestamp_seconds{stage="evicting"} 0x300`,
			bad: `drawbridge_eviction_requests_oldest_timestamp_seconds{stage="intercepting"} 0x300`,
			at:  5 * time.Hour, want: "had the same active interceptor for 5h 0m 0s",
		},
		"DrawbridgeCallsTurnedAway": {
			well: `drawbridge_webhook_turned_away_total{reason="no-token"} 500x40` + "\n" + `drawbridge_webhook_turned_away_total{reason="busy"} 0+1x5 5x40`,
			bad:  `drawbridge_webhook_turned_away_total{reason="wrong-token"} 0+12x40`,
			at:   30 * time.Minute, want: "were rejected (wrong-token)",
		},
		"DrawbridgeRequestHeld": {
			well: `drawbridge_eviction_requests_oldest_timestamp_seconds{stage="deleting"} 0x4 _x36` + "\n" +
				`drawbridge_eviction_requests_oldest_timestamp_seconds{stage="intercepting"} 0x40`,
			bad: `drawbridge_eviction_requests_oldest_timestamp_seconds{stage="deleting"} 0x40`,
			at:  30 * time.Minute, want: "been terminating for 30m 0s",
		},
		"DrawbridgeBudgetBlocks": {
			well: `drawbridge_eviction_requests_oldest_timestamp_seconds{stage="intercepting"} 0x120`,
			bad:  `drawbridge_eviction_requests_oldest_timestamp_seconds{stage="evicting"} 0x120`,
			at:   2 * time.Hour, want: "tried to evict a pod for 2h 0m 0s without success",
		},
		"DrawbridgeInterceptorTimedOut": {
			well: `drawbridge_interceptor_turns_total{result="completed"} 0+1x20` + "\n" + `drawbridge_interceptor_turns_total{result="timed_out"} 7x20`,
			bad:  `drawbridge_interceptor_turns_total{result="timed_out"} 0x10 1x10`,
			at:   15 * time.Minute, want: "1 turns of interceptors ended",
		},
		"DrawbridgeInterceptorsCutOff": {
			well: `drawbridge_interceptor_turns_total{result="timed_out"} 0+1x400` + "\n" + `drawbridge_interceptor_turns_total{result="cut_off"} 0x100 2x300`,
			bad:  `drawbridge_interceptor_turns_total{result="cut_off"} 0x100 4x300`,
			at:   4 * time.Hour, want: "turns of interceptors ended in the last 6 hours",
		},
		"DrawbridgeGuardGap": {
			well: `drawbridge_guard_pods{state="closed"} 9x40` + "\n" + `drawbridge_guard_pods{state="unguarded"} 0x40`,
			bad:  `drawbridge_guard_pods{state="unguarded"} 3x40`,
			at:   30 * time.Minute, want: "3 pods would be evicted past their interceptors",
		},
		"DrawbridgeWritesRefused": {
			well: `drawbridge_writes_refused_total{what="request",cause="NamespaceTerminating",pod="a"} 0+1x60` + "\n" + `drawbridge_writes_refused_total{what="job",cause="Quota",pod="a"} 3x60`,
			bad:  `drawbridge_writes_refused_total{what="request",cause="Quota",pod="a"} 0+1x60`,
			at:   40 * time.Minute, want: "request is refused by Quota",
		},
		"DrawbridgeRegistrationRefused": {
			well: `drawbridge_interceptor_registrations{accepted="false",pod="a"} 0x40`,
			bad:  `drawbridge_interceptor_registrations{accepted="false",pod="a"} 2x40` + "\n" + `drawbridge_interceptor_registrations{accepted="false",pod="b"} 2x40`,
			at:   30 * time.Minute, want: "2 EvictionInterceptors are refused",
		},
		"DrawbridgeExpressionFails": {
			well: `drawbridge_interceptor_evaluation_errors_total{interceptor="a.example.com"} 4x40`,
			bad:  `drawbridge_interceptor_evaluation_errors_total{interceptor="a.example.com"} 0+1x40`,
			at:   40 * time.Minute, want: "An expression of EvictionInterceptor a.example.com fails",
		},
		"DrawbridgeHookHolds": {
			well: `drawbridge_hook_held_pods{namespace="shop",hook="dump",pod="a"} 0x40` + "\n" + `drawbridge_hook_held_pods{namespace="shop",hook="flush",pod="a"} 1x10 0x30`,
			bad:  `drawbridge_hook_held_pods{namespace="shop",hook="dump",pod="a"} 2x40` + "\n" + `drawbridge_hook_held_pods{namespace="shop",hook="flush",pod="a"} 0x40`,
			at:   30 * time.Minute, want: "of EvacuationHook shop/dump has failed for 2 pods",
		},
		"DrawbridgeBudgetHolds": {
			well: `drawbridge_budget_waiting_since_timestamp_seconds{namespace="shop",budget="night",pod="a"} 0+60x300` + "\n" +
				`drawbridge_budget_waiting_since_timestamp_seconds{namespace="shop",budget="ingester",pod="a"} 0x230 _x70`,
			bad: `drawbridge_budget_waiting_since_timestamp_seconds{namespace="shop",budget="night",pod="a"} 0+60x300` + "\n" +
				`drawbridge_budget_waiting_since_timestamp_seconds{namespace="shop",budget="ingester",pod="a"} 0x300`,
			at: 5 * time.Hour, want: "waited for EvictionBudget shop/ingester for 5h 0m 0s, and it has granted none",
		},
		"DrawbridgeEvacuationGivenUp": {
			well: `drawbridge_evacuation_outcomes_total{policy="kubevirt",outcome="moved"} 0+1x20`,
			bad:  `drawbridge_evacuation_outcomes_total{policy="kubevirt",outcome="gave_up_hold"} 0x10 1x10`,
			at:   15 * time.Minute, want: "by EvacuationPolicy kubevirt ended in the last 15 minutes with gave_up_hold",
		},
		"DrawbridgeStoreRolledBack": {
			well: `drawbridge_apiserver_resource_version{resource="pods",pod="a"} 1000+10x20`,
			bad:  `drawbridge_apiserver_resource_version{resource="pods",pod="a"} 1000+10x9 500+10x10`,
			at:   15 * time.Minute, want: "The resource version of pods has fallen in the last 15 minutes",
		},
		"DrawbridgeMarksComeToNothing": {
			well: `drawbridge_evacuation_writes_untaken_total{policy="kubevirt",reason="discarded"} 3x20`,
			bad:  `drawbridge_evacuation_writes_untaken_total{policy="kubevirt",reason="discarded"} 0x10 1x10`,
			at:   15 * time.Minute, want: "Marks by EvacuationPolicy kubevirt were discarded",
		},
	}
	for _, r := range render(t).rules {
		t.Run(r.Alert, func(t *testing.T) {
			tc, ok := cases[r.Alert]
			if !ok {
				t.Fatal("no case proves this alert")
			}
			if got := fires(t, r, tc.well, tc.at); len(got) > 0 {
				t.Errorf("it fires although all is well: %q", got)
			}
			got := fires(t, r, tc.bad, tc.at)
			if len(got) != 1 {
				t.Fatalf("want it to fire once, have %q", got)
			}
			if !strings.Contains(got[0], tc.want) {
				t.Errorf("the description does not say %q: %s", tc.want, got[0])
			}
		})
	}
}

// foreign are the metrics of others that alerts and dashboard may ask for:
// controller-runtime's, client-go's, Go's, and kube-apiserver's.
var foreign = []string{
	"leader_election_master_status", "workqueue_depth", "controller_runtime_reconcile_errors_total", "process_resident_memory_bytes",
	"apiserver_admission_webhook_fail_open_count", "apiserver_admission_webhook_rejection_count",
}

// known are the names of series, with their labels.
func known() map[string][]string {
	series := map[string][]string{}
	for _, m := range metrics.All() {
		var names []string
		for _, label := range m.Labels {
			names = append(names, label.Name)
		}
		if m.Type != metrics.Histogram {
			series[m.Name] = names
			continue
		}
		series[m.Name+"_bucket"] = append(slices.Clone(names), "le")
		series[m.Name+"_count"], series[m.Name+"_sum"] = names, names
	}
	return series
}

// problems are what an expression asks for that nobody has.
func problems(t *testing.T, expr string) []string {
	t.Helper()
	series, closed := known(), map[string][]string{}
	for _, m := range metrics.All() {
		for _, label := range m.Labels {
			closed[m.Name+" "+label.Name] = label.Values
		}
	}
	var found []string
	for _, selectors := range parser.ExtractSelectors(parse(t, expr)) {
		var name string
		for _, matcher := range selectors {
			if matcher.Name == labels.MetricName {
				name = matcher.Value
			}
		}
		if slices.Contains(foreign, name) {
			continue
		}
		names, ok := series[name]
		if !ok {
			found = append(found, "there is no metric "+name)
			continue
		}
		for _, matcher := range selectors {
			values := closed[name+" "+matcher.Name]
			switch {
			case matcher.Name == labels.MetricName:
			case !slices.Contains(names, matcher.Name):
				found = append(found, name+" has no label "+matcher.Name)
			case len(values) > 0 && !slices.ContainsFunc(values, matcher.Matches):
				found = append(found, name+" has no series with "+matcher.String())
			}
		}
	}
	return found
}

func TestAlertsAskForMetricsThatExist(t *testing.T) {
	for _, r := range render(t).rules {
		if diff := cmp.Diff([]string(nil), problems(t, r.Expr)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", r.Alert, diff)
		}
	}
}

// variables of Grafana stand where PromQL wants something else.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$job", ".*")

func TestTheDashboardAsksForMetricsThatExist(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr         string `json:"expr"`
				LegendFormat string `json:"legendFormat"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(render(t).dashboard, &dashboard); err != nil {
		t.Fatal(err)
	}
	legend := regexp.MustCompile(`{{(\w+)}}`)
	shown := map[string]bool{}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			expr := variables.Replace(target.Expr)
			if diff := cmp.Diff([]string(nil), problems(t, expr)); diff != "" {
				t.Errorf("panel %q (-want +got):\n%s", panel.Title, diff)
			}
			for _, label := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !strings.Contains(expr, label[1]) && label[1] != "pod" {
					t.Errorf("panel %q: the legend names the label %s, which the expression does not keep", panel.Title, label[1])
				}
			}
			for name := range known() {
				if strings.Contains(expr, name) {
					shown[name] = true
				}
			}
		}
	}
	for _, m := range metrics.All() {
		if !m.PerRequest && !shown[m.Name] && !shown[m.Name+"_bucket"] {
			t.Errorf("no panel shows %s", m.Name)
		}
	}
}
