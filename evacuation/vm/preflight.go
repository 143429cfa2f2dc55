package vm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/preflight"
)

// Preflight returns the preflight.Interceptor of that name, nil if no policy has the
// name. It answers from memory, with one exception: to allow an eviction it reads the
// workload live, because memory may be behind and evicting the pod of a virtual machine
// shuts the machine down.
func (s *Store) Preflight(name string) preflight.Interceptor { return s.asked(name, true) }

// CachedPreflight is Preflight from memory only, for decisions that do not bind.
func (s *Store) CachedPreflight(name string) preflight.Interceptor { return s.asked(name, false) }

func (s *Store) asked(name string, confirm bool) preflight.Interceptor {
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

var _ preflight.Interceptor = asked{}

// Preflight answers by the strategy: None, and LiveMigrateIfPossible without a way
// to migrate, are let through; LiveMigrate without one is refused; for all others
// a request is made.
func (a asked) Preflight(ctx context.Context, pod *corev1.Pod) (preflight.Verdict, error) {
	view := viewOf(pod)
	p, err := a.policyUnder(ctx, a.name, view)
	switch {
	case errors.Is(err, errNotCovered):
		// No policy says what to do for the pod or that it may be evicted.
		return preflight.Verdict{Outcome: preflight.Proceed}, nil
	case err != nil:
		return preflight.Verdict{}, err
	}
	_, _, v, err := a.observe(ctx, p, view, turn{}, false)
	if err == nil && v.Step == stepPass && a.confirm {
		_, _, v, err = a.observe(ctx, p, view, turn{}, true)
	}
	switch {
	case err != nil:
		return preflight.Verdict{}, err
	case v.Step == stepPass:
		return preflight.Verdict{Outcome: preflight.Allow}, nil
	case v.Step == stepRefuse:
		return preflight.Verdict{Outcome: preflight.Deny, Text: p.notMigratable}, nil
	default:
		return preflight.Verdict{Outcome: preflight.Proceed}, nil
	}
}

// errNotCovered says that no policy of an interceptor covers one of its pods. That may
// be temporary, between an old policy and a new one, so it is no reason to evict the
// pod: the interceptor sends no heartbeat, and is passed over if it stays so.
var errNotCovered = errors.New("no EvacuationPolicy of the interceptor covers the pod")

// policyUnder is the policy of that interceptor that applies to the pod. Policies of
// other interceptors do not count, whatever pods they cover: otherwise a policy that
// covers all pods could allow the eviction of a virtual machine. An error means that it
// is unknown.
func (s *Store) policyUnder(ctx context.Context, name string, pod *podView) (*policy, error) {
	if !s.Loaded() {
		return nil, ErrNotLoaded
	}
	var first *policy
	for _, p := range s.all() {
		if p.interceptor != name {
			continue
		}
		if p.broken {
			return nil, fmt.Errorf("EvacuationPolicy %s is not accepted, and it cannot be told which pods it covers", p.name)
		}
		covers, err := p.covers(ctx, pod)
		if err != nil {
			s.note(p, pod, err)
			return nil, fmt.Errorf("EvacuationPolicy %s: %w", p.name, err)
		}
		if covers {
			first = p
			break
		}
	}
	if first == nil {
		return nil, errNotCovered
	}
	s.findOverlaps(ctx, first, pod)
	return first, nil
}

// findOverlaps remembers the other policies that cover a pod.
func (s *Store) findOverlaps(ctx context.Context, counts *policy, pod *podView) {
	for _, p := range s.all() {
		if p == counts {
			continue
		}
		covers, err := p.covers(ctx, pod)
		if err != nil || !covers {
			continue // Its failure is reported where it applies.
		}
		if s.overlaps.add(counts, p, pod.Pod) {
			s.policyChanged(counts.name)
			s.policyChanged(p.name)
		}
	}
}

// Held reports whether the guard of a pod must stay closed after all interceptors had
// their turn, and why: neither giving up nor an outage of ours may shut a workload down.
// It answers from memory; unknown counts as held. Each interceptor of the pod that has
// policies must have one that decides; policies of other interceptors do not count.
func (s *Store) Held(pod *corev1.Pod) (reason string, held bool) {
	if !s.Loaded() {
		s.index.set(pod, objectKey{})
		return "the EvacuationPolicies are not known yet", true
	}
	if len(s.all()) == 0 {
		s.index.set(pod, objectKey{}) // A policy may come.
		return "", false
	}
	ctx := context.Background()
	plan, now, unsure := s.interceptorsOf(ctx, pod)
	view := viewOf(pod)
	s.index.set(pod, objectKey{}) // Until more is known.
	for _, name := range s.names() {
		planned := slices.Contains(plan, name)
		if !planned && !slices.Contains(now, name) {
			continue
		}
		why, holds, err := s.heldUnder(ctx, name, view)
		switch {
		case err != nil && (planned || len(plan) == 0):
			return oneLine(err.Error()), true
		case err == nil && holds:
			return why, true
		}
	}
	if unsure != nil {
		return "who intercepts the pod is not known yet", true
	}
	return "", false
}

// Stalled says why the active interceptor makes no progress: it has given up and keeps
// the pod, or the platform does not accept its marks. It is empty for interceptors
// without policies, and answers from memory.
func (s *Store) Stalled(ctx context.Context, pod *corev1.Pod, er *v1alpha1.EvictionRequest) string {
	name := er.Status.ActiveInterceptors[0]
	if !slices.Contains(s.names(), name) {
		return ""
	}
	view := viewOf(pod)
	p, err := s.policyUnder(ctx, name, view)
	if err != nil {
		return "" // The request's message says what is wrong.
	}
	t := turn{}
	if er.Status.ActivationTime != nil {
		t.activatedAt = er.Status.ActivationTime.Time
	}
	_, f, v, err := s.observe(ctx, p, view, t, false)
	switch {
	case err != nil:
		return ""
	case v.Step == stepGiveUp && p.hold(f.Strategy):
		return "given up, " + v.Why
	case v.Step == stepMark && s.marksFail(ctx, p):
		return "its marks come to nothing"
	default:
		return ""
	}
}

// marksFail reports whether a policy's condition Marking is False, which all replicas
// can see.
func (s *Store) marksFail(ctx context.Context, p *policy) bool {
	object := &v1alpha1.EvacuationPolicy{}
	err := s.Client.Get(ctx, types.NamespacedName{Name: p.name}, object, client.UnsafeDisableDeepCopy)
	return err == nil && meta.IsStatusConditionFalse(object.Status.Conditions, v1alpha1.ConditionMarking)
}

// heldUnder is Held for one of the pod's interceptors.
func (s *Store) heldUnder(ctx context.Context, name string, pod *podView) (reason string, held bool, err error) {
	p, err := s.policyUnder(ctx, name, pod)
	if errors.Is(err, errNotCovered) {
		return "", false, fmt.Errorf("no EvacuationPolicy of interceptor %s covers the pod", name)
	}
	if err != nil {
		return "", false, err
	}
	sub, f, v, err := s.observe(ctx, p, pod, turn{}, false)
	if sub != nil {
		s.link(sub)
	}
	switch {
	case err != nil:
		return "", false, fmt.Errorf("EvacuationPolicy %s cannot tell whether the pod may go: %w", p.name, err)
	case v.Step == stepPass, v.Step == stepMoved:
		return "", false, nil
	case pod.Status.Phase == corev1.PodPending:
		// It does nothing yet, so it may be evicted, unless a migration waits for it.
		return "EvacuationPolicy " + p.name + " keeps the pod: " + v.Why, v.Step == stepWait || v.Step == stepRefuse, nil
	case v.Step == stepRefuse:
		return "EvacuationPolicy " + p.name + " keeps the pod: " + v.Why, true, nil
	case p.hold(f.Strategy):
		return "EvacuationPolicy " + p.name + " keeps a pod whose evacuation is not done", true, nil
	default:
		return "", false, nil
	}
}

// interceptorsOf returns the interceptors in the plan of the pod's request, none if
// there is no plan, and those that would intercept a new eviction. With an error, the
// latter may be incomplete.
func (s *Store) interceptorsOf(ctx context.Context, pod *corev1.Pod) (plan, now []string, unsure error) {
	er := &v1alpha1.EvictionRequest{}
	key := v1alpha1.RequestKey(pod)
	// Without a readable request there is no plan: the interceptors of a new eviction
	// count.
	if err := s.Client.Get(ctx, key, er, client.UnsafeDisableDeepCopy); err == nil && er.Spec.Target.Pod != nil && er.Spec.Target.Pod.UID == pod.UID {
		for _, i := range er.Status.TargetInterceptors {
			plan = append(plan, i.Name)
		}
	}
	now, unsure = s.Resolver.Resolve(pod)
	return plan, now, unsure
}

// OnPodChange registers a function to call, from any goroutine, when the answers for a
// pod may have changed although the pod has not.
func (s *Store) OnPodChange(tell func(pod types.NamespacedName)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = append(s.pods, tell)
}
