// Command gen writes the reference of the metrics from their catalog.
package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

// page is written when gen runs in the root of the module.
const page = "docs/reference/metrics.md"

const intro = `<!-- Written by make generate-docs from internal/metrics. Do not edit. -->

# Metrics

The manager serves these metrics at ` + "`--metrics-addr`" + `, path ` + "`/metrics`" + `, to
[clients with permission](../operations/high-availability.md), together with those of controller-runtime and client-go:
` + "`workqueue_*{name=\"evictionrequests\"}`" + ` is the queue of the request controller.
[Observability](../operations/observability.md) describes how to collect them, and lists the alerts.

The leader has all metrics. "every replica" means that the other replicas have the metric as well: sum the values, or
use the maximum of a gauge.

| Name | Type | Labels | From | Meaning |
|---|---|---|---|---|
`

const perRequest = `
## Series per request

The metrics that begin with ` + "`evictionrequest_controller_`" + ` are those of KEP-4563. They have a series per EvictionRequest,
which disappears with the object. ` + "`metrics.perRequest: false`" + ` (flag ` + "`--metrics-per-request=false`" + `) disables them. Then
no metric has a label whose values users could multiply.

## Labels

`

const meanings = `
## What the values mean

` + "`stage`" + ` is ` + "`starting`" + ` (no interceptor is active yet), ` + "`intercepting`" + ` (an interceptor of the pod is active) or
` + "`evicting`" + ` (` + "`imperative-eviction.k8s.io`" + ` is active, so budgets decide).

` + "`drawbridge_interceptor_turns_total`" + `: ` + "`completed`" + ` (the interceptor reported it), ` + "`unchecked`" + ` (the interceptor reported
it while no manager ran, and managedFields do not confirm it), ` + "`skipped`" + ` (a person ended it with
` + "`kubectl drawbridge skip`" + `), ` + "`timed_out`" + ` (the interceptor was silent for longer than the heartbeat deadline),
` + "`cut_off`" + ` (a requester's [deadline](../concepts.md#deadlines) came before it was done), ` + "`node_lost`" + ` (the pod's
[node is lost](../concepts.md#lost-nodes), so the interceptor lost its turn, or got none),
` + "`cut_short`" + ` (the pod ended before) or ` + "`canceled`" + ` (no requester was left).

` + "`trigger`" + ` of an attempt is ` + "`first`" + `, ` + "`backoff`" + ` or ` + "`budget`" + ` (a budget that blocked the pod started to allow disruptions).
Its ` + "`result`" + ` is ` + "`evicted`" + `, ` + "`gone`" + ` or ` + "`replaced`" + ` if the pod needs no further attempt. Every other value is a kind of
failure, which [the runbook](../runbooks/blocked-by-a-budget.md) explains.

` + "`state`" + ` of a guarded pod is ` + "`closed`" + `, ` + "`held`" + ` (closed although the interceptors are done), ` + "`unguarded`" + ` (should be closed,
not labeled yet), ` + "`other_budget`" + ` (should be closed, but another budget selects the pod) or ` + "`label_left`" + ` (should be open,
but its controller selects it by the label). ` + "`state`" + ` of the guard's budgets is ` + "`in_force`" + `, ` + "`changed`" + ` (it refuses
evictions, but another client writes it, too), ` + "`not_in_force`" + ` (it protects no pod, or not yet) or ` + "`name_taken`" + ` (another
owner has a budget of that name); see [the guard](../guides/guard.md).

` + "`caller_class`" + ` is a hint about the calling tool. [answers.md](answers.md) explains the reasons of verdicts, and
[the guide](../guides/surge.md) those of surge.
`

func main() {
	if err := os.WriteFile(page, render(metrics.All()), 0o644); err != nil { //nolint:gosec // A page for everybody.
		fmt.Fprintln(os.Stderr, "write the reference of the metrics:", err)
		os.Exit(1)
	}
}

func render(all []metrics.Metric) []byte {
	var b bytes.Buffer
	b.WriteString(intro)
	for _, m := range all {
		from := "leader"
		if m.EveryReplica {
			from = "every replica"
		}
		names := make([]string, len(m.Labels))
		for i, label := range m.Labels {
			names[i] = code(label.Name)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", code(m.Name), m.Type, strings.Join(names, ", "), from, m.Help)
	}
	b.WriteString(perRequest)
	for _, m := range all {
		if m.PerRequest || len(m.Labels) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s\n\n", code(m.Name))
		for _, label := range m.Labels {
			bound := label.Bound
			if len(label.Values) > 0 {
				values := make([]string, len(label.Values))
				for i, value := range label.Values {
					values[i] = code(value)
				}
				bound = strings.Join(values, ", ")
			}
			fmt.Fprintf(&b, "- %s: %s\n", code(label.Name), bound)
		}
		b.WriteString("\n")
	}
	return append(bytes.TrimRight(b.Bytes(), "\n"), []byte("\n"+meanings)...)
}

func code(s string) string { return "`" + s + "`" }
