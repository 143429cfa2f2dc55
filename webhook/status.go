package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// StatusHandler answers the reviews of evictionrequests/status: the rules on
// times, which need a clock (statements 41, 46, 47 and 48). Who may write what is the
// matter of the chart's ValidatingAdmissionPolicies, which hold while no manager runs;
// it is looked at here once more, for clusters whose policies somebody has taken away.
// Everything else stands in the schema. Our own controller is left out by the webhook's
// matchConditions. All fields but ClockSkew and Log are required, see Register.
type StatusHandler struct {
	// Registrations say who acts under an interceptor's name.
	Registrations registration.Lookup
	// Skippers says who may end an interceptor's turn in its place.
	Skippers Skippers
	// OwnUsername is the account the controller writes under.
	OwnUsername string
	// Clock tells the time.
	Clock clock.PassiveClock
	// ClockSkew is how far a reported time may be from ours (ruling R8); 0 is not at all.
	ClockSkew time.Duration
	// Log is where denials go.
	Log logr.Logger
}

// validate fails if something is missing, naming all of it: without registrations or an own
// name the rules on who writes what would be others.
func (h *StatusHandler) validate() error {
	return controllers.Require("webhook of evictionrequests/status", map[string]bool{
		"Registrations": h.Registrations != nil, "Skippers": h.Skippers != nil, "OwnUsername": h.OwnUsername != "", "Clock": h.Clock != nil,
	})
}

// ServeHTTP answers one review.
func (h *StatusHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	serve[admissionv1.AdmissionRequest](w, r, h.Log, h)
}

func (h *StatusHandler) answer(ctx context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	kind := v1alpha1.SchemeGroupVersion.WithKind("EvictionRequest")
	if got := request.Kind; got.Group != kind.Group || got.Version != kind.Version || got.Kind != kind.Kind {
		return nil, fmt.Errorf("%w: kind %s is no %s", errNotReview, got.String(), kind)
	}
	var before, after v1alpha1.EvictionRequest
	if err := json.Unmarshal(request.OldObject.Raw, &before); err != nil {
		return nil, fmt.Errorf("%w: decode the old evictionrequest: %w", errNotReview, err)
	}
	if err := json.Unmarshal(request.Object.Raw, &after); err != nil {
		return nil, fmt.Errorf("%w: decode the new evictionrequest: %w", errNotReview, err)
	}
	problems := h.check(&before, &after, h.Clock.Now())
	skip := skipOf(&before, &after)
	problems = append(problems, h.checkSkip(ctx, field.NewPath("status"), &request.UserInfo, &before, skip)...)
	problems = append(problems, h.checkWriter(field.NewPath("status"), request.UserInfo.Username, &before, &after, skip)...)
	if len(problems) == 0 {
		return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true, AuditAnnotations: skip.audit()}, nil
	}
	status := apierrors.NewInvalid(kind.GroupKind(), request.Name, problems).Status()
	logr.FromContextOrDiscard(ctx).V(1).Info("Refused a status", "namespace", request.Namespace, "name", request.Name,
		"user", request.UserInfo.Username, "problems", status.Message)
	return &admissionv1.AdmissionResponse{UID: request.UID, Result: &status}, nil
}

// afterPanic refuses the write: whoever finds what we trip over must not get past the
// rules with it. Interceptors report again, and their deadline is long.
func (h *StatusHandler) afterPanic(object reviewedObject) *admissionv1.AdmissionResponse {
	return h.undecodable(object.uid, translate.ReasonInternalError)
}

// check compares the two and says what is wrong with the change. Only what
// changes is checked: a time that was right when it was written stays right.
func (h *StatusHandler) check(before, after *v1alpha1.EvictionRequest, now time.Time) field.ErrorList {
	path := field.NewPath("status")
	var problems field.ErrorList
	for i := range after.Status.Interceptors {
		item := after.Status.Interceptors[i]
		problems = append(problems, h.checkReport(path.Child("interceptors").Key(item.Name), v1alpha1.ReportOf(before, item.Name), item, now)...)
	}
	return problems
}

// checkReport checks the times of one interceptor's report that change.
func (h *StatusHandler) checkReport(path *field.Path, before, after v1alpha1.InterceptorStatus, now time.Time) field.ErrorList {
	var problems field.ErrorList
	latest, earliest := now.Add(h.ClockSkew), now.Add(-h.ClockSkew)

	if t := after.HeartbeatTime; changed(before.HeartbeatTime, t) && t.After(latest) {
		problems = append(problems, field.Invalid(path.Child("heartbeatTime"), stamp(t.Time), fmt.Sprintf(
			"must not be in the future: now is %s, at most %s is accepted", stamp(now), stamp(latest))))
	}
	near := func(name string, before, t *metav1.Time) {
		if changed(before, t) && (t.After(latest) || t.Time.Before(earliest)) {
			problems = append(problems, field.Invalid(path.Child(name), stamp(t.Time), fmt.Sprintf(
				"must be close to now: now is %s, %s to %s is accepted", stamp(now), stamp(earliest), stamp(latest))))
		}
	}
	near("startTime", before.StartTime, after.StartTime)
	near("completionTime", before.CompletionTime, after.CompletionTime)

	// The API keeps whole seconds, so "now" as told is up to one second ago.
	if t := after.ExpectedFinishTime; changed(before.ExpectedFinishTime, t) && t.Time.Before(now.Truncate(time.Second)) {
		problems = append(problems, field.Invalid(path.Child("expectedFinishTime"), stamp(t.Time), fmt.Sprintf(
			"must not be in the past: now is %s", stamp(now))))
	}
	return problems
}

// changed reports whether a time is set and differs from before.
func changed(before, after *metav1.Time) bool {
	return after != nil && !after.Equal(before)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
