package webhook

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/drawbridge-dev/drawbridge/internal/certs"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

const goodToken = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// doorway is a door before the webhooks of a world, with what it logs and counts.
type doorway struct {
	*Door
	mux      *http.ServeMux
	clock    *testingclock.FakeClock
	registry *prometheus.Registry
	lines    []string
}

func (d *doorway) Register(path string, handler http.Handler) { d.mux.Handle(path, handler) }

func newDoorway(w *world) *doorway {
	w.t.Helper()
	d := &doorway{mux: http.NewServeMux(), clock: testingclock.NewFakeClock(t0), registry: prometheus.NewRegistry()}
	log := funcr.New(func(_, line string) { d.lines = append(d.lines, line) }, funcr.Options{})
	d.Door = &Door{
		Token: func(_, token string) error {
			switch token {
			case goodToken:
				return nil
			case "":
				return certs.ErrNoToken
			default:
				return certs.ErrWrongToken
			}
		},
		Metrics: metrics.NewDoor(d.registry), Clock: d.clock, Log: log,
	}
	deletes := &PodDeleteHandler{Deletions: &verdicts{}, Metrics: metrics.NewPreemption(d.registry), Log: log}
	err := errors.Join(
		Register(d, d.Door, w.handler, statusHandler(t0), &ProbeHandler{Log: log}),
		RegisterPodDeletes(d, d.Door, deletes),
	)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (d *doorway) post(path string, body io.Reader) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	d.mux.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodPost, path+"?timeout=5s", body))
	return w
}

// counting counts what is read of a body.
type counting struct {
	io.Reader
	read int
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read += n
	return n, err
}

// A call without the token is answered, because an API server that has not learnt it yet
// must not take us for broken and let the eviction pass. But nothing is decided, nothing
// is written, and no more is read than the uid.
func TestOnlyAPIServersGetThroughTheDoor(t *testing.T) {
	const unknown = "the webhook does not know this API server yet"
	body := reviewOf(func(r *admissionv1.AdmissionRequest) {
		r.Object.Raw = []byte(`{"x":"` + strings.Repeat("x", maxObject) + `"}`)
	})
	cases := map[string]struct {
		path       string
		certified  error
		wantCode   int32
		wantText   string
		wantCounts string
	}{
		"an eviction with the token":              {path: EvictionPath + "/" + goodToken, wantCode: http.StatusTooManyRequests, wantText: textAccepted},
		"an eviction without one":                 {path: EvictionPath, wantCode: http.StatusTooManyRequests, wantText: unknown, wantCounts: "no-token"},
		"an eviction with a wrong one":            {path: EvictionPath + "/x" + goodToken, wantCode: http.StatusTooManyRequests, wantText: unknown, wantCounts: "wrong-token"},
		"an eviction with the token only":         {path: EvictionPath + "/" + goodToken, certified: errors.New("none"), wantCode: http.StatusTooManyRequests, wantText: unknown, wantCounts: "certificate"},
		"a status without one":                    {path: StatusPath, wantCode: http.StatusTooManyRequests, wantText: unknown, wantCounts: "no-token"},
		"the probe, which would prove nothing":    {path: ProbePath, wantCode: http.StatusTooManyRequests, wantText: unknown, wantCounts: "no-token"},
		"a call before the manager wrote a path":  {path: "/", wantCode: http.StatusTooManyRequests, wantText: unknown, wantCounts: "no-token"},
		"a deletion of the scheduler's, as ever":  {path: PodDeletePath, wantCounts: "no-token"},
		"a status with the token of another path": {path: StatusPath + "/1", wantCode: http.StatusTooManyRequests, wantText: unknown, wantCounts: "wrong-token"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, db0().Obj(), n1().Obj())
			d := newDoorway(w)
			if tc.certified != nil {
				d.Certificate = func(*http.Request) error { return tc.certified }
			}
			sent := &counting{Reader: bytes.NewReader(body)}
			response := d.post(tc.path, sent)
			answer := answerIn(t, response)
			if answer.UID != "review-1" {
				t.Errorf("uid %q", answer.UID)
			}
			var code int32
			text := ""
			if !answer.Allowed {
				code, text = answer.Result.Code, answer.Result.Message
			}
			if code != tc.wantCode || !strings.Contains(text, tc.wantText) {
				t.Errorf("answer %d %q, want %d %q", code, text, tc.wantCode, tc.wantText)
			}
			if tc.wantCounts == "" {
				return
			}
			if len(w.calls()) > 0 {
				t.Errorf("API calls: %v", w.calls())
			}
			if sent.read > maxFront {
				t.Errorf("%d bytes of the body were read", sent.read)
			}
			if response.Header().Get("Connection") != "close" {
				t.Error("the connection stays open")
			}
			if got := testutil.ToFloat64(d.Metrics.Turned(tc.wantCounts)); got != 1 {
				t.Errorf("counted %v times as %s", got, tc.wantCounts)
			}
			for _, line := range d.lines {
				if strings.Contains(line, goodToken) {
					t.Errorf("the log has the token: %s", line)
				}
			}
		})
	}
	t.Run("what is no review gets nothing", func(t *testing.T) {
		d := newDoorway(newWorld(t))
		for _, body := range []string{"", "hello", "{}"} {
			if got := d.post(EvictionPath, strings.NewReader(body)); got.Code != http.StatusForbidden {
				t.Errorf("%q: HTTP status %d", body, got.Code)
			}
		}
	})
}

func TestTheLogTellsOfStrangersOnceAMinute(t *testing.T) {
	d := newDoorway(newWorld(t))
	for range 5 {
		d.post(EvictionPath, bytes.NewReader(reviewOf()))
	}
	d.clock.Step(time.Minute)
	d.post(EvictionPath, bytes.NewReader(reviewOf()))
	if len(d.lines) != 2 || !strings.Contains(d.lines[1], `"notTold"=4`) {
		t.Errorf("lines:\n%s", strings.Join(d.lines, "\n"))
	}
}

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
	d := newDoorway(w)
	large := reviewOf(raw(`{"metadata":{"annotations":{"x":"` + strings.Repeat("x", maxObject) + `"}}}`))
	path := EvictionPath + "/" + goodToken
	waiting, open := &atomic.Int32{}, make(chan struct{})
	const fit = roomForBodies / (maxObject + 1<<10)
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
	if diff := cmp.Diff(int64(0), d.taken); diff != "" {
		t.Errorf("room that is taken in the end (-want +got):\n%s", diff)
	}
}
