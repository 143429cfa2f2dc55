package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/refusals"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

// maxTried is in how many namespaces writes are tried.
const maxTried = 50

// Tried is the dry run of a write in a namespace.
type Tried struct {
	Namespace string
	// Refusal is nil if the write would be accepted.
	Refusal *refusals.Refusal
	// Problem is why it could not be tried; empty if it could.
	Problem string
}

// meet remembers the namespace of a pod that interceptors hold up.
func (f *Facts) meet(registry *registration.Registry, pod *corev1.Pod) {
	if i, known := slices.BinarySearch(f.Intercepted, pod.Namespace); !known && len(interceptorsOf(registry, pod)) > 0 {
		f.Intercepted = slices.Insert(f.Intercepted, i, pod.Namespace)
	}
}

// tryWrites makes dry runs of what Drawbridge writes before an eviction. They are the
// user's, who may not be allowed to make them.
func (g *Gatherer) tryWrites(ctx context.Context, f *Facts) {
	s := f.settings()
	for _, namespace := range f.Intercepted[:min(len(f.Intercepted), maxTried)] {
		note := func(refusal *refusals.Refusal, err error) {
			tried := Tried{Namespace: namespace, Refusal: refusal}
			switch {
			case err != nil:
				tried.Problem = err.Error()
			case refusal != nil && refusal.Cause == refused.NamespaceTerminating:
				return // Its pods go with it.
			}
			f.Tried = append(f.Tried, tried)
		}
		note(refusals.TryRequest(ctx, g.reader, refusals.MadeUp(namespace)))
		made := slices.ContainsFunc(f.Budgets, func(b policyv1.PodDisruptionBudget) bool {
			return b.Namespace == namespace && b.Name == v1alpha1.GuardBudgetName
		})
		if (s.guard || !s.known) && !made {
			note(refusals.TryGuardBudget(ctx, g.reader, namespace))
		}
	}
}

func refusedWrites(f *Facts) verdict {
	var v verdict
	var findings []Finding
	var untried []string
	problem := ""
	for _, tried := range f.Tried {
		switch {
		case tried.Problem != "":
			if problem == "" {
				problem = tried.Problem
			}
			if !slices.Contains(untried, tried.Namespace) {
				untried = append(untried, tried.Namespace)
			}
		case tried.Refusal != nil:
			findings = append(findings, Finding{Severity: Warn, Object: "namespace/" + tried.Namespace,
				What: strings.TrimSuffix(text.Clean(tried.Refusal.Said(tried.Namespace)), "."), Do: tried.Refusal.Remedy(tried.Namespace)})
		}
	}
	summary := []string{text.Counted(len(f.Intercepted), "namespace") + " with pods that have interceptors"}
	if len(f.Intercepted) > maxTried {
		summary = append(summary, fmt.Sprintf("only the first %d are tried", maxTried))
	}
	if len(untried) > 0 {
		summary = append(summary, fmt.Sprintf("it could not be tried in %s (%s)", list(untried), text.Clean(problem)))
	}
	v.summary = strings.Join(summary, "; ")
	v.findings = bounded(findings, "writes are refused")
	if n := len(f.Intercepted); n > maxTried && len(v.findings) > 0 {
		v.warn("", fmt.Sprintf("only the first %d of %d namespaces are tried", maxTried, n), "Repair those above, then look again.")
	}
	return v
}
