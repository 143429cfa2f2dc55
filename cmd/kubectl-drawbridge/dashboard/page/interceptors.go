package page

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/live"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/listing"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// interceptorRow is an interceptor with its history.
type interceptorRow struct {
	ID string
	listing.Interceptor
	State, Tone string
	// Done is how many turns have ended in the kept requests; Half and Most are how long
	// half and nineteen of twenty of them took at most.
	Done       int
	Half, Most string
	// Skipped and Retried are how many turns were skipped, or needed more than one attempt.
	Skipped, Retried int
	Pods             string
}

func renderInterceptors(_ context.Context, r Request) (Content, error) {
	all := interceptorsOf(r.Snapshot)
	shown, pages := paged(all, r, "page")
	var rows []live.Fragment
	for _, one := range shown {
		rows = append(rows, fragment(one.ID, "interceptor-row", one))
	}
	return Content{Title: "Interceptors", Section: SectionInterceptors, Fragments: []live.Fragment{
		fragment("heading", "interceptors-heading", nil),
		tableOf{ID: "interceptors", Title: "Interceptors and hooks", Heads: []string{"Name", "State", "Pods", "Active", "Waiting", "Finished", "p50", "p95", "Skipped", "Retried"},
			Empty: "No interceptor is registered, and none has a turn. An EvictionInterceptor registers one, an EvacuationHook needs no program.", Pager: pages}.with(rows),
	}}, nil
}

// interceptorsOf are all interceptors: those with trouble first, then as their command lists
// them.
func interceptorsOf(s *state.Snapshot) []interceptorRow {
	past := map[string]*history{}
	for _, er := range s.Requests {
		for _, report := range er.Status.Interceptors {
			h := past[report.Name]
			if h == nil {
				h = &history{}
				past[report.Name] = h
			}
			h.add(report)
		}
	}
	var rows []interceptorRow
	for _, i := range listing.Interceptors(values(s.Interceptors), values(s.Hooks), values(s.Budgets), values(s.Requests)) {
		row := interceptorRow{ID: idOf("interceptor", i.Name), Interceptor: i, State: "in force", Tone: toneGood, Pods: "not known"}
		switch {
		case i.Trouble != "":
			row.State, row.Tone = "trouble", toneBad
		case !i.Registered:
			row.State, row.Tone = "not registered", toneFaint
		case i.Accepted != "True":
			row.State, row.Tone = "not observed yet", toneWait
		}
		if i.Pods != nil {
			row.Pods = text.Counted(*i.Pods, "pod")
		}
		if h := past[i.Name]; h != nil {
			row.Done, row.Skipped, row.Retried = len(h.took), h.skipped, h.retried
			row.Half, row.Most = h.at(50), h.at(95)
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b interceptorRow) int {
		rank := func(r interceptorRow) int { return map[bool]int{true: 0, false: 1}[r.Trouble != ""] }
		return cmp.Or(cmp.Compare(rank(a), rank(b)), 0)
	})
	return rows
}

// history is how long the turns of an interceptor took.
type history struct {
	took             []time.Duration
	skipped, retried int
}

func (h *history) add(report v1alpha1.InterceptorStatus) {
	if report.Retries > 0 {
		h.retried++
	}
	switch {
	case report.SkippedBy != "":
		h.skipped++
	case report.StartTime != nil && report.CompletionTime != nil:
		h.took = append(h.took, max(report.CompletionTime.Sub(report.StartTime.Time), 0))
	}
}

// at is the duration that so many percent of the turns took at most; empty without turns.
func (h *history) at(percent int) string {
	if len(h.took) == 0 {
		return ""
	}
	slices.Sort(h.took)
	const all = 100
	return duration.HumanDuration(h.took[min((len(h.took)*percent+all-1)/all, len(h.took))-1])
}

// values are copies of what pointers point to, for functions that take lists as they are read.
func values[T any](all []*T) []T {
	found := make([]T, 0, len(all))
	for _, one := range all {
		found = append(found, *one)
	}
	return found
}

// trimmed are texts without what would move a cursor, and without empty ones.
func trimmed(all ...string) string {
	var found []string
	for _, one := range all {
		if one = text.Clean(one); one != "" {
			found = append(found, one)
		}
	}
	return strings.Join(found, ", ")
}
