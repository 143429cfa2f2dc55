package vm

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// A policy makes Drawbridge write with its own permissions, which may exceed those of
// the policy's author. So what it may write is limited, which the schema checks as
// well: only labels and annotations of pods, and nothing of the kinds that Drawbridge
// itself uses.

// podMetadata are the paths of a pod that a mark may write.
var podMetadata = regexp.MustCompile(`^/metadata/(labels|annotations)(/.*)?$`)

// ownGroups are the groups in which Drawbridge's account writes for its own purposes.
var ownGroups = []string{
	v1alpha1.GroupName, "admissionregistration.k8s.io", "authentication.k8s.io", "authorization.k8s.io",
	"coordination.k8s.io", "events.k8s.io", "policy", "rbac.authorization.k8s.io",
}

// ownKinds are the same in the core group.
var ownKinds = []string{"Event", "Namespace", "Node", "Secret", "ServiceAccount"}

// checkAllowedWrites says what a policy wants to write and must not.
func checkAllowedWrites(spec *v1alpha1.EvacuationPolicySpec) error {
	var errs []error
	if slices.Contains(v1alpha1.ReservedInterceptors, spec.Interceptor) {
		errs = append(errs, fmt.Errorf("spec.interceptor: %s is Drawbridge's own, use another name", spec.Interceptor))
	}
	if spec.Workload != nil && ownKind(spec.Workload.APIVersion, spec.Workload.Kind) {
		errs = append(errs, fmt.Errorf("spec.workload: %s %s cannot be a workload, Drawbridge writes it for its own ends", spec.Workload.APIVersion, spec.Workload.Kind))
	}
	if m := spec.Migration; m != nil && (m.APIVersion == corev1.SchemeGroupVersion.String() || ownKind(m.APIVersion, m.Kind)) {
		errs = append(errs, fmt.Errorf("spec.migration: %s %s cannot stand for a migration", m.APIVersion, m.Kind))
	}
	if c := spec.Cancel; c != nil && slices.Contains(ownGroups, schema.FromAPIVersionAndKind(c.APIVersion, "").Group) {
		errs = append(errs, fmt.Errorf("spec.cancel: Drawbridge writes in %s for its own ends", c.APIVersion))
	}
	if spec.Workload == nil || isPod(spec.Workload.APIVersion, spec.Workload.Kind) {
		errs = append(errs, podPatch("spec.mark", spec.Mark), podPatch("spec.unmark", spec.Unmark))
	}
	return errors.Join(errs...)
}

func isPod(apiVersion, kind string) bool {
	return schema.FromAPIVersionAndKind(apiVersion, kind) == corev1.SchemeGroupVersion.WithKind("Pod")
}

func ownKind(apiVersion, kind string) bool {
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	return slices.Contains(ownGroups, gvk.Group) || (gvk.Group == corev1.GroupName && slices.Contains(ownKinds, kind))
}

// podPatch says what is wrong with a patch of a pod.
func podPatch(field string, p *v1alpha1.WorkloadPatch) error {
	if p == nil {
		return nil
	}
	var errs []error
	if p.Subresource != "" {
		errs = append(errs, fmt.Errorf("%s.subresource: the subresource %s of a pod cannot be patched", field, p.Subresource))
	}
	for i, o := range p.Operations {
		if o.Op != "test" && !podMetadata.MatchString(o.Path) {
			errs = append(errs, fmt.Errorf("%s.operations[%d].path: %s cannot be patched, of a pod only labels and annotations can", field, i, o.Path))
		}
	}
	return errors.Join(errs...)
}
