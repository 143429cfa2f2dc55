package webhook

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const stranger = "system:serviceaccount:shop:stranger"

// writer makes the status review one of that user.
func writer(user string, before, after *builder.EvictionRequestWrapper) []byte {
	return reviewOf(func(r *admissionv1.AdmissionRequest) {
		*r = *decoded(statusReview(before, after))
		r.UserInfo.Username = user
	})
}

func decoded(body []byte) *admissionv1.AdmissionRequest {
	request, err := decodeReview[admissionv1.AdmissionRequest](body)
	if err != nil {
		panic(err)
	}
	return request
}

// evictable lets IE begin its work.
func evictable() *builder.EvictionRequestWrapper {
	return er().Created(created).Processed(interA, interB).Active(evictor, created)
}

func TestStatusWriters(t *testing.T) {
	message := func(name string) func(*builder.EvictionRequestWrapper) *builder.EvictionRequestWrapper {
		return func(w *builder.EvictionRequestWrapper) *builder.EvictionRequestWrapper {
			return w.Clone().Report(name, func(s *v1alpha1.InterceptorStatus) { s.Message = "50 %" })
		}
	}
	changed := func(change func(*v1alpha1.EvictionRequestStatus)) *builder.EvictionRequestWrapper {
		w := running()
		change(&w.Status)
		return w
	}
	unplanned := builder.EvictionRequest("shop", "db-0", "uid-1").Created(created)
	plannedWithout := unplanned.Clone().Interceptors().Active(evictor, t0)
	completed := running().Completed(interA, t0)
	const (
		ownItem = "status.interceptors[a.example.com]: Forbidden"
		onlyA   = "only " + actorA + " may report for this interceptor, not \"" + stranger + "\""
		ours    = "only Drawbridge may write this, not"
	)
	cases := map[string]struct {
		user          string
		before, after *builder.EvictionRequestWrapper
		want          []string
	}{
		"the account reports":                    {user: actorA, before: running(), after: message(interA)(running())},
		"the account completes":                  {user: actorA, before: running(), after: completed},
		"Drawbridge may do all":                  {user: ownAdmin, before: completed, after: completed.Clone().Processed(interA).Active(interB, t0)},
		"somebody else changes nothing":          {user: stranger, before: running(), after: running()},
		"somebody else reports":                  {user: stranger, before: running(), after: message(interA)(running()), want: []string{ownItem, onlyA, "spec.serviceAccounts of EvictionInterceptor a.example.com"}},
		"somebody else completes":                {user: stranger, before: running(), after: completed, want: []string{ownItem}},
		"somebody else takes a report away":      {user: stranger, before: running(), after: changed(func(s *v1alpha1.EvictionRequestStatus) { s.Interceptors = s.Interceptors[1:] }), want: []string{ownItem}},
		"an interceptor of nobody in particular": {user: stranger, before: er().Created(created).Processed(interA).Active(interB, created), after: message(interB)(er().Created(created).Processed(interA).Active(interB, created))},
		"a condition under our domain":           {user: stranger, before: running(), after: running().Condition("drawbridge.dev/Noted", "Noted", t0), want: []string{"status.conditions[drawbridge.dev/Noted]: Forbidden", ours}},
		"a condition of one's own":               {user: stranger, before: running(), after: running().Condition("example.com/Noted", "Noted", t0)},

		"the account ends its turn by itself":    {user: actorA, before: completed, after: completed.Clone().Processed(interA).Active(interB, t0), want: []string{"status.activeInterceptors: Forbidden", "status.activationTime: Forbidden", "status.processedInterceptors: Forbidden", ours}},
		"somebody else cancels":                  {user: stranger, before: running(), after: running().Canceled(v1alpha1.ReasonNoRequesters, t0), want: []string{"status.conditions[Canceled]: Forbidden", ours}},
		"somebody else says it is done":          {user: stranger, before: running(), after: running().Evicted(v1alpha1.ReasonPodDeleted, t0), want: []string{"status.conditions[Evicted]: Forbidden"}},
		"somebody else sets when the turn began": {user: stranger, before: running(), after: changed(func(s *v1alpha1.EvictionRequestStatus) { s.ActivationTime = at(0) }), want: []string{"status.activationTime: Forbidden"}},
		"somebody else sets a deadline":          {user: stranger, before: running(), after: running().Deadline("spot.example.com", t0), want: []string{"status.deadline: Forbidden", "status.deadlineSource: Forbidden"}},
		"somebody else claims to have observed":  {user: stranger, before: running(), after: changed(func(s *v1alpha1.EvictionRequestStatus) { s.ObservedGeneration = 9 }), want: []string{"status.observedGeneration: Forbidden"}},
		"somebody else moves it to another node": {user: stranger, before: running(), after: running().NodeName("n9"), want: []string{"status.nodeName: Forbidden"}},
		"somebody else paints the table": {user: stranger, before: running(), after: changed(func(s *v1alpha1.EvictionRequestStatus) {
			s.Summary = &v1alpha1.EvictionRequestSummary{State: "Evicted"}
		}), want: []string{"status.summary: Forbidden"}},
		"somebody else plays the last resort": {user: stranger, before: evictable(), after: message(evictor)(evictable()), want: []string{"status.interceptors[imperative-eviction.k8s.io]: Forbidden"}},

		"somebody else plans without it":          {user: stranger, before: unplanned, after: plannedWithout, want: []string{"status.targetInterceptors: Forbidden", "status.activeInterceptors: Forbidden"}},
		"somebody else cancels before the plan":   {user: stranger, before: unplanned, after: unplanned.Clone().Canceled(v1alpha1.ReasonValidationFailed, t0), want: []string{"status.conditions[Canceled]: Forbidden"}},
		"the account plans with itself":           {user: actorA, before: unplanned, after: unplanned.Clone().Interceptors(interA), want: []string{"status.targetInterceptors: Forbidden"}},
		"nobody is registered: it reports":        {user: stranger, before: without(running()), after: without(completed)},
		"29 nobody is registered: it switches":    {user: stranger, before: without(running()), after: without(completed).Processed("x.example.com").Active(interB, t0), want: []string{"status.activeInterceptors: Forbidden", "status.processedInterceptors: Forbidden", ours}},
		"a name one thinks of is not the actor's": {user: interA, before: running(), after: completed, want: []string{ownItem}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			handler := statusHandler(t0)
			handler.Registrations = registered{interA: {actorA}, interB: nil}
			response := answerIn(t, post(handler, writer(tc.user, tc.before, tc.after)))
			if response.Allowed != (len(tc.want) == 0) {
				t.Fatalf("allowed %t: %+v", response.Allowed, response.Result)
			}
			for _, want := range tc.want {
				if !strings.Contains(response.Result.Message, want) {
					t.Errorf("want %q in %q", want, response.Result.Message)
				}
			}
		})
	}
}

// without is a request in which another interceptor stands in A's place.
func without(w *builder.EvictionRequestWrapper) *builder.EvictionRequestWrapper {
	w = w.Clone()
	w.Status.TargetInterceptors[0].Name, w.Status.Interceptors[0].Name = "x.example.com", "x.example.com"
	w.Status.ActiveInterceptors = []string{"x.example.com"}
	return w
}

func TestADenialNamesAFewAccounts(t *testing.T) {
	var many []string
	for i := range 16 {
		many = append(many, fmt.Sprintf("system:serviceaccount:shop:a%d", i))
	}
	handler := statusHandler(t0)
	handler.Registrations = registered{interA: many}
	message := answerIn(t, post(handler, writer(stranger, running(), running().Completed(interA, t0)))).Result.Message
	if !strings.Contains(message, "only "+strings.Join(many[:3], ", ")+" and 13 more may report") {
		t.Errorf("message %q", message)
	}
}

func TestWithoutAccountsAnybodyMayWrite(t *testing.T) {
	for name, registrations := range map[string]registered{
		"no registration of that name": {interB: {actorA}},
		"one that names no accounts":   {interA: nil},
	} {
		handler := statusHandler(t0)
		handler.Registrations = registrations
		if response := answerIn(t, post(handler, writer(stranger, running(), running().Completed(interA, t0)))); !response.Allowed {
			t.Errorf("%s: %s", name, response.Result.Message)
		}
	}
}
