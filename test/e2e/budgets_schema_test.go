//go:build unix

package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// budgetOf is a budget for all pods of the namespace, with the rest of its spec in JSON.
func budgetOf(t *testing.T, namespace, name, more string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("EvictionBudget"))
	u.SetNamespace(namespace)
	u.SetName(name)
	spec := map[string]any{"selector": map[string]any{}}
	if err := json.Unmarshal([]byte(more), &spec); err != nil {
		t.Fatalf("%v: %s", err, more)
	}
	u.Object["spec"] = spec
	return u
}

// What a budget may say, as the API server decides it.
func TestMalformedBudgetsAreRefused(t *testing.T) {
	t.Parallel()
	namespace := kube.Namespace(t)
	selects := func(requirement string) string { return `{"selector":{"matchExpressions":[` + requirement + `]}}` }
	window := func(more string) string {
		return `{"windows":[` + strings.Replace(`{"schedule":"0 22 * * *","duration":"6h"}`, "}", more+"}", 1) + `]}`
	}
	conditions := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = `{"name":"c` + string(rune('a'+i)) + `","expression":"true"}`
		}
		return `"conditions":[` + strings.Join(all, ",") + `]`
	}
	const (
		config   = `"config":{"apiVersion":"v1","kind":"ConfigMap","name":"ring"}`
		percent  = "maxUnavailable must be a number from 0 to 1000000 or a percentage from 0% to 100%"
		oneLabel = "exactly one of podLabel and nodeLabel must be given"
		zone     = "timeZone must be a name of the IANA database"
	)
	for name, tc := range map[string]struct{ spec, want string }{
		"no selector":                          {`{"selector":null}`, "spec.selector"},
		"an unknown operator":                  {selects(`{"key":"app","operator":"Near","values":["db"]}`), "operator of a matchExpression must be In, NotIn, Exists or DoesNotExist"},
		"an operator without values":           {selects(`{"key":"app","operator":"In"}`), "values of a matchExpression must be given for the operators In and NotIn"},
		"an operator with values":              {selects(`{"key":"app","operator":"Exists","values":["db"]}`), "and for no others"},
		"more than all":                        {`{"maxUnavailable":"101%"}`, percent},
		"a percentage with a zero before":      {`{"maxUnavailable":"050%"}`, percent},
		"half a percent":                       {`{"maxUnavailable":"0.5%"}`, percent},
		"less than nothing in percent":         {`{"maxUnavailable":"-1%"}`, percent},
		"a number in quotes":                   {`{"maxUnavailable":"3"}`, percent},
		"a word":                               {`{"maxUnavailable":"all"}`, percent},
		"less than nothing":                    {`{"maxUnavailable":-1}`, percent},
		"more than a million":                  {`{"maxUnavailable":1000001}`, percent},
		"half a pod":                           {`{"maxUnavailable":0.5}`, "spec.maxUnavailable"},
		"groups by nothing":                    {`{"groupBy":{}}`, oneLabel},
		"groups by two labels":                 {`{"groupBy":{"podLabel":"zone","nodeLabel":"topology.kubernetes.io/zone"}}`, oneLabel},
		"groups by an empty label":             {`{"groupBy":{"podLabel":""}}`, "podLabel"},
		"groups by a label with a space":       {`{"groupBy":{"podLabel":"my zone"}}`, "podLabel must be the key of a label"},
		"groups by a node's label with a path": {`{"groupBy":{"nodeLabel":"a/b/c"}}`, "nodeLabel must be the key of a label"},
		"maxGroups of nothing":                 {`{"maxGroups":2}`, "maxGroups needs groupBy"},
		"no group at all":                      {`{"groupBy":{"podLabel":"zone"},"maxGroups":0}`, "spec.maxGroups"},
		"more than a thousand groups":          {`{"groupBy":{"podLabel":"zone"},"maxGroups":1001}`, "spec.maxGroups"},
		"a time to settle before":              {`{"settle":"-1s"}`, "settle must be at least 0s and at most 24h"},
		"more than a day to settle":            {`{"settle":"24h1s"}`, "settle must be at least 0s and at most 24h"},
		"a time to settle in words":            {`{"settle":"soon"}`, "settle"},
		"a negative pause":                     {`{"minInterval":"-1ms"}`, "minInterval must be at least 0s and at most 24h"},
		"a pause of more than a day":           {`{"minInterval":"25h"}`, "minInterval must be at least 0s and at most 24h"},
		"a pause in words":                     {`{"minInterval":"10 minutes"}`, "minInterval"},
		"a window without a schedule":          {`{"windows":[{"duration":"6h"}]}`, "spec.windows[0].schedule"},
		"a window with an empty schedule":      {`{"windows":[{"schedule":"","duration":"6h"}]}`, "spec.windows[0].schedule"},
		"a schedule that is too long":          {`{"windows":[{"schedule":"` + strings.Repeat("0", 201) + `","duration":"6h"}]}`, "spec.windows[0].schedule"},
		"a window without an end":              {`{"windows":[{"schedule":"0 22 * * *"}]}`, "spec.windows[0].duration"},
		"a window of less than a minute":       {`{"windows":[{"schedule":"0 22 * * *","duration":"59s"}]}`, "duration must be at least 1m and at most 168h"},
		"a window of more than a week":         {`{"windows":[{"schedule":"0 22 * * *","duration":"169h"}]}`, "duration must be at least 1m and at most 168h"},
		"a window of a day, in words":          {`{"windows":[{"schedule":"0 22 * * *","duration":"1d"}]}`, "duration"},
		"seventeen windows":                    {`{"windows":[` + strings.TrimSuffix(strings.Repeat(`{"schedule":"0 22 * * *","duration":"1h"},`, 17), ",") + `]}`, "spec.windows"},
		"a time zone with a space":             {window(`,"timeZone":"Europe/New Berlin"`), zone},
		"a time zone with a path":              {window(`,"timeZone":"../../etc/passwd"`), zone},
		"a time zone from the root":            {window(`,"timeZone":"/etc/localtime"`), zone},
		"a time zone of this machine":          {window(`,"timeZone":"Local"`), zone},
		"a time zone that is too long":         {window(`,"timeZone":"` + strings.Repeat("a", 65) + `"`), "timeZone"},
		"another thing to do outside":          {`{"outsideWindow":"Evict"}`, "spec.outsideWindow"},
		"config for nobody":                    {`{` + config + `}`, "config is only read by conditions"},
		"config without a name":                {`{"config":{"apiVersion":"v1","kind":"ConfigMap"},` + conditions(1) + `}`, "spec.config.name"},
		"no condition in the list":             {`{"conditions":[]}`, "spec.conditions"},
		"seventeen conditions":                 {`{` + conditions(17) + `}`, "spec.conditions"},
		"a condition twice":                    {`{"conditions":[{"name":"a","expression":"true"},{"name":"a","expression":"true"}]}`, "Duplicate value"},
		"a condition without an expression":    {`{"conditions":[{"name":"a"}]}`, "spec.conditions[0].expression"},
		"an unknown guard":                     {`{"guard":"Sometimes"}`, "spec.guard"},
		"another thing to do when exhausted":   {`{"exhausted":{"action":"Delete"}}`, "spec.exhausted.action"},
		"exhausted for less than a minute":     {`{"exhausted":{"action":"Evict","after":"59s"}}`, "after must be at least 1m and at most 168h"},
		"exhausted for more than a week":       {`{"exhausted":{"action":"Evict","after":"168h1s"}}`, "after must be at least 1m and at most 168h"},
		"exhausted in words":                   {`{"exhausted":{"after":"soon"}}`, "after"},
	} {
		t.Run(name, func(t *testing.T) {
			err := admin.Create(t.Context(), budgetOf(t, namespace, "new", tc.spec), client.DryRunAll)
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("want it to be invalid with %q, got %v", tc.want, err)
			}
		})
	}
	for name, spec := range map[string]string{
		"as simple as can be":          `{}`,
		"nothing goes":                 `{"maxUnavailable":0}`,
		"nothing, in percent":          `{"maxUnavailable":"0%"}`,
		"all":                          `{"maxUnavailable":"100%"}`,
		"a million":                    `{"maxUnavailable":1000000}`,
		"groups of pods":               `{"groupBy":{"podLabel":"zone"},"maxGroups":1000}`,
		"groups of nodes":              `{"groupBy":{"nodeLabel":"topology.kubernetes.io/zone"}}`,
		"a day":                        `{"settle":"24h","minInterval":"24h"}`,
		"windows that overlap":         `{"windows":[{"schedule":"0 22 * * *","duration":"168h"},{"schedule":"0 23 * * *","duration":"1m","timeZone":"America/Argentina/Buenos_Aires"}]}`,
		"a time zone with a sign":      window(`,"timeZone":"Etc/GMT+5"`),
		"a schedule that is none":      `{"windows":[{"schedule":"never","duration":"1h"}]}`, // It is told in the status, and so is
		"a time zone that is none":     window(`,"timeZone":"Europe/Atlantis"`),
		"conditions without config":    `{` + conditions(1) + `}`,
		"sixteen conditions":           `{` + config + `,` + conditions(16) + `}`,
		"selectors that match nothing": selects(`{"key":"app","operator":"Exists"},{"key":"app","operator":"DoesNotExist"}`),
		"everything at the same time":  `{"selector":{"matchLabels":{"a":"b"}},"groupBy":{"podLabel":"zone"},"maxGroups":2,"maxUnavailable":"50%","settle":"2m","minInterval":"30s","windows":[{"schedule":"0 22 * * MON-FRI","duration":"6h","timeZone":"Europe/Berlin"}],` + config + `,` + conditions(2) + `,"outsideWindow":"Continue","guard":"Always"}`,
	} {
		if err := admin.Create(t.Context(), budgetOf(t, namespace, "new", spec), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
