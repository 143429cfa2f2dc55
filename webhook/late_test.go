package webhook

import (
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// A caller that loops with the UID of a pod that is gone costs one look, not one a call.
func TestALateCallerIsLookedAtOnce(t *testing.T) {
	late := func(r *admissionv1.AdmissionRequest) {
		r.Object.Raw = []byte(`{"deleteOptions":{"preconditions":{"uid":"uid-0"}}}`)
	}
	const conflict = "Precondition failed: another pod has that name now, the one that was meant is gone"
	w := newWorld(t, db0().Obj())
	w.wantAnswer(conflict, late)
	w.wantCalls("get Pod db-0")
	for range 3 {
		w.wantAnswer(conflict, late)
	}
	w.wantCalls()
	w.clock.Step(staleFor + time.Second)
	w.wantAnswer(conflict, late)
	w.wantCalls("get Pod db-0")
	// A pod that the cache does not have yet is not mistaken for a late one.
	w.wantAnswer("allowed", late, func(r *admissionv1.AdmissionRequest) { r.Name = "db-1" })
	w.wantCalls("get Pod db-1")
}
