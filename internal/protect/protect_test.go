package protect

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"
)

// bench is a filter before an API server that knows "scraper", who may get /metrics,
// and "visitor", who may not.
type bench struct {
	handler http.Handler
	clock   *testingclock.FakePassiveClock
	asked   []string
	down    error
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{clock: testingclock.NewFakePassiveClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))}
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		b.asked = append(b.asked, "token "+review.Spec.Token)
		if review.Spec.Token == "scraper" || review.Spec.Token == "visitor" {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
				Username: review.Spec.Token, Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}},
			}}
		}
		return true, review, b.down
	})
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		spec := review.Spec
		b.asked = append(b.asked, fmt.Sprintf("%s %v %v %s %s", spec.User, spec.Groups, spec.Extra, spec.NonResourceAttributes.Verb, spec.NonResourceAttributes.Path))
		review.Status.Allowed = spec.User == "scraper" && spec.NonResourceAttributes.Verb == "get"
		return true, review, b.down
	})
	var err error
	b.handler, err = New(client.AuthenticationV1(), client.AuthorizationV1(), b.clock).
		Wrap(logr.Discard(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) get(method, authorization string) int {
	request := httptest.NewRequest(method, "/metrics", nil)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, request)
	return w.Code
}

func TestWhoMayPass(t *testing.T) {
	cases := map[string]struct {
		method, authorization string
		down                  error
		want                  int
		asked                 []string
	}{
		"who has the right":                          {http.MethodGet, "Bearer scraper", nil, http.StatusOK, []string{"token scraper", "scraper [g] map[k:[v]] get /metrics"}},
		"not who has no right":                       {http.MethodGet, "Bearer visitor", nil, http.StatusForbidden, []string{"token visitor", "visitor [g] map[k:[v]] get /metrics"}},
		"not for another verb":                       {http.MethodPut, "Bearer scraper", nil, http.StatusForbidden, []string{"token scraper", "scraper [g] map[k:[v]] put /metrics"}},
		"not a stranger":                             {http.MethodGet, "Bearer x", nil, http.StatusUnauthorized, []string{"token x"}},
		"nobody without a token":                     {http.MethodGet, "", nil, http.StatusUnauthorized, nil},
		"nobody with an empty one":                   {http.MethodGet, "Bearer  ", nil, http.StatusUnauthorized, nil},
		"nobody with a password":                     {http.MethodGet, "Basic scraper", nil, http.StatusUnauthorized, nil},
		"nobody when the API server does not answer": {http.MethodGet, "Bearer scraper", errors.New("boom"), http.StatusServiceUnavailable, []string{"token scraper"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.down = tc.down
			if got := b.get(tc.method, tc.authorization); got != tc.want {
				t.Errorf("code %d, want %d", got, tc.want)
			}
			if diff := cmp.Diff(tc.asked, b.asked); diff != "" {
				t.Errorf("questions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnswersAreRememberedForAWhile(t *testing.T) {
	b := newBench(t)
	for _, step := range []struct {
		after time.Duration
		token string
		want  int
	}{
		{0, "scraper", 2}, {allowedFor, "scraper", 2}, {time.Second, "scraper", 4},
		{0, "visitor", 6}, {deniedFor, "visitor", 6}, {time.Second, "visitor", 8},
	} {
		b.clock.SetTime(b.clock.Now().Add(step.after))
		b.get(http.MethodGet, "Bearer "+step.token)
		if got := len(b.asked); got != step.want {
			t.Errorf("%s after %v more: %d questions so far, want %d", step.token, step.after, got, step.want)
		}
	}
}

func TestStrangersCannotMakeUsAskWithoutLimit(t *testing.T) {
	b := newBench(t)
	codes := map[int]int{}
	for i := range 3 * asksPerSecond {
		codes[b.get(http.MethodGet, fmt.Sprintf("Bearer %d", i))]++
	}
	want := map[int]int{http.StatusUnauthorized: asksPerSecond, http.StatusTooManyRequests: 2 * asksPerSecond}
	if diff := cmp.Diff(want, codes); diff != "" {
		t.Errorf("codes (-want +got):\n%s", diff)
	}
	if len(b.asked) != asksPerSecond {
		t.Errorf("%d questions, want %d", len(b.asked), asksPerSecond)
	}
}
