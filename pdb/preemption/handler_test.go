package preemption

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// bench is a handler with a view of its own.
type bench struct {
	*Handler
	clock    *testingclock.FakeClock
	recorder *recorder
	registry *prometheus.Registry
}

func newBench(objects ...client.Object) *bench {
	v, clock := newTestView(false, objects...)
	b := &bench{clock: clock, recorder: &recorder{}, registry: prometheus.NewRegistry()}
	b.Handler = &Handler{
		View: v, Synced: func() bool { return true }, Authenticate: func(*http.Request) error { return nil },
		Recent: NewRecentDecisions(clock), Emitter: NewEmitter(b.recorder, clock), Metrics: metrics.NewPreemption(b.registry),
		Clock: clock, Log: logr.Discard(), Timeout: time.Minute,
	}
	return b
}

func (b *bench) post(tb testing.TB, body []byte) *httptest.ResponseRecorder {
	tb.Helper()
	w := httptest.NewRecorder()
	b.ServeHTTP(w, httptest.NewRequestWithContext(tb.Context(), http.MethodPost, PreemptPath, bytes.NewReader(body)))
	return w
}

func encoded(tb testing.TB, args extenderv1.ExtenderPreemptionArgs) []byte {
	tb.Helper()
	body, err := json.Marshal(args)
	if err != nil {
		tb.Fatal(err)
	}
	return body
}

func big(priority int32) *corev1.Pod {
	return builder.Pod("batch", "big").UID("uid-big").Priority("high", priority).Obj()
}

// question is about two nodes: on node-1 the budget would be violated, on node-2 not.
func question(priority int32, whole bool) extenderv1.ExtenderPreemptionArgs {
	a, b := pod("a").Priority("low", 1).Obj(), pod("b").Priority("low", 1).Label("app", "spare").Node("node-2").Obj()
	if whole {
		return extenderv1.ExtenderPreemptionArgs{Pod: big(priority), NodeNameToVictims: map[string]*extenderv1.Victims{
			"node-1": {Pods: []*corev1.Pod{a}, NumPDBViolations: 1}, "node-2": {Pods: []*corev1.Pod{b}},
		}}
	}
	meta := func(pod *corev1.Pod) []*extenderv1.MetaPod { return []*extenderv1.MetaPod{{UID: string(pod.UID)}} }
	return extenderv1.ExtenderPreemptionArgs{Pod: big(priority), NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{
		"node-1": {Pods: meta(a), NumPDBViolations: 1}, "node-2": {Pods: meta(b)},
	}}
}

func TestTheAnswerToTheScheduler(t *testing.T) {
	known := []client.Object{
		priorityClass("low", "1000"), web(0, "1"),
		pod("a").Priority("low", 1).Obj(), pod("b").Priority("low", 1).Label("app", "spare").Node("node-2").Obj(),
	}
	node1 := &extenderv1.MetaVictims{Pods: []*extenderv1.MetaPod{{UID: "uid-a"}}, NumPDBViolations: 1}
	node2 := &extenderv1.MetaVictims{Pods: []*extenderv1.MetaPod{{UID: "uid-b"}}}
	both := map[string]*extenderv1.MetaVictims{"node-1": node1, "node-2": node2}
	cases := map[string]struct {
		objects []client.Object
		args    extenderv1.ExtenderPreemptionArgs
		want    map[string]*extenderv1.MetaVictims
		result  string
	}{
		"UIDs, below the value":             {known, question(999, false), map[string]*extenderv1.MetaVictims{"node-2": node2}, "restricted"},
		"whole pods, below the value":       {known, question(999, true), map[string]*extenderv1.MetaVictims{"node-2": node2}, "restricted"},
		"whole pods that are not known yet": {known[:2], question(999, true), map[string]*extenderv1.MetaVictims{"node-2": node2}, "restricted"},
		"UIDs that are not known yet":       {known[:2], question(999, false), map[string]*extenderv1.MetaVictims{}, "refused"},
		"UIDs, at the value":                {known, question(1000, false), both, "unchanged"},
		"whole pods, at the value":          {known, question(1000, true), both, "unchanged"},
		"nothing is known":                  {nil, question(999, false), both, "unchanged"},
		"no candidates":                     {known, extenderv1.ExtenderPreemptionArgs{Pod: big(999)}, map[string]*extenderv1.MetaVictims{}, "unchanged"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(tc.objects...)
			w := b.post(t, encoded(t, tc.args))
			if w.Code != http.StatusOK {
				t.Fatalf("HTTP %d: %s", w.Code, w.Body)
			}
			var got extenderv1.ExtenderPreemptionResult
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.NodeNameToMetaVictims); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			b.counted(t, tc.result)
		})
	}
}

// counted checks that one question is counted, with this result.
func (b *bench) counted(t *testing.T, result string) {
	t.Helper()
	if diff := cmp.Diff(map[string]float64{result: 1}, builder.Series(t, b.registry, "drawbridge_preemption_decisions_total")); diff != "" {
		t.Errorf("questions by result (-want +got):\n%s", diff)
	}
}

func TestDroppedNodesAreCounted(t *testing.T) {
	b := newBench(priorityClass("low", "1000"), web(0, "1"), pod("a").Priority("low", 1).Obj())
	b.post(t, encoded(t, question(999, false))) // The pod b is not known.
	want := map[string]float64{"budget": 1, "unknown_victim": 1}
	if diff := cmp.Diff(want, builder.Series(t, b.registry, "drawbridge_preemption_dropped_nodes_total")); diff != "" {
		t.Errorf("dropped nodes by reason (-want +got):\n%s", diff)
	}
}

func TestErrorsAreHTTPErrors(t *testing.T) {
	valid := `{"Pod":{"metadata":{"name":"big","uid":"u"}},"NodeNameToMetaVictims":{}}`
	post := func(body string) *http.Request {
		return httptest.NewRequest(http.MethodPost, PreemptPath, strings.NewReader(body))
	}
	cases := map[string]struct {
		request *http.Request
		change  func(*Handler)
		code    int
		want    string
		result  string
	}{
		"not the scheduler": {
			request: post(valid), change: func(h *Handler) { h.Authenticate = func(*http.Request) error { return errWrongToken } },
			code: http.StatusUnauthorized, want: "wrong token", result: "unauthorized",
		},
		"caches that are not in sync": {
			request: post(valid), change: func(h *Handler) { h.Synced = func() bool { return false } },
			code: http.StatusServiceUnavailable, want: "not in sync",
		},
		"no POST": {request: httptest.NewRequest(http.MethodGet, PreemptPath, nil), code: http.StatusMethodNotAllowed, want: "POST"},
		"time is up": {
			request: post(valid), change: func(h *Handler) { h.Timeout = 0 }, code: http.StatusServiceUnavailable, want: "not done within 0s",
		},
		"a body that breaks off": {
			request: httptest.NewRequest(http.MethodPost, PreemptPath, io.MultiReader(strings.NewReader(`{"Pod":`), brokenReader{})),
			code:    http.StatusRequestTimeout, want: "read body: broken",
		},
		"a body that is too large": {
			request: httptest.NewRequest(http.MethodPost, PreemptPath, io.MultiReader(strings.NewReader(`{"Pod":`), tooLargeReader{})),
			code:    http.StatusRequestEntityTooLarge, want: "too large",
		},
		"an empty body":          {request: post(""), code: http.StatusBadRequest, want: "malformed ExtenderPreemptionArgs"},
		"no JSON":                {request: post("hello"), code: http.StatusBadRequest, want: "invalid character 'h'"},
		"a list":                 {request: post("[]"), code: http.StatusBadRequest, want: "an object is expected"},
		"null":                   {request: post("null"), code: http.StatusBadRequest, want: "null is no object"},
		"an object that is open": {request: post(`{"Pod":{"metadata":{"uid":"u"}}`), code: http.StatusBadRequest, want: "malformed"},
		"something that follows": {request: post(valid + `{}`), code: http.StatusBadRequest, want: "something follows"},
		"no preemptor":           {request: post(`{"NodeNameToMetaVictims":{}}`), code: http.StatusBadRequest, want: "no Pod"},
		"no preemptor but null":  {request: post(`{"Pod":null}`), code: http.StatusBadRequest, want: "no Pod"},
		"a preemptor without a UID": {
			request: post(`{"Pod":{"metadata":{"name":"big"}}}`), code: http.StatusBadRequest, want: "Pod has no metadata.uid",
		},
		"a preemptor that is no pod": {request: post(`{"Pod":{"metadata":7}}`), code: http.StatusBadRequest, want: "Pod: "},
		"a priority that is no number": {
			request: post(`{"Pod":{"metadata":{"uid":"u"},"spec":{"priority":"high"}}}`), code: http.StatusBadRequest, want: "Pod: ",
		},
		"both kinds of victims": {
			request: post(`{"Pod":{"metadata":{"uid":"u"}},"NodeNameToMetaVictims":{"n":{}},"NodeNameToVictims":{"n":{}}}`),
			code:    http.StatusBadRequest, want: "both NodeNameToVictims and NodeNameToMetaVictims",
		},
		"a field twice": {
			request: post(`{"Pod":{"metadata":{"uid":"u"}},"Pod":{"metadata":{"uid":"v"}}}`), code: http.StatusBadRequest, want: "Pod is there twice",
		},
		"a node twice": {
			request: post(`{"Pod":{"metadata":{"uid":"u"}},"NodeNameToMetaVictims":{"n":{},"n":{}}}`),
			code:    http.StatusBadRequest, want: `node "n" is there twice`,
		},
		"a victim without a UID": {
			request: post(`{"Pod":{"metadata":{"uid":"u"}},"NodeNameToMetaVictims":{"n":{"Pods":[{}]}}}`),
			code:    http.StatusBadRequest, want: `a victim on node "n" has no UID`,
		},
		"a whole victim without a UID": {
			request: post(`{"Pod":{"metadata":{"uid":"u"}},"NodeNameToVictims":{"n":{"Pods":[{"metadata":{"name":"x"}}]}}}`),
			code:    http.StatusBadRequest, want: `a victim on node "n" has no UID`,
		},
		"a UID that is no text": {
			request: post(`{"Pod":{"metadata":{"uid":"u"}},"NodeNameToMetaVictims":{"n":{"Pods":[{"UID":7}]}}}`),
			code:    http.StatusBadRequest, want: "UID is no string",
		},
		"victims that are no list": {
			request: post(`{"Pod":{"metadata":{"uid":"u"}},"NodeNameToMetaVictims":{"n":{"Pods":{}}}}`),
			code:    http.StatusBadRequest, want: "an array is expected",
		},
		"a whole victim that is no pod": {
			request: post(`{"Pod":{"metadata":{"uid":"u"}},"NodeNameToVictims":{"n":{"Pods":[7]}}}`),
			code:    http.StatusBadRequest, want: `a victim on node "n"`,
		},
		"very many brackets": {
			request: post(`{"x":` + strings.Repeat("[", 20_000)), code: http.StatusBadRequest, want: "malformed",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench()
			if tc.change != nil {
				tc.change(b.Handler)
			}
			w := httptest.NewRecorder()
			b.ServeHTTP(w, tc.request)
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("HTTP %d: %swant %d: %s", w.Code, w.Body, tc.code, tc.want)
			}
			if tc.result == "" {
				tc.result = "error"
			}
			b.counted(t, tc.result)
		})
	}
}

func TestAPanicIsAnErrorAnswer(t *testing.T) {
	b := newBench()
	b.Authenticate = func(*http.Request) error { panic("boom") }
	w := b.post(t, nil)
	if w.Code != http.StatusInternalServerError {
		t.Errorf("HTTP %d", w.Code)
	}
	if strings.Contains(w.Body.String(), "boom") {
		t.Errorf("the answer tells too much: %s", w.Body)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

type tooLargeReader struct{}

func (tooLargeReader) Read([]byte) (int, error) { return 0, &http.MaxBytesError{Limit: maxBody} }

func TestThePreemptorIsTold(t *testing.T) {
	b := newBench(priorityClass("low", "1000"), web(0, "1"), pod("a").Priority("low", 1).Obj(), pod("b").Priority("low", 1).Label("app", "spare").Node("node-2").Obj())
	ask := func() { b.post(t, encoded(t, question(999, false))) }
	told := event{
		About: "uid-big", Related: "uid-a", Type: "Warning", Reason: "PreemptionNotAllowed", Action: "KeepBudget",
		Note: "Node node-1 is not used: to preempt shop/a, 1 pod of the budget on it, would violate its PodDisruptionBudget shop/web, which allows 0 now; " +
			"only pods of priority 1000 or more may do that, this pod has 999.",
	}
	check := func(what string, want ...event) {
		t.Helper()
		if diff := cmp.Diff(want, b.recorder.events); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		b.recorder.events = nil
	}
	ask()
	check("the first time", told)
	b.clock.Step(repeatEvery - time.Second)
	ask()
	check("again, soon")
	b.clock.Step(time.Second)
	ask()
	check("again, later", told)

	fill(b.View, pod("b").Priority("low", 1).Node("node-2").Obj()) // Of the same budget now.
	ask()
	check("something else, at once")
	b.clock.Step(otherEvery)
	other := told
	other.Note += " 1 more node is not used for such a reason."
	ask()
	check("something else", other)
}

func TestAnUnknownVictimIsTold(t *testing.T) {
	b := newBench(priorityClass("low", "1000"))
	b.post(t, encoded(t, question(999, false)))
	want := []event{{
		About: "uid-big", Type: "Warning", Reason: "PreemptionNotAllowed", Action: "KeepBudget",
		Note: "Node node-1 is not used yet: it is not known whether a pod that would be preempted there may be; " +
			"pods of priority 1000 or more need not wait for that, this pod has 999. 1 more node is not used for such a reason.",
	}}
	if diff := cmp.Diff(want, b.recorder.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestManyPreemptorsAreNotAllTold(t *testing.T) {
	b := newBench(priorityClass("low", "1000"), web(0, "1"), pod("a").Priority("low", 1).Obj())
	for i := range 3 * maxEvents {
		args := question(999, false)
		args.Pod.UID = "uid-" + args.Pod.UID + typesUID(i)
		b.post(t, encoded(t, args))
	}
	if got := len(b.recorder.events); got != maxEvents {
		t.Errorf("%d events, want %d", got, maxEvents)
	}
	b.clock.Step(eventsWindow)
	b.post(t, encoded(t, question(999, false)))
	if got := len(b.recorder.events); got != maxEvents+1 {
		t.Errorf("%d events, want one more", got)
	}
}
