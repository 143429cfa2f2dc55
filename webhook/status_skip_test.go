package webhook

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const operator = "alice"

// skippers are the users who may skip, with the namespace and name they were asked
// for last.
type skippers struct {
	users map[string]bool
	err   error
	asked []string
}

func (s *skippers) MaySkip(_ context.Context, user *authenticationv1.UserInfo, namespace, name string) (bool, string, error) {
	s.asked = append(s.asked, user.Username+" "+namespace+"/"+name)
	return s.users[user.Username], "", s.err
}

// skipped is the write by which somebody ends A's turn in a request.
func skipped(w *builder.EvictionRequestWrapper, by string, more ...func(*v1alpha1.InterceptorStatus)) *builder.EvictionRequestWrapper {
	return w.Clone().Report(interA, func(s *v1alpha1.InterceptorStatus) {
		s.CompletionTime, s.SkippedBy, s.Message = at(0), by, "it hangs"
		for _, change := range more {
			change(s)
		}
	})
}

func TestWhoMaySkipAnInterceptor(t *testing.T) {
	const path = "status.interceptors[a.example.com].skippedBy: Forbidden"
	audit := map[string]string{"skipped-interceptor": interA, "skipped-by": operator, "skip-message": "it hangs"}
	asked := []string{operator + " shop/uid-1"}
	silent := er().Created(created).Active(interA, created)
	cases := map[string]struct {
		user          string
		before, after *builder.EvictionRequestWrapper
		may           skippers
		want          []string
		audit         map[string]string
		asked         []string
	}{
		"an operator, though the interceptor belongs to an account": {user: operator, before: running(), after: skipped(running(), operator), audit: audit, asked: asked},
		"an operator, before the interceptor has begun":             {user: operator, before: silent, after: skipped(silent, operator), audit: audit, asked: asked},
		"somebody without the verb":                                 {user: stranger, before: running(), after: skipped(running(), stranger), want: []string{path, `the verb "skip" on resource "evictionrequests" in API group "drawbridge.dev" in the namespace "shop" is needed`}, asked: []string{stranger + " shop/uid-1"}},
		"the interceptor's own account without the verb":            {user: actorA, before: running(), after: skipped(running(), actorA), want: []string{path}, asked: []string{actorA + " shop/uid-1"}},
		"under another name":                                        {user: operator, before: running(), after: skipped(running(), "bob"), want: []string{path, `must be "alice", your own user name, not "bob"`}},
		"with a heartbeat in the interceptor's name":                {user: operator, before: running(), after: skipped(running(), operator, func(s *v1alpha1.InterceptorStatus) { s.HeartbeatTime = at(0) }), want: []string{path, "nothing else"}},
		"with a time that is not now":                               {user: operator, before: running(), after: skipped(running(), operator, func(s *v1alpha1.InterceptorStatus) { s.CompletionTime = at(-time.Hour) }), want: []string{"completionTime: Invalid value"}, asked: asked},
		"and ending the request, too":                               {user: operator, before: running(), after: skipped(running(), operator).Canceled(v1alpha1.ReasonNoRequesters, t0), want: []string{"status.conditions[Canceled]: Forbidden"}, asked: asked},
		"it cannot be found out":                                    {user: operator, before: running(), after: skipped(running(), operator), may: skippers{err: errors.New("no answer")}, want: []string{path, "try again"}, asked: asked},
		"the last interceptor": {
			user: operator, before: evictable(), want: []string{"cannot be skipped: empty spec.requesters to cancel the request"},
			after: evictable().Report(evictor, func(s *v1alpha1.InterceptorStatus) { s.CompletionTime, s.SkippedBy = at(0), operator }),
		},
		"an operator who does not say that it is a skip": {user: operator, before: running(), after: running().Completed(interA, t0), want: []string{"may report for this interceptor"}},
		"the controller afterwards":                      {user: ownAdmin, before: skipped(running(), operator), after: skipped(running(), operator).Processed(interA).Active(interB, t0)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			handler := statusHandler(t0)
			handler.Registrations = registered{interA: {actorA}, interB: nil}
			tc.may.users = map[string]bool{operator: true}
			handler.Skippers = &tc.may
			response := answerIn(t, post(handler, writer(tc.user, tc.before, tc.after)))
			if response.Allowed != (len(tc.want) == 0) {
				t.Fatalf("allowed %t: %+v", response.Allowed, response.Result)
			}
			for _, want := range tc.want {
				if !strings.Contains(response.Result.Message, want) {
					t.Errorf("want %q in %q", want, response.Result.Message)
				}
			}
			if diff := cmp.Diff(tc.audit, response.AuditAnnotations); diff != "" {
				t.Errorf("audit annotations (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.asked, tc.may.asked); diff != "" {
				t.Errorf("asked about (-want +got):\n%s", diff)
			}
		})
	}
}
