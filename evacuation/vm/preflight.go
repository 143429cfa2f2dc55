package vm

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
)

// Preflight returns the say of the interceptor of that name before there is a
// request, nil if no policy has the name. It answers from memory, but for one
// thing: that a pod may go rests on a live look at its workload, because memory
// may be behind and the pod of a virtual machine that goes takes it down.
func (s *Store) Preflight(name string) interceptor.Preflight { return s.asked(name, true) }

// Glance is Preflight from memory alone, for those who decide nothing for good.
func (s *Store) Glance(name string) interceptor.Preflight { return s.asked(name, false) }

func (s *Store) asked(name string, confirm bool) interceptor.Preflight {
	for _, p := range s.all() {
		if p.interceptor == name {
			return asked{s, name, confirm}
		}
	}
	return nil
}

type asked struct {
	*Store
	name    string
	confirm bool
}

// Preflight answers by the strategy: None, and LiveMigrateIfPossible without a way
// to migrate, are let through; LiveMigrate without one is refused; for all others
// a request is made.
func (a asked) Preflight(ctx context.Context, pod *corev1.Pod) (interceptor.PreflightVerdict, error) {
	view := viewOf(pod)
	p, err := a.policyUnder(ctx, a.name, view)
	switch {
	case errors.Is(err, errNotCovered):
		// Nobody knows what to do for the pod, and nobody said that it may go.
		return interceptor.PreflightVerdict{Outcome: interceptor.PreflightProceed}, nil
	case err != nil:
		return interceptor.PreflightVerdict{}, err
	case p == nil:
		return interceptor.PreflightVerdict{Outcome: interceptor.PreflightAllow}, nil
	}
	_, _, v, err := a.look(ctx, p, view, turn{}, false)
	if err == nil && v.Step == stepPass && a.confirm {
		_, _, v, err = a.look(ctx, p, view, turn{}, true)
	}
	switch {
	case err != nil:
		return interceptor.PreflightVerdict{}, err
	case v.Step == stepPass:
		return interceptor.PreflightVerdict{Outcome: interceptor.PreflightAllow}, nil
	case v.Step == stepRefuse:
		return interceptor.PreflightVerdict{Outcome: interceptor.PreflightDeny, Text: p.notMigratable}, nil
	default:
		return interceptor.PreflightVerdict{Outcome: interceptor.PreflightProceed}, nil
	}
}

// errNotCovered says that no policy covers a pod. That may be the moment between an
// old policy and a new one, so it is no reason to let the pod go: the interceptor is
// silent, and passed over if it stays so.
var errNotCovered = errors.New("no EvacuationPolicy covers the pod")

// policyUnder is the policy of that interceptor that counts for the pod, nil if the
// one that counts has another.
func (s *Store) policyUnder(ctx context.Context, name string, pod *podView) (*policy, error) {
	p, err := s.policyFor(ctx, pod)
	switch {
	case err != nil:
		return nil, err
	case p != nil && p.interceptor == name:
		return p, nil
	case p != nil:
		return nil, nil
	}
	for _, other := range s.all() {
		if other.interceptor == name && other.broken {
			return nil, fmt.Errorf("EvacuationPolicy %s is not accepted, and it cannot be told which pods it covers", other.name)
		}
	}
	return nil, errNotCovered
}

// Held reports whether the guard of a pod must stay closed when all interceptors
// had their turn, and why: giving up must not shut a workload down, and neither
// must an outage of ours. It answers from memory; who does not know yet says yes.
func (s *Store) Held(pod *corev1.Pod) (reason string, held bool) {
	const notKnown = "what is behind the pod is not known yet"
	ctx := context.Background()
	view := viewOf(pod)
	p, err := s.policyFor(ctx, view)
	var sub *subject
	var f facts
	var v verdict
	if p != nil {
		sub, f, v, err = s.look(ctx, p, view, turn{}, false)
	}
	if sub != nil {
		s.link(sub)
	} else {
		s.links.set(pod, objectKey{}) // Until more is known.
	}
	switch {
	case err != nil:
		return notKnown, true
	case p == nil:
		return "", false
	case v.Step == stepPass, v.Step == stepMoved:
		return "", false
	case v.Step == stepRefuse:
		return v.Why, true
	case p.hold(f.Strategy):
		return "EvacuationPolicy " + p.name + " keeps a pod whose evacuation is not done", true
	default:
		return "", false
	}
}

// OnPodChange has a function called, from any goroutine, when the answers for a
// pod may have changed although the pod has not.
func (s *Store) OnPodChange(tell func(pod types.NamespacedName)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = append(s.pods, tell)
}
