package guard

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
)

// Holds knows pods whose guard stays closed.
type Holds interface {
	// Held reports whether the guard of the pod stays closed when its eviction has
	// begun, even when all interceptors had their turn or one that evicts is active, and
	// why: a sentence without its full stop that is constant as long as the reason is.
	// It answers from memory and is safe for concurrent use; the pod may be shared with
	// the informers. Unknown counts as held.
	Held(pod *corev1.Pod) (reason string, held bool)
	// OnPodChange registers a function to call, from any goroutine, when the answer for
	// a pod, or a Preflight's answer, may have changed although the pod has not.
	OnPodChange(tell func(pod types.NamespacedName))
}

// Gate answers components that allow or make evictions. It runs on every replica.
type Gate struct {
	labels bool
	holds  Holds
}

// Native says how far the Evictions of lifecycle.k8s.io are.
type Native interface {
	// Stage reports whether an Eviction of the pod with that namespace and UID runs, or our request,
	// which may be nil, waits for one, and whether it is the turn of its last responder, which
	// evicts. It answers from memory.
	Stage(ctx context.Context, pod types.NamespacedName, er *v1alpha1.EvictionRequest) (runs, last bool, err error)
	// OnPodChange registers a function to call, from any goroutine, when the answer for a
	// pod may have changed. It gets the pod's namespace and name.
	OnPodChange(tell func(pod types.NamespacedName))
}

// NewGate returns a gate. Without labels the guards are switched off: labels of pods do not
// count, because no budget selects them; what is held is held all the same. It fails if
// nobody says what is held.
func NewGate(labels bool, holds Holds) (*Gate, error) {
	if err := controllers.Require("gate of the guards", map[string]bool{"Holds": holds != nil}); err != nil {
		return nil, err
	}
	return &Gate{labels: labels, holds: holds}, nil
}

// Labels reports whether there are guards that open and close.
func (g *Gate) Labels() bool { return g.labels }

// Closed reports whether the guard of the pod is closed, as far as the pod shows.
func (g *Gate) Closed(pod *corev1.Pod) bool { return g.labels && labeled(pod) }

// Held reports whether it must be closed in the imperative stage. If another budget
// keeps the guard away, this alone holds the pod.
func (g *Gate) Held(pod *corev1.Pod) bool {
	_, held := g.holds.Held(pod)
	return held
}

// Blocks reports whether an eviction in the imperative stage has to wait.
func (g *Gate) Blocks(pod *corev1.Pod) bool { return g.Closed(pod) || g.Held(pod) }

// labeled reports whether the guard's budget selects the pod.
func labeled(pod *corev1.Pod) bool { return pod.Labels[v1alpha1.GuardLabel] == v1alpha1.GuardClosed }
