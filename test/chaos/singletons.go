//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const (
	// singletonsName is the name of both budgets, and a label of the pods that they cover.
	singletonsName  = "singletons"
	singletonsLabel = foreign + singletonsName
	// impatient is who asks for all of them before the faults begin.
	impatient = "impatient.chaos.example.com"
	// turnPatience bounds how long it may take until it is the evictor's turn with all of them.
	turnPatience = 30 * time.Second
)

// createConsent makes the EvictionBudget of the singletons.
func (r *run) createConsent(ctx context.Context) error {
	s := r.history.Plan.Singletons
	if s == nil {
		return nil
	}
	budget := builder.EvictionBudget(r.namespace, singletonsName, singletonsLabel, singletonsName).MaxUnavailable("100%").Exhausted(consentAfter)
	if s.Windows {
		budget.Window(windowSchedule, windowLength).Outside(v1alpha1.OutsideWindowContinue)
	}
	return r.createEvictionBudget(ctx, budget.Obj())
}

// exhaust makes the PodDisruptionBudget that can never let a singleton go.
func (r *run) exhaust(ctx context.Context) error {
	s := r.history.Plan.Singletons
	if s == nil {
		return nil
	}
	all := r.history.Plan.singletons()
	budget := builder.Budget(r.namespace, singletonsName).Selects(singletonsLabel, singletonsName)
	if s.ByScale {
		budget.MaxUnavailable("0")
	} else {
		budget.MinAvailable(fmt.Sprint(all))
	}
	return r.createBudget(ctx, budget.Obj(), all)
}

// askForSingletons asks for all of them at the same time, and waits until they are about to be
// deleted, so that everything goes wrong meanwhile.
func (r *run) askForSingletons(ctx context.Context) {
	s := r.history.Plan.Singletons
	if s == nil {
		return
	}
	asking, cancel := context.WithTimeout(ctx, turnPatience)
	defer cancel()
	err := insist(asking, "wait for the evictor's turn with the singletons", func(ctx context.Context) error {
		var failures []error
		for uid, pod := range r.observer.podsNow() {
			if pod.Labels[singletonsLabel] == "" {
				continue
			}
			failures = append(failures, r.want(ctx, pod, v1alpha1.Requester{Name: impatient}))
			if !r.isLastTurn(pod) {
				failures = append(failures, fmt.Errorf("the turn of pod %s has not come", uid))
			}
		}
		return errors.Join(failures...)
	})
	if err != nil && ctx.Err() == nil {
		r.world.tellf("%v", err)
	}
	due := s.opens(time.Now().Add(consentAfter))
	r.world.tellf("the singletons are to be deleted from %s on", stamp(due))
	rest(ctx, time.Until(due.Add(-time.Duration(s.At)*Step)))
}

// isLastTurn reports whether it is the evictor's turn with a pod.
func (r *run) isLastTurn(pod *corev1.Pod) bool {
	for _, er := range r.observer.requestsNow() {
		if er.Name == string(pod.UID) && slices.Contains(er.Status.ActiveInterceptors, v1alpha1.ImperativeEvictionInterceptor) {
			return true
		}
	}
	return false
}

// stopAsking withdraws from the singletons when everything is called off.
func (r *run) stopAsking(ctx context.Context) {
	<-ctx.Done()
	r.withdraw(context.WithoutCancel(ctx), impatient)
}
