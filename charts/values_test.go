package charts_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/test/install"
)

// An interceptor may report once a minute, so a shorter deadline could not be kept.
func TestHeartbeatDeadlinesOfTwoMinutesAndMoreAreAccepted(t *testing.T) {
	for _, deadline := range []string{"2m", "2m0s", "2.5m", "10m", "120s", "121.5s", "300s", "1200s", "1h", "1h30m", "24h", "90m"} {
		t.Run(deadline, func(t *testing.T) {
			if _, err := install.Render(t.Context(), install.Options{Values: values{"times": values{"heartbeatDeadline": deadline}}}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestBadValuesAreRefused(t *testing.T) {
	cases := map[string]struct {
		values values
		want   string
	}{
		"an unknown key":              {values{"webhok": values{}}, "webhok"},
		"an unknown key further down": {values{"webhook": values{"uri": "https://x"}}, "uri"},
		"a duration without a unit":   {values{"times": values{"retention": "60"}}, "retention"},
		"a negative duration":         {values{"times": values{"retention": "-1h"}}, "retention"},
		"a heartbeat deadline of 1m":  {values{"times": values{"heartbeatDeadline": "1m"}}, "heartbeatDeadline"},
		"one of 119 seconds":          {values{"times": values{"heartbeatDeadline": "119s"}}, "heartbeatDeadline"},
		"one of no hours":             {values{"times": values{"heartbeatDeadline": "0h"}}, "heartbeatDeadline"},
		"one of milliseconds":         {values{"times": values{"heartbeatDeadline": "900000ms"}}, "heartbeatDeadline"},
		"an unknown failure policy":   {values{"webhook": values{"failurePolicy": "Maybe"}}, "failurePolicy"},
		"a URL without TLS":           {values{"webhook": values{"url": "http://localhost"}}, "url"},
		"a URL with a path":           {values{"webhook": values{"url": "https://localhost/x"}}, "url"},
		"an unknown guard":            {values{"replacementGuard": values{"mode": "Never"}}, "mode"},
		"a timeout of zero":           {values{"webhook": values{"timeoutSeconds": 0}}, "timeoutSeconds"},
		"a limit below zero":          {values{"webhook": values{"newRequestsPerNodePerMinute": -1}}, "newRequestsPerNodePerMinute"},
		"a limit for kubectl":         {values{"webhook": values{"limitedCallerClasses": []any{"kubectl"}}}, "limitedCallerClasses"},
		"a label of the chart's own":  {values{"commonLabels": values{"app.kubernetes.io/name": "x"}}, "app.kubernetes.io/name"},
		"a digest that is none":       {values{"image": values{"digest": "latest"}}, "digest"},
		"an interval without a unit":  {values{"metrics": values{"serviceMonitor": values{"interval": "30"}}}, "interval"},
		"a runbook URL with a slash":  {values{"prometheusRule": values{"runbookURL": "https://example.com/"}}, "runbookURL"},
		"an alert nobody knows": {
			values{"prometheusRule": values{"enabled": true, "disabled": []any{"DrawbridgeX"}}}, "there is no alert DrawbridgeX; there are DrawbridgeDown",
		},
		"two ways to scrape": {
			values{"metrics": values{"protected": false, "serviceMonitor": values{"enabled": true}, "podMonitor": values{"enabled": true}}}, "twice",
		},
		"a PodMonitor of protected metrics": {values{"metrics": values{"podMonitor": values{"enabled": true}}}, "metrics.protected=false"},
		"a ServiceMonitor without a manager to scrape": {
			values{"metrics": values{"serviceMonitor": values{"enabled": true}}, "deployment": values{"enabled": false}, "webhook": values{"url": "https://localhost:1"}},
			"deployment.enabled",
		},
		"a PodMonitor without a manager to scrape": {
			values{"metrics": values{"protected": false, "podMonitor": values{"enabled": true}}, "deployment": values{"enabled": false}, "webhook": values{"url": "https://localhost:1"}},
			"deployment.enabled",
		},
		"a priority out of range": {values{"surge": values{"priority": 100001}}, "priority"},
		"a reserved name that is none": {
			values{"interceptors": values{"allowedReservedNames": []any{"'] || true || n in ['"}}}, "allowedReservedNames",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := install.Render(t.Context(), install.Options{Values: tc.values})
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error does not name %q: %v", tc.want, err)
			}
		})
	}
}

// Every value the schema knows stands in values.yaml, where it is described. That
// values.yaml has no others is the schema's own business: helm checks it.
func TestEveryValueHasADefault(t *testing.T) {
	type schema struct {
		Description string            `json:"description"`
		Properties  map[string]schema `json:"properties"`
	}
	var want schema
	data, err := os.ReadFile("drawbridge/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	delete(want.Properties, "global") // Helm's own.
	var have map[string]any
	if data, err = os.ReadFile("drawbridge/values.yaml"); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, &have); err != nil {
		t.Fatal(err)
	}
	var compare func(path string, want schema, have map[string]any)
	compare = func(path string, want schema, have map[string]any) {
		for _, key := range slices.Sorted(maps.Keys(want.Properties)) {
			value, ok := have[key]
			if strings.HasPrefix(want.Properties[key].Description, "Gone: ") {
				continue // It is there for the chart to tell what there is instead.
			}
			if !ok {
				t.Errorf("values.yaml has no %s%s", path, key)
			}
			if nested, ok := value.(map[string]any); ok {
				compare(path+key+".", want.Properties[key], nested)
			}
		}
	}
	compare("", want, have)
}

// helm-docs writes the reference of the values from the comments that begin with two
// dashes; a value without one would have no description there.
func TestEveryValueIsDescribed(t *testing.T) {
	data, err := os.ReadFile("../docs/reference/values.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(line, "|")
		if len(cells) > 4 && strings.TrimSpace(cells[len(cells)-2]) == "" {
			t.Errorf("%s has no description: begin the comment above it with \"# -- \"", strings.TrimSpace(cells[1]))
		}
	}
}
