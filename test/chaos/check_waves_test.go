package chaos

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// ordered is a history in which a maintenance of node-1 begins in second 5, and asks for a pod in
// version 50. Pod a is one of the first workload.
func ordered(order Order, wanted string, events ...PodSeen) *History {
	er := &v1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Name: "uid-" + wanted, UID: theRequest, ResourceVersion: "50", CreationTimestamp: metav1.NewTime(at(6))}}
	er.Spec.Requesters = []v1alpha1.Requester{{Name: "others.example.com"}, {Name: "m.node-maintenance.drawbridge.dev"}}
	return &History{
		Plan: Plan{Mode: ModeFail, Workloads: []Workload{
			{Name: firstWorkload, Kind: Plain, Replicas: 1, MaxUnavailable: -1}, {Name: "w1", Kind: Plain, Replicas: 2, MaxUnavailable: -1},
		}},
		Deadline: deadline, Slack: 2 * grain,
		Pods:     slices.Concat([]PodSeen{singleton(0, "1", firstWorkload, "a")}, events),
		Requests: []RequestSeen{{At: at(20), Request: er}},
		Ordered:  []Ordered{{From: at(5), Node: "node-1", Requester: er.Spec.Requesters[1].Name, Order: order}},
	}
}

func goneFor(seen PodSeen, gap bool) PodSeen {
	seen.Gone, seen.Gap = true, gap
	return seen
}

func TestCheckWaves(t *testing.T) {
	z := singleton(1, "2", "w1", "z")
	cases := map[string]struct {
		history *History
		want    string // The promise that is broken.
		waited  int
	}{
		"the other pod is there":                   {ordered(PatientLast, "a", z), PromiseWaves, 0},
		"the other pod has gone":                   {ordered(PatientLast, "a", z, goneFor(singleton(10, "40", "w1", "z"), false)), never, 1},
		"the other pod goes afterwards":            {ordered(PatientLast, "a", z, goneFor(singleton(30, "60", "w1", "z"), false)), PromiseWaves, 0},
		"the other pod is about to go":             {ordered(PatientLast, "a", z, singleton(10, "40", "w1", "z", dying(at(10)))), PromiseWaves, 0},
		"the other pod has ended":                  {ordered(PatientLast, "a", z, singleton(10, "40", "w1", "z", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })), never, 1},
		"the other pod is elsewhere":               {ordered(PatientLast, "a", singleton(1, "2", "w1", "z", func(p *corev1.Pod) { p.Spec.NodeName = "node-2" })), never, 0},
		"the other pod left before":                {ordered(PatientLast, "a", z, goneFor(singleton(4, "4", "w1", "z"), false)), never, 0},
		"the other pod came afterwards":            {ordered(PatientLast, "a", singleton(10, "40", "w1", "z")), never, 0},
		"another one came when it had gone":        {ordered(PatientLast, "a", z, goneFor(singleton(10, "40", "w1", "z"), false), singleton(11, "41", "w1", "y")), never, 1},
		"another one came before it had gone":      {ordered(PatientLast, "a", z, singleton(9, "39", "w1", "y"), goneFor(singleton(10, "40", "w1", "z"), false)), PromiseWaves, 0},
		"it was missed how the other pod went":     {ordered(PatientLast, "a", z, goneFor(singleton(30, "2", "w1", "z"), true)), never, 1},
		"it went as it was created":                {ordered(PatientLast, "a", z, goneFor(singleton(5, "4", "w1", "z"), false)), never, 1},
		"the other pod is asked for":               {ordered(PatientLast, "z", z), never, 0},
		"the other way round":                      {ordered(PatientFirst, "z", z), PromiseWaves, 0},
		"the other way round, and it has gone":     {ordered(PatientFirst, "z", z, goneFor(singleton(10, "40", firstWorkload, "a"), false)), never, 1},
		"the other way round, who goes first":      {ordered(PatientFirst, "a", z), never, 0},
		"with a timeout":                           {ordered(HurriedLast, "a", z), never, 0},
		"all at once":                              {ordered(AllAtOnce, "a", z), never, 0},
		"somebody else has asked, the order waits": {withoutMaintenance(ordered(PatientLast, "a", z)), never, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := breaks(t, tc.history, tc.want)
			if diff := cmp.Diff(tc.waited, v.Waited); diff != "" {
				t.Errorf("waited (-want +got):\n%s", diff)
			}
		})
	}
}

// withoutMaintenance takes the maintenance out of the request.
func withoutMaintenance(h *History) *History {
	requesters := &h.Requests[0].Request.Spec.Requesters
	*requesters = (*requesters)[:1]
	return h
}
