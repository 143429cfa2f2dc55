package live

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

const (
	// Pace is the least time between two messages to a browser.
	Pace = 250 * time.Millisecond
	// ages is how often a page is rendered although nothing has changed, for the ages on it.
	ages = 5 * time.Second
	// alive is how often a silent stream says that it is there: else what is between may
	// close it, and nobody notices that the browser has left.
	alive = 15 * time.Second
	// EventName is that of the messages.
	EventName = "update"
	// MainID is the id of the element that has the fragments.
	MainID = "main"
)

// Stream sends a page's changes to one browser.
type Stream struct {
	Clock clock.WithTicker
	// Render returns the page as it is now, and the version of what it shows.
	Render func(context.Context) (fragments []Fragment, version uint64, err error)
	// Wait returns when there is something newer than the version, or when the context ends.
	Wait func(ctx context.Context, version uint64)
}

// Serve sends until the browser leaves or the context of the request ends. What is slow to
// read gets fewer messages, not a queue: a page is rendered when it can be sent.
func (s *Stream) Serve(w http.ResponseWriter, r *http.Request) error {
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	ctx := r.Context()
	var before []Fragment
	said := s.Clock.Now()
	for first := true; ; first = false {
		now, version, err := s.Render(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // The browser has left, so the rest does not matter.
		case err != nil:
			return fmt.Errorf("render the page: %w", err)
		}
		text := message(before, now, first)
		if text == "" && s.Clock.Since(said) >= alive {
			text = ": still here\n\n"
		}
		if text != "" {
			if _, err := fmt.Fprint(w, text); err != nil {
				return fmt.Errorf("send to the browser: %w", err)
			}
			if err := out.Flush(); err != nil {
				return fmt.Errorf("send to the browser: %w", err)
			}
			said = s.Clock.Now()
		}
		before = now
		if !s.pause(ctx, version) {
			return nil
		}
	}
}

// pause waits for a change, and for at least the Pace. It reports whether the stream goes on.
func (s *Stream) pause(ctx context.Context, version uint64) bool {
	least := s.Clock.After(Pace)
	most := s.Clock.After(ages)
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		s.Wait(waiting, version)
	}()
	select {
	case <-changed:
	case <-most:
	case <-ctx.Done():
		return false
	}
	select {
	case <-least:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// message is the event that brings a browser from before to now; empty if nothing changed.
func message(before, now []Fragment, first bool) string {
	changed, whole := Diff(before, now)
	var html strings.Builder
	switch {
	case whole || first:
		var all strings.Builder
		for _, f := range now {
			all.WriteString(string(f.Element()))
		}
		html.WriteString(mark(template.HTML(`<main id="` + MainID + `" tabindex="-1">` + all.String() + "</main>"))) //nolint:gosec // It is made of HTML only.
	default:
		for _, f := range changed {
			html.WriteString(mark(f.Element()))
		}
	}
	if html.Len() == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("event: " + EventName + "\n")
	// A line break would end the field; browsers also take a lone \r for one.
	for line := range strings.SplitSeq(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(html.String()), "\n") {
		b.WriteString("data: " + line + "\n")
	}
	return b.String() + "\n"
}
