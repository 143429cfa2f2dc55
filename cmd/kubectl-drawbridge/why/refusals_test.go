package why

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/refusals"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	writes "github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/test/framework/golden"
	"github.com/drawbridge-dev/drawbridge/translate"
)

const noQuota = "exceeded quota: none, used: count/evictionrequests.drawbridge.dev=0, limited: 0"

// refusedAt has the event of a refusal.
func refusedAt(write writes.Write, cause writes.Cause, when time.Time) func(*Facts) {
	return withEvent(events.WriteRefused(string(cause), write.Action(), write.Doing(), noQuota), when)
}

// acceptedAt has the event of its end.
func acceptedAt(write writes.Write, when time.Time) func(*Facts) {
	return withEvent(events.WriteAccepted(write.Action(), write.Doing()), when)
}

func withEvent(e events.Event, when time.Time) func(*Facts) {
	return func(f *Facts) {
		f.Events = append(f.Events, eventsv1.Event{Type: e.Type, Reason: e.Reason, Action: e.Action, Note: e.Note, EventTime: metav1.NewMicroTime(when)})
	}
}

// requestDryRun is a dry run of the request.
func requestDryRun(refusal *refusals.Refusal) func(*Facts) {
	return func(f *Facts) { f.RequestDryRun, f.RequestTried = refusal, true }
}

func TestWritesThatTheClusterRefuses(t *testing.T) {
	const (
		byQuota     = "429: Eviction could not be coordinated yet: a quota of the namespace refuses the request, retry"
		notAsked    = "429: Eviction triggered evacuation: accepted, the pod's interceptors come first"
		quotaNote   = "Drawbridge cannot write the guard's PodDisruptionBudget: a quota of the namespace refuses it: " + noQuota + ". It is tried again, at least every five minutes. Raise the quota, or remove the limit: kubectl get resourcequotas -n shop."
		requestNote = "Drawbridge cannot write the EvictionRequest: a quota of the namespace refuses it: " + noQuota + ". It is tried again, at least every five minutes. Raise the quota, or remove the limit: kubectl get resourcequotas -n shop."
	)
	intercepted := func(change ...func(*Facts)) Facts {
		return facts(pod().Interceptors(interA), append([]func(*Facts){answering(warned)}, change...)...)
	}
	quota := func(when time.Time) func(*Facts) { return refusedAt(writes.Request, writes.Quota, when) }
	dry := &refusals.Refusal{Write: writes.Request, Cause: writes.Policy, Words: "it has no label team"}
	working := func() func(*Facts) { return with(planned().Active(interA, ago(time.Minute))) }
	cases := map[string]struct {
		facts  Facts
		want   Verdict
		answer string
		notes  []string
	}{
		"the request":                       {intercepted(quota(ago(time.Minute))), VerdictWriteRefused, byQuota, nil},
		"the request, for a second time":    {intercepted(quota(ago(time.Hour)), acceptedAt(writes.Request, ago(time.Minute)), quota(ago(time.Second))), VerdictWriteRefused, byQuota, nil},
		"the request, which is over":        {intercepted(quota(ago(time.Minute)), acceptedAt(writes.Request, ago(time.Minute))), VerdictWouldIntercept, notAsked, nil},
		"the lease of the caller":           {intercepted(refusedAt(writes.Lease, writes.Webhook, ago(time.Minute))), VerdictWriteRefused, "429: Eviction could not be coordinated yet: an admission webhook refuses the lease of the caller, retry", nil},
		"a dry run of the request":          {intercepted(requestDryRun(dry)), VerdictWriteRefused, "429: Eviction could not be coordinated yet: an admission policy refuses the request, retry", nil},
		"none, says a dry run":              {intercepted(requestDryRun(nil)), VerdictWouldIntercept, notAsked, nil},
		"the request, and another denies":   {intercepted(quota(ago(time.Minute)), answering(foretold("429: Eviction not possible: the machine cannot move"))), VerdictWouldIntercept, "429: Eviction not possible: the machine cannot move", []string{requestNote}},
		"the request, which exists":         {intercepted(working(), quota(ago(time.Hour))), VerdictInterceptorWorks, notAsked, nil},
		"to join the request":               {intercepted(working(), quota(ago(time.Minute))), VerdictInterceptorWorks, notAsked, []string{requestNote}},
		"the guard's budget":                {intercepted(working(), refusedAt(writes.GuardBudget, writes.Quota, ago(time.Minute))), VerdictInterceptorWorks, notAsked, []string{quotaNote}},
		"the guard's budget, made since":    {intercepted(working(), refusedAt(writes.GuardBudget, writes.Quota, ago(time.Minute)), withGuardOf(ago(time.Second))), VerdictInterceptorWorks, notAsked, []string{"The guard is closed"}},
		"the Job of a hook":                 {facts(pod(), with(hookTurn()), withHook(v1alpha1.HookRefused), answering(waits), refusedAt(writes.Job, writes.Quota, ago(time.Minute))), VerdictWaitsForHook, waitsText(), nil},
		"a Job, and the attempt has begun":  {facts(pod(), with(hookTurn()), withHook(v1alpha1.HookRunning), answering(waits), refusedAt(writes.Job, writes.Quota, ago(time.Hour))), VerdictWaitsForHook, waitsText(), nil},
		"nothing that we know the write of": {intercepted(working(), withEvent(events.WriteRefused("Quota", "WriteNothing", "x", "y"), ago(time.Minute))), VerdictInterceptorWorks, notAsked, nil},
		"nothing that we know the cause of": {intercepted(working(), withEvent(events.WriteRefused("Fate", writes.Report.Action(), "x", "y"), ago(time.Minute))), VerdictInterceptorWorks, notAsked, nil},
		"what has ended":                    {facts(pod(), with(planned().Evicted(v1alpha1.ReasonPodDeleted, ago(time.Minute))), refusedAt(writes.Report, writes.Quota, ago(time.Minute))), VerdictNothingBlocks, "evicted", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := Tell(tc.facts)
			if s.Verdict != tc.want || !strings.HasPrefix(s.Answer.Text, tc.answer) {
				t.Errorf("want %s, answer %q, have %s: %s, answer %+v", tc.want, tc.answer, s.Verdict, s.Headline, s.Answer)
			}
			if !slices.EqualFunc(s.Notes, tc.notes, strings.HasPrefix) {
				t.Errorf("notes (-want +got):\n%s", cmp.Diff(tc.notes, s.Notes))
			}
		})
	}
}

// waitsText is the answer that waits foretells.
func waitsText() string {
	text, _ := translate.DryRunAnswer(waits.Warnings)
	return text
}

// withGuardOf has the guard's budget, made then.
func withGuardOf(made time.Time) func(*Facts) {
	return func(f *Facts) {
		budget := guard()
		budget.CreationTimestamp = metav1.NewTime(made)
		f.Budgets = append(f.Budgets, budget)
	}
}

func TestAStoryOfARefusedRequest(t *testing.T) {
	f := facts(pod().Interceptors(interA), answering(warned), refusedAt(writes.Request, writes.Quota, ago(3*time.Minute)), requestDryRun(nil))
	var text strings.Builder
	if err := Print(&text, Tell(f), now, false); err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "why-refused.golden.txt", text.String())
}
