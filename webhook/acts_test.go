package webhook

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// registered are registrations by name: the service accounts of each.
type registered map[string][]string

func (r registered) Registration(name string) (registration.Info, bool) {
	accounts, ok := r[name]
	return registration.Info{Name: name, Usernames: accounts}, ok
}

// asActor makes the call one of interceptor A's account.
func asActor(r *admissionv1.AdmissionRequest) {
	r.UserInfo.Username = actorA
	r.Object.Raw = []byte(`{"metadata":{"managedFields":[{"manager":"failover"}]},"deleteOptions":{"preconditions":{"uid":"uid-1"}}}`)
}

// guarded is a world with that request in which A belongs to actorA.
func guarded(t *testing.T, request *builder.EvictionRequestWrapper) *world {
	t.Helper()
	objects := []client.Object{db0().Obj(), n1().Obj()}
	if request != nil {
		objects = append(objects, request.Obj())
	}
	w := newWorld(t, objects...)
	w.handler.Registrations = registered{interA: {actorA}, interB: nil}
	return w
}

func TestTheActiveInterceptorsAccountEvicts(t *testing.T) {
	cases := map[string]struct {
		request *builder.EvictionRequestWrapper
		caller  func(*admissionv1.AdmissionRequest)
		want    string
		calls   []string
	}{
		"in its turn":                         {er().Active(interA, t0), asActor, "allowed", []string{"get EvictionRequest uid-1"}},
		"before the plan is made":             {builder.EvictionRequest("shop", "db-0", "uid-1").UID("er-1").Leased(alice, leaseN1), asActor, textAccepted, nil},
		"after its turn":                      {er().Processed(interA).Active(interB, t0), asActor, `Eviction triggered evacuation: waiting for interceptor "b.example.com" (2 of 3)`, nil},
		"in the imperative stage, like all":   {er().Processed(interA, interB).Active(evictor, t0), asActor, "allowed", nil},
		"not the account of somebody else":    {er().Active(interA, t0), func(r *admissionv1.AdmissionRequest) { asActor(r); r.UserInfo.Username += "er" }, textWaitingA, []string{"get Node n1", "create Lease", "apply EvictionRequest "}},
		"not a person, whatever its own name": {er().Active(interA, t0), func(r *admissionv1.AdmissionRequest) { asActor(r); r.UserInfo.Username = interA }, textWaitingA, []string{"get Node n1", "create Lease", "apply EvictionRequest "}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := guarded(t, tc.request)
			w.wantAnswer(tc.want, tc.caller)
			calls := w.calls()
			for i, call := range calls {
				if len(call) > len("create Lease") && call[:len("create Lease")] == "create Lease" {
					calls[i] = "create Lease"
				}
			}
			if diff := cmp.Diff(tc.calls, calls); diff != "" {
				t.Errorf("API calls (-want +got):\n%s", diff)
			}
		})
	}
}

// What the cache shows may have ended: then an interceptor has no turn any more,
// and its call must not start anew what somebody has just canceled.
func TestAnInterceptorsTurnIsSeenLive(t *testing.T) {
	const late = "Eviction could not be coordinated yet: it is not the turn of the caller's interceptor, retry"
	cases := map[string]struct {
		meanwhile func(w *world, request *v1alpha1.EvictionRequest) error
		want      string
	}{
		"it was passed over": {func(w *world, request *v1alpha1.EvictionRequest) error {
			request.Status = er().Processed(interA).Active(interB, t0).Status
			return w.api.Status().Update(context.Background(), request)
		}, `Eviction triggered evacuation: waiting for interceptor "b.example.com" (2 of 3)`},
		"the request was canceled": {func(w *world, request *v1alpha1.EvictionRequest) error {
			request.Status = er().Processed(interA).Canceled(v1alpha1.ReasonNoRequesters, t0).Status
			return w.api.Status().Update(context.Background(), request)
		}, late},
		"the request was deleted": {func(w *world, request *v1alpha1.EvictionRequest) error {
			return w.api.Delete(context.Background(), request)
		}, late},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := guarded(t, er().Active(interA, t0))
			if err := tc.meanwhile(w, w.request()); err != nil {
				t.Fatal(err)
			}
			before := w.request()
			w.wantAnswer(tc.want, asActor)
			w.wantCalls("get EvictionRequest uid-1")
			if diff := cmp.Diff(before, w.request()); diff != "" {
				t.Errorf("the request changed:\n%s", diff)
			}
		})
	}
}

func TestACanceledRequestRestartsForAnInterceptorsAccountLater(t *testing.T) {
	w := guarded(t, er().Processed(interA).Canceled(v1alpha1.ReasonNoRequesters, t0))
	w.wantAnswer("Eviction could not be coordinated yet: it is not the turn of the caller's interceptor, retry", asActor)
	w.clock.Step(time.Minute)
	w.wantAnswer(textAccepted, asActor)
	if request := w.request(); len(request.Status.Conditions) > 0 {
		t.Errorf("not a new request: %+v", request)
	}
}

func TestWithoutARequestAnInterceptorsAccountIsACallerLikeAnyOther(t *testing.T) {
	w := guarded(t, nil)
	w.wantAnswer(textAccepted, asActor)
	if request := w.request(); request == nil || len(request.Spec.Requesters) != 1 {
		t.Errorf("request %+v", request)
	}
}
