package translate_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/golden"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// about is a StatefulSet's pod that alice drains.
var about = translate.Subject{
	Namespace: "shop", Pod: "db-0", PodUID: "5f0c3a0e-0000-4000-8000-000000000001",
	Request: "5f0c3a0e-0000-4000-8000-000000000001", Requester: "alice.users.drawbridge.dev",
}

// refusal is the evictor's report of a refused attempt.
func refusal(reason string, budgets ...string) v1alpha1.InterceptorStatus {
	return v1alpha1.InterceptorStatus{Refusal: &v1alpha1.EvictionRefusal{Reason: reason, Budgets: budgets, Message: "It said no: 17."}}
}

// deletes is the report of one whose pod will be deleted in spite of its budget.
func deletes(budget string) v1alpha1.InterceptorStatus {
	report := refusal("EvictionBlocked", budget)
	report.ExpectedFinishTime = new(metav1.NewTime(time.Date(2026, 12, 1, 22, 30, 0, 0, time.UTC)))
	return report
}

// denials are all the ways we say no, with the longest names there can be.
func denials() map[string]translate.Verdict {
	longest := strings.Repeat("a.", 126) + "z"
	all := map[string]translate.Verdict{
		"accepted":            translate.Accepted(about),
		"waiting":             translate.Waiting(about, "failover.db.example.com", 1, 3),
		"waiting for long":    translate.Waiting(about, longest, 16, 16),
		"the last stage":      translate.LastStage(about, v1alpha1.InterceptorStatus{}, 3),
		"blocked by a budget": translate.LastStage(about, refusal("EvictionBlocked", "web"), 3),
		"by a long budget":    translate.LastStage(about, refusal("EvictionBlocked", longest), 16),
		"budget is passed by": translate.LastStage(about, deletes(longest), 16),
		"by several budgets":  translate.LastStage(about, refusal("SeveralBudgets", "db", longest), 16),
		"by somebody else":    translate.LastStage(about, refusal("WebhookRefuses"), 3),
		"by a late replica":   translate.LastStage(about, refusal("WebhookNotReady"), 3),
		"terminating":         translate.Ending(about, nil),
		"held in its end":     translate.Ending(about, []string{"a.example.com/x", "b.example.com/y"}),
		"held at length":      translate.Ending(about, []string{longest, longest}),
		"restarting":          translate.Restarting(about),
		"held":                translate.Held(about, "example.com/audit"),
		"held by a long name": translate.Held(about, longest),
		"too many requesters": translate.TooManyRequesters(about),
		"replacement 404":     translate.ReplacementNotFound(about, longest, longest),
		"replacement pending": translate.ReplacementNotFound(about, "n1", ""),
		"left":                translate.Left(about, longest),
		"replacement 429":     translate.ReplacementDenied(about),
		"another pod":         translate.OtherPod(about),
		"a changed pod":       translate.PodChanged(about),
		"too many new":        translate.TooManyNew(about),
		"refused":             translate.Refused(about, "vm.example.com", "its disks cannot move"),
		"refused at length":   translate.Refused(about, longest, strings.Repeat("ü ", 300)),
		"refused in silence":  translate.Refused(about, longest, " \n"),
		"refused in lines":    translate.Refused(about, "vm.example.com", "one\ntwo\r\nthree\u2028four"),
		"refused as a budget": translate.Refused(about, "vm.example.com", "Cannot evict pod as it would violate the pod's disruption budget."),
		"refused as running":  translate.Refused(about, "vm.example.com", "no: Eviction triggered evacuation of VMI"),
	}
	for _, reason := range []translate.Reason{
		translate.ReasonNotSynced, translate.ReasonLookupFailed, translate.ReasonWriteFailed, translate.ReasonChanged,
		translate.ReasonDeadline, translate.ReasonInternalError, translate.ReasonOwnCall, translate.ReasonNotItsTurn,
		translate.ReasonPreflightFailed, "no such reason",
	} {
		all["trouble "+string(reason)] = translate.Trouble(about, reason)
	}
	for _, reason := range []translate.Reason{
		translate.ReasonTooLarge, translate.ReasonUnreadable, translate.ReasonBusy, translate.ReasonNotAuthenticated, translate.ReasonDeadline,
		"no such reason",
	} {
		all["unread "+string(reason)] = translate.Undecodable(reason)
	}
	return all
}

func TestDenialsKeepTheRules(t *testing.T) {
	for name, verdict := range denials() {
		t.Run(name, func(t *testing.T) {
			response := verdict.Response("review-1")
			if response.Allowed || response.UID != "review-1" || response.Result == nil {
				t.Fatalf("not a denial of review-1: %+v", response)
			}
			status := response.Result
			wantCode, wantReason := int32(429), metav1.StatusReasonTooManyRequests
			if verdict.Outcome == translate.NotFound {
				wantCode, wantReason = 404, metav1.StatusReasonNotFound
			}
			if verdict.Outcome == translate.Conflict {
				wantCode, wantReason = 409, metav1.StatusReasonConflict
			}
			if status.Code != wantCode || status.Reason != wantReason || status.Status != metav1.StatusFailure {
				t.Errorf("W1: code %d, reason %s, status %s", status.Code, status.Reason, status.Status)
			}
			behind := status.Details.Causes[0].Type == "EvictionRequestInProgress"
			if behind != strings.HasPrefix(status.Message, "Eviction triggered evacuation") {
				t.Errorf("W2: a request stands behind it: %t, text: %s", behind, status.Message)
			}
			words := []string{"disruption budget", "DisruptionBudget"}
			if strings.Contains(name, "budget") && strings.HasPrefix(name, "b") {
				words = []string{"Cannot evict pod", "DisruptionBudget", "17"} // It is to blame, and named.
			}
			for _, word := range words {
				if whole, err := json.Marshal(status); err != nil || strings.Contains(string(whole), word) {
					t.Errorf("W2: blames a budget (%v): %s", err, whole)
				}
			}
			if n := utf8.RuneCountInString(status.Message); n >= 200 || strings.ContainsAny(status.Message, "\n\r") {
				t.Errorf("W3: %d characters in %q", n, status.Message)
			}
			if verdict.Outcome == translate.Deny && (strings.Contains(status.Message, about.Pod) || strings.Contains(status.Message, about.Request)) {
				t.Errorf("W3: names an object: %s", status.Message)
			}
			if len(status.Details.Causes) != 1 || status.Details.Causes[0].Message == "" || status.Details.RetryAfterSeconds != 0 {
				t.Errorf("W4: details %+v", status.Details)
			}
			if len(response.Warnings) > 0 {
				t.Errorf("W5: warnings %q", response.Warnings)
			}
		})
	}
}

func TestDenialMatchesTheGoldenFile(t *testing.T) {
	response := translate.Waiting(about, "failover.db.example.com", 1, 3).Response("review-1")
	got, err := json.MarshalIndent(response, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	golden.Equal(t, "denied.golden.json", string(got))
}

func TestAllowedResponse(t *testing.T) {
	plain := translate.Subject{Namespace: "shop", Pod: "web-0", Requester: "alice.users.drawbridge.dev"}
	cases := map[string]struct {
		verdict translate.Verdict
		want    *admissionv1.AdmissionResponse
	}{
		"a plain pod costs nothing": {
			translate.Allowed(plain, translate.ReasonNoInterceptors),
			&admissionv1.AdmissionResponse{UID: "u", Allowed: true},
		},
		"the imperative stage leaves a trace": {
			translate.Allowed(about, translate.ReasonImperativeStage),
			&admissionv1.AdmissionResponse{UID: "u", Allowed: true, AuditAnnotations: map[string]string{
				"eviction-request": "shop/" + about.Request, "requester": about.Requester, "state": "imperative-stage"}},
		},
		"a dry run of a denial warns": {
			translate.Accepted(about).InDryRun(),
			&admissionv1.AdmissionResponse{UID: "u", Allowed: true, Warnings: []string{"drawbridge: a real eviction of pod shop/db-0 would be answered 429: Eviction triggered evacuation: accepted, the pod's interceptors come first"}, AuditAnnotations: map[string]string{
				"eviction-request": "shop/" + about.Request, "requester": about.Requester, "state": "dry-run"}},
		},
		"a dry run of an allowed call does not": {
			translate.Allowed(plain, translate.ReasonNoInterceptors).InDryRun(),
			&admissionv1.AdmissionResponse{UID: "u", Allowed: true, AuditAnnotations: map[string]string{
				"requester": plain.Requester, "state": "dry-run"}},
		},
		"a dry run of a refusal warns": {
			translate.Refused(plain, "vm.example.com", "no").InDryRun(),
			&admissionv1.AdmissionResponse{UID: "u", Allowed: true, Warnings: []string{"drawbridge: a real eviction of pod shop/web-0 would be answered 429: no"}, AuditAnnotations: map[string]string{
				"requester": plain.Requester, "state": "dry-run"}},
		},
		"so does one during our own trouble": {
			translate.Trouble(plain, translate.ReasonDeadline).InDryRun(),
			&admissionv1.AdmissionResponse{UID: "u", Allowed: true, Warnings: []string{"drawbridge: a real eviction of pod shop/web-0 would be answered 429: Eviction could not be coordinated yet: there was not enough time, retry"}, AuditAnnotations: map[string]string{
				"requester": plain.Requester, "state": "dry-run"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.verdict.Response("u")); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheAnswerInAWarning(t *testing.T) {
	about := translate.Subject{Namespace: "shop", Pod: "db-0"}
	cases := map[string]struct {
		warnings []string
		want     string
	}{
		"none":          {},
		"one of others": {warnings: []string{"policy/v1beta1 would be answered 429: by nobody"}},
		"a denial":      {warnings: []string{"something else", translate.Accepted(about).InDryRun().Warning}, want: "429: " + translate.Accepted(about).Message},
		"a replacement": {
			warnings: []string{translate.ReplacementNotFound(about, "n1", "n2").InDryRun().Warning},
			want:     `404: the pod already left node "n1"; its replacement on node "n2" is not evicted`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got, ok := translate.DryRunAnswer(tc.warnings); got != tc.want || ok != (tc.want != "") {
				t.Errorf("answer %q, %t, want %q", got, ok, tc.want)
			}
		})
	}
}

func TestNoVerdictNeverAllows(t *testing.T) {
	if (translate.Verdict{}).Response("u").Allowed {
		t.Error("the zero verdict lets a call through")
	}
	if got := (translate.Verdict{}).Outcome.String(); got != "none" {
		t.Errorf("the zero outcome is %q", got)
	}
}

func TestTheLastStageSaysWhatItWaitsFor(t *testing.T) {
	text := func(v translate.Verdict) string {
		return strings.TrimPrefix(v.Message, translate.EvacuationTriggered+": ")
	}
	for name, tc := range map[string]struct {
		verdict translate.Verdict
		want    string
	}{
		"no attempt yet":        {translate.LastStage(about, v1alpha1.InterceptorStatus{}, 3), "its interceptors are done, its eviction comes next (3 of 3)"},
		"our own late replica":  {translate.LastStage(about, refusal("WebhookNotReady"), 3), "its interceptors are done, its eviction comes next (3 of 3)"},
		"one budget":            {translate.LastStage(about, refusal("EvictionBlocked", "web"), 3), "waiting for the pod's disruption budget web (3 of 3)"},
		"in spite of one":       {translate.LastStage(about, deletes("web"), 3), "disruption budget web can never allow it, the pod is deleted from 2026-12-01T22:30:00Z on (3 of 3)"},
		"several budgets":       {translate.LastStage(about, refusal("SeveralBudgets", "db", "web"), 3), "waiting until only one disruption budget selects the pod, not all of db, web (3 of 3)"},
		"somebody else":         {translate.LastStage(about, refusal("WebhookRefuses"), 3), "its interceptors are done, its eviction is refused for now: WebhookRefuses (3 of 3)"},
		"a pod that terminates": {translate.Ending(about, nil), "the pod is terminating"},
		"a pod that is held":    {translate.Ending(about, []string{"a.example.com/x", "b/y"}), "the pod is terminating (finalizers a.example.com/x, b/y)"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, text(tc.verdict)); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}
