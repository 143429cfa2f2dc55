package webhook

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/text"
)

// maxAccountsTold is how many accounts a denial names.
const maxAccountsTold = 3

// checkWriter is the rule on who writes. All but the reports of interceptors, and
// conditions of one's own, is the controller's: nobody else says that a request has ended,
// who intercepts or whose turn it is (statement 29). If a registration names service
// accounts, only they and Drawbridge write that interceptor's report.
func (h *StatusHandler) checkWriter(path *field.Path, user string, before, after *v1alpha1.EvictionRequest, skip *skip) field.ErrorList {
	if user == h.OwnUsername {
		return nil
	}
	var problems field.ErrorList
	for _, r := range h.protected(before) {
		if skip.of(r.Name) {
			continue // checkSkip has looked at it.
		}
		if !slices.Contains(r.Usernames, user) && !equality.Semantic.DeepEqual(v1alpha1.ReportOf(before, r.Name), v1alpha1.ReportOf(after, r.Name)) {
			problems = append(problems, field.Forbidden(path.Child("interceptors").Key(r.Name), fmt.Sprintf(
				"only %s may report for this interceptor, not %q: report under another name, or have the account added to spec.serviceAccounts of EvictionInterceptor %s",
				accounts(r.Usernames), user, r.Name)))
		}
	}
	for _, part := range controllersParts(before, after) {
		if !equality.Semantic.DeepEqual(part.before, part.after) {
			problems = append(problems, field.Forbidden(part.path(path), fmt.Sprintf(
				"only Drawbridge may write this, not %q: send it as it is stored, or leave it out of a server-side apply", user)))
		}
	}
	return problems
}

// protected are the registrations of the request's interceptors that name service
// accounts. A request without a plan has no reports.
func (h *StatusHandler) protected(er *v1alpha1.EvictionRequest) (found []registration.Info) {
	for _, target := range er.Status.TargetInterceptors {
		if r, ok := h.Registrations.Registration(target.Name); ok && len(r.Usernames) > 0 {
			found = append(found, r)
		}
	}
	return found
}

// statusPart is one part of a status, before and after a write.
type statusPart struct {
	field, key    string
	before, after any
}

func (p statusPart) path(status *field.Path) *field.Path {
	if p.key != "" {
		return status.Child(p.field).Key(p.key)
	}
	return status.Child(p.field)
}

// controllersParts are the parts of a status that the controller and the evictor
// write. Conditions of other types are everybody's.
func controllersParts(before, after *v1alpha1.EvictionRequest) []statusPart {
	b, a := &before.Status, &after.Status
	parts := []statusPart{
		{field: "observedGeneration", before: b.ObservedGeneration, after: a.ObservedGeneration},
		{field: "nodeName", before: b.NodeName, after: a.NodeName},
		{field: "targetInterceptors", before: b.TargetInterceptors, after: a.TargetInterceptors},
		{field: "activeInterceptors", before: b.ActiveInterceptors, after: a.ActiveInterceptors},
		{field: "activationTime", before: b.ActivationTime, after: a.ActivationTime},
		{field: "deadline", before: b.Deadline, after: a.Deadline},
		{field: "deadlineSource", before: b.DeadlineSource, after: a.DeadlineSource},
		{field: "processedInterceptors", before: b.ProcessedInterceptors, after: a.ProcessedInterceptors},
		{field: "summary", before: b.Summary, after: a.Summary},
	}
	for _, kind := range ownConditions(b.Conditions, a.Conditions) {
		parts = append(parts, statusPart{
			field: "conditions", key: kind,
			before: meta.FindStatusCondition(b.Conditions, kind), after: meta.FindStatusCondition(a.Conditions, kind),
		})
	}
	const evictor = v1alpha1.ImperativeEvictionInterceptor
	return append(parts, statusPart{field: "interceptors", key: evictor, before: v1alpha1.ReportOf(before, evictor), after: v1alpha1.ReportOf(after, evictor)})
}

// ownConditions are the types of the controller's conditions in one of the lists.
func ownConditions(lists ...[]metav1.Condition) []string {
	var types []string
	for _, list := range lists {
		for _, c := range list {
			if v1alpha1.IsOwnCondition(c.Type) && !slices.Contains(types, c.Type) {
				types = append(types, c.Type)
			}
		}
	}
	return types
}

// accounts names the first few of them.
func accounts(usernames []string) string {
	return text.Few(usernames, maxAccountsTold)
}
