package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// reviewOf is a kubectl drain's call for db-0, as the API server sends it.
func reviewOf(changes ...func(*admissionv1.AdmissionRequest)) []byte {
	request := &admissionv1.AdmissionRequest{
		UID:         "review-1",
		Kind:        metav1.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"},
		Resource:    metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		SubResource: "eviction",
		Namespace:   "shop", Name: "db-0", Operation: admissionv1.Create,
		UserInfo: authenticationv1.UserInfo{Username: "alice"},
		Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"policy/v1","kind":"Eviction",
			"metadata":{"name":"db-0","namespace":"shop","managedFields":[{"manager":"kubectl","operation":"Update"}]},"deleteOptions":{}}`)},
	}
	for _, change := range changes {
		change(request)
	}
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request,
	})
	if err != nil {
		panic(err)
	}
	return body
}

func raw(object string) func(*admissionv1.AdmissionRequest) {
	return func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(object) }
}

// post sends a body to a handler the way the API server does.
func post(handler http.Handler, body []byte) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodPost, EvictionPath+"?timeout=5s", bytes.NewReader(body)))
	return w
}

// answerIn reads the answer out of an HTTP response, which must be a good one.
func answerIn(t *testing.T, w *httptest.ResponseRecorder) *admissionv1.AdmissionResponse {
	t.Helper()
	if w.Code != http.StatusOK {
		t.Fatalf("HTTP status %d: %s", w.Code, w.Body)
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil {
		t.Fatal(err)
	}
	if review.APIVersion != "admission.k8s.io/v1" || review.Kind != "AdmissionReview" || review.Response == nil {
		t.Fatalf("no review: %s", w.Body)
	}
	return review.Response
}

// What has no uid cannot be answered, and comes from no API server.
func TestWhatIsNoReviewIsRefused(t *testing.T) {
	cases := map[string][]byte{
		"empty":              nil,
		"no JSON":            []byte("hello"),
		"half of it":         reviewOf()[:80],
		"no object":          []byte(`[]`),
		"null":               []byte(`null`),
		"no request":         []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`),
		"no uid":             reviewOf(func(r *admissionv1.AdmissionRequest) { r.UID = "" }),
		"a uid that is none": []byte(`{"request":{"uid":{}}}`),
		"endless nesting":    []byte(strings.Repeat(`{"request":`, 20_000)),
	}
	for name, body := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if got := post(w.handler, body); got.Code != http.StatusBadRequest {
				t.Errorf("HTTP status %d: %s", got.Code, got.Body)
			}
			if len(w.calls()) > 0 {
				t.Errorf("API calls: %v", w.calls())
			}
		})
	}
	t.Run("another method", func(t *testing.T) {
		w := httptest.NewRecorder()
		newWorld(t).handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, EvictionPath, nil))
		if w.Code != http.StatusBadRequest {
			t.Errorf("HTTP status %d", w.Code)
		}
	})
}

// An HTTP error would let the call pass where the failure policy is Ignore, and so
// would an answer with another uid.
func TestWhatCannotBeReadIsDenied(t *testing.T) {
	replace := func(from, to string) []byte { return bytes.Replace(reviewOf(), []byte(from), []byte(to), 1) }
	padded := func(n int) []byte {
		return reviewOf(raw(`{"metadata":{"annotations":{"x":"` + strings.Repeat("x", n) + `"}}}`))
	}
	const (
		textUnreadable = "Eviction could not be coordinated yet: the webhook cannot read the call, retry"
		textTooLarge   = "Eviction could not be coordinated yet: the call is larger than the webhook reads, retry"
	)
	cases := map[string]struct {
		body []byte
		want string
	}{
		"cut off":                        {padded(2000)[:1500], textUnreadable},
		"something after it":             {append(reviewOf(), "{}"...), textUnreadable},
		"another kind":                   {replace("AdmissionReview", "ConversionReview"), textUnreadable},
		"another version":                {replace("admission.k8s.io/v1", "admission.k8s.io/v1beta1"), textUnreadable},
		"no eviction":                    {reviewOf(func(r *admissionv1.AdmissionRequest) { r.Kind.Kind = "Pod" }), textUnreadable},
		"an eviction of another API":     {reviewOf(func(r *admissionv1.AdmissionRequest) { r.Kind.Group = "lifecycle.k8s.io" }), textUnreadable},
		"an eviction of the future":      {reviewOf(func(r *admissionv1.AdmissionRequest) { r.Kind.Version = "v2" }), textUnreadable},
		"no namespace":                   {reviewOf(raw(`{}`), func(r *admissionv1.AdmissionRequest) { r.Namespace = "" }), textUnreadable},
		"no name":                        {reviewOf(raw(`{}`), func(r *admissionv1.AdmissionRequest) { r.Name = "" }), textUnreadable},
		"an object that is none":         {reviewOf(raw(`"db-0"`)), textUnreadable},
		"options of the wrong type":      {reviewOf(raw(`{"deleteOptions":{"gracePeriodSeconds":"soon"}}`)), textUnreadable},
		"nesting without end":            {replace(`"deleteOptions":{}`, `"deep":`+strings.Repeat(`{"a":`, 12_000)+`1`+strings.Repeat(`}`, 12_000)), textUnreadable},
		"all that an API server takes":   {padded(maxObject), "allowed"},
		"a byte more than can be read":   {padded(maxReview - len(padded(0)) + 1), textTooLarge},
		"as large as can be read":        {padded(maxReview - len(padded(0))), "allowed"},
		"much larger than can be read":   {padded(6 * maxObject), textTooLarge},
		"much larger, and not even JSON": {append(reviewOf()[:300], strings.Repeat("x", 6*maxObject)...), textTooLarge},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			answer := answerIn(t, post(w.handler, tc.body))
			got := "allowed"
			if !answer.Allowed {
				got = answer.Result.Message
				if answer.Result.Code != http.StatusTooManyRequests || answer.Result.Details.RetryAfterSeconds != 0 {
					t.Errorf("result %+v", answer.Result)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if answer.UID != "review-1" {
				t.Errorf("uid %q", answer.UID)
			}
		})
	}
}

// A status that cannot be read is refused for good.
func TestAStatusThatCannotBeReadIsDenied(t *testing.T) {
	whole := statusReview(running(), running())
	cases := map[string][]byte{
		"too large":             append(whole[:len(whole)-1], strings.Repeat(" ", maxUpdateReview)...),
		"cut off":               whole[:len(whole)-1],
		"a time that is none":   bytes.Replace(whole, []byte(`"heartbeatTime":"2`), []byte(`"heartbeatTime":"x`), 1),
		"of another kind":       bytes.Replace(whole, []byte(`"EvictionRequest"`), []byte(`"Pod"`), 1),
		"with no object before": bytes.Replace(whole, []byte(`"oldObject"`), []byte(`"older"`), 1),
	}
	for name, body := range cases {
		t.Run(name, func(t *testing.T) {
			answer := answerIn(t, post(statusHandler(t0), body))
			if answer.Allowed || answer.UID != "review-1" || answer.Result.Code != http.StatusForbidden {
				t.Errorf("answer %+v, result %+v", answer, answer.Result)
			}
		})
	}
}

// The handlers for the probe and for deletions by the scheduler have answers of their own.
func TestOtherReviewsThatCannotBeRead(t *testing.T) {
	broken := reviewOf()
	broken = broken[:len(broken)-1]
	probe := answerIn(t, post(&ProbeHandler{Log: logr.Discard()}, broken))
	if probe.Allowed || probe.UID != "review-1" || strings.Contains(probe.Result.Message, failurepolicy.ProbeAnswer) {
		t.Errorf("the probe: %+v", probe)
	}
	deletion := answerIn(t, post(&PodDeleteHandler{Log: logr.Discard()}, broken))
	if !deletion.Allowed || deletion.UID != "review-1" {
		t.Errorf("a deletion by the scheduler, who would go on without us: %+v", deletion)
	}
}

func TestDecodeCall(t *testing.T) {
	base := func(change func(*Call)) Call {
		c := call()
		change(&c)
		return c
	}
	version := func(v string) func(*admissionv1.AdmissionRequest) {
		return func(r *admissionv1.AdmissionRequest) { r.Kind.Version = v }
	}
	cases := map[string]struct {
		body []byte
		want Call
	}{
		"kubectl":               {reviewOf(), call()},
		"v1beta1":               {reviewOf(version("v1beta1")), call()},
		"a dry run in the body": {reviewOf(raw(`{"metadata":{"managedFields":[{"manager":"kubectl"}]},"deleteOptions":{"dryRun":["All"]}}`)), base(func(c *Call) { c.DryRun = true })},
		"a dry run in the URL": {reviewOf(func(r *admissionv1.AdmissionRequest) { r.DryRun = new(bool); *r.DryRun = true }),
			base(func(c *Call) { c.DryRun = true })},
		"preconditions and grace": {
			reviewOf(raw(`{"metadata":{"managedFields":[{"manager":"kubectl"}]},"deleteOptions":{"gracePeriodSeconds":30,"preconditions":{"uid":"uid-1","resourceVersion":"7"}}}`)),
			base(func(c *Call) { c.UID, c.ResourceVersion, c.GracePeriodSeconds = "uid-1", "7", new(int64(30)) })},
		"a negative grace is none": {reviewOf(raw(`{"metadata":{"managedFields":[{"manager":"kubectl"}]},"deleteOptions":{"gracePeriodSeconds":-1}}`)), call()},
		"a body with nothing in it": {reviewOf(raw(`{}`)), base(func(c *Call) {
			c.Caller = translate.Recognize(translate.CallerInput{Username: "alice"})
		})},
		"namespace and name from the object": {
			reviewOf(func(r *admissionv1.AdmissionRequest) { r.Namespace, r.Name = "", "" }), call()},
		"the request's namespace wins": {
			reviewOf(raw(`{"metadata":{"name":"x","namespace":"y","managedFields":[{"manager":"kubectl"}]}}`)), call()},
		"descheduler": {
			reviewOf(raw(`{"metadata":{"annotations":{"requested-by":"sigs.k8s.io/descheduler"}}}`)),
			base(func(c *Call) {
				c.Caller = translate.Recognize(translate.CallerInput{Username: "alice", Annotations: map[string]string{"requested-by": "sigs.k8s.io/descheduler"}})
			})},
		"kubectl in a pod": {
			reviewOf(func(r *admissionv1.AdmissionRequest) {
				r.UserInfo.Extra = map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/pod-name": {"p"}}
			}),
			base(func(c *Call) {
				c.Caller.Class = translate.ClassDrainHelper
			})},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			request, err := decodeReview[evictionReview](tc.body)
			if err != nil {
				t.Fatal(err)
			}
			got, err := decodeCall(request)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("call (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHandlerTimeout(t *testing.T) {
	cases := map[string]struct {
		query string
		want  time.Duration
	}{
		"90% of what is told": {"?timeout=10s", 9 * time.Second},
		"nothing is told":     {"", DefaultTimeout * 9 / 10},
		"nonsense is told":    {"?timeout=soon", DefaultTimeout * 9 / 10},
		"zero is told":        {"?timeout=0s", DefaultTimeout * 9 / 10},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := handlerTimeout(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/"+tc.query, nil)); got != tc.want {
				t.Errorf("want %s, got %s", tc.want, got)
			}
		})
	}
}

func FuzzServeEviction(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte(`{}`))
	f.Add(reviewOf())
	f.Add(reviewOf(raw(`{"deleteOptions":{"dryRun":["All"],"preconditions":{}}}`)))
	f.Add(reviewOf(raw(`null`)))
	f.Add(reviewOf(func(r *admissionv1.AdmissionRequest) { r.RequestKind = &metav1.GroupVersionKind{} }))
	f.Add(bytes.ReplaceAll(reviewOf(), []byte("shop"), []byte("\xff/\x00")))
	w := newWorld(f, db0().Obj())
	f.Fuzz(func(t *testing.T, body []byte) {
		got := post(w.handler, body)
		switch got.Code {
		case http.StatusBadRequest:
		case http.StatusOK:
			if response := answerIn(t, got); response.UID == "" || !response.Allowed && response.Result.Code != http.StatusTooManyRequests {
				t.Errorf("answer %+v", response)
			}
		default:
			t.Errorf("HTTP status %d", got.Code)
		}
	})
}
