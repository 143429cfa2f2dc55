package registration

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Known is what a Static registry knows.
type Known struct {
	Registrations []v1alpha1.EvictionInterceptor
	// Hooks are those that run: none if the manager does not run them.
	Hooks []v1alpha1.EvacuationHook
	// Budgets are those that are enforced: none if the manager does not enforce them.
	Budgets    []v1alpha1.EvictionBudget
	Namespaces []corev1.Namespace
}

// Static returns a registry of just what is given, which is in sync and never changes, for
// commands that read once and watch nothing. A registration that is not accepted is not
// found in it. Options.Hooks does not matter, and Options.Budgets only for budgets that are
// gone.
func Static(o Options, known Known) *Registry {
	o.Budgets = o.Budgets || len(known.Budgets) > 0
	r := NewRegistry(o)
	for i := range known.Registrations {
		r.put(&known.Registrations[i])
	}
	for i := range known.Hooks {
		r.putHook(&known.Hooks[i])
	}
	for i := range known.Budgets {
		r.putBudget(&known.Budgets[i])
	}
	for i := range known.Namespaces {
		r.putNamespace(&known.Namespaces[i])
	}
	return r
}
