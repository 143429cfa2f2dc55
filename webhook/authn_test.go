package webhook

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/drawbridge-dev/drawbridge/internal/certs"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

const goodToken = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// guardedMux serves the webhooks of a world to API servers only, with what is logged and counted.
type guardedMux struct {
	*Authenticator
	bodies   *BodyLimit
	mux      *http.ServeMux
	clock    *testingclock.FakeClock
	registry *prometheus.Registry
	lines    []string
}

func (d *guardedMux) Register(path string, handler http.Handler) { d.mux.Handle(path, handler) }

func newGuardedMux(w *world) *guardedMux {
	w.t.Helper()
	d := &guardedMux{mux: http.NewServeMux(), clock: testingclock.NewFakeClock(t0), registry: prometheus.NewRegistry()}
	log := funcr.New(func(_, line string) { d.lines = append(d.lines, line) }, funcr.Options{})
	d.Authenticator = &Authenticator{
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
		Metrics: metrics.NewWebhookServer(d.registry), Clock: d.clock, Log: log,
	}
	d.bodies = &BodyLimit{Metrics: d.Metrics, Log: log}
	deletes := &PodDeleteHandler{Deletions: &verdicts{}, Metrics: metrics.NewPreemption(d.registry), Log: log}
	err := errors.Join(
		Register(d, d.Authenticator, d.bodies, w.handler, statusHandler(t0), &ProbeHandler{Log: log}),
		RegisterPodDeletes(d, d.Authenticator, d.bodies, deletes),
	)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (d *guardedMux) post(path string, body io.Reader) *httptest.ResponseRecorder {
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
func TestOnlyAPIServersAreAuthenticated(t *testing.T) {
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
			d := newGuardedMux(w)
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
			if got := testutil.ToFloat64(d.Metrics.RejectedFor(tc.wantCounts)); got != 1 {
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
		d := newGuardedMux(newWorld(t))
		for _, body := range []string{"", "hello", "{}"} {
			if got := d.post(EvictionPath, strings.NewReader(body)); got.Code != http.StatusForbidden {
				t.Errorf("%q: HTTP status %d", body, got.Code)
			}
		}
	})
}

func TestUnauthenticatedCallsAreLoggedOnceAMinute(t *testing.T) {
	d := newGuardedMux(newWorld(t))
	for range 5 {
		d.post(EvictionPath, bytes.NewReader(reviewOf()))
	}
	d.clock.Step(time.Minute)
	d.post(EvictionPath, bytes.NewReader(reviewOf()))
	if len(d.lines) != 2 || !strings.Contains(d.lines[1], `"notTold"=4`) {
		t.Errorf("lines:\n%s", strings.Join(d.lines, "\n"))
	}
}
