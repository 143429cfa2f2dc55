package why

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
)

// Print writes a story for people. now is for ages and for the time zone.
func Print(out io.Writer, s Story, now time.Time, wide bool) error {
	w := &printer{out: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), now: now}
	where := "on no node"
	if s.Node != "" {
		where = "on node " + s.Node
	}
	w.linef("Pod %s/%s %s", s.Namespace, s.Pod, where)
	w.linef("%s", s.Headline)
	w.interceptors(s, wide)
	if len(s.Budgets) > 0 {
		w.heading("Budgets")
		for _, b := range s.Budgets {
			w.linef("  %s\t%s\t%s", b.Name, map[bool]string{true: "allows", false: "refuses"}[b.Allows], b.Why)
		}
	}
	if len(s.EvictionBudgets) > 0 {
		w.heading("EvictionBudgets")
		for _, b := range s.EvictionBudgets {
			w.linef("  %s\t%s", b.Name, b.When)
		}
	}
	if len(s.Requesters) > 0 {
		w.heading("Requested by")
		for _, r := range s.Requesters {
			w.linef("  %s", strings.TrimRight(r.Name+"\t"+r.Who, "\t"))
		}
	}
	if len(s.History) > 0 {
		w.heading("History")
		for _, e := range s.History {
			w.linef("  %s\t%s", e.Time.In(now.Location()).Format(time.TimeOnly), e.Text)
		}
	}
	w.heading("An eviction call now")
	w.linef("  %s", s.Answer.Text)
	w.list("Notes", s.Notes)
	w.list("What to do", s.Advice)
	return w.out.Flush()
}

type printer struct {
	out *tabwriter.Writer
	now time.Time
}

func (w *printer) linef(format string, args ...any) { fmt.Fprintf(w.out, format+"\n", args...) }

// heading begins a section with its own columns.
func (w *printer) heading(text string) { fmt.Fprintf(w.out, "\n%s\n", text) }

func (w *printer) list(heading string, items []string) {
	if len(items) == 0 {
		return
	}
	w.heading(heading)
	for _, item := range items {
		w.linef("  - %s", item)
	}
}

func (w *printer) interceptors(s Story, wide bool) {
	w.heading("Interceptors")
	if len(s.Interceptors) == 0 {
		w.linef("  none")
	}
	// Lines between the rows would end the columns of a tabwriter.
	name, state := 0, 0
	for _, i := range s.Interceptors {
		name, state = max(name, len(i.Name)), max(state, len(i.State))
	}
	for position, i := range s.Interceptors {
		w.linef("  %d  %-*s  %-*s  %s", position+1, name, i.Name, state, i.State, i.Source)
		if said := w.said(i); said != "" {
			w.linef("     %s", said)
		}
		for _, t := range i.Responders {
			line := t.Name + " " + string(t.State)
			if said := w.said(Reported(t)); said != "" {
				line += ", " + said
			}
			w.linef("     - %s", line)
		}
		if wide && len(i.ServiceAccounts) > 0 {
			w.linef("     acted by %s", strings.Join(i.ServiceAccounts, ", "))
		}
	}
}

// Reported is what a native responder reported, as an interceptor of ours would.
func Reported(t turns.Turn) Interceptor {
	return Interceptor{Name: t.Name, State: string(t.State), Since: t.Since, Heard: t.Heard, Expected: t.Expected, Completed: t.Completed, Message: t.Message}
}

// said is what the interceptor reported, in one line.
func (w *printer) said(i Interceptor) string {
	var parts []string
	age := func(what string, t *time.Time) {
		if t != nil {
			parts = append(parts, what+" "+duration.HumanDuration(w.now.Sub(*t))+" ago")
		}
	}
	switch {
	case i.Completed != nil:
		age("ended", i.Completed)
	case i.State == stateActive:
		age("got its turn", i.Since)
		age("heard", i.Heard)
		if i.Expected != nil && i.Expected.After(w.now) {
			parts = append(parts, "done in "+duration.HumanDuration(i.Expected.Sub(w.now)))
		}
	}
	if i.Message != "" {
		parts = append(parts, fmt.Sprintf("%q", strings.TrimSpace(i.Message)))
	}
	return strings.Join(parts, ", ")
}
