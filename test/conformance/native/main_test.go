// Package native is what the API server of Kubernetes does with lifecycle.k8s.io/v1alpha1: the ground
// that our controllers stand on. The name of a subtest begins with the numbers of the statements it
// proves, of docs/conformance-native.md.
package native

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	lifecycle "k8s.io/client-go/kubernetes/typed/lifecycle/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// kube is the control plane all tests of this package share. Nothing of ours is in it.
var kube *cluster.Cluster

func TestMain(m *testing.M) {
	os.Exit(cluster.Main(m, cluster.Options{
		// Without it the API server drops spec.schedulingGroup of pods.
		FeatureGates:  map[string]bool{"GenericWorkload": true},
		RuntimeConfig: map[string]string{"scheduling.k8s.io/v1beta1": "true"},
	}.WithNative(), func(c *cluster.Cluster) error {
		kube = c
		return nil
	}))
}

const (
	// accepted is what a write is wanted to be that is not refused.
	accepted = ""

	requesterName = "acme.example.com/drain"
	evictorName   = lifecyclev1alpha1.EvictionResponderImperativeEviction

	// The responders of most tests, in the order of their priorities.
	first  = "first.example.com/x"
	second = "second.example.com/x"

	// What the server goes by.
	deadline = 20 * time.Minute
	skew     = 30 * time.Second
	// near and far are within the skew and beyond it, on the slowest machine.
	near = skew / 3
	far  = skew * 2
)

// Shorter names of the states.
const (
	inactive    = lifecyclev1alpha1.ResponderStateInactive
	active      = lifecyclev1alpha1.ResponderStateActive
	completed   = lifecyclev1alpha1.ResponderStateCompleted
	interrupted = lifecyclev1alpha1.ResponderStateInterrupted
	canceled    = lifecyclev1alpha1.ResponderStateCanceled
)

func must[T any](value T, err error) func(testing.TB) T { return cluster.Must(value, err) }

func evictions(namespace string) lifecycle.EvictionInterface {
	return kube.Client().LifecycleV1alpha1().Evictions(namespace)
}

func requests(namespace string) lifecycle.EvictionRequestInterface {
	return kube.Client().LifecycleV1alpha1().EvictionRequests(namespace)
}

// judge compares what became of a write with what was wanted: accepted, or a text of the refusal.
func judge(t *testing.T, want string, err error) {
	t.Helper()
	switch {
	case want == accepted && err != nil:
		t.Errorf("refused: %v", err)
	case want != accepted && err == nil:
		t.Errorf("accepted, want a refusal with %q", want)
	case want != accepted && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want)):
		t.Errorf("got %v, want a refusal with %q", err, want)
	}
}

// newRequest is a valid EvictionRequest.
func newRequest() *lifecyclev1alpha1.EvictionRequest {
	return &lifecyclev1alpha1.EvictionRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "web-"},
		Spec: lifecyclev1alpha1.EvictionRequestSpec{
			Target:    lifecyclev1alpha1.EvictionRequestTarget{Pod: &lifecyclev1alpha1.EvictionRequestPodReference{Name: "web", UID: uuid.NewUUID()}},
			Requester: requesterName,
			Intent:    lifecyclev1alpha1.EvictionRequestIntentEviction,
		},
	}
}

// newEviction is a valid Eviction.
func newEviction() *lifecyclev1alpha1.Eviction {
	return &lifecyclev1alpha1.Eviction{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-1-web-"},
		Spec: lifecyclev1alpha1.EvictionSpec{
			Target: lifecyclev1alpha1.EvictionTarget{Pod: &lifecyclev1alpha1.EvictionPodReference{Name: "web", UID: uuid.NewUUID()}},
		},
	}
}

// change of the status of an Eviction.
type change func(*lifecyclev1alpha1.EvictionStatus)

// together are several changes in one write.
func together(changes ...change) change {
	return func(s *lifecyclev1alpha1.EvictionStatus) {
		for _, c := range changes {
			c(s)
		}
	}
}

// plan lists responders, Inactive, with a priority each.
func plan(priority int32, names ...string) change {
	return func(s *lifecyclev1alpha1.EvictionStatus) {
		for _, name := range names {
			s.TargetResponders = append(s.TargetResponders, lifecyclev1alpha1.TargetResponder{Name: name, Priority: ptr.To(priority), State: inactive})
			s.Responders = append(s.Responders, lifecyclev1alpha1.ResponderStatus{Name: name})
		}
	}
}

// target changes an item of targetResponders.
func target(name string, with func(*lifecyclev1alpha1.TargetResponder)) change {
	return func(s *lifecyclev1alpha1.EvictionStatus) {
		for i := range s.TargetResponders {
			if s.TargetResponders[i].Name == name {
				with(&s.TargetResponders[i])
			}
		}
	}
}

// state gives a responder a state.
func state(name string, state lifecyclev1alpha1.ResponderStateType) change {
	return target(name, func(r *lifecyclev1alpha1.TargetResponder) { r.State = state })
}

// said changes an item of responders.
func said(name string, with func(*lifecyclev1alpha1.ResponderStatus)) change {
	return func(s *lifecyclev1alpha1.EvictionStatus) {
		for i := range s.Responders {
			if s.Responders[i].Name == name {
				with(&s.Responders[i])
			}
		}
	}
}

// at is now and so much more.
func at(offset time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(time.Now().Add(offset))) }

func started(name string, offset time.Duration) change {
	return said(name, func(r *lifecyclev1alpha1.ResponderStatus) { r.StartTime = at(offset) })
}

func heartbeat(name string, offset time.Duration) change {
	return said(name, func(r *lifecyclev1alpha1.ResponderStatus) { r.HeartbeatTime = at(offset) })
}

func expected(name string, offset time.Duration) change {
	return said(name, func(r *lifecyclev1alpha1.ResponderStatus) { r.ExpectedCompletionTime = at(offset) })
}

func completion(name string, offset time.Duration) change {
	return said(name, func(r *lifecyclev1alpha1.ResponderStatus) { r.CompletionTime = at(offset) })
}

// turn makes a responder Active, as of now.
func turn(name string) change { return together(state(name, active), started(name, 0)) }

// condition sets a condition; a status of "" removes it.
func condition[T ~string](kind T, status metav1.ConditionStatus, reason lifecyclev1alpha1.EvictionConditionReason) change {
	return func(s *lifecyclev1alpha1.EvictionStatus) {
		s.Conditions = setCondition(s.Conditions, string(kind), status, string(reason))
	}
}

func setCondition(conditions []metav1.Condition, kind string, status metav1.ConditionStatus, reason string) []metav1.Condition {
	var kept []metav1.Condition
	for _, c := range conditions {
		if c.Type != kind {
			kept = append(kept, c)
		}
	}
	if status == "" {
		return kept
	}
	return append(kept, metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.Now()})
}

// many conditions, none of them of Kubernetes.
func many(n int) []metav1.Condition {
	var conditions []metav1.Condition
	for i := range n {
		conditions = setCondition(conditions, fmt.Sprintf("Other%d", i), metav1.ConditionTrue, "Test")
	}
	return conditions
}

var (
	failed = condition(lifecyclev1alpha1.EvictionConditionFailed, metav1.ConditionTrue, lifecyclev1alpha1.EvictionConditionReasonNoFurtherResponder)
	// evicted as a pod is that was deleted.
	evicted = condition(lifecyclev1alpha1.EvictionConditionTargetEvicted, metav1.ConditionTrue, lifecyclev1alpha1.EvictionConditionReasonPodDeleted)

	// three are first, second and the evictor.
	three = together(plan(100, evictorName), plan(3000, first), plan(2000, second)) // Not in the order of their turns.
	// begun is a first write.
	begun = together(three, turn(first))
)

// statusCase is a write of the status of an Eviction after others.
type statusCase struct {
	// given are writes before, each of them accepted.
	given []change
	// age of the Eviction after them; see [cluster.Cluster.Age].
	age time.Duration
	// write is judged: accepted, or a text of the refusal.
	write change
	want  string
}

func runStatusCases(t *testing.T, cases map[string]statusCase) {
	t.Helper()
	client := evictions(kube.Namespace(t))
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			eviction := must(client.Create(t.Context(), newEviction(), metav1.CreateOptions{}))(t)
			for _, given := range tc.given {
				given(&eviction.Status)
				eviction = must(client.UpdateStatus(t.Context(), eviction, metav1.UpdateOptions{}))(t)
			}
			if tc.age > 0 {
				if err := kube.Age(t.Context(), eviction, tc.age); err != nil {
					t.Fatal(err)
				}
				eviction = must(client.Get(t.Context(), eviction.Name, metav1.GetOptions{}))(t)
			}
			tc.write(&eviction.Status)
			_, err := client.UpdateStatus(t.Context(), eviction, metav1.UpdateOptions{})
			judge(t, tc.want, err)
		})
	}
}
