package request

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	applyv1alpha1 "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// labelManager owns the labels copied from the pod (ruling R7). It differs from
// the status's manager, because an apply drops what its manager leaves out.
const labelManager = "drawbridge-labels"

// copiedByRequester reports whether a manager's labels are the pod's: the entries of the
// webhook and of Drawbridge's own requesters come with them, so that a request of a drain
// needs no write for them.
func copiedByRequester(e *metav1.ManagedFieldsEntry) bool {
	return e.Operation == metav1.ManagedFieldsOperationApply && translate.CopiesLabels(e.Manager)
}

// copiedByUs reports whether a manager is the labelManager.
func copiedByUs(e *metav1.ManagedFieldsEntry) bool {
	return e.Operation == metav1.ManagedFieldsOperationApply && e.Manager == labelManager
}

// owners are the keys of labels by who owns them; one may have several owners.
type owners struct{ ours, requesters, others map[string]bool }

// ownersOf reads who owns the labels.
func ownersOf(fields []metav1.ManagedFieldsEntry) (owners, error) {
	o := owners{ours: map[string]bool{}, requesters: map[string]bool{}, others: map[string]bool{}}
	for i := range fields {
		entry := &fields[i]
		if entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		owned := o.others
		switch {
		case copiedByUs(entry):
			owned = o.ours
		case copiedByRequester(entry):
			owned = o.requesters
		}
		var tree struct {
			Metadata struct {
				Labels map[string]json.RawMessage `json:"f:labels"`
			} `json:"f:metadata"`
		}
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &tree); err != nil {
			return o, fmt.Errorf("read managedFields of %s: %w", entry.Manager, err)
		}
		for field := range tree.Metadata.Labels {
			// "f:NAME" is a member, "." stands for the map itself.
			if len(field) > 2 && field[:2] == "f:" {
				owned[field[2:]] = true
			}
		}
	}
	return o, nil
}

// stale are the labels that a requester copied, that the pod has lost and that are nobody
// else's. An apply of the labelManager does not remove what a requester owns.
func (o owners) stale(pod map[string]string) (keys []string) {
	for key := range o.requesters {
		if _, ok := pod[key]; !ok && !o.others[key] {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// labelsInSync reports whether the request has all of the pod's labels and a requester or
// we own exactly these (statements 57-60, ruling R7). Equal values are not enough: a
// label that another manager wrote would stay when the pod loses it.
func labelsInSync(er *v1alpha1.EvictionRequest, o owners, pod map[string]string) bool {
	for key, value := range pod {
		have, ok := er.Labels[key]
		if !ok || have != value || !o.ours[key] && !o.requesters[key] {
			return false
		}
	}
	for key := range o.ours {
		if _, ok := pod[key]; !ok {
			return false
		}
	}
	return len(o.stale(pod)) == 0
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
