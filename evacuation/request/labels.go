package request

import (
	"encoding/json"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	applyv1alpha1 "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
)

// labelManager owns the labels copied from the pod (ruling R7). It differs from
// the status's manager, because an apply drops what its manager leaves out.
const labelManager = "drawbridge-labels"

// labelsInSync reports whether the request has all of the pod's labels and our manager
// owns exactly these (statements 57-60, ruling R7). Equal values are not enough: a
// label that another manager wrote would stay when the pod loses it.
func labelsInSync(er *v1alpha1.EvictionRequest, pod map[string]string) (bool, error) {
	owned, err := ownedLabels(er.ManagedFields)
	if err != nil {
		return false, err
	}
	if len(owned) != len(pod) {
		return false, nil
	}
	for key, value := range pod {
		have, ok := er.Labels[key]
		if !ok || have != value || !owned[key] {
			return false, nil
		}
	}
	return true, nil
}

// ownedLabels returns the keys of the labels that our manager applied.
func ownedLabels(fields []metav1.ManagedFieldsEntry) (map[string]bool, error) {
	owned := map[string]bool{}
	for _, entry := range fields {
		if entry.Manager != labelManager || entry.Operation != metav1.ManagedFieldsOperationApply || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		var tree struct {
			Metadata struct {
				Labels map[string]json.RawMessage `json:"f:labels"`
			} `json:"f:metadata"`
		}
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &tree); err != nil {
			return nil, fmt.Errorf("read managedFields of %s: %w", labelManager, err)
		}
		for field := range tree.Metadata.Labels {
			// "f:NAME" is a member, "." stands for the map itself.
			if len(field) > 2 && field[:2] == "f:" {
				owned[field[2:]] = true
			}
		}
	}
	return owned, nil
}

// labelPatch is what the label manager wants: the pod's labels and nothing else. UID
// and resourceVersion ensure that it applies to the object it was decided for, and
// never creates one.
func labelPatch(er *v1alpha1.EvictionRequest, pod map[string]string) *applyv1alpha1.EvictionRequestApplyConfiguration {
	return applyv1alpha1.EvictionRequest(er.Name, er.Namespace).
		WithUID(er.UID).
		WithResourceVersion(er.ResourceVersion).
		WithLabels(maps.Clone(pod))
}
