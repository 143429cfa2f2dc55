package request

import (
	"encoding/json"
	"fmt"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/native"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
)

// The exploration of the native API around ours. explore_native_objects_test.go keeps the
// objects, explore_native_server_test.go has the rules of the API server,
// explore_native_actors_test.go lets our controllers act, explore_native_moves_test.go says
// what else can happen, explore_native_checks_test.go what must not, explore_native_test.go
// runs it all.

// id is the number of an object on its shelf; 0 is none. Equal objects have one number, so that
// a world of numbers can be compared.
type id int32

// shelf keeps each object once. The objects must not be changed.
type shelf[T any] struct {
	ids    map[string]id
	items  []T
	aged   map[id]id
	normal func(T)
	older  func(T) T
}

func newShelf[T any](normal func(T), older func(T) T) *shelf[T] {
	return &shelf[T]{ids: map[string]id{}, items: make([]T, 1), aged: map[id]id{0: 0}, normal: normal, older: older}
}

// put returns the number of an object, which must not be changed any more.
func (s *shelf[T]) put(o T) id {
	if s.normal != nil {
		s.normal(o)
	}
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	known, ok := s.ids[string(text)]
	if !ok {
		known = id(len(s.items))
		s.ids[string(text)] = known
		s.items = append(s.items, o)
	}
	return known
}

func (s *shelf[T]) get(of id) T { return s.items[of] }

// age is the object after a tick.
func (s *shelf[T]) age(of id) id {
	known, ok := s.aged[of]
	if !ok {
		known = s.put(s.older(s.items[of]))
		s.aged[of] = known
	}
	return known
}

// past is older than everything that anybody asks for.
var past = exploreEpoch.Add(-time.Duration(oldest) * tick)

// later lets a tick pass for a time.
func later(t *metav1.Time) {
	if t == nil || t.IsZero() {
		return
	}
	t.Time = t.Add(-tick)
	if t.Time.Before(past) {
		t.Time = past
	}
}

const (
	// The two native requests of the model: somebody's, and that of the requester of ours.
	userWish   = "a-user"
	userKey    = "user.example.com/wish"
	legacyName = "r0.example.com"
)

// exploredEviction is the name of the n-th Eviction in the model, from 0. Only two are kept.
func exploredEviction(n int) string { return fmt.Sprintf("pod-%d-%s", n+1, exploredPod) }

func responderName(i int) string { return fmt.Sprintf("n%d.example.com/responder", i) }

func nativePolicy() native.Policy {
	p := native.DefaultPolicy()
	p.Process = nativeEnginePolicy()
	p.Process.ClockSkew, p.Process.CompletionGrace = 30*time.Second, tick
	p.ChainMin, p.ChainMax = tick, 2*tick
	p.HeartbeatInterval, p.ReportMin = tick, tick
	return p
}

// nativeEnginePolicy has no grace at the end of the pod: explore_world_test.go has that.
func nativeEnginePolicy() process.Policy {
	p := explorePolicy()
	p.CompletionGrace = 0
	return p
}

func conditionsLater(conditions []metav1.Condition) {
	for i := range conditions {
		later(&conditions[i].LastTransitionTime)
	}
}

// plainConditions drops times that nobody asks for.
func plainConditions(conditions []metav1.Condition) {
	for i := range conditions {
		if conditions[i].Status != metav1.ConditionTrue {
			conditions[i].LastTransitionTime = metav1.NewTime(past)
		}
	}
}

func oursLater(er *v1alpha1.EvictionRequest) *v1alpha1.EvictionRequest {
	er = er.DeepCopy()
	later(er.Status.ActivationTime)
	later(er.Status.Deadline)
	for i := range er.Status.Interceptors {
		item := &er.Status.Interceptors[i]
		for _, t := range []*metav1.Time{item.StartTime, item.HeartbeatTime, item.ExpectedFinishTime, item.CompletionTime} {
			later(t)
		}
	}
	conditionsLater(er.Status.Conditions)
	return er
}

func plainOurs(er *v1alpha1.EvictionRequest) {
	er.ResourceVersion, er.Status.Summary = "1", nil
	seen := er.Generation == er.Status.ObservedGeneration
	er.Generation, er.Status.ObservedGeneration = 2, min(er.Status.ObservedGeneration, 1)
	if seen {
		er.Generation, er.Status.ObservedGeneration = 1, 1
	}
	for i := range er.Status.Interceptors {
		item := &er.Status.Interceptors[i]
		if isActiveIn(er, item.Name) && !v1alpha1.IsFinished(er) {
			if item.HeartbeatTime != nil {
				item.StartTime, er.Status.ActivationTime = item.HeartbeatTime.DeepCopy(), item.HeartbeatTime.DeepCopy()
			}
			continue
		}
		for _, t := range []**metav1.Time{&item.StartTime, &item.HeartbeatTime, &item.CompletionTime} {
			if *t != nil {
				*t = new(metav1.NewTime(past))
			}
		}
	}
	for i := range er.Status.Conditions {
		er.Status.Conditions[i].ObservedGeneration, er.Status.Conditions[i].LastTransitionTime = 1, metav1.NewTime(past)
	}
}

func requestLater(r *lifecyclev1alpha1.EvictionRequest) *lifecyclev1alpha1.EvictionRequest {
	r = r.DeepCopy()
	conditionsLater(r.Status.Conditions)
	return r
}

func plainRequest(r *lifecyclev1alpha1.EvictionRequest) {
	r.ResourceVersion = "1"
	seen := r.Status.ObservedGeneration != nil && *r.Status.ObservedGeneration == r.Generation
	for i := range r.Status.Conditions {
		c := &r.Status.Conditions[i]
		c.ObservedGeneration, c.LastTransitionTime = 1, metav1.NewTime(past)
	}
	r.Generation = 1
	if !seen && r.Status.ObservedGeneration != nil {
		r.Generation = 2
		r.Status.ObservedGeneration = new(int64(1))
	} else if seen {
		r.Status.ObservedGeneration = new(int64(1))
	}
}

func evictionLater(e *lifecyclev1alpha1.Eviction) *lifecyclev1alpha1.Eviction {
	e = e.DeepCopy()
	later(&e.CreationTimestamp)
	for i := range e.Status.Responders {
		item := &e.Status.Responders[i]
		for _, t := range []*metav1.Time{item.StartTime, item.HeartbeatTime, item.ExpectedCompletionTime, item.CompletionTime} {
			later(t)
		}
	}
	conditionsLater(e.Status.Conditions)
	return e
}

func plainEviction(e *lifecyclev1alpha1.Eviction) {
	e.ResourceVersion = "1"
	plainConditions(e.Status.Conditions)
	for i := range e.Status.Responders {
		item := &e.Status.Responders[i]
		if native.StateOf(e, item.Name) == lifecyclev1alpha1.ResponderStateActive {
			if item.HeartbeatTime != nil {
				item.StartTime = item.HeartbeatTime.DeepCopy()
			}
			continue
		}
		for _, t := range []**metav1.Time{&item.StartTime, &item.HeartbeatTime, &item.CompletionTime} {
			if *t != nil {
				*t = new(metav1.NewTime(past))
			}
		}
	}
}

func isActiveIn(er *v1alpha1.EvictionRequest, name string) bool {
	return len(er.Status.ActiveInterceptors) > 0 && er.Status.ActiveInterceptors[0] == name
}

// ourRequest is our EvictionRequest as a requester creates it.
func ourRequest(uid types.UID, requester string) *v1alpha1.EvictionRequest {
	er := record{Gen: 1, Activated: never, Due: never, Until: never}.object()
	er.UID = uid
	er.Spec.Requesters = []v1alpha1.Requester{{Name: requester}}
	return er
}

// userRequest is somebody's native request.
func userRequest() *lifecyclev1alpha1.EvictionRequest {
	return createdRequest(&lifecyclev1alpha1.EvictionRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: userWish},
		Spec: lifecyclev1alpha1.EvictionRequestSpec{
			Target:    lifecyclev1alpha1.EvictionRequestTarget{Pod: &lifecyclev1alpha1.EvictionRequestPodReference{Name: exploredPod, UID: exploredUID}},
			Requester: userKey, Intent: lifecyclev1alpha1.EvictionRequestIntentEviction,
		},
	})
}

// createdRequest has what the API server adds.
func createdRequest(r *lifecyclev1alpha1.EvictionRequest) *lifecyclev1alpha1.EvictionRequest {
	r = r.DeepCopy()
	r.UID, r.Generation = types.UID("request-"+r.Name), 1
	r.CreationTimestamp = metav1.NewTime(exploreEpoch.Add(-24 * time.Hour))
	return r
}
