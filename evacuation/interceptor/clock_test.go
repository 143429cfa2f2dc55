package interceptor

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	apply "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
)

func TestTheServersClockIsLearntFromItsAnswers(t *testing.T) {
	t.Parallel()
	noon := at(0)
	date := func(ahead time.Duration) string { return noon.Add(ahead).Format(http.TimeFormat) }
	cases := map[string]struct {
		// dates are those of the answers, each of which takes so long.
		dates []string
		takes time.Duration
		want  time.Duration
	}{
		"no answer yet":                     {},
		"the same time":                     {dates: []string{date(0)}},
		"a difference that may be the way":  {dates: []string{date(3 * time.Second)}},
		"this machine is behind":            {dates: []string{date(25 * time.Second)}, want: 26 * time.Second},
		"this machine is ahead":             {dates: []string{date(-time.Hour)}, want: -time.Hour},
		"an answer that was slow":           {dates: []string{date(25 * time.Second)}, takes: 21 * time.Second, want: 15 * time.Second},
		"one so slow that it tells nothing": {dates: []string{date(25 * time.Second)}, takes: 23 * time.Second},
		"no date":                           {dates: []string{""}},
		"one that cannot be read":           {dates: []string{"yesterday"}},
		"it does not tremble":               {dates: []string{date(25 * time.Second), date(28 * time.Second)}, want: 26 * time.Second},
		"it follows":                        {dates: []string{date(25 * time.Second), date(30 * time.Second)}, want: 31 * time.Second},
		"the clock of this machine was set": {dates: []string{date(time.Hour), date(-time.Second)}, want: -time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			local := testingclock.NewFakeClock(noon)
			server := &ServerClock{}
			for _, date := range tc.dates {
				trip := server.Wrap(transport(func(*http.Request) (*http.Response, error) {
					local.Step(tc.takes)
					return &http.Response{Header: http.Header{"Date": {date}}, Body: http.NoBody}, nil
				}), local)
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := trip.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				if err := resp.Body.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if got := server.Offset(); got != tc.want {
				t.Errorf("offset %s, want %s", got, tc.want)
			}
		})
	}
}

// invalidError is what the API server says to a report with a wrong time.
func invalidError() error {
	return apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("EvictionRequest").GroupKind(), "uid-1", nil)
}

func TestSDKReportsByTheServersClock(t *testing.T) {
	t.Parallel()
	const off = time.Hour
	c := &fakeCluster{cached: newRequest().Obj(), stored: newRequest().Obj()}
	var told []Target
	r := newBench(t, c, evacuateFunc(func(_ context.Context, target Target) (Progress, error) {
		told = append(told, target)
		return Progress{Message: "copying", ExpectedFinishTime: at(700)}, nil
	}))
	r.ServerClock = &ServerClock{}
	c.refuse = func(report *apply.InterceptorStatusApplyConfiguration) error {
		r.ServerClock.learn(at(100).Add(off).Format(http.TimeFormat), at(101), at(101))
		if report.StartTime.Time.Before(at(100).Add(off - 10*time.Second)) {
			return invalidError()
		}
		return nil
	}
	for range 2 {
		result, err := mustLook(t, r)
		if err != nil {
			t.Fatal(err)
		}
		if result.RequeueAfter != 3*time.Minute {
			t.Errorf("it comes back after %s, want 3m0s", result.RequeueAfter)
		}
	}
	var reported []time.Duration
	for _, report := range c.applied {
		reported = append(reported, report.StartTime.Sub(at(100)), report.HeartbeatTime.Sub(at(100)), report.ExpectedFinishTime.Sub(at(100)))
	}
	if diff := cmp.Diff([]time.Duration{off, off, off + 10*time.Minute}, reported); diff != "" {
		t.Errorf("start, heartbeat and end that were reported (-want +got):\n%s", diff)
	}
	if len(c.events) != 1 || len(told) != 2 || !told[1].StartedAt.Equal(at(100)) {
		t.Errorf("events %v, told %+v; want one of the start, at 100 by its own clock", c.events, told)
	}
}

// tellingReader is an API server whose answers to reads tell the time.
type tellingReader struct {
	cachedReader
	tell func()
}

func (s tellingReader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	s.tell()
	return s.cachedReader.Get(ctx, key, obj, opts...)
}

func TestSDKAsksForTheTimeWhenItsOwnHeartbeatLiesAhead(t *testing.T) {
	t.Parallel()
	er := newRequest().Started(ourName, at(2000)).Obj()
	c := &fakeCluster{cached: er, stored: er}
	r := newBench(t, c, evacuateFunc(func(context.Context, Target) (Progress, error) { return Progress{}, nil }))
	r.ServerClock = &ServerClock{}
	r.live = tellingReader{cachedReader{er: &c.stored}, func() {
		r.ServerClock.learn(at(2300).Format(http.TimeFormat), at(100), at(101))
	}}
	if _, err := mustLook(t, r); err != nil {
		t.Fatal(err)
	}
	if len(c.applied) != 1 || c.applied[0].HeartbeatTime.Time.Before(at(2290)) {
		t.Errorf("reports %+v, want a heartbeat at once, by the API server's clock", c.applied)
	}
}

func TestSDKSaysInTheRequestThatReportsAreRefused(t *testing.T) {
	t.Parallel()
	working := Progress{Message: "copying"}
	for name, tc := range map[string]struct {
		progress Progress
		refusal  error
		message  string
		want     int
	}{
		"its times are wrong":       {working, invalidError(), "", 1},
		"so is its completion":      {Progress{Done: true}, invalidError(), "", 1},
		"it has been said":          {working, invalidError(), refusedReport + "as it was", 0},
		"it may not report at all":  {working, apierrors.NewForbidden(v1alpha1.Resource("evictionrequests"), "uid-1", nil), "", 0},
		"a fault of the API server": {working, apierrors.NewInternalError(context.DeadlineExceeded), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			er := newRequest().Obj()
			er.Status.Interceptors[0].Message = tc.message
			c := &fakeCluster{cached: er, stored: er}
			c.refuse = func(report *apply.InterceptorStatusApplyConfiguration) error {
				if report.StartTime != nil || report.CompletionTime != nil {
					return tc.refusal
				}
				return nil
			}
			r := newBench(t, c, evacuateFunc(func(context.Context, Target) (Progress, error) { return tc.progress, nil }))
			if _, err := mustLook(t, r); err == nil {
				t.Error("no error, so that it would not try again")
			}
			if len(c.applied) != tc.want {
				t.Fatalf("reports %+v, want %d", c.applied, tc.want)
			}
			for _, report := range c.applied {
				if !strings.HasPrefix(*report.Message, refusedReport) || report.HeartbeatTime != nil {
					t.Errorf("report %+v, want the message alone", report)
				}
			}
		})
	}
}
