package vm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/cel"
	"github.com/drawbridge-dev/drawbridge/internal/jsonpatch"
)

const (
	// mostDryRun is how many workloads are checked to find one that could be
	// evacuated now, and dryRunPage how many pods are read for that.
	mostDryRun = 50
	dryRunPage = 500
	// dryRunMigration is what the creation of a migration is called.
	dryRunMigration = "migration"
)

// DryRunResult is the result of dry runs of a policy's writes. Nothing was stored.
type DryRunResult struct {
	// Policy is its name.
	Policy string
	// Workload is what it was tried with, as in "VirtualMachineInstance shop/vm"; empty
	// if no workload could be evacuated now.
	Workload string
	// Missing are the permissions without which it cannot be tried, such as
	// `"patch" on virtualmachineinstances.kubevirt.io`.
	Missing []string
	// Tried are the writes: "mark" and "migration".
	Tried []string
	// Problems are the writes that would fail, with the reason.
	Problems []string
}

// DryRun tries the mark of a policy, and its migration, on a workload that could be
// evacuated now, as dry runs, and compares the API server's answers with the requests.
// It uses the permissions of the user. A policy that is not accepted, or has nothing to
// write, is not tried.
func DryRun(ctx context.Context, c client.Client, from *v1alpha1.EvacuationPolicy) (DryRunResult, error) {
	r := &dryRun{Client: c, policy: compilePolicy(from), result: DryRunResult{Policy: from.Name}}
	p := r.policy
	creates := p.migration != nil && p.migration.template != nil
	if !p.accepted() || (p.mark == nil && !creates) {
		return r.result, nil
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.MatchingLabelsSelector{Selector: p.selector}, client.Limit(dryRunPage)); err != nil {
		return r.result, fmt.Errorf("list pods: %w", err)
	}
	running := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		return pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil
	})
	if len(running) == 0 {
		return r.result, nil
	}
	if err := r.permissions(ctx, creates); err != nil || len(r.result.Missing) > 0 {
		return r.result, err
	}
	sub, err := r.find(ctx, running)
	if err != nil || sub == nil {
		return r.result, err
	}
	r.result.Workload = fmt.Sprintf("%s %s/%s", p.kindName(), sub.pod.Namespace, sub.name)
	return r.result, r.try(ctx, sub, creates)
}

// dryRun is the state of one DryRun.
type dryRun struct {
	client.Client
	policy *policy
	result DryRunResult
}

// permissions finds the missing permissions of the user. Kinds that are not installed
// do not count.
func (r *dryRun) permissions(ctx context.Context, creates bool) error {
	p := r.policy
	type need struct {
		kind        schema.GroupVersionKind
		subresource string
		verbs       []string
	}
	needs := []need{{kind: p.workload, verbs: []string{"get"}}, {kind: p.configKind, verbs: []string{"list"}}}
	if p.mark != nil {
		kind := p.workload
		if kind.Empty() {
			kind = podKind
		}
		needs = append(needs, need{kind, p.mark.subresource, []string{"patch"}})
	}
	switch {
	case creates:
		needs = append(needs, need{kind: p.migration.kind, verbs: []string{"list", "create"}})
	case p.migration != nil:
		needs = append(needs, need{kind: p.migration.kind, verbs: []string{"list"}})
	}
	for _, need := range needs {
		if need.kind.Empty() {
			continue
		}
		mapping, err := r.RESTMapper().RESTMapping(need.kind.GroupKind(), need.kind.Version)
		if err != nil {
			return fmt.Errorf("find %s of %s: %w", need.kind.Kind, need.kind.GroupVersion(), err)
		}
		for _, verb := range need.verbs {
			if err := r.permission(ctx, mapping.Resource, need.subresource, verb); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *dryRun) permission(ctx context.Context, resource schema.GroupVersionResource, subresource, verb string) error {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: resource.Group, Version: resource.Version, Resource: resource.Resource, Subresource: subresource, Verb: verb,
		},
	}}
	if err := r.Create(ctx, review); err != nil {
		return fmt.Errorf("ask for the permission to %s %s: %w", verb, resource.Resource, err)
	}
	if !review.Status.Allowed {
		on := resource.GroupResource().String()
		if subresource != "" {
			on += "/" + subresource
		}
		r.result.Missing = append(r.result.Missing, fmt.Sprintf("%q on %s", verb, on))
	}
	return nil
}

// find returns the first workload that would be marked now, nil if there is none among
// the checked ones.
func (r *dryRun) find(ctx context.Context, pods []corev1.Pod) (*subject, error) {
	config, err := r.config(ctx)
	if err != nil {
		return nil, err
	}
	looked := 0
	for i := range pods {
		pod := viewOf(&pods[i])
		if covers, err := r.policy.covers(ctx, pod); err != nil || !covers {
			continue // Its condition Evaluated says so.
		}
		if looked++; looked > mostDryRun {
			return nil, nil
		}
		sub := &subject{policy: r.policy, pod: pod, config: config}
		fits, err := r.fits(ctx, sub)
		var failure *cel.EvaluationError
		switch {
		case errors.As(err, &failure), apierrors.IsNotFound(err):
		case err != nil:
			return nil, err
		case fits:
			return sub, nil
		}
	}
	return nil, nil
}

// fits reads the objects behind a pod and reports whether its workload would be marked
// now.
func (r *dryRun) fits(ctx context.Context, sub *subject) (fits bool, err error) {
	if err := sub.identify(ctx); err != nil {
		return false, err
	}
	if r.policy.workload.Empty() {
		sub.workload, err = sub.pod.asWorkload()
	} else {
		sub.workload = &unstructured.Unstructured{}
		sub.workload.SetGroupVersionKind(r.policy.workload)
		err = r.Get(ctx, types.NamespacedName{Namespace: sub.pod.Namespace, Name: sub.name}, sub.workload)
	}
	if err != nil {
		return false, fmt.Errorf("get %s %s/%s: %w", r.policy.kindName(), sub.pod.Namespace, sub.name, err)
	}
	if m := r.policy.migration; m != nil {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(m.kind)
		if err := r.List(ctx, list, client.InNamespace(sub.pod.Namespace)); err != nil {
			return false, fmt.Errorf("list %s: %w", m.kind.Kind, err)
		}
		for i := range list.Items {
			facts, err := m.factsOf(ctx, &list.Items[i])
			if err != nil {
				return false, err
			}
			if facts.Workload == sub.name && !facts.Finished {
				return false, nil // A second one would rightly be refused.
			}
		}
	}
	f, _, err := sub.facts(ctx, time.Time{})
	return err == nil && decide(input{Facts: f}).Step == stepMark, err
}

// config is the object of spec.config, nil if there is none or more than one.
func (r *dryRun) config(ctx context.Context) (*unstructured.Unstructured, error) {
	if r.policy.config == nil {
		return nil, nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(r.policy.configKind)
	if err := r.List(ctx, list, client.InNamespace(r.policy.config.Namespace)); err != nil {
		return nil, fmt.Errorf("list %s: %w", r.policy.configKind.Kind, err)
	}
	items := slices.DeleteFunc(list.Items, func(u unstructured.Unstructured) bool {
		return r.policy.config.Name != "" && u.GetName() != r.policy.config.Name
	})
	if len(items) != 1 {
		return nil, nil
	}
	return &items[0], nil
}

// try makes the dry runs.
func (r *dryRun) try(ctx context.Context, sub *subject, creates bool) error {
	vars, err := sub.vars()
	if err != nil {
		return err
	}
	vars[varRequest] = requestVar(types.NamespacedName{Namespace: sub.pod.Namespace, Name: string(sub.pod.UID)}, nil, nil, time.Time{})
	if r.policy.mark != nil {
		r.tried(writeMark, r.tryMark(ctx, sub, vars))
	}
	if creates {
		wanted, err := r.policy.migration.createWhen.Bool(ctx, vars, true)
		if err != nil || wanted {
			r.tried(dryRunMigration, errors.Join(err, r.tryMigration(ctx, sub, vars)))
		}
	}
	return ctx.Err()
}

func (r *dryRun) tried(write string, err error) {
	r.result.Tried = append(r.result.Tried, write)
	if err != nil {
		r.result.Problems = append(r.result.Problems, fmt.Sprintf("%s: %s", write, oneLine(err.Error())))
	}
}

func (r *dryRun) tryMark(ctx context.Context, sub *subject, vars map[string]any) error {
	data, err := r.policy.mark.render(ctx, sub.workload.GetUID(), vars)
	if err != nil || data == nil {
		return err
	}
	answer := &unstructured.Unstructured{}
	answer.SetGroupVersionKind(sub.workload.GroupVersionKind())
	answer.SetNamespace(sub.pod.Namespace)
	answer.SetName(sub.name)
	raw, owner := client.RawPatch(types.JSONPatchType, data), client.FieldOwner(r.policy.interceptor)
	if by := r.policy.mark.subresource; by != "" {
		err = r.SubResource(by).Patch(ctx, answer, raw, owner, client.DryRunAll)
	} else {
		err = r.Patch(ctx, answer, raw, owner, client.DryRunAll)
	}
	if err != nil {
		return err
	}
	return verifyStored(data, answer.Object)
}

func (r *dryRun) tryMigration(ctx context.Context, sub *subject, vars map[string]any) error {
	object, err := r.policy.migration.render(ctx, r.policy, vars, sub.pod.Namespace, string(sub.pod.UID), 1)
	if err != nil {
		return err
	}
	object.SetName(object.GetName() + "-dry-run") // The first attempt may still exist.
	asked := object.DeepCopy()
	err = r.Create(ctx, object, client.FieldOwner(r.policy.interceptor), client.DryRunAll)
	if err != nil {
		return err
	}
	return sameAsAsked(asked, object)
}

// sameAsAsked says which field of an object differs from what was sent. Additional
// fields do not count.
func sameAsAsked(asked, answer *unstructured.Unstructured) error {
	want, err := normalized(asked.Object)
	if err != nil {
		return err
	}
	got, err := normalized(answer.Object)
	if err != nil {
		return err
	}
	if path := firstDifference("", got, want); path != "" {
		return &discardedError{path}
	}
	return nil
}

// firstDifference is the path of the first field, by name, that differs.
func firstDifference(path string, got, want any) string {
	wanted, ok := want.(map[string]any)
	if !ok {
		if holds(got, want) {
			return ""
		}
		return path
	}
	has, ok := got.(map[string]any)
	if !ok {
		return path
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		at := path + "/" + jsonpatch.Escape(name)
		if found := firstDifference(at, has[name], wanted[name]); found != "" {
			return found
		}
	}
	return ""
}
