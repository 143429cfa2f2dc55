package native

import (
	"fmt"
	"maps"
	"slices"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/evacuation/process"
)

// newEviction is the Eviction that begins, with everything that metadata can say from the start:
// a later write would be one more.
func (s Situation) newEviction(wanting []*lifecyclev1alpha1.EvictionRequest) *lifecyclev1alpha1.Eviction {
	taken := slices.Clone(s.Taken)
	for _, e := range s.Evictions {
		taken = append(taken, e.Name)
	}
	e := &lifecyclev1alpha1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: nextName(s.PodName, taken)},
		Spec: lifecyclev1alpha1.EvictionSpec{Target: lifecyclev1alpha1.EvictionTarget{
			Pod: &lifecyclev1alpha1.EvictionPodReference{Name: s.PodName, UID: wanting[0].Spec.Target.Pod.UID},
		}},
	}
	e.Labels = s.labels(e)
	e.OwnerReferences = s.owners(e)
	return e
}

// refresh notes the metadata of an Eviction, if something is missing. Labels of others stay.
func (s Situation) refresh(d *Decision, e *lifecyclev1alpha1.Eviction) {
	after := e.DeepCopy()
	after.OwnerReferences = s.owners(e)
	if !conclusionOf(e.Status.Conditions).final() {
		after.Labels = s.labels(e)
	}
	if !apiequality.Semantic.DeepEqual(e.ObjectMeta, after.ObjectMeta) {
		d.Metadata = append(d.Metadata, after)
	}
}

// labels are those of an Eviction with the roles of its participants.
func (s Situation) labels(e *lifecyclev1alpha1.Eviction) map[string]string {
	labels := maps.Clone(e.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	requesters := map[string]bool{}
	for _, r := range s.Requests {
		requesters[r.Spec.Requester] = true
		labels[r.Spec.Requester] = string(lifecyclev1alpha1.EvictionParticipantRoleRequester)
	}
	plan := e.Status.TargetResponders
	if len(plan) == 0 && s.Target.Presence == process.Present {
		plan = planOf(s.Responders, s.withOurs(), s.Priority)
	}
	for _, r := range plan {
		role := lifecyclev1alpha1.EvictionParticipantRoleResponder
		if requesters[r.Name] || e.Labels[r.Name] == string(lifecyclev1alpha1.EvictionParticipantRoleRequesterResponder) {
			role = lifecyclev1alpha1.EvictionParticipantRoleRequesterResponder
		}
		labels[r.Name] = string(role)
	}
	return labels
}

// owners are the owner references of an Eviction, with all requests of the pod. None is ever
// removed (A.3).
func (s Situation) owners(e *lifecyclev1alpha1.Eviction) []metav1.OwnerReference {
	owners := slices.Clone(e.OwnerReferences)
	for _, r := range s.Requests {
		known := slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == r.UID })
		if known || r.DeletionTimestamp != nil {
			continue
		}
		owners = append(owners, metav1.OwnerReference{
			APIVersion: lifecyclev1alpha1.SchemeGroupVersion.String(), Kind: "EvictionRequest", Name: r.Name, UID: r.UID,
		})
	}
	return owners
}

// follow notes the status of each native request: the conditions of the Eviction that counts, as
// it will be.
func (s Situation) follow(d *Decision) {
	end, waiting := conclusion{}, ""
	if relevant := s.soon(d); relevant != nil {
		end = conclusionOf(relevant.Status.Conditions)
		if end.evicted != "" && !s.targetEnded() {
			end = conclusion{} // Not true.
		}
		if !end.final() && s.isWanted(d) {
			waiting = s.waits(relevant)
		}
	}
	if d.Create != nil {
		end = conclusion{} // Another one begins.
	}
	for _, r := range s.Requests {
		if slices.ContainsFunc(d.Wishes, func(w *lifecyclev1alpha1.EvictionRequest) bool { return w.UID == r.UID }) {
			continue // Its new version comes back.
		}
		if message := s.refusal(r); message != "" {
			s.conclude(d, r, conclusion{failed: invalid, message: message}, "")
			continue
		}
		s.conclude(d, r, end, waiting)
	}
}

// conclude notes the status of one native request, if it differs. What has ended for good stays,
// also if its Eviction is deleted and its intent edited (A.13, 4).
func (s Situation) conclude(d *Decision, r *lifecyclev1alpha1.EvictionRequest, end conclusion, waiting string) {
	after := r.DeepCopy()
	if !settled(conclusionOf(r.Status.Conditions)) {
		end.write(&after.Status.Conditions, r.Generation, waiting, s.Now)
		if end.failed == invalid {
			d.Happened = append(d.Happened, Happening{What: RequestRefused, Eviction: r.Name, Text: end.message})
		}
	}
	after.Status.ObservedGeneration = new(r.Generation)
	if !apiequality.Semantic.DeepEqual(r.Status, after.Status) {
		d.RequestStatuses = append(d.RequestStatuses, after)
	}
}

// refuse ends what names a pod that does not exist, although its UID does.
func (s Situation) refuse(d *Decision) {
	for _, r := range s.Strangers.Requests {
		s.conclude(d, r, conclusion{failed: invalid, message: fmt.Sprintf("Target Pod %s was not found.", r.Spec.Target.Pod.Name)}, "")
	}
	for _, e := range s.Strangers.Evictions {
		if !conclusionOf(e.Status.Conditions).final() {
			s.put(d, e, process.Decision{Participants: decode(e, s, true).Participants},
				conclusion{failed: invalid, message: fmt.Sprintf("Target Pod %s was not found.", e.Spec.Target.Pod.Name)})
		}
	}
}

// Why an Eviction has no responders yet.
const (
	oursFirstMessage = "The pod has so many responders that there is no place for Drawbridge's interceptors, so these run first."
	oursGoOnMessage  = "Drawbridge's interceptors had begun their turn before this Eviction, and end it first."
)

// refusal is why a request is not valid, "" if it is. Absence counts only as long as there is no
// Eviction of the pod: later it means that the pod was evicted (A.2, 4).
func (s Situation) refusal(r *lifecyclev1alpha1.EvictionRequest) string {
	switch {
	case s.Target.Grouped:
		return groupedMessage(s.PodName)
	case len(s.Evictions) > 0:
		return ""
	case s.Target.Presence == process.Gone, s.Target.Presence == process.Replaced:
		return notFoundMessage(s, r)
	default:
		return ""
	}
}

// soon is the Eviction that counts, as it will be once the decision is written.
func (s Situation) soon(d *Decision) *lifecyclev1alpha1.Eviction {
	if d.Relevant == nil {
		return nil
	}
	for _, after := range d.Statuses {
		if after.UID == d.Relevant.UID && after.Name == d.Relevant.Name {
			return after
		}
	}
	return d.Relevant
}
