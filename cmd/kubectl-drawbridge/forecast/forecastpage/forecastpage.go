// Package forecastpage is the page of the dashboard that foretells a drain.
package forecastpage

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/live"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/page"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/forecast"
)

//go:embed forecast.html
var source string

var templates = template.Must(template.New("forecast").Parse(source))

const (
	section = "Forecast"
	// maxRows of a table.
	maxRows = 200
	// runs are fewer than those of the command: the page is made again after changes.
	runs = 50
)

// Pages returns the page.
func Pages() []page.Page {
	return []page.Page{{Pattern: "/forecast", Section: section, Render: render}}
}

type view struct {
	Asked    string
	Known    []string
	Missing  string
	Told     *forecast.Forecast
	Actions  bool
	Blockers []forecast.Blocker
	Pods     []podRow
	More     int
	History  []historyRow
}

type podRow struct {
	forecast.Pod
	Start, Gone, P95 string
}

type historyRow struct {
	Name, Samples, P50, P95 string
	Pods                    int
}

func render(_ context.Context, r page.Request) (page.Content, error) {
	v := view{Actions: !r.ReadOnly && !r.Export}
	// A node may be given several times, and several in one field.
	var nodes []string
	for _, value := range r.Query["node"] {
		nodes = append(nodes, strings.FieldsFunc(value, func(c rune) bool { return c == ',' || c == ' ' })...)
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	v.Asked = strings.Join(nodes, " ")
	for _, node := range r.Snapshot.Nodes {
		v.Known = append(v.Known, node.Name)
	}
	for _, name := range nodes {
		if r.Snapshot.NodeByName[name] == nil {
			v.Missing, nodes = name, nil
			break
		}
	}
	if len(nodes) > 0 {
		in := forecast.FromSnapshot(r.Snapshot, nodes)
		in.Runs = runs
		v.fill(forecast.Of(in))
	}
	content := page.Content{Title: section, Section: section}
	for _, name := range []string{"ask", "told"} {
		var b bytes.Buffer
		if err := templates.ExecuteTemplate(&b, name, v); err != nil {
			return page.Content{}, fmt.Errorf("render the forecast: %w", err)
		}
		// The template has escaped it.
		content.Fragments = append(content.Fragments, live.Fragment{ID: "forecast-" + name, HTML: template.HTML(b.String())}) //nolint:gosec // See above.
	}
	return content, nil
}

func (v *view) fill(told forecast.Forecast) {
	v.Told = &told
	v.Blockers = told.Blockers[:min(len(told.Blockers), maxRows)]
	for _, p := range told.Pods[:min(len(told.Pods), maxRows)] {
		row := podRow{Pod: p}
		row.Start, row.Gone, row.P95 = p.Times()
		v.Pods = append(v.Pods, row)
	}
	v.More = len(told.Pods) - len(v.Pods)
	for _, h := range told.History {
		p50, p95 := h.Times()
		v.History = append(v.History, historyRow{h.Name, strconv.Itoa(h.Samples), p50, p95, h.Pods})
	}
}
