package failurepolicy

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

const (
	fail   = admissionregistrationv1.Fail
	ignore = admissionregistrationv1.Ignore
)

func TestDecide(t *testing.T) {
	cases := map[string]struct {
		in   input
		want decision
	}{
		"a configuration of somebody else is left alone": {
			input{Present: fail, Trusted: true}, decision{Why: "the webhook configuration says nothing about the failure policy wanted"}},
		"so is one without our webhook": {
			input{Wanted: fail, Trusted: true}, decision{Why: "the webhook configuration says nothing about the failure policy wanted"}},
		"Ignore is set at once, whatever works": {
			input{Wanted: ignore, Present: fail}, decision{Set: ignore}},
		"without the authority Fail waits": {
			input{Wanted: fail, Present: ignore}, decision{Again: retryFirst, Why: "the certificate is not trusted yet"}},
		"with the authority the way is tried": {
			input{Wanted: fail, Present: ignore, Trusted: true}, decision{Prove: true}},
		"Fail waits for an answer": {
			input{Wanted: fail, Present: ignore, Trusted: true, Proof: unreached, Failures: 1},
			decision{Again: retryFirst, Why: "the API server does not reach the webhook"}},
		"longer and longer": {
			input{Wanted: fail, Present: ignore, Trusted: true, Proof: unreached, Failures: 3},
			decision{Again: 4 * retryFirst, Why: "the API server does not reach the webhook"}},
		"but not for ever": {
			input{Wanted: fail, Present: ignore, Trusted: true, Proof: unreached, Failures: 1000},
			decision{Again: retryLongest, Why: "the API server does not reach the webhook"}},
		"proven, Fail is set": {
			input{Wanted: fail, Present: ignore, Trusted: true, Proof: reached}, decision{Set: fail}},
		"Fail once set is tried from time to time": {
			input{Wanted: fail, Present: fail, Trusted: true, Proof: reached}, decision{Again: proveEvery}},
		"and stays when nobody is reached any more": {
			input{Wanted: fail, Present: fail, Trusted: true, Proof: unreached, Failures: 2},
			decision{Again: 2 * retryFirst, Why: "the API server does not reach the webhook"}},
		"and when the authority was lost": {
			input{Wanted: fail, Present: fail}, decision{Again: retryFirst, Why: "the certificate is not trusted yet"}},
		"somebody who sets it back again and again is put right after a pause": {
			input{Wanted: fail, Present: ignore, Trusted: true, Pause: 4 * time.Second}, decision{Again: 4 * time.Second, Why: "somebody else sets the policy, too"}},
		"also who sets Fail": {
			input{Wanted: ignore, Present: fail, Pause: time.Second}, decision{Again: time.Second, Why: "somebody else sets the policy, too"}},
		"Ignore is tried, too, for the metric": {
			input{Wanted: ignore, Present: ignore, Trusted: true}, decision{Prove: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, decide(tc.in)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPauseAfter(t *testing.T) {
	cases := map[string]struct {
		writes int
		since  time.Duration
		want   time.Duration
	}{
		"nothing written yet":                  {0, 0, 0},
		"set once, and set back by a rollback": {1, 0, 0},
		"set back again":                       {2, 500 * time.Millisecond, 1500 * time.Millisecond},
		"and again":                            {4, 0, 4 * retryFirst},
		"but the pause may be over":            {4, time.Minute, 0},
		"for ever":                             {1000, 0, retryLongest},
		"the next day":                         {1000, calmAfter, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, pauseAfter(tc.writes, tc.since)); diff != "" {
				t.Errorf("pause (-want +got):\n%s", diff)
			}
		})
	}
}

// An applier that renders Ignore, and applies it whenever it sees something else, must
// not get an answer each time at once.
func TestWhoSetsThePolicyBackIsAnsweredMoreAndMoreSlowly(t *testing.T) {
	start := time.Now()
	clock := testingclock.NewFakeClock(start)
	conf := configuration("Fail", ignore)
	api := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(conf).Build()
	c := &Controller{
		Client: api, Clock: clock, Name: "drawbridge",
		Trusted: func(context.Context) error { return nil },
		Prove:   func(context.Context) error { return nil },
		Metrics: metrics.NewFailurePolicy(prometheus.NewRegistry()),
	}
	var pauses []time.Duration
	for range 5 {
		before := clock.Now()
		for {
			result, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "drawbridge"}})
			if err != nil {
				t.Fatal(err)
			}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(conf), conf); err != nil {
				t.Fatal(err)
			}
			if *conf.Webhooks[1].FailurePolicy == fail {
				break
			}
			clock.Step(result.RequeueAfter)
		}
		pauses = append(pauses, clock.Since(before))
		back := ignore
		conf.Webhooks[1].FailurePolicy = &back
		if err := api.Update(t.Context(), conf); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]time.Duration{0, 0, 2 * time.Second, 4 * time.Second, 8 * time.Second}, pauses); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
}

func TestWhatAnAnswerProves(t *testing.T) {
	resource := policyv1.Resource("evictions")
	denied := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Message: `admission webhook "probe.drawbridge.dev" denied the request: ` + ProbeAnswer}}
	cases := map[string]struct {
		answer error
		want   string
	}{
		"our answer: reached":                        {denied, ""},
		"no such pod: the call went past us":         {apierrors.NewNotFound(resource, ProbePod), errNotCalled.Error()},
		"an eviction that worked went past us":       {nil, errNotCalled.Error()},
		"a failed call says why":                     {apierrors.NewInternalError(errors.New("connection refused")), "evict drawbridge-webhook-probe as a dry run: Internal error occurred: connection refused"},
		"somebody else's denial proves nothing here": {apierrors.NewForbidden(resource, ProbePod, errors.New("no")), `evict drawbridge-webhook-probe as a dry run: evictions.policy "drawbridge-webhook-probe" is forbidden: no`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := read(tc.answer); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func configuration(wanted string, present admissionregistrationv1.FailurePolicyType) *admissionregistrationv1.ValidatingWebhookConfiguration {
	other := ignore
	conf := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "drawbridge"},
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: "evictionrequest-status.drawbridge.dev", FailurePolicy: &other}, {Name: EvictionWebhook, FailurePolicy: &present}},
	}
	if wanted != "" {
		conf.Annotations = map[string]string{WantedAnnotation: wanted}
	}
	return conf
}

func TestReconcile(t *testing.T) {
	boom := errors.New("connection refused")
	type want struct {
		Policies []admissionregistrationv1.FailurePolicyType
		Proofs   int
		Again    time.Duration
	}
	cases := map[string]struct {
		conf              *admissionregistrationv1.ValidatingWebhookConfiguration
		untrusted, proved error
		lostRace          bool
		want              want
	}{
		"sets Fail when it is proven":                 {conf: configuration("Fail", ignore), want: want{[]admissionregistrationv1.FailurePolicyType{ignore, fail}, 1, proveEvery}},
		"waits while nobody is reached":               {conf: configuration("Fail", ignore), proved: boom, want: want{[]admissionregistrationv1.FailurePolicyType{ignore, ignore}, 1, retryFirst}},
		"asks nobody while it is not trusted":         {conf: configuration("Fail", ignore), untrusted: boom, want: want{[]admissionregistrationv1.FailurePolicyType{ignore, ignore}, 0, retryFirst}},
		"keeps Fail in an outage":                     {conf: configuration("Fail", fail), proved: boom, want: want{[]admissionregistrationv1.FailurePolicyType{ignore, fail}, 1, retryFirst}},
		"repairs what somebody closed":                {conf: configuration("Ignore", fail), want: want{[]admissionregistrationv1.FailurePolicyType{ignore, ignore}, 0, proveEvery}},
		"does not take a word that is none":           {conf: configuration("Never", fail), want: want{[]admissionregistrationv1.FailurePolicyType{ignore, fail}, 0, 0}},
		"is not disturbed by somebody who was faster": {conf: configuration("Fail", ignore), lostRace: true, want: want{[]admissionregistrationv1.FailurePolicyType{ignore, ignore}, 1, proveEvery}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := want{}
			api := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(tc.conf).WithInterceptorFuncs(interceptor.Funcs{
				Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
					if tc.lostRace {
						return apierrors.NewConflict(admissionregistrationv1.Resource("validatingwebhookconfigurations"), obj.GetName(), boom)
					}
					return c.Update(ctx, obj, opts...)
				},
			}).Build()
			c := &Controller{
				Client: api, Clock: testingclock.NewFakeClock(time.Now()), Name: "drawbridge",
				Trusted: func(context.Context) error { return tc.untrusted },
				Prove:   func(context.Context) error { got.Proofs++; return tc.proved },
				Metrics: metrics.NewFailurePolicy(prometheus.NewRegistry()),
			}
			result, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "drawbridge"}})
			if err != nil {
				t.Fatal(err)
			}
			got.Again = result.RequeueAfter
			now := &admissionregistrationv1.ValidatingWebhookConfiguration{}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(tc.conf), now); err != nil {
				t.Fatal(err)
			}
			for _, webhook := range now.Webhooks {
				got.Policies = append(got.Policies, *webhook.FailurePolicy)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("what became of it (-want +got):\n%s", diff)
			}
		})
	}
}

// The configuration is gone while the chart is not installed, and others are not ours.
func TestNoConfigurationIsNoError(t *testing.T) {
	c := &Controller{
		Client: fake.NewClientBuilder().WithScheme(scheme.Scheme).Build(), Name: "drawbridge",
		Metrics: metrics.NewFailurePolicy(prometheus.NewRegistry()),
	}
	for _, name := range []string{"drawbridge", "other"} {
		result, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		if err != nil || result != (reconcile.Result{}) {
			t.Errorf("%s: result %v, error %v", name, result, err)
		}
	}
}

// People may lack the permission; the doctor tells them so.
func TestAForbiddenProbeIsKnownAsSuch(t *testing.T) {
	forbidden := apierrors.NewForbidden(policyv1.Resource("pods"), ProbePod, errors.New("no"))
	if err := read(forbidden); !apierrors.IsForbidden(err) {
		t.Errorf("%v is not known as forbidden", err)
	}
}
