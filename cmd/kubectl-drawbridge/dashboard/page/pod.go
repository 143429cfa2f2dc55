package page

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/live"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
)

// podModel is the page of a pod.
type podModel struct {
	why.Story
	// Active is the interceptor that can be skipped; empty if there is none.
	Active string
	Act    bool
	Node   string
}

// turnRow is an interceptor of the pod.
type turnRow struct {
	ID       string
	Position int
	why.Interceptor
	Said string
	Tone string
	// Natives are the native responders that have their turns here, with what they say.
	Natives []string
}

func renderPod(ctx context.Context, r Request) (Content, error) {
	namespace, name := r.Values["namespace"], r.Values["pod"]
	content := Content{Title: "Pod " + text.Clean(namespace+"/"+name), Section: SectionDrains}
	story, err := r.Backend.Why(ctx, namespace, name)
	if err != nil {
		return content, fmt.Errorf("pod %s of namespace %s: %w", name, namespace, err)
	}
	now := r.Snapshot.Now
	m := podModel{Story: story, Act: !r.ReadOnly && !r.Export, Node: story.Node}
	var rows []live.Fragment
	for i, one := range story.Interceptors {
		row := turnRow{ID: idOf("turn", one.Name), Position: i + 1, Interceptor: one, Said: saidBy(one, now), Tone: toneFaint}
		switch {
		case one.Since != nil && one.Completed == nil:
			row.Tone = toneBusy
			if one.Name != v1alpha1.ImperativeEvictionInterceptor {
				m.Active = one.Name
			}
		case one.Completed != nil:
			row.Tone = toneGood
		}
		for _, t := range one.Responders {
			row.Natives = append(row.Natives, strings.TrimSuffix(text.Clean(t.Name+" "+string(t.State))+", "+saidBy(why.Reported(t), now), ", "))
		}
		rows = append(rows, fragment(row.ID, "turn-row", row))
	}
	content.Fragments = []live.Fragment{
		fragment("story", "story", m),
		tableOf{ID: "turns", Title: "Interceptors, in the order of their turns", Heads: []string{"", "Name", "State", "Source", "Message"}, Empty: "No interceptor has a turn for this pod."}.with(rows),
		fragment("details", "pod-details", struct {
			why.Story
			History []entry
		}{story, entriesOf(story, now)}),
	}
	return content, nil
}

// entry is a line of the history.
type entry struct {
	When *moment
	Text string
}

func entriesOf(s why.Story, now time.Time) []entry {
	var all []entry
	for _, e := range s.History {
		all = append(all, entry{When: momentOf(e.Time, now), Text: e.Text})
	}
	return all
}

// saidBy is what an interceptor reports, in one line.
func saidBy(i why.Interceptor, now time.Time) string {
	said := ""
	add := func(what string) {
		if said != "" {
			said += ", "
		}
		said += what
	}
	ago := func(what string, t *time.Time) {
		if t != nil {
			add(what + " " + duration.HumanDuration(now.Sub(*t)) + " ago")
		}
	}
	switch {
	case i.Completed != nil:
		ago("ended", i.Completed)
	case i.Since != nil:
		ago("got its turn", i.Since)
		ago("heard", i.Heard)
		if i.Expected != nil && i.Expected.After(now) {
			add("done in " + duration.HumanDuration(i.Expected.Sub(now)))
		}
	}
	if i.Message != "" {
		add(text.Clean(i.Message))
	}
	return said
}
