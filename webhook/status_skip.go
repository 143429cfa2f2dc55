package webhook

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// SkipVerb is the verb on evictionrequests that allows to end an interceptor's
// turn in its place.
const SkipVerb = "skip"

// Skippers says who may end an interceptor's turn in its place.
type Skippers interface {
	// MaySkip asks whether a user has the verb skip on an evictionrequest, and why
	// not, if that is known. An error means that it could not be found out.
	MaySkip(ctx context.Context, user *authenticationv1.UserInfo, namespace, name string) (allowed bool, why string, err error)
}

var _ Skippers = ReviewedSkippers{}

// ReviewedSkippers asks the API server with a SubjectAccessReview.
type ReviewedSkippers struct {
	// Writer creates the review.
	Writer client.Writer
}

// MaySkip implements Skippers.
func (s ReviewedSkippers) MaySkip(ctx context.Context, user *authenticationv1.UserInfo, namespace, name string) (bool, string, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Name: name, Verb: SkipVerb,
			Group: v1alpha1.GroupName, Version: v1alpha1.SchemeGroupVersion.Version, Resource: "evictionrequests",
		},
	}}
	for key, values := range user.Extra {
		review.Spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	if err := s.Writer.Create(ctx, review); err != nil {
		return false, "", fmt.Errorf("create subjectaccessreview: %w", err)
	}
	return review.Status.Allowed, review.Status.Reason, nil
}

// skip is a write by which a person ends an interceptor's turn. A nil one is none.
type skip struct{ before, after v1alpha1.InterceptorStatus }

// skipOf finds the report that gets a skippedBy in this write. The schema lets only
// the active interceptor's change, so there is at most one.
func skipOf(before, after *v1alpha1.EvictionRequest) *skip {
	for i := range after.Status.Interceptors {
		item := after.Status.Interceptors[i]
		if was := v1alpha1.ReportOf(before, item.Name); item.SkippedBy != was.SkippedBy {
			return &skip{before: was, after: item}
		}
	}
	return nil
}

// of reports whether it is this interceptor that is skipped.
func (s *skip) of(name string) bool { return s != nil && s.after.Name == name }

// audit is what the audit log keeps of it.
func (s *skip) audit() map[string]string {
	if s == nil {
		return nil
	}
	return map[string]string{"skipped-interceptor": s.after.Name, "skipped-by": s.after.SkippedBy, "skip-message": s.after.Message}
}

// checkSkip is the rule on who ends the turn of an interceptor that is somebody
// else's: whoever has the verb skip, under the own name, changing nothing else of
// the report. The imperative evictor cannot be skipped: nothing comes after it.
func (h *StatusHandler) checkSkip(ctx context.Context, path *field.Path, user *authenticationv1.UserInfo, before *v1alpha1.EvictionRequest, s *skip) field.ErrorList {
	if s == nil || user.Username == h.OwnUsername {
		return nil
	}
	path = path.Child("interceptors").Key(s.after.Name)
	forbidden := func(format string, args ...any) field.ErrorList {
		return field.ErrorList{field.Forbidden(path.Child("skippedBy"), fmt.Sprintf(format, args...))}
	}
	rest := s.after
	rest.CompletionTime, rest.SkippedBy, rest.Message = s.before.CompletionTime, s.before.SkippedBy, s.before.Message
	switch {
	case s.after.Name == v1alpha1.ImperativeEvictionInterceptor:
		return forbidden("%s is the last interceptor and cannot be skipped: empty spec.requesters to cancel the request", s.after.Name)
	case s.after.SkippedBy != user.Username:
		return forbidden("must be %q, your own user name, not %q", user.Username, s.after.SkippedBy)
	case !equality.Semantic.DeepEqual(s.before, rest):
		return forbidden("a skip sets completionTime, skippedBy and message, nothing else: send the rest of the report as it is stored")
	}
	allowed, why, err := h.Skippers.MaySkip(ctx, user, before.Namespace, before.Name)
	switch {
	case err != nil:
		// Denied: it is an interactive user, who can retry.
		logr.FromContextOrDiscard(ctx).Error(err, "Find out who may skip an interceptor", "user", user.Username)
		return forbidden("it cannot be found out now whether user %q may skip interceptors: try again", user.Username)
	case !allowed:
		if why != "" {
			why = " (" + why + ")"
		}
		return forbidden("user %q cannot skip an interceptor: the verb %q on resource \"evictionrequests\" in API group %q in the namespace %q is needed%s",
			user.Username, SkipVerb, v1alpha1.GroupName, before.Namespace, why)
	}
	return nil
}
