package refusals

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

func TestTheNewestEventOfAWriteDecides(t *testing.T) {
	noon := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	event := func(e events.Event, seconds int) eventsv1.Event {
		return eventsv1.Event{Reason: e.Reason, Action: e.Action, Note: e.Note, EventTime: metav1.NewMicroTime(at(seconds))}
	}
	no := func(write refused.Write, cause refused.Cause, words string, seconds int) eventsv1.Event {
		return event(events.WriteRefused(string(cause), write.Action(), write.Doing(), words), seconds)
	}
	yes := func(write refused.Write, seconds int) eventsv1.Event {
		return event(events.WriteAccepted(write.Action(), write.Doing()), seconds)
	}
	cases := map[string]struct {
		events []eventsv1.Event
		want   []Refusal
	}{
		"none":                     {events: []eventsv1.Event{{Reason: "Evicted", Action: "Evict"}}},
		"one":                      {[]eventsv1.Event{no(refused.Job, refused.Quota, "exceeded quota: a", 1)}, []Refusal{{refused.Job, refused.Quota, "exceeded quota: a", at(1)}}},
		"it is over":               {events: []eventsv1.Event{yes(refused.Job, 2), no(refused.Job, refused.Quota, "x", 1)}},
		"it is over at once":       {events: []eventsv1.Event{yes(refused.Job, 1), no(refused.Job, refused.Quota, "x", 1)}},
		"it was over once":         {[]eventsv1.Event{yes(refused.Job, 2), no(refused.Job, refused.Policy, "y", 3)}, []Refusal{{refused.Job, refused.Policy, "y", at(3)}}},
		"by one, then by another":  {[]eventsv1.Event{no(refused.Job, refused.Policy, "y", 3), no(refused.Job, refused.Quota, "x", 2)}, []Refusal{{refused.Job, refused.Policy, "y", at(3)}}},
		"two writes, in our order": {[]eventsv1.Event{no(refused.Job, refused.Quota, "x", 1), no(refused.Lease, refused.Quota, "y\x1b[31m", 2), yes(refused.Report, 3)}, []Refusal{{refused.Lease, refused.Quota, "y", at(2)}, {refused.Job, refused.Quota, "x", at(1)}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Of(tc.events, func(e *eventsv1.Event) time.Time { return e.EventTime.Time })
			for i := range got {
				got[i].Words = strings.TrimSuffix(got[i].Words, "[31m")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("refusals (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEachCauseHasARemedy(t *testing.T) {
	seen := map[string]refused.Cause{}
	for _, cause := range refused.Causes() {
		remedy := Refusal{Cause: cause}.Remedy("shop")
		if other, ok := seen[remedy]; ok {
			t.Errorf("%s and %s have the same: %s", cause, other, remedy)
		}
		seen[remedy] = cause
	}
}

func TestDryRunsOfWrites(t *testing.T) {
	resource := schema.GroupResource{Group: "drawbridge.dev", Resource: "evictionrequests"}
	forbidden := func(words string) error { return apierrors.NewForbidden(resource, "uid", errors.New(words)) }
	policy := func(name string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusUnprocessableEntity, Message: "ValidatingAdmissionPolicy '" + name + "' with binding 'b' denied request: no"}}
	}
	cases := map[string]struct {
		err error
		// labels: only those are refused.
		labels bool
		want   refused.Cause
		failed bool
	}{
		"it is accepted":             {},
		"it exists":                  {err: apierrors.NewAlreadyExists(resource, "uid")},
		"a quota":                    {err: forbidden("exceeded quota: none"), want: refused.Quota},
		"a policy":                   {err: policy("labels.example.com"), want: refused.Policy},
		"a policy about labels":      {err: policy("labels.example.com"), labels: true},
		"a policy of ours":           {err: policy("evictionrequest-authorization.drawbridge.dev"), failed: true},
		"a webhook":                  {err: apierrors.NewInternalError(errors.New(`failed calling webhook "w.example.com": refused`)), want: refused.Webhook},
		"the user may not create it": {err: forbidden(`User "olga" cannot create resource "evictionrequests"`), failed: true},
		"an outage":                  {err: errors.New("connection refused"), failed: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(cli.Scheme).Build(), interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, object client.Object, opts ...client.CreateOption) error {
					if o := (&client.CreateOptions{}).ApplyOptions(opts); len(o.DryRun) == 0 {
						t.Error("it is no dry run")
					}
					if tc.labels && len(object.GetLabels()) == 0 {
						return nil
					}
					return tc.err
				},
			})
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: "uid", Labels: map[string]string{"app": "db"}}}
			got, err := TryRequest(t.Context(), c, pod)
			cause := refused.Cause("")
			if got != nil {
				cause = got.Cause
			}
			if cause != tc.want || (err != nil) != tc.failed {
				t.Errorf("%+v, %v, want %q", got, err, tc.want)
			}
		})
	}
}
