package charts_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/internal/features"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// An interceptor may report once a minute, so a shorter deadline could not be kept.
func TestHeartbeatDeadlinesOfTwoMinutesAndMoreAreAccepted(t *testing.T) {
	for _, deadline := range []string{"2m", "2m0s", "2.5m", "10m", "120s", "121.5s", "300s", "1200s", "1h", "1h30m", "24h", "90m"} {
		t.Run(deadline, func(t *testing.T) {
			if _, err := template(t, install.Options{Values: values{"times": values{"heartbeatDeadline": deadline}}}); err != nil {
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
		"a URL left to the manager":   {values{"gitops": values{"enabled": true}, "webhook": values{"url": "https://localhost:1234"}}, "gitops.enabled"},
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
		"a duration of more than three centuries": {values{"times": values{"retention": "9999999h"}}, "retention"},
		"a retention that forgets moved pods": {
			values{"times": values{"retention": "1m"}, "replacementGuard": values{"window": "5m"}}, "times.retention (1m) must be 0s",
		},
		"a backoff of nothing":                {values{"times": values{"evictionBackoffMin": "0s"}}, "times.evictionBackoffMin must be positive, not 0s"},
		"a longest backoff below the first":   {values{"times": values{"evictionBackoffMin": "10s", "evictionBackoffMax": "9999ms"}}, "times.evictionBackoffMax (9999ms)"},
		"a marker limit of nothing":           {values{"times": values{"markerLimit": "0h"}}, "times.markerLimit must be positive"},
		"a replacement window of nothing":     {values{"replacementGuard": values{"window": "0s"}}, "replacementGuard.window must be positive"},
		"a certificate announced for no time": {values{"certificates": values{"settle": "0s"}}, "certificates.settle must be positive"},
		"a preemption without time":           {values{"preemption": values{"timeout": "0ms"}}, "preemption.timeout must be positive"},
		"a caller's silence that is too short": {
			values{"times": values{"callerSilence": values{"kubectl": "29s"}}}, "times.callerSilence.kubectl must be in whole seconds, from 30s to 24h, not 29s",
		},
		"a taint after no time":          {values{"deadlines": values{"taints": values{"reclaimed": "0s"}}}, "deadlines.taints.reclaimed must be from 1s to 168h, not 0s"},
		"a patience of eight days":       {values{"deadlines": values{"callerPatience": values{"mco": "192h"}}}, "deadlines.callerPatience.mco must be from 1s to 168h, not 192h"},
		"deadlines of nobody":            {values{"deadlines": values{"sources": []string{"carpenter"}}}, "deadlines"},
		"one of more than a day":         {values{"times": values{"callerSilence": values{"kubectl": "24h1s"}}}, "callerSilence.kubectl"},
		"one of half a second":           {values{"times": values{"callerSilence": values{"kubectl": "30.5s"}}}, "callerSilence.kubectl"},
		"a port for two":                 {values{"metrics": values{"port": 8443}, "webhook": values{"port": 8443}}, "webhook.port and metrics.port are both 8443"},
		"the health port, too":           {values{"health": values{"port": 9443}, "webhook": values{"port": 9443}}, "webhook.port and health.port are both 9443"},
		"the scheduler's port, too":      {values{"preemption": values{"enabled": true, "port": 9443}, "webhook": values{"port": 9443}}, "webhook.port and preemption.port are both 9443"},
		"a gate that nobody knows":       {values{"featureGates": values{"Gard": true}}, "Gard"},
		"the guard without its gate":     {values{"featureGates": values{"Guard": false}}, "featureGates.Guard is false and guard.enabled is true: set guard.enabled=false as well"},
		"the surge without its gate":     {values{"featureGates": values{"Surge": false}}, "surge.enabled=false"},
		"native without its gate":        {values{"featureGates": values{"NativeAPI": false}, "native": values{"controllers": "Cluster"}}, "featureGates.NativeAPI is false and native.controllers is Cluster: set native.controllers=Off as well"},
		"machines without their gate":    {values{"featureGates": values{"EvacuationPresets": false}, "vm": values{"kubevirt": values{"enabled": true}}}, "vm.kubevirt.enabled=false"},
		"databases without their gate":   {values{"featureGates": values{"EvacuationPresets": false}, "vm": values{"strimzi": values{"enabled": true}}}, "vm.strimzi.enabled=false"},
		"a preset that there is not":     {values{"vm": values{"kubvirt": values{"enabled": false}}}, "vm.kubvirt: there is no preset kubvirt; there are kubevirt, strimzi"},
		"a value that no preset has":     {values{"vm": values{"kubevirt": values{"retryLimt": 3}}}, "vm.kubevirt.retryLimt: the preset kubevirt has no such value; it has deadline, enabled"},
		"a value of another preset's":    {values{"vm": values{"strimzi": values{"priority": 3}}}, "vm.strimzi.priority: the preset strimzi has no such value; it has enabled"},
		"a value of another type":        {values{"vm": values{"kubevirt": values{"priority": "3"}}}, "/vm/kubevirt/priority"},
		"more tries than KubeVirt keeps": {values{"vm": values{"kubevirt": values{"retryLimit": 6}}}, "vm.kubevirt.retryLimit must not be more than 5, not 6"},
		"a namespace that can be none":   {values{"webhook": values{"excludedNamespaces": []any{"Shop"}}}, "excludedNamespaces"},
		"a list of namespaces with one":  {values{"webhook": values{"excludedNamespaces": []any{"a,b"}}}, "excludedNamespaces"},
		"a priority out of range":        {values{"surge": values{"priority": 100001}}, "priority"},
		"a reserved name that is none": {
			values{"interceptors": values{"allowedReservedNames": []any{"'] || true || n in ['"}}}, "allowedReservedNames",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := template(t, install.Options{Values: tc.values})
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error does not name %q: %v", tc.want, err)
			}
		})
	}
}

// What is at the edge of what is refused.
func TestGoodValuesAreAccepted(t *testing.T) {
	cases := map[string]values{
		"requests that are kept for ever":        {"times": values{"retention": "0s"}},
		"a retention as long as the window":      {"times": values{"retention": "300s"}, "replacementGuard": values{"window": "5m"}},
		"a short one where nobody asks for it":   {"times": values{"retention": "1s"}, "replacementGuard": values{"mode": "Evict"}},
		"a backoff that does not grow":           {"times": values{"evictionBackoffMin": "0.5m", "evictionBackoffMax": "30s"}},
		"the bounds of a caller's silence":       {"times": values{"callerSilence": values{"kubectl": "30s", "mco": "24h"}}},
		"features switched off with their gates": {"featureGates": values{"Guard": false, "Surge": false}, "guard": values{"enabled": false}, "surge": values{"enabled": false}},
		"native without its gate is Off":         {"featureGates": values{"NativeAPI": false}},
		"a port of what is not there":            {"preemption": values{"port": 9443}, "webhook": values{"port": 9443}},
	}
	for name, v := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := template(t, install.Options{Values: v}); err != nil {
				t.Error(err)
			}
		})
	}
}

// The manager does not start with a gate that it does not know.
func TestTheSchemaKnowsTheFeatureGates(t *testing.T) {
	var schema struct {
		Properties struct {
			FeatureGates struct {
				PropertyNames struct{ Enum []string } `json:"propertyNames"`
			} `json:"featureGates"`
		} `json:"properties"`
	}
	data, err := os.ReadFile("drawbridge/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(features.Names(), schema.Properties.FeatureGates.PropertyNames.Enum); diff != "" {
		t.Errorf("feature gates of the schema (-want +got):\n%s", diff)
	}
}

// The manager reads ConfigMaps of its own namespace by name, and of kube-system by another.
func TestTheNamespaceOfTheClusterIsRefusedWhereTheManagerWouldBe(t *testing.T) {
	cases := map[string]values{
		"API servers by certificates": {"webhook": values{"clientUsers": []any{"kube-apiserver"}}},
		"schedulers by certificates":  {"preemption": values{"enabled": true, "clientCertificates": true}},
	}
	for name, v := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := template(t, install.Options{Namespace: "kube-system", Values: v})
			if err == nil || !strings.Contains(err.Error(), "install it elsewhere") {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// Every value the schema knows stands in values.yaml, where it is described. That
// values.yaml has no others is the schema's own business: helm checks it. The values of
// presets are those of their files, see TestPresetsAreWhole.
func TestEveryValueHasADefault(t *testing.T) {
	type schema struct {
		Properties map[string]schema `json:"properties"`
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
