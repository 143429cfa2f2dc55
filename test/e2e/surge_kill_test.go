//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// surgeStage is how far a surge is when the manager is killed.
type surgeStage struct {
	// reach brings it there while a manager runs; outage is what happens while none
	// does; end is what the next manager must make of it.
	reach, outage, end func(t *testing.T, v *surgeVictim)
	// drains: the drain goes on with the next manager.
	drains bool
}

// surgeVictim is an application whose node is drained when the manager is killed.
type surgeVictim struct {
	*application
	pod   *corev1.Pod
	er    *v1alpha1.EvictionRequest
	drain *cluster.Program
}

var surgeStages = map[string]surgeStage{
	acceptedOnly: {
		reach: func(t *testing.T, v *surgeVictim) {
			waitRequest(t, v.pod, "there", func(*v1alpha1.EvictionRequest) bool { return true })
		},
		drains: true,
		end:    replacedInTheEnd,
	},
	"handed up": {
		reach:  surgeReachesHandUp,
		drains: true,
		end:    replacedInTheEnd,
	},
	"handed up, and the replacement comes in the outage": {
		reach: surgeReachesHandUp,
		outage: func(t *testing.T, v *surgeVictim) {
			addNodes(t, v.namespace, 1)
			v.endpoints.Await(t, 2)
			lives(t, v.pod)
		},
		drains: true,
		end:    replacedInTheEnd,
	},
	"given back, and not yet completed": {
		reach: surgeReachesHandUp,
		outage: func(t *testing.T, v *surgeVictim) {
			// What a manager does that dies right after it.
			now := v.now(t)
			patch(t, now, func() {
				now.OwnerReferences, now.Labels = v.pod.OwnerReferences, v.pod.Labels
				delete(now.Annotations, surge.HandedUpAnnotation)
				why := must(json.Marshal(map[string]string{"request": string(v.er.UID), "message": "There was no room."}))(t)
				now.Annotations[surge.FailedAnnotation] = string(why)
			})
			v.waitGivenBack(t, v.pod)
		},
		end: func(t *testing.T, v *surgeVictim) {
			waitRequest(t, v.pod, "completed", surgeSaid("There was no room."))
			waitRequest(t, v.pod, "blocked", blocked)
			v.waitGivenBack(t, v.pod)
			if most := v.surging.Most(t); most != 1 {
				t.Errorf("at most %d pods were handed up, want 1", most)
			}
		},
	},
	"replaced, evicted and not gone": {
		reach: func(t *testing.T, v *surgeVictim) {
			patch(t, v.pod, func() { v.pod.Finalizers = []string{lastBreath} })
			surgeReachesHandUp(t, v)
			addNodes(t, v.namespace, 1)
			eventually(t, "the pod to be deleted", func(context.Context) error {
				if v.now(t).DeletionTimestamp == nil {
					return fmt.Errorf("it is not")
				}
				return nil
			})
		},
		outage: func(t *testing.T, v *surgeVictim) {
			now := v.now(t)
			patch(t, now, func() { now.Finalizers = nil })
			gone(t, v.pod)
		},
		drains: true,
		end:    replacedInTheEnd,
	},
	"handed up, and the request deleted in the outage": {
		reach: surgeReachesHandUp,
		outage: func(t *testing.T, v *surgeVictim) {
			if err := admin.Delete(t.Context(), v.er); err != nil {
				t.Fatal(err)
			}
		},
		end: func(t *testing.T, v *surgeVictim) {
			v.waitGivenBack(t, v.pod)
			saysAll(t, "the event", waitEvent(t, v.pod, "PodGivenBack").Note, "(orphaned)")
		},
	},
	"handed up, and withdrawn in the outage": {
		reach: surgeReachesHandUp,
		outage: func(t *testing.T, v *surgeVictim) {
			er := waitRequest(t, v.pod, "there", func(*v1alpha1.EvictionRequest) bool { return true })
			patch(t, er, func() { er.Spec.Requesters = nil })
		},
		end: func(t *testing.T, v *surgeVictim) { v.waitGivenBack(t, v.pod) },
	},
}

func surgeReachesHandUp(t *testing.T, v *surgeVictim) {
	v.waitHandedUp(t, v.pod)
	v.er = waitRequest(t, v.pod, "in progress", activeIs(surge.Name))
}

func replacedInTheEnd(t *testing.T, v *surgeVictim) {
	addNodes(t, v.namespace, 1)
	gone(t, v.pod)
	waitRequest(t, v.pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	finishWell(t, v.drain)
}

// now reads the pod.
func (v *surgeVictim) now(t *testing.T) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(v.pod), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// Killed after whatever step, the next manager brings the surge to its end from the
// objects alone, and there is always an endpoint.
func TestAKilledManagersSurgesAreMadeUpFor(t *testing.T) {
	victims := map[string]*surgeVictim{}
	manager := startProcess(t)
	for name := range surgeStages {
		a := newApplication(t, 1)
		victims[name] = &surgeVictim{application: a, pod: &a.pods[0]}
	}
	begin := func(of func(string) bool) {
		for name, v := range victims {
			if of(name) {
				v.drain = startDrain(t, "alice", v.node)
			}
		}
	}
	stop := func(of func(string) bool) {
		if err := manager.Kill(); err != nil {
			t.Fatal(err)
		}
		for name, v := range victims {
			if of(name) {
				killed(t, v.drain) // Without a webhook it would end by itself.
			}
		}
	}
	reach := func(t *testing.T, v *surgeVictim, s surgeStage) { s.reach(t, v) }
	accepted := func(name string) bool { return name == acceptedOnly }
	others := func(name string) bool { return !accepted(name) }
	everyone := func(string) bool { return true }

	begin(others)
	eachStage(t, surgeStages, victims, "reach", reach, others)
	stop(others)
	occupyLeadership(t)
	manager = startProcess(t, "--leader-elect=true")
	begin(accepted)
	eachStage(t, surgeStages, victims, "reach", reach, accepted)
	stop(accepted)
	eachStage(t, surgeStages, victims, "outage", func(t *testing.T, v *surgeVictim, s surgeStage) {
		if s.outage != nil {
			s.outage(t, v)
		}
	}, everyone)
	manager = startProcess(t)
	begin(func(name string) bool { return surgeStages[name].drains })
	eachStage(t, surgeStages, victims, "end", func(t *testing.T, v *surgeVictim, s surgeStage) {
		s.end(t, v)
		v.untouched(t)
	}, everyone)
	if err := manager.Stop(t.Context()); err != nil {
		t.Errorf("stop the manager: %v", err)
	}
}
