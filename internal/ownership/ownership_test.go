package ownership

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func entry(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, APIVersion: "admissionregistration.k8s.io/v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
}

func TestRelease(t *testing.T) {
	const apply, update = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	const policy = `{"f:webhooks":{"k:{\"name\":\"a.drawbridge.dev\"}":{"f:failurePolicy":{}}}}`
	const way = `{"f:webhooks":{"k:{\"name\":\"a.drawbridge.dev\"}":{"f:clientConfig":{"f:caBundle":{},"f:service":{"f:path":{}},"f:url":{}}}}}`
	const timeoutToo = `{"f:webhooks":{"k:{\"name\":\"a.drawbridge.dev\"}":{"f:failurePolicy":{},"f:timeoutSeconds":{}}}}`
	const timeout = `{"f:webhooks":{"k:{\"name\":\"a.drawbridge.dev\"}":{"f:timeoutSeconds":{}}}}`
	const elsewhere = `{"f:metadata":{"f:annotations":{"f:failurePolicy":{}}}}`
	status := entry("drawbridge", update, policy)
	status.Subresource = "status"
	cases := map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    []metav1.ManagedFieldsEntry
		changed bool
	}{
		"the policy is given up, and the entry with it": {
			[]metav1.ManagedFieldsEntry{entry("helm", apply, policy), entry("drawbridge", update, policy)},
			[]metav1.ManagedFieldsEntry{entry("helm", apply, policy)}, true},
		"so are authority, path and URL": {
			[]metav1.ManagedFieldsEntry{entry("drawbridge", update, way)}, []metav1.ManagedFieldsEntry{}, true},
		"what nobody else writes is kept": {
			[]metav1.ManagedFieldsEntry{entry("drawbridge", update, timeoutToo)}, []metav1.ManagedFieldsEntry{entry("drawbridge", update, timeout)}, true},
		"a field of that name elsewhere is not meant": {
			[]metav1.ManagedFieldsEntry{entry("drawbridge", update, elsewhere)}, []metav1.ManagedFieldsEntry{entry("drawbridge", update, elsewhere)}, false},
		"what others own stays theirs": {
			[]metav1.ManagedFieldsEntry{entry("kubectl-edit", update, policy), entry("argocd-controller", apply, way)},
			[]metav1.ManagedFieldsEntry{entry("kubectl-edit", update, policy), entry("argocd-controller", apply, way)}, false},
		"an apply under our name is somebody else's choice": {
			[]metav1.ManagedFieldsEntry{entry("drawbridge", apply, policy), status}, []metav1.ManagedFieldsEntry{entry("drawbridge", apply, policy), status}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, changed, err := release(tc.entries)
			if err != nil || changed != tc.changed {
				t.Errorf("changed %t, error %v", changed, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
	if _, _, err := release([]metav1.ManagedFieldsEntry{entry("drawbridge", update, "{")}); err == nil {
		t.Error("fields that cannot be read are no error")
	}
}
