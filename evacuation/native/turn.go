package native

import (
	"cmp"
	"context"
	"slices"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/native/charge"
)

// Running is the Eviction of the pod with that namespace and UID that is being processed, nil if
// there is none. An error means that there may be one.
func (v *View) Running(ctx context.Context, pod types.NamespacedName) (*lifecyclev1alpha1.Eviction, error) {
	if !v.known() {
		return nil, errUnknown
	}
	evictions, err := v.EvictionsOf(ctx, pod)
	if err != nil {
		return nil, err
	}
	var running *lifecyclev1alpha1.Eviction
	for _, e := range evictions {
		if conclusionOf(e.Status.Conditions).final() || e.DeletionTimestamp != nil {
			continue
		}
		if running == nil || compareAge(e, running) < 0 {
			running = e
		}
	}
	return running, nil
}

// Awaited reports whether our request of the pod with that namespace and UID waits for an Eviction
// that does not run yet. An error means that it may.
func (v *View) Awaited(ctx context.Context, pod types.NamespacedName, er *v1alpha1.EvictionRequest) (bool, error) {
	if !v.known() {
		return false, errUnknown
	}
	found, err := v.of(ctx, pod)
	if err != nil {
		return false, err
	}
	return Awaits(er, found.requests), nil
}

// Awaits reports whether our request waits for the next Eviction of its pod, if none runs: native
// EvictionRequests want one, and the native responders have answered the request before. If they
// were silent, it goes on without them. er may be nil: then everybody waits for it.
func Awaits(er *v1alpha1.EvictionRequest, requests []*lifecyclev1alpha1.EvictionRequest) bool {
	return slices.ContainsFunc(requests, Wants) &&
		(er == nil || v1alpha1.ReportOf(er, v1alpha1.NativeInterceptor).CompletionTime != nil)
}

// Turn is what the running Eviction of a pod waits for. The zero value means that there is none.
type Turn struct {
	// Responder is the Position-th of Total; "" if it is the turn of the last one, which evicts.
	// Before the Eviction has responders it is v1alpha1.NativeInterceptor, and Total is 0.
	Responder       string
	Position, Total int
	Last            bool
	// Theirs: controllers of the cluster's own move the Eviction.
	Theirs bool
	// Planned: v1alpha1.NativeResponder is among the responders.
	Planned bool
}

// Waiting is what the pod with that namespace and UID waits for. er is our request of it, nil if
// there is none.
func (v *View) Waiting(ctx context.Context, pod types.NamespacedName, er *v1alpha1.EvictionRequest) (Turn, error) {
	e, err := v.Running(ctx, pod)
	if err != nil {
		return Turn{}, err
	}
	if e == nil {
		awaited, err := v.Awaited(ctx, pod, er)
		if err != nil || !awaited {
			return Turn{}, err
		}
		return Turn{Responder: v1alpha1.NativeInterceptor}, nil
	}
	who, position, total, _ := Progress(e)
	turn := Turn{Theirs: theirs(e), Planned: StateOf(e, v1alpha1.NativeResponder) != ""}
	if who == lifecyclev1alpha1.EvictionResponderImperativeEviction {
		turn.Last = true
		return turn, nil
	}
	turn.Responder, turn.Position, turn.Total = cmp.Or(who, v1alpha1.NativeInterceptor), position, total
	return turn, nil
}

// Stage reports whether an Eviction of the pod with that namespace and UID runs, or is waited for,
// and whether it is the turn of its last responder, which evicts. er is as for Waiting.
func (v *View) Stage(ctx context.Context, pod types.NamespacedName, er *v1alpha1.EvictionRequest) (runs, last bool, err error) {
	turn, err := v.Waiting(ctx, pod, er)
	return turn != Turn{}, turn.Last, err
}

// theirs reports whether controllers of the cluster's own move an Eviction. It says so itself, so
// every replica knows, and nothing has to be decided before.
func theirs(e *lifecyclev1alpha1.Eviction) bool {
	return charge.Foreign(e, charge.Manager).Manager != ""
}
