package webhook

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// blocked is a body of which nothing comes until it is opened.
type blocked struct {
	io.Reader
	waiting *atomic.Int32
	open    chan struct{}
}

func (b *blocked) Read(p []byte) (int, error) {
	b.waiting.Add(1)
	<-b.open
	return b.Reader.Read(p)
}

// Large bodies of API servers have a bound together, and others do not wait for them.
func TestLargeBodiesHaveABound(t *testing.T) {
	w := newWorld(t, db0().Obj(), n1().Obj())
	d := newGuardedMux(w)
	large := reviewOf(raw(`{"metadata":{"annotations":{"x":"` + strings.Repeat("x", maxObject) + `"}}}`))
	path := EvictionPath + "/" + goodToken
	waiting, open := &atomic.Int32{}, make(chan struct{})
	const fit = maxBodies / (maxObject + 1<<10)
	answers := make(chan *httptest.ResponseRecorder, fit)
	post := func() {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, path, &blocked{Reader: bytes.NewReader(large), waiting: waiting, open: open})
		r.ContentLength = int64(len(large))
		got := httptest.NewRecorder()
		d.mux.ServeHTTP(got, r)
		answers <- got
	}
	for range fit {
		go post()
	}
	for waiting.Load() < fit {
		select {
		case <-t.Context().Done():
			t.Fatal("the large bodies are not read")
		case <-time.After(time.Millisecond):
		}
	}
	answer := answerIn(t, d.post(path, bytes.NewReader(large)))
	if answer.Allowed || answer.UID != "review-1" || !strings.Contains(answer.Result.Message, "too many large calls") {
		t.Errorf("one too many: %+v", answer)
	}
	if small := answerIn(t, d.post(path, bytes.NewReader(reviewOf()))); small.Result == nil || small.Result.Message != textAccepted {
		t.Errorf("a small one: %+v", small)
	}
	close(open)
	for range fit {
		if got := answerIn(t, <-answers); !got.Allowed && got.Result.Code != http.StatusTooManyRequests {
			t.Errorf("a large one: %+v", got)
		}
	}
	if diff := cmp.Diff(int64(0), d.bodies.taken); diff != "" {
		t.Errorf("bytes that are taken in the end (-want +got):\n%s", diff)
	}
}
