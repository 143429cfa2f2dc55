package refused

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// answer is what the API server answers with.
func answer(code int32, reason metav1.StatusReason, message string, causes ...metav1.StatusCause) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: &metav1.StatusDetails{Causes: causes},
	}}
}

// The messages are those of a real API server; test/e2e provokes each cause there.
func TestCauseOfAnError(t *testing.T) {
	jobs := batchv1.Resource("jobs")
	invalid := apierrors.NewInvalid(batchv1.SchemeGroupVersion.WithKind("Job").GroupKind(), "dump", field.ErrorList{field.Required(field.NewPath("spec"), "")})
	tests := map[string]struct {
		err  error
		want Cause
	}{
		"a quota that is used up": {
			apierrors.NewForbidden(jobs, "dump", errors.New("exceeded quota: none, requested: count/jobs.batch=1, used: count/jobs.batch=0, limited: count/jobs.batch=0")), Quota,
		},
		"a quota that wants limits":     {apierrors.NewForbidden(jobs, "dump", errors.New("failed quota: small: must specify limits.cpu")), Quota},
		"a quota that is not counted":   {apierrors.NewForbidden(jobs, "dump", errors.New("status unknown for quota: none, resources: count/jobs.batch")), Quota},
		"a missing right":               {apierrors.NewForbidden(jobs, "dump", errors.New(`User "system:serviceaccount:drawbridge-system:drawbridge" cannot create resource "jobs" in API group "batch" in the namespace "shop"`)), Forbidden},
		"Pod Security":                  {apierrors.NewForbidden(jobs, "dump", errors.New(`violates PodSecurity "restricted:latest": privileged`)), Policy},
		"a policy that says 403":        {apierrors.NewForbidden(jobs, "dump", errors.New("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no")), Policy},
		"a policy that says 422":        {answer(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, `jobs.batch "dump" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`), Policy},
		"a webhook that says no":        {answer(http.StatusForbidden, metav1.StatusReasonForbidden, `admission webhook "w.example.com" denied the request: no`), Webhook},
		"a webhook that says 404":       {answer(http.StatusNotFound, metav1.StatusReasonNotFound, `admission webhook "w.example.com" denied the request: no`), Webhook},
		"a webhook that says 429":       {answer(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, `admission webhook "w.example.com" denied the request: later`), ""},
		"a webhook that is down":        {apierrors.NewInternalError(errors.New(`failed calling webhook "w.example.com": connection refused`)), Webhook},
		"the schema":                    {invalid, Invalid},
		"a request nobody understands":  {apierrors.NewBadRequest("strict decoding error"), Invalid},
		"a body that is too large":      {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), TooLarge},
		"an object too large for etcd":  {apierrors.NewInternalError(errors.New("etcdserver: request is too large")), TooLarge},
		"a namespace that ends":         {answer(http.StatusForbidden, metav1.StatusReasonForbidden, "unable to create new content", metav1.StatusCause{Type: corev1.NamespaceTerminatingCause}), NamespaceTerminating},
		"a method that is not there":    {apierrors.NewMethodNotSupported(jobs, "create"), Other},
		"wrapped":                       {fmt.Errorf("create Job: %w", invalid), Invalid},
		"the test of a JSON patch":      {apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", jobs, "", "testing value /metadata/uid failed", 0, false), ""},
		"the same, read from its text":  {apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", jobs, "dump", "testing value failed", 0, true), ""},
		"a conflict":                    {apierrors.NewConflict(jobs, "dump", errors.New("it has changed")), ""},
		"one that exists":               {apierrors.NewAlreadyExists(jobs, "dump"), ""},
		"one that is missing":           {apierrors.NewNotFound(jobs, "dump"), ""},
		"an overload":                   {apierrors.NewTooManyRequests("later", 1), ""},
		"a time-out of the API server":  {apierrors.NewServerTimeout(jobs, "create", 1), ""},
		"an error of the API server":    {apierrors.NewInternalError(errors.New("etcd has no leader")), ""},
		"a time-out of ours":            {context.DeadlineExceeded, ""},
		"none":                          {nil, ""},
		"what this package has classed": {fmt.Errorf("x: %w", &Error{Cause: Quota, err: invalid}), Quota},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := Of(tc.err)
			if got != tc.want || ok != (tc.want != "") {
				t.Errorf("cause %q, %t, want %q", got, ok, tc.want)
			}
		})
	}
}

func TestChanged(t *testing.T) {
	jobs := batchv1.Resource("jobs")
	got := map[string]bool{
		"conflict":    Changed(apierrors.NewConflict(jobs, "dump", errors.New("it has changed"))),
		"missing":     Changed(apierrors.NewNotFound(jobs, "dump")),
		"test failed": Changed(apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", jobs, "", "testing value /metadata/uid failed", 0, false)),
		"policy":      Changed(answer(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no")),
		"schema":      Changed(apierrors.NewInvalid(batchv1.SchemeGroupVersion.WithKind("Job").GroupKind(), "dump", field.ErrorList{field.Required(field.NewPath("spec"), "")})),
		"nothing":     Changed(nil),
	}
	want := map[string]bool{"conflict": true, "missing": true, "test failed": true, "policy": false, "schema": false, "nothing": false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
}

func TestEachWriteAndCauseHasWords(t *testing.T) {
	actions := map[string]bool{}
	for _, w := range Writes() {
		if w.Doing() == "" {
			t.Errorf("%s: it is not said what it does", w)
		}
		if back, ok := ByAction(w.Action()); !ok || back != w || actions[w.Action()] {
			t.Errorf("%s: its action is %s, which is %q, %t", w, w.Action(), back, ok)
		}
		actions[w.Action()] = true
	}
	who := map[string]Cause{}
	for _, c := range Causes() {
		if other, ok := who[c.Who("shop")]; ok {
			t.Errorf("%s and %s are called the same", c, other)
		}
		who[c.Who("shop")] = c
	}
}

func TestNamesOfWrites(t *testing.T) {
	tests := map[Write][4]string{
		Request:              {"EvictionRequest", "", "", "drawbridge-requester-1"},
		RequestLabels:        {"EvictionRequest", "", "", "drawbridge-labels"},
		RequestStatus:        {"EvictionRequest", "status", "", "drawbridge"},
		Report:               {"EvictionRequest", "status", "applied", "surge.drawbridge.dev"},
		GuardLabel:           {"Pod", "", "", "guard.drawbridge.dev"},
		HandUp:               {"Pod", "", "", "surge.drawbridge.dev"},
		DeschedulerMark:      {"Pod", "", "", "descheduler.drawbridge.dev"},
		DeletionCost:         {"Pod", "", "", "deletion-cost.drawbridge.dev"},
		Mark:                 {"Pod", "", "", "strimzi.drawbridge.dev"},
		PodCondition:         {"Pod", "status", "", ""},
		Preset:               {"EvacuationPolicy", "", "applied", "presets"},
		PolicyStatus:         {"EvacuationPolicy", "status", "applied", "x"},
		InterceptorStatus:    {"EvictionInterceptor", "status", "", "x"},
		Lease:                {"Lease", "", "", ""},
		GuardBudget:          {"PodDisruptionBudget", "", "", "guard.drawbridge.dev"},
		Job:                  {"Job", "", "", "drawbridge-hooks"},
		HookStatus:           {"EvacuationHook", "status", "", "drawbridge-hooks"},
		BudgetStatus:         {"EvictionBudget", "status", "", "drawbridge-budgets"},
		Node:                 {"Node", "", "", ""},
		Maintenance:          {"NodeMaintenance", "status", "", ""},
		Certificate:          {"Secret", "", "", ""},
		WebhookConfiguration: {"ValidatingWebhookConfiguration", "", "", "drawbridge"},
		NativeRequest:        {"EvictionRequest.lifecycle.k8s.io", "status", "", "drawbridge-native"},
		NativeEviction:       {"Eviction.lifecycle.k8s.io", "status", "", "drawbridge-native"},
		NativeReport:         {"Eviction.lifecycle.k8s.io", "status", "applied", "imperative-eviction.k8s.io"},
		NativeCharge:         {"ConfigMap", "", "", "drawbridge-native"},
		Unnamed:              {"Ingress", "", "", ""},
	}
	for want, of := range tests {
		if got := Name(of[0], of[1], of[2] != "", of[3]); got != want {
			t.Errorf("%v: got %s, want %s", of, got, want)
		}
	}
}
