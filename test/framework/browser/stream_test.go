package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// The messages of a stream of server-sent events are counted as the browser gets them.
func TestMessagesOfAStreamAreCounted(t *testing.T) {
	b := ForTest(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/live" {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, "<!doctype html><html lang=en><title>A page</title><p>waiting</p></html>")
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			fmt.Fprint(w, "data: 12345\n\n")
		}
		_ = http.NewResponseController(w).Flush() // The test sees it if nothing came.
		<-r.Context().Done()
	}))
	t.Cleanup(server.CloseClientConnections) // The stream would hold up Close.
	tab := b.Tab(t)
	tab.Open(server.URL)
	Eval[bool](tab, "new EventSource('/live').onmessage = e => document.querySelector('p').innerText += e.data; true")
	tab.Shows("p", "waiting123451234512345")
	tab.until(t, "three messages", func() bool { return len(tab.Messages()) == 3 })
	if m := tab.Messages()[0]; m.Bytes != 5 {
		t.Errorf("the first message has %d bytes", m.Bytes)
	}
}
