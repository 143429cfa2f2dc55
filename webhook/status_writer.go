package webhook

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
)

// maxAccountsTold is how many accounts a denial names.
const maxAccountsTold = 3

// checkWriter is the rule on who writes. If a registration names service
// accounts, only they and Drawbridge write that interceptor's report; and in a
// request with such an interceptor only Drawbridge writes what is the
// controller's, or anybody could end the interceptor's turn another way. That
// holds, too, while it is not known whether there is one. Requests without one are
// open to all who have the permission.
func (h *StatusHandler) checkWriter(ctx context.Context, path *field.Path, user string, before, after *v1alpha1.EvictionRequest, skip *skip) field.ErrorList {
	if h.Registrations == nil || user == h.OwnUsername {
		return nil
	}
	names, sure := h.plan(ctx, before, after)
	var protected []interceptor.Registration
	for _, name := range names {
		if r, ok := h.Registrations.Registration(name); ok && len(r.Usernames) > 0 {
			protected = append(protected, r)
		}
	}
	if len(protected) == 0 && sure {
		return nil
	}
	var problems field.ErrorList
	for _, r := range protected {
		if skip.of(r.Name) {
			continue // checkSkip has looked at it.
		}
		if !slices.Contains(r.Usernames, user) && !equality.Semantic.DeepEqual(report(before, r.Name), report(after, r.Name)) {
			problems = append(problems, field.Forbidden(path.Child("interceptors").Key(r.Name), fmt.Sprintf(
				"only %s may report for this interceptor, not %q: report under another name, or have the account added to spec.serviceAccounts of EvictionInterceptor %s",
				accounts(r.Usernames), user, r.Name)))
		}
	}
	why := "as long as it is not known who intercepts the pod"
	if len(protected) > 0 {
		why = fmt.Sprintf("in a request whose interceptor %s belongs to registered service accounts", protected[0].Name)
	}
	for _, part := range controllersParts(before, after) {
		if !equality.Semantic.DeepEqual(part.before, part.after) {
			problems = append(problems, field.Forbidden(part.path(path), fmt.Sprintf(
				"only Drawbridge may write this %s, not %q: send it as it is stored, or leave it out of a server-side apply", why, user)))
		}
	}
	return problems
}

// plan is the names of the request's interceptors. Until the plan is made it is
// what the resolver says about the pod, as the controller will, and what the
// write would make of it. Not sure means that the resolver may miss somebody.
func (h *StatusHandler) plan(ctx context.Context, before, after *v1alpha1.EvictionRequest) (names []string, sure bool) {
	for _, target := range before.Status.TargetInterceptors {
		names = append(names, target.Name)
	}
	if len(names) > 0 {
		return names, true // The schema lets nobody change it.
	}
	for _, target := range after.Status.TargetInterceptors {
		names = append(names, target.Name)
	}
	target := before.Spec.Target.Pod
	if target == nil || h.Cached == nil || h.Resolver == nil {
		return names, true
	}
	var pod corev1.Pod
	sure = true
	err := h.Cached.Get(ctx, types.NamespacedName{Namespace: before.Namespace, Name: target.Name}, &pod, client.UnsafeDisableDeepCopy)
	switch {
	case err == nil && pod.UID == target.UID:
		planned, err := whoIntercepts(h.Resolver, &pod)
		sure = err == nil
		for _, name := range planned {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	case err != nil && !apierrors.IsNotFound(err):
		// Open, as the webhook's failure policy is.
		logr.FromContextOrDiscard(ctx).Error(err, "Read the target of a status from cache", "namespace", before.Namespace, "pod", target.Name)
	}
	return names, sure
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
		{field: "processedInterceptors", before: b.ProcessedInterceptors, after: a.ProcessedInterceptors},
		{field: "summary", before: b.Summary, after: a.Summary},
	}
	for _, kind := range []string{v1alpha1.ConditionEvicted, v1alpha1.ConditionCanceled} {
		parts = append(parts, statusPart{
			field: "conditions", key: kind,
			before: meta.FindStatusCondition(b.Conditions, kind), after: meta.FindStatusCondition(a.Conditions, kind),
		})
	}
	const evictor = v1alpha1.ImperativeEvictionInterceptor
	return append(parts, statusPart{field: "interceptors", key: evictor, before: report(before, evictor), after: report(after, evictor)})
}

// accounts names the first few of them.
func accounts(usernames []string) string {
	told := strings.Join(usernames[:min(len(usernames), maxAccountsTold)], ", ")
	if more := len(usernames) - maxAccountsTold; more > 0 {
		told += fmt.Sprintf(" and %d more", more)
	}
	return told
}
