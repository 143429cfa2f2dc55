package webhook

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/evacuation/preflight"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// preflight is a fake that counts.
type askedPreflight struct {
	asked atomic.Int32
	says  func(ctx context.Context, pod *corev1.Pod) (preflight.Verdict, error)
}

func (p *askedPreflight) Preflight(ctx context.Context, pod *corev1.Pod) (preflight.Verdict, error) {
	p.asked.Add(1)
	return p.says(ctx, pod)
}

// always says the same.
func always(outcome preflight.Outcome, text string) *askedPreflight {
	return &askedPreflight{says: func(context.Context, *corev1.Pod) (preflight.Verdict, error) {
		return preflight.Verdict{Outcome: outcome, Text: text}, nil
	}}
}

// broken never says anything.
func broken(err error) *askedPreflight {
	return &askedPreflight{says: func(context.Context, *corev1.Pod) (preflight.Verdict, error) {
		return preflight.Verdict{}, err
	}}
}

// asks answers by name from a map.
func asks(preflights map[string]preflight.Interceptor) func(string) preflight.Interceptor {
	return func(name string) preflight.Interceptor { return preflights[name] }
}

const (
	textNotAsked = "Eviction could not be coordinated yet: an interceptor of the pod could not be asked, retry"
	textNoTime   = "Eviction could not be coordinated yet: there was not enough time, retry"
)

func TestPreflights(t *testing.T) {
	const proceed, allow, deny = preflight.Proceed, preflight.Allow, preflight.Deny
	create := []string{"get Node n1", "create Lease " + leaseN1, "apply EvictionRequest "}
	panics := &askedPreflight{says: func(context.Context, *corev1.Pod) (preflight.Verdict, error) { panic("boom") }}
	cases := map[string]struct {
		a, b      *askedPreflight
		want      string
		wantCalls []string
		// wantAsked is how often A and B were.
		wantAsked []int32
	}{
		"all proceed":                       {a: always(proceed, ""), b: always(proceed, ""), want: textAccepted, wantCalls: create, wantAsked: []int32{1, 1}},
		"one has no say":                    {a: always(proceed, ""), want: textAccepted, wantCalls: create, wantAsked: []int32{1, 0}},
		"one allows, the other has no say":  {a: always(allow, ""), want: textAccepted, wantCalls: create, wantAsked: []int32{1, 0}},
		"all allow, seen live":              {a: always(allow, ""), b: always(allow, ""), want: "allowed", wantCalls: []string{"get Pod db-0"}, wantAsked: []int32{2, 2}},
		"one denies, the next is not asked": {a: always(deny, "its disks are local"), b: always(proceed, ""), want: "its disks are local", wantAsked: []int32{1, 0}},
		"one denies with a text that lies":  {a: always(deny, "Eviction triggered evacuation"), want: `Eviction refused by interceptor "a.example.com", retry later`, wantAsked: []int32{1, 0}},
		"one fails":                         {a: broken(errors.New("boom")), b: always(proceed, ""), want: textNotAsked, wantAsked: []int32{1, 1}},
		"one fails, the other denies":       {a: broken(errors.New("boom")), b: always(deny, "no"), want: "no", wantAsked: []int32{1, 1}},
		"one panics":                        {a: panics, b: always(proceed, ""), want: textNotAsked, wantAsked: []int32{1, 1}},
		"one says something unheard of":     {a: always(42, ""), b: always(allow, ""), want: textNotAsked, wantAsked: []int32{1, 1}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, db0().Obj(), n1().Obj())
			preflights := map[string]preflight.Interceptor{}
			w.handler.Preflights = asks(preflights)
			asked := []int32{0, 0}
			before := []int32{0, 0}
			for i, p := range []*askedPreflight{tc.a, tc.b} {
				if p != nil {
					preflights[[]string{interA, interB}[i]] = p
					before[i] = p.asked.Load()
				}
			}
			w.wantAnswer(tc.want)
			w.wantCalls(tc.wantCalls...)
			for i, p := range []*askedPreflight{tc.a, tc.b} {
				if p != nil {
					asked[i] = p.asked.Load() - before[i]
				}
			}
			if diff := cmp.Diff(tc.wantAsked, asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}

func TestARefusalKeepsTheRulesForAnswers(t *testing.T) {
	w := newWorld(t, db0().Obj(), n1().Obj())
	w.handler.Preflights = asks(map[string]preflight.Interceptor{interA: always(preflight.Deny, "its disks are local")})
	got := answerIn(t, post(w.handler, reviewOf())).Result
	if got.Code != http.StatusTooManyRequests || got.Details.Causes[0].Type != "EvictionRefused" || got.Details.RetryAfterSeconds != 0 {
		t.Errorf("status %+v", got)
	}
	if w.request() != nil || w.lease() != nil || len(w.recorder.take()) > 0 {
		t.Error("something was written")
	}
}

func TestNobodyIsAskedInVain(t *testing.T) {
	asked := always(preflight.Deny, "no")
	world := func(pod *builder.PodWrapper) *world {
		w := newWorld(t, pod.Obj(), n1().Obj())
		w.handler.Preflights = asks(map[string]preflight.Interceptor{interA: asked})
		return w
	}
	w := world(builder.Pod("shop", "db-0").UID("uid-1").Node("n1").Phase(corev1.PodRunning))
	w.wantAnswer("allowed")
	w = world(db0().DaemonSet("d"))
	w.wantAnswer("allowed")
	w = newWorld(t, db0().Obj(), n1().Obj(), er().Active(interA, t0).Obj())
	w.handler.Preflights = asks(map[string]preflight.Interceptor{interA: asked})
	w.wantAnswer(textWaitingA)
	if n := asked.asked.Load(); n > 0 {
		t.Errorf("asked %d times", n)
	}
}

func TestPreflightsInADryRun(t *testing.T) {
	dry := func(r *admissionv1.AdmissionRequest) { r.DryRun = new(true) }
	for want, p := range map[string]*askedPreflight{
		"allowed": always(preflight.Allow, ""),
		"allowed, " + warningOf("db-0", "429: no"): always(preflight.Deny, "no"),
	} {
		w := newWorld(t, db0().Interceptors(interA).Obj(), n1().Obj())
		w.handler.Preflights = asks(map[string]preflight.Interceptor{interA: p})
		w.wantAnswer(want, dry)
		if w.request() != nil || w.lease() != nil {
			t.Error("a dry run wrote something")
		}
	}
}

// A pod is let through only if the interceptors allow it as it is now.
func TestPreflightsAreAskedAboutThePodSeenLive(t *testing.T) {
	w := newWorld(t, db0().Interceptors(interA).Obj(), n1().Obj())
	p := &askedPreflight{says: func(_ context.Context, pod *corev1.Pod) (preflight.Verdict, error) {
		if pod.Labels["migratable"] == "" {
			return preflight.Verdict{Outcome: preflight.Allow}, nil
		}
		return preflight.Verdict{}, nil
	}}
	w.handler.Preflights = asks(map[string]preflight.Interceptor{interA: p})
	w.bind(db0().Interceptors(interA).Label("migratable", "yes"))
	w.wantAnswer(textAccepted)
}

func TestAPreflightThatHangsCostsTheDeadlineAndOneGoroutine(t *testing.T) {
	w := newWorld(t, db0().Obj(), n1().Obj())
	release := make(chan struct{})
	defer close(release)
	hangs := &askedPreflight{says: func(context.Context, *corev1.Pod) (preflight.Verdict, error) {
		<-release
		return preflight.Verdict{Outcome: preflight.Allow}, nil
	}}
	w.handler.Preflights = asks(map[string]preflight.Interceptor{interA: hangs})
	for range 3 {
		got := httptest.NewRecorder()
		w.handler.ServeHTTP(got, httptest.NewRequestWithContext(t.Context(), http.MethodPost, EvictionPath+"?timeout=500ms", strings.NewReader(string(reviewOf()))))
		if message := answerIn(t, got).Result.Message; message != textNoTime {
			t.Errorf("answer %q", message)
		}
	}
	if n := hangs.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// While somebody is asked about the pod of the cache, a call that has read it live asks itself.
func TestWhatIsSaidOfTheCachedPodIsNotForTheLiveOne(t *testing.T) {
	w := newWorld(t, db0().Obj(), n1().Obj())
	began, release, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	p := &askedPreflight{says: func(_ context.Context, pod *corev1.Pod) (preflight.Verdict, error) {
		if pod.Labels["migratable"] == "yes" {
			return preflight.Verdict{Outcome: preflight.Proceed}, nil
		}
		close(began)
		<-release
		return preflight.Verdict{Outcome: preflight.Allow}, nil
	}}
	w.handler.Preflights = asks(map[string]preflight.Interceptor{interA: p})
	cached, live := gathered{}, gathered{}
	cached.Pod, cached.PodSource, cached.Interceptors = db0().Obj(), Cached, []string{interA}
	live.Pod, live.PodSource, live.Interceptors = db0().Label("migratable", "yes").Obj(), Live, []string{interA}
	go func() { ended <- w.handler.ask(context.Background(), &cached) }()
	<-began
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := w.handler.ask(ctx, &live)
	close(release)
	if err := errors.Join(err, <-ended); err != nil {
		t.Fatal(err)
	}
	if got := live.Preflights[0].Verdict.Outcome; got != preflight.Proceed {
		t.Errorf("the answer about the live pod is %v, want %v", got, preflight.Proceed)
	}
}
