package live

import (
	"bufio"
	"context"
	"fmt"
	"html/template"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
)

func fragment(id, text string) Fragment {
	return Fragment{ID: id, HTML: template.HTML(fmt.Sprintf("<p id=%q>%s</p>", id, text))}
}

func list(id string, children ...Fragment) Fragment {
	return Fragment{ID: id, Before: template.HTML(fmt.Sprintf("<ul id=%q>", id)), After: "</ul>", Children: children}
}

func TestOnlyWhatHasChangedIsSent(t *testing.T) {
	type result struct {
		Changed []string
		Whole   bool
	}
	page := func(f ...Fragment) []Fragment { return f }
	cases := map[string]struct {
		before, now []Fragment
		want        result
	}{
		"nothing was there":           {nil, page(fragment("a", "1")), result{[]string{`<p id="a">1</p>`}, true}},
		"nothing has changed":         {page(fragment("a", "1"), list("l", fragment("b", "2"))), page(fragment("a", "1"), list("l", fragment("b", "2"))), result{}},
		"one of two":                  {page(fragment("a", "1"), fragment("b", "2")), page(fragment("a", "1"), fragment("b", "3")), result{[]string{`<p id="b">3</p>`}, false}},
		"another one":                 {page(fragment("a", "1")), page(fragment("b", "1")), result{[]string{`<p id="b">1</p>`}, true}},
		"another order":               {page(fragment("a", "1"), fragment("b", "2")), page(fragment("b", "2"), fragment("a", "1")), result{[]string{`<p id="b">2</p>`, `<p id="a">1</p>`}, true}},
		"a row":                       {page(list("l", fragment("b", "2"), fragment("c", "3"))), page(list("l", fragment("b", "2"), fragment("c", "4"))), result{[]string{`<p id="c">4</p>`}, false}},
		"a row more":                  {page(list("l", fragment("b", "2"))), page(list("l", fragment("b", "2"), fragment("c", "4"))), result{[]string{`<ul id="l"><p id="b">2</p><p id="c">4</p></ul>`}, false}},
		"the last row is gone":        {page(list("l", fragment("b", "2"))), page(list("l")), result{[]string{`<ul id="l"></ul>`}, false}},
		"rows in another order":       {page(list("l", fragment("b", "2"), fragment("c", "3"))), page(list("l", fragment("c", "3"), fragment("b", "2"))), result{[]string{`<ul id="l"><p id="c">3</p><p id="b">2</p></ul>`}, false}},
		"what stands around the rows": {page(list("l", fragment("b", "2"))), page(Fragment{ID: "l", Before: `<ul id="l" class="x">`, After: "</ul>", Children: []Fragment{fragment("b", "2")}}), result{[]string{`<ul id="l" class="x"><p id="b">2</p></ul>`}, false}},
		"a row of a row":              {page(list("l", list("m", fragment("b", "2")))), page(list("l", list("m", fragment("b", "3")))), result{[]string{`<p id="b">3</p>`}, false}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			changed, whole := Diff(tc.before, tc.now)
			got := result{Whole: whole}
			for _, f := range changed {
				got.Changed = append(got.Changed, string(f.Element()))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("difference (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMessagesAreOneEventEach(t *testing.T) {
	got := message([]Fragment{fragment("a", "1")}, []Fragment{fragment("a", "two\nlines\r\rand\r\n\r\nevent: forged")}, false)
	want := "event: update\ndata: <template><p hx-swap-oob=\"true\" id=\"a\">two\ndata: lines\ndata: \ndata: and\ndata: \ndata: event: forged</p></template>\n\n" //nolint:dupword // Each line has its field.
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	if got := message([]Fragment{fragment("a", "1")}, []Fragment{fragment("a", "1")}, false); got != "" {
		t.Errorf("nothing has changed, and the message is %q", got)
	}
}

// versions is a source of which the test makes the versions.
type versions struct {
	mu      sync.Mutex
	version uint64
	newer   chan struct{}
}

func (v *versions) now() (uint64, chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.version, v.newer
}

func (v *versions) next() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.version++
	close(v.newer)
	v.newer = make(chan struct{})
}

func (v *versions) wait(ctx context.Context, version uint64) {
	for {
		now, newer := v.now()
		if now != version {
			return
		}
		select {
		case <-newer:
		case <-ctx.Done():
			return
		}
	}
}

func TestAStreamSendsTheWholePageAndThenWhatChanges(t *testing.T) {
	source := &versions{newer: make(chan struct{})}
	rendered := 0
	ended := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stream := &Stream{Clock: clock.RealClock{}, Wait: source.wait, Render: func(context.Context) ([]Fragment, uint64, error) {
			rendered++
			version, _ := source.now()
			return []Fragment{fragment("same", "x"), fragment("version", fmt.Sprint(version))}, version, nil
		}}
		ended <- stream.Serve(w, r)
	}))
	defer server.Close()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // The test ends.
	if got := response.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("the type is %q", got)
	}
	lines := bufio.NewScanner(response.Body)
	next := func() string {
		t.Helper()
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return data
			}
		}
		t.Fatalf("the stream has ended: %v", lines.Err())
		return ""
	}
	if got, want := next(), `<template><main hx-swap-oob="true" id="main" tabindex="-1"><p id="same">x</p><p id="version">0</p></main></template>`; got != want {
		t.Errorf("first %q, want %q", got, want)
	}
	for range 100 { // Many changes are one message.
		source.next()
	}
	for got := ""; !strings.Contains(got, ">100<"); {
		if got = next(); strings.Contains(got, "same") || !strings.Contains(got, `id="version"`) {
			t.Fatalf("then %q, want the changed element", got)
		}
	}
	if rendered >= 100 {
		t.Errorf("the page was rendered %d times for 100 changes in one moment", rendered)
	}
	leave()
	if err := <-ended; err != nil {
		t.Errorf("the browser left, and the stream ended with %v", err)
	}
}

// sent keeps when each message was sent.
type sent struct {
	*httptest.ResponseRecorder

	at []time.Time
}

func (s *sent) Write(text []byte) (int, error) {
	s.at = append(s.at, time.Now())
	n, err := s.ResponseRecorder.Write(text)
	if err != nil {
		return n, fmt.Errorf("record: %w", err)
	}
	return n, nil
}

// The time in here is that of the bubble: no machine is too busy for it.
func TestMessagesKeepThePaceHoweverOftenThingsChange(t *testing.T) {
	const changes, every, pace = 1000, 10 * time.Millisecond, time.Second / 4
	synctest.Test(t, func(t *testing.T) {
		source := &versions{newer: make(chan struct{})}
		ctx, leave := context.WithCancel(t.Context())
		got := &sent{ResponseRecorder: httptest.NewRecorder()}
		stream := &Stream{Clock: clock.RealClock{}, Wait: source.wait, Render: func(context.Context) ([]Fragment, uint64, error) {
			version, _ := source.now()
			return []Fragment{fragment("version", fmt.Sprint(version))}, version, nil
		}}
		ended := make(chan error, 1)
		go func() {
			ended <- stream.Serve(got, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		}()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for range changes {
			<-tick.C
			source.next()
		}
		leave()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for i := 1; i < len(got.at); i++ {
			if gap := got.at[i].Sub(got.at[i-1]); gap < pace || gap > pace+every {
				t.Errorf("message %d came %s after the one before, want %s: not sooner, and what has changed not later", i, gap, pace)
			}
		}
		if len(got.at) < int(changes*every/(pace+every)) {
			t.Errorf("%d messages in %s", len(got.at), changes*every)
		}
	})
}
