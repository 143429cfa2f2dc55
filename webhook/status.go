package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
)

// StatusHandler answers the reviews of evictionrequests/status: the rules on
// times that need a clock (statements 29, 41, 46, 47 and 48), and who may write
// for an interceptor, which stands in its registration. Everything else stands in
// the schema. Our own controller is left out by the webhook's matchConditions.
//
// Cached, Resolver and Registrations may be nil; then anybody with the permission
// may write.
type StatusHandler struct {
	// Cached reads pods from the informer.
	Cached client.Reader
	// Resolver says who intercepts a pod.
	Resolver Resolver
	// Registrations say who acts under an interceptor's name.
	Registrations interceptor.Registrations
	// Skippers says who may end an interceptor's turn in its place; nobody when nil.
	Skippers Skippers
	// OwnUsername is the account the controller writes under.
	OwnUsername string
	// Clock tells the time.
	Clock clock.PassiveClock
	// ClockSkew is how far a reported time may be from ours (ruling R8), 10 s.
	ClockSkew time.Duration
	// HeartbeatDeadline is how long an active interceptor may be silent, 20 min.
	HeartbeatDeadline time.Duration
	// Log is where denials go.
	Log logr.Logger
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
	problems = append(problems, h.checkWriter(ctx, field.NewPath("status"), request.UserInfo.Username, &before, &after, skip)...)
	if len(problems) == 0 {
		return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true, AuditAnnotations: skip.audit()}, nil
	}
	status := apierrors.NewInvalid(kind.GroupKind(), request.Name, problems).Status()
	logr.FromContextOrDiscard(ctx).V(1).Info("Refused a status", "namespace", request.Namespace, "name", request.Name,
		"user", request.UserInfo.Username, "problems", status.Message)
	return &admissionv1.AdmissionResponse{UID: request.UID, Result: &status}, nil
}

// afterPanic lets the write through: the schema has checked it, and the engine
// takes no time it was told at face value (statement 50).
func (h *StatusHandler) afterPanic(object reviewedObject) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: object.uid, Allowed: true}
}

// check compares the two and says what is wrong with the change. Only what
// changes is checked: a time that was right when it was written stays right.
func (h *StatusHandler) check(before, after *v1alpha1.EvictionRequest, now time.Time) field.ErrorList {
	path := field.NewPath("status")
	problems := h.checkSwitch(path.Child("activeInterceptors"), before, after, now)
	for i := range after.Status.Interceptors {
		item := &after.Status.Interceptors[i]
		problems = append(problems, h.checkReport(path.Child("interceptors").Key(item.Name), report(before, item.Name), item, now)...)
	}
	return problems
}

// checkSwitch is statement 29: an active interceptor loses its turn only when it
// has completed or fallen silent, or the request ends.
func (h *StatusHandler) checkSwitch(path *field.Path, before, after *v1alpha1.EvictionRequest, now time.Time) field.ErrorList {
	if len(before.Status.ActiveInterceptors) == 0 {
		return nil
	}
	active := before.Status.ActiveInterceptors[0]
	if slices.Contains(after.Status.ActiveInterceptors, active) ||
		meta.IsStatusConditionTrue(after.Status.Conditions, v1alpha1.ConditionEvicted) ||
		meta.IsStatusConditionTrue(after.Status.Conditions, v1alpha1.ConditionCanceled) ||
		report(after, active).CompletionTime != nil {
		return nil
	}
	silentSince := h.silentSince(before, active, now)
	until := silentSince.Add(h.HeartbeatDeadline)
	if !now.Before(until) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, fmt.Sprintf(
		"interceptor %s is still active: it has set no completionTime, and its heartbeat deadline is %s (now %s, %s after %s)",
		active, stamp(until), stamp(now), h.HeartbeatDeadline, stamp(silentSince)))}
}

// silentSince is the baseline of the heartbeat deadline (ruling R2). A heartbeat
// from the future counts as at most the clock skew ahead (statement 50).
func (h *StatusHandler) silentSince(er *v1alpha1.EvictionRequest, active string, now time.Time) time.Time {
	since := er.CreationTimestamp.Time
	if at := er.Status.ActivationTime; at != nil && at.After(since) {
		since = at.Time
	}
	if beat := report(er, active).HeartbeatTime; beat != nil {
		heard := beat.Time
		if latest := now.Add(h.ClockSkew); heard.After(latest) {
			heard = latest
		}
		if heard.After(since) {
			since = heard
		}
	}
	return since
}

// checkReport checks the times of one interceptor's report that change.
func (h *StatusHandler) checkReport(path *field.Path, before, after *v1alpha1.InterceptorStatus, now time.Time) field.ErrorList {
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

// report is an interceptor's report; an empty one if it has none.
func report(er *v1alpha1.EvictionRequest, name string) *v1alpha1.InterceptorStatus {
	for i := range er.Status.Interceptors {
		if er.Status.Interceptors[i].Name == name {
			return &er.Status.Interceptors[i]
		}
	}
	return &v1alpha1.InterceptorStatus{}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
