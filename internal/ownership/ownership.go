// Package ownership prevents field conflicts between the manager and those who apply the
// chart.
//
// The manager writes fields of the webhook configuration that the chart renders as well,
// and the API server notes it as their owner. A later server-side apply of the chart with
// another value would be a conflict: helm rollback, Argo CD and Flux would stop in the
// middle. So the manager gives up the ownership of these fields after it has written
// them, and keeps their values. Others can then apply any value, and the manager repairs
// it afterwards.
package ownership

import (
	"bytes"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// FieldManager is the manager's name in managedFields when it writes the webhook
// configuration. Earlier releases derived the same name from the program's.
const FieldManager = "drawbridge"

// shared are the fields of a webhook that both the manager and the chart write, or that
// block the removal of a webhook by the chart: a webhook with another owner's field
// stays, and is no longer valid.
var shared = [][]string{
	{"failurePolicy"},
	{"clientConfig", "caBundle"},
	{"clientConfig", "url"},
	{"clientConfig", "service", "path"},
}

// release returns the entries without the manager's claim to the shared fields, and
// whether that changes anything. The entries given are not changed.
func release(entries []metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, bool, error) {
	released := make([]metav1.ManagedFieldsEntry, 0, len(entries))
	changed := false
	for i := range entries {
		entry := *entries[i].DeepCopy()
		if entry.Manager != FieldManager || entry.Operation != metav1.ManagedFieldsOperationUpdate || entry.Subresource != "" || entry.FieldsV1 == nil {
			released = append(released, entry)
			continue
		}
		owned := fieldpath.NewSet()
		if err := owned.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
			return nil, false, fmt.Errorf("read managedFields of %s: %w", entry.Manager, err)
		}
		kept := fieldpath.NewSet()
		owned.Iterate(func(path fieldpath.Path) {
			if !isShared(path) {
				kept.Insert(path.Copy())
			}
		})
		if kept.Size() == owned.Size() {
			released = append(released, entry)
			continue
		}
		changed = true
		if kept.Empty() {
			continue
		}
		var raw bytes.Buffer
		if err := kept.ToJSONStream(&raw); err != nil {
			return nil, false, fmt.Errorf("encode managedFields of %s: %w", entry.Manager, err)
		}
		entry.FieldsV1 = metav1.NewFieldsV1(raw.String())
		released = append(released, entry)
	}
	return released, changed, nil
}

// isShared reports whether the path is webhooks[name=...] with a shared field below.
func isShared(path fieldpath.Path) bool {
	if len(path) < 3 || path[0].FieldName == nil || *path[0].FieldName != "webhooks" || path[1].Key == nil {
		return false
	}
	var names []string
	for _, element := range path[2:] {
		if element.FieldName == nil {
			return false
		}
		names = append(names, *element.FieldName)
	}
	return slices.ContainsFunc(shared, func(field []string) bool { return slices.Equal(field, names) })
}
