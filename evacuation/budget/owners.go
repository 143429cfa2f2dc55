package budget

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/scale"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// owners finds who creates another pod in the place of one, and how many it should have, as
// the disruption controller does (kubernetes: pkg/controller/disruption, getExpectedScale).
// It remembers what it found and is for one decision.
type owners struct {
	client client.Reader // Reads from the cache.
	scales *scales
	found  map[string]found // By UID.
}

// found is an owner and its scale; known is false if nobody knows it.
type found struct {
	owner    v1alpha1.BudgetOwner
	expected int
	known    bool
}

func (f *found) uid() types.UID { return types.UID(f.owner.UID) }

// of returns the owner of a pod, whose UID is empty if there is none, and adds its scale to
// those that are expected.
func (o *owners) of(pod *corev1.Pod, to map[types.UID]int) types.UID {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return ""
	}
	return o.ofRef(pod.Namespace, v1alpha1.BudgetOwner{
		APIVersion: controller.APIVersion, Kind: controller.Kind, Name: controller.Name, UID: string(controller.UID),
	}, to)
}

// ofRef is of for what is known of an owner, or of one that was found before.
func (o *owners) ofRef(namespace string, ref v1alpha1.BudgetOwner, to map[types.UID]int) types.UID {
	f, ok := o.found[ref.UID]
	if !ok {
		f = o.find(namespace, ref)
		o.found[ref.UID], o.found[f.owner.UID] = f, f
	}
	if f.known {
		to[f.uid()] = f.expected
	}
	return f.uid()
}

// owner is what was found for a pod, nil if there is none, and whether nobody knows how many
// pods it should have although it replaces them.
func (o *owners) owner(pod *corev1.Pod) (owner *v1alpha1.BudgetOwner, unknown bool) {
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		if f, ok := o.found[string(controller.UID)]; ok {
			// The pods of a Job end by themselves: fewer may be all that are left.
			return &f.owner, !f.known && f.owner.Kind != "Job"
		}
	}
	return nil, false
}

func (o *owners) find(namespace string, ref v1alpha1.BudgetOwner) found {
	nothing := found{owner: ref}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nothing
	}
	key := types.NamespacedName{Namespace: namespace, Name: ref.Name}
	switch (schema.GroupKind{Group: gv.Group, Kind: ref.Kind}) {
	case appsv1.SchemeGroupVersion.WithKind("StatefulSet").GroupKind():
		set := &appsv1.StatefulSet{}
		if !o.get(key, ref.UID, set) {
			return nothing
		}
		return found{ref, replicas(set.Spec.Replicas), true}
	case appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind():
		deployment := &appsv1.Deployment{}
		if !o.get(key, ref.UID, deployment) {
			return nothing
		}
		return found{ref, replicas(deployment.Spec.Replicas), true}
	case corev1.SchemeGroupVersion.WithKind("ReplicationController").GroupKind():
		rc := &corev1.ReplicationController{}
		if !o.get(key, ref.UID, rc) {
			return nothing
		}
		return found{ref, replicas(rc.Spec.Replicas), true}
	case appsv1.SchemeGroupVersion.WithKind("ReplicaSet").GroupKind():
		set := &appsv1.ReplicaSet{}
		if !o.get(key, ref.UID, set) {
			return nothing
		}
		if d := metav1.GetControllerOfNoCopy(set); d != nil && d.Kind == "Deployment" {
			of := o.find(namespace, v1alpha1.BudgetOwner{APIVersion: d.APIVersion, Kind: d.Kind, Name: d.Name, UID: string(d.UID)})
			if of.known {
				return of
			}
		}
		return found{ref, replicas(set.Spec.Replicas), true}
	}
	if n, ok := o.scales.get(namespace, gv.WithKind(ref.Kind), ref); ok {
		return found{ref, n, true}
	}
	return nothing
}

// get reads an owner from the cache. Another object of its name is not it, and one that is
// being deleted creates nothing any more.
func (o *owners) get(key types.NamespacedName, uid string, into client.Object) bool {
	err := o.client.Get(context.Background(), key, into, client.UnsafeDisableDeepCopy)
	return err == nil && string(into.GetUID()) == uid && into.GetDeletionTimestamp() == nil
}

func replicas(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

const (
	// scaleFor is how long the scale of an owner of another kind counts.
	scaleFor = 30 * time.Second
	// scaleTimeout limits one read of it, and maxScales how many are remembered.
	scaleTimeout = 5 * time.Second
	maxScales    = 1000
)

// scales knows the scales of owners of other kinds, by their subresource. Those kinds are
// not watched: a scale that is asked for is read before the next decision.
type scales struct {
	client scale.ScalesGetter
	mapper meta.RESTMapper
	clock  clock.PassiveClock

	mu sync.Mutex
	of map[types.UID]*scaled
}

type scaled struct {
	kind      schema.GroupVersionKind
	namespace string
	name      string
	n         int
	known     bool
	// read and asked are when it was read, and last asked for.
	read, asked time.Time
}

// get returns a scale as it was last read, and asks for it.
func (s *scales) get(namespace string, kind schema.GroupVersionKind, ref v1alpha1.BudgetOwner) (n int, known bool) {
	if s == nil {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.of[types.UID(ref.UID)]
	if one == nil {
		if len(s.of) >= maxScales {
			return 0, false
		}
		one = &scaled{kind: kind, namespace: namespace, name: ref.Name}
		if s.of == nil {
			s.of = map[types.UID]*scaled{}
		}
		s.of[types.UID(ref.UID)] = one
	}
	one.asked = s.clock.Now()
	return one.n, one.known
}

// unread reports whether something was asked for in a namespace that was never read.
func (s *scales) unread(namespace string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.of {
		if one.namespace == namespace && one.read.IsZero() {
			return true
		}
	}
	return false
}

// refresh reads what was asked for in a namespace and is old. It returns when to come again;
// zero is never. What cannot be read is not known.
func (s *scales) refresh(ctx context.Context, namespace string) (after time.Duration) {
	if s == nil {
		return 0
	}
	now := s.clock.Now()
	s.mu.Lock()
	due := map[types.UID]scaled{}
	for uid, one := range s.of {
		switch {
		case one.namespace != namespace:
		case now.Sub(one.asked) > 2*scaleFor:
			delete(s.of, uid)
		default:
			after = scaleFor
			if now.Sub(one.read) >= scaleFor {
				due[uid] = *one
			}
		}
	}
	s.mu.Unlock()
	for uid, one := range due {
		n, err := s.readOne(ctx, uid, one)
		s.mu.Lock()
		if kept := s.of[uid]; kept != nil {
			kept.n, kept.known, kept.read = n, err == nil, now
		}
		s.mu.Unlock()
	}
	return after
}

func (s *scales) readOne(ctx context.Context, uid types.UID, one scaled) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, scaleTimeout)
	defer cancel()
	mapping, err := s.mapper.RESTMapping(one.kind.GroupKind(), one.kind.Version)
	if err != nil {
		return 0, fmt.Errorf("find kind %s: %w", one.kind.Kind, err)
	}
	got, err := s.client.Scales(one.namespace).Get(ctx, mapping.Resource.GroupResource(), one.name, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("get the scale of %s %s/%s: %w", one.kind.Kind, one.namespace, one.name, err)
	}
	if got.UID != uid {
		return 0, fmt.Errorf("%s %s/%s is another one", one.kind.Kind, one.namespace, one.name)
	}
	return int(got.Spec.Replicas), nil
}
