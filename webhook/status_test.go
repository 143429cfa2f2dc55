package webhook

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// created is when the requests of these tests were created.
var created = t0.Add(-time.Hour)

// running is a request whose first interceptor works and reported a minute ago.
func running() *builder.EvictionRequestWrapper {
	return er().Created(created).Active(interA, created).Started(interA, t0.Add(-time.Minute))
}

func at(offset time.Duration) *metav1.Time { return &metav1.Time{Time: t0.Add(offset)} }

// reported is running after a change of A's report.
func reported(change func(*v1alpha1.InterceptorStatus)) *builder.EvictionRequestWrapper {
	return running().Report(interA, change)
}

func statusReview(before, after *builder.EvictionRequestWrapper) []byte {
	encode := func(w *builder.EvictionRequestWrapper) []byte {
		body, err := json.Marshal(w.Obj())
		if err != nil {
			panic(err)
		}
		return body
	}
	return reviewOf(func(r *admissionv1.AdmissionRequest) {
		r.Kind = metav1.GroupVersionKind{Group: "drawbridge.dev", Version: "v1alpha1", Kind: "EvictionRequest"}
		r.Resource = metav1.GroupVersionResource{Group: "drawbridge.dev", Version: "v1alpha1", Resource: "evictionrequests"}
		r.SubResource, r.Operation, r.Name = "status", admissionv1.Update, before.EvictionRequest.Name
		r.Object.Raw, r.OldObject.Raw = encode(after), encode(before)
	})
}

// statusHandler knows of no registrations, and nobody may skip.
func statusHandler(now time.Time) *StatusHandler {
	return &StatusHandler{
		Registrations: registered{}, Skippers: &skippers{}, OwnUsername: ownAdmin,
		Clock: testingclock.NewFakeClock(now), ClockSkew: 10 * time.Second, Log: logr.Discard(),
	}
}

func TestStatusTimes(t *testing.T) {
	fresh := er().Created(created).Active(interA, created)
	start := func(offset time.Duration) *builder.EvictionRequestWrapper {
		return fresh.Clone().Report(interA, func(s *v1alpha1.InterceptorStatus) { s.StartTime, s.HeartbeatTime = at(offset), at(0) })
	}
	const (
		now   = "now is 2026-09-01T12:00:00Z"
		field = "status.interceptors[a.example.com]."
	)
	cases := map[string]struct {
		before, after *builder.EvictionRequestWrapper
		now           time.Time
		want          []string
	}{
		"nothing changes": {before: running(), after: running()},
		"a message only":  {before: running(), after: reported(func(s *v1alpha1.InterceptorStatus) { s.Message = "50 %" })},

		"41 a heartbeat now":                     {before: running(), after: reported(func(s *v1alpha1.InterceptorStatus) { s.HeartbeatTime = at(0) })},
		"41 a heartbeat 9 s ahead":               {before: running(), after: reported(func(s *v1alpha1.InterceptorStatus) { s.HeartbeatTime = at(9 * time.Second) })},
		"41 a heartbeat 10 s ahead":              {before: running(), after: reported(func(s *v1alpha1.InterceptorStatus) { s.HeartbeatTime = at(10 * time.Second) })},
		"41 a heartbeat 11 s ahead":              {before: running(), after: reported(func(s *v1alpha1.InterceptorStatus) { s.HeartbeatTime = at(11 * time.Second) }), want: []string{field + "heartbeatTime", `"2026-09-01T12:00:11Z"`, now, "at most 2026-09-01T12:00:10Z"}},
		"41 a future heartbeat that is there":    {before: reported(func(s *v1alpha1.InterceptorStatus) { s.HeartbeatTime = at(time.Hour) }), after: reported(func(s *v1alpha1.InterceptorStatus) { s.HeartbeatTime = at(time.Hour); s.Message = "x" })},
		"41 every item is looked at, not only A": {before: running(), after: running().Heartbeat(interB, t0.Add(time.Minute)), want: []string{"status.interceptors[b.example.com].heartbeatTime"}},

		"46 a start now":                  {before: fresh, after: start(0)},
		"46 a start 10 s ago":             {before: fresh, after: start(-10 * time.Second)},
		"46 a start 11 s ago":             {before: fresh, after: start(-11 * time.Second), want: []string{field + "startTime", now, "2026-09-01T11:59:50Z to 2026-09-01T12:00:10Z"}},
		"46 a start 11 s ahead":           {before: fresh, after: start(11 * time.Second), want: []string{field + "startTime"}},
		"46 a start of long ago stays":    {before: running(), after: running().Heartbeat(interA, t0)},
		"47 a completion now":             {before: running(), after: running().Completed(interA, t0)},
		"47 a completion 10 s ahead":      {before: running(), after: running().Completed(interA, t0.Add(10*time.Second))},
		"47 a completion 11 s ahead":      {before: running(), after: running().Completed(interA, t0.Add(11*time.Second)), want: []string{field + "completionTime", now}},
		"47 a completion 11 s ago":        {before: running(), after: running().Completed(interA, t0.Add(-11*time.Second)), want: []string{field + "completionTime"}},
		"47 a completion of long ago":     {before: running().Completed(interA, created), after: running().Completed(interA, created).Heartbeat(interA, t0)},
		"48 an end in the future":         {before: running(), after: reported(func(s *v1alpha1.InterceptorStatus) { s.ExpectedFinishTime = at(time.Hour) })},
		"48 an end now":                   {before: running(), after: reported(func(s *v1alpha1.InterceptorStatus) { s.ExpectedFinishTime = at(0) })},
		"48 an end in this very second":   {before: running(), after: reported(func(s *v1alpha1.InterceptorStatus) { s.ExpectedFinishTime = at(0) }), now: t0.Add(900 * time.Millisecond)},
		"48 an end a second ago":          {before: running(), after: reported(func(s *v1alpha1.InterceptorStatus) { s.ExpectedFinishTime = at(-time.Second) }), want: []string{field + "expectedFinishTime", `"2026-09-01T11:59:59Z"`, now}},
		"48 an end that has passed stays": {before: reported(func(s *v1alpha1.InterceptorStatus) { s.ExpectedFinishTime = at(-time.Hour) }), after: reported(func(s *v1alpha1.InterceptorStatus) { s.ExpectedFinishTime = at(-time.Hour); s.Message = "late" })},
		"48 an end may be taken back":     {before: reported(func(s *v1alpha1.InterceptorStatus) { s.ExpectedFinishTime = at(-time.Hour) }), after: running()},
		"several problems are all told": {before: fresh, after: fresh.Clone().Report(interA, func(s *v1alpha1.InterceptorStatus) {
			s.StartTime, s.HeartbeatTime, s.ExpectedFinishTime = at(-time.Hour), at(time.Hour), at(-time.Hour)
		}), want: []string{"startTime", "heartbeatTime", "expectedFinishTime"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.now.IsZero() {
				tc.now = t0
			}
			response := answerIn(t, post(statusHandler(tc.now), statusReview(tc.before, tc.after)))
			if response.Allowed != (len(tc.want) == 0) || response.UID != "review-1" {
				t.Fatalf("allowed %t: %+v", response.Allowed, response.Result)
			}
			if response.Allowed {
				return
			}
			if response.Result.Code != http.StatusUnprocessableEntity || response.Result.Reason != metav1.StatusReasonInvalid {
				t.Errorf("code %d, reason %s", response.Result.Code, response.Result.Reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(response.Result.Message, want) {
					t.Errorf("want %q in %q", want, response.Result.Message)
				}
			}
		})
	}
}

func TestStatusReviewsOfSomethingElse(t *testing.T) {
	good := statusReview(running(), running())
	cases := map[string]struct {
		body []byte
		want int32
	}{
		"an eviction":      {reviewOf(), http.StatusForbidden},
		"no old object":    {reviewOf(statusKind, raw(`{}`)), http.StatusForbidden},
		"half an object":   {reviewOf(statusKind, raw(`[]`)), http.StatusForbidden},
		"what it is about": {good, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			answer := answerIn(t, post(statusHandler(t0), tc.body))
			var got int32
			if !answer.Allowed {
				got = answer.Result.Code
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("code of the denial (-want +got):\n%s", diff)
			}
		})
	}
}

func statusKind(r *admissionv1.AdmissionRequest) {
	r.Kind = metav1.GroupVersionKind{Group: "drawbridge.dev", Version: "v1alpha1", Kind: "EvictionRequest"}
}

// Who finds what we trip over must not get past the rules with it.
func TestStatusPanicRefusesTheWrite(t *testing.T) {
	handler := statusHandler(t0)
	handler.Clock = nil
	response := answerIn(t, post(handler, statusReview(running(), running())))
	if response.Allowed || response.Result.Code != http.StatusForbidden {
		t.Errorf("our own bug lets a write through: %+v", response)
	}
}

func FuzzServeStatus(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(statusReview(running(), running().Processed(interA).Active(interB, t0)))
	f.Add(reviewOf(statusKind, raw(`null`), func(r *admissionv1.AdmissionRequest) { r.OldObject.Raw = []byte(`null`) }))
	f.Fuzz(func(t *testing.T, body []byte) {
		switch got := post(statusHandler(t0), body); got.Code {
		case http.StatusBadRequest:
		case http.StatusOK:
			codes := []int32{http.StatusUnprocessableEntity, http.StatusForbidden}
			if response := answerIn(t, got); response.UID == "" || !response.Allowed && !slices.Contains(codes, response.Result.Code) {
				t.Errorf("answer %+v", response)
			}
		default:
			t.Errorf("HTTP status %d", got.Code)
		}
	})
}
