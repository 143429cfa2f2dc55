package budget

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/budget/grant"
	"github.com/drawbridge-dev/drawbridge/internal/disruption"
)

// Exhausted answers the evictor, on the leader: may a pod be deleted although its
// PodDisruptionBudget can never let it go? That two pods of one PodDisruptionBudget never go so
// at a time, not even of two leaders, rests on the API alone:
//
//   - One EvictionBudget covers all pods that the PodDisruptionBudget selects, so whatever is
//     recorded about any of them stands in one object.
//   - That a pod goes is recorded in its grant there (disruptionBudget), with the
//     resourceVersion of what was just read, before it is deleted. While such a record of
//     another pod stands, none is added. So of two leaders, one finds the record of the other,
//     or is refused with a conflict.
//   - The record stands until a pod in the place of the pod is ready, or the request has ended
//     and the pod has stayed for a minute since. A deletion that another leader has sent would
//     have come until then.
//   - Whatever else counts is read from the API server after that: a pod that leaves or is
//     missing is seen, however old the status of the PodDisruptionBudget is.
//   - The pod is deleted before the same process decides anything else in its namespace.
type Exhausted struct{ *runner }

const (
	// consentTimeout limits one answer.
	consentTimeout = 10 * time.Second
	// onItsWay is longer than any deletion can be on its way: longer than the evictor's Reconcile, in
	// which the answer, a last look at the request and the deletion follow each other, may take (30 s).
	onItsWay = time.Minute
)

// Consent gathers, decides and records, and calls remove if the pod may be deleted.
func (x *Exhausted) Consent(
	ctx context.Context, er *v1alpha1.EvictionRequest, pod *corev1.Pod, budget string, since time.Time, remove func(),
) (disruption.Consent, error) {
	s := x.state.space(pod.Namespace)
	if s == nil || !x.synced() {
		return disruption.Consent{}, nil
	}
	if !slices.ContainsFunc(x.state.covering(s, pod.UID), func(e *entry) bool { return e.evicts }) {
		return disruption.Consent{}, nil
	}
	if err := s.deciding.begin(ctx, x.clock); err != nil {
		return disruption.Consent{Waits: true}, nil // The evictor asks again.
	}
	defer s.deciding.end()
	entries := x.state.covering(s, pod.UID)
	ctx, cancel := context.WithTimeout(ctx, consentTimeout)
	defer cancel()
	in := disruption.Exhausted{Now: x.clock.Now(), Pod: pod.UID, Since: since, Off: !x.deletes}
	var err error
	if in.Agreements, err = x.agreements(ctx, s, entries, er, pod.UID, budget); err != nil {
		return disruption.Consent{}, err
	}
	switch in.Budget, in.All, err = x.counted(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: budget}); {
	case apierrors.IsForbidden(err): // The permission is limited to some namespaces.
		in.Off, in.Budget = true, &policyv1.PodDisruptionBudget{}
	case err != nil:
		return disruption.Consent{}, err
	}
	if c := in.Decide(); !c.Deletes {
		return c, nil
	}
	for _, e := range entries {
		if err := x.mark(ctx, e, pod.UID, budget); err != nil {
			return disruption.Consent{}, err
		}
	}
	// What was decided may have changed before it was recorded, and the window may have closed.
	if in.Budget, in.All, err = x.counted(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: budget}); err != nil {
		return disruption.Consent{}, err
	}
	in.Now = x.clock.Now()
	c := in.Decide()
	if c.Deletes {
		remove()
		for _, e := range entries {
			c.Budgets = append(c.Budgets, corev1.ObjectReference{
				APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "EvictionBudget", Namespace: e.key.Namespace, Name: e.key.Name, UID: e.uid,
			})
		}
	}
	return c, nil
}

// counted reads the PodDisruptionBudget, nil if it is gone, and the pods that it selects.
func (x *Exhausted) counted(ctx context.Context, key types.NamespacedName) (*policyv1.PodDisruptionBudget, []*corev1.Pod, error) {
	if !x.deletes { // Nor may the manager get one then.
		return &policyv1.PodDisruptionBudget{}, nil, nil
	}
	pdb := &policyv1.PodDisruptionBudget{}
	switch err := x.live.Get(ctx, key, pdb); {
	case apierrors.IsNotFound(err):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("get PodDisruptionBudget %s: %w", key, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
	if err != nil {
		return pdb, nil, nil //nolint:nilerr // The eviction API skips it as well.
	}
	var list corev1.PodList
	if err := x.live.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, nil, fmt.Errorf("list the pods of PodDisruptionBudget %s: %w", key, err)
	}
	all := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return pdb, all, nil
}

// agreements are what the budgets of a pod say, each as the API server has it now.
func (x *Exhausted) agreements(ctx context.Context, s *space, entries []*entry, er *v1alpha1.EvictionRequest, pod types.UID, pdb string) ([]disruption.Agreement, error) {
	for _, e := range entries {
		x.state.lost(e) // The cache, and what was read before, may be older.
	}
	if err := x.read(ctx, entries); err != nil {
		return nil, err
	}
	now := x.clock.Now()
	counted, _ := x.state.gather(s, entries, nil, map[string]string{}, nil, &owners{client: x.client, scales: x.scales, found: map[string]found{}}, now)
	states := grant.Step(counted).States
	all := make([]disruption.Agreement, 0, len(entries))
	for i, e := range entries {
		a := e.agreement(er.UID, pod, pdb, &counted.Budgets[i], states[i].Groups)
		blocked, _ := x.blocked(ctx, e.compiled) // It says as well what cannot be read.
		switch {
		case e.rules.Refused != "":
			a.Closed = fmt.Sprintf("EvictionBudget %s is not accepted (%s)", e.key.Name, e.rules.Refused)
		case blocked != "":
			a.Closed = fmt.Sprintf("%s (EvictionBudget %s)", blocked, e.key.Name)
		}
		all = append(all, a)
	}
	return all, nil
}

// agreement is what a budget says about a pod and its request, by its rules, its records and its
// counts.
func (e *entry) agreement(request, pod types.UID, pdb string, counted *grant.Budget, groups []grant.Group) disruption.Agreement {
	a := disruption.Agreement{
		Name: e.key.Name, Evict: e.evicts, After: e.after, Selector: e.selector, Opens: opens(e.rules.Windows),
		Unavailable: unavailable(counted, groups),
	}
	for _, g := range e.grants {
		switch {
		case g.PodUID == string(pod):
			a.Granted = g.Request == string(request)
		case g.DisruptionBudget == pdb:
			a.Going = append(a.Going, g.Pod)
		}
	}
	return a
}

// unavailable is how many pods are unavailable or missing, but for those that were granted and
// are still there and ready.
func unavailable(b *grant.Budget, groups []grant.Group) int {
	n := 0
	for _, g := range groups {
		n += g.Disrupted
	}
	for _, p := range b.Pods {
		if p.Ready && p.Placed && !p.Leaving && slices.ContainsFunc(b.Grants, func(g grant.Grant) bool { return g.Pod == p.UID }) {
			n--
		}
	}
	return n
}

// opens says when windows are open next, which is always if there are none.
func opens(windows grant.Windows) func(time.Time) (time.Time, bool) {
	return func(at time.Time) (time.Time, bool) {
		if len(windows) == 0 {
			return at, true
		}
		opening, open, err := windows.At(at)
		switch {
		case err != nil:
			return time.Time{}, false
		case open:
			return at, true
		}
		return opening.Start, true
	}
}

// mark records in the grant of a pod that it goes in spite of a PodDisruptionBudget.
func (x *Exhausted) mark(ctx context.Context, e *entry, pod types.UID, pdb string) error {
	object := e.object.DeepCopy()
	i := slices.IndexFunc(object.Status.Grants, func(g v1alpha1.BudgetGrant) bool { return g.PodUID == string(pod) })
	if i < 0 {
		return fmt.Errorf("EvictionBudget %s: %w", e.key, errStale)
	}
	if object.Status.Grants[i].DisruptionBudget == pdb {
		return nil // By a leader before, or before the deletion failed.
	}
	object.Status.Grants[i].DisruptionBudget = pdb
	if err := x.client.Status().Update(ctx, object, client.FieldOwner(fieldOwner)); err != nil {
		x.state.lost(e)
		return fmt.Errorf("record in EvictionBudget %s that a pod goes: %w", e.key, err)
	}
	x.state.took(e, object)
	return nil
}

// lasts is how long the record of a pod that stays has still to last, because the pod may be about
// to be deleted. It is not positive for those that were not let go so. The caller decides about the
// space. Another leader begins to count again.
func (s *space) lasts(g *v1alpha1.BudgetGrant, now time.Time) time.Duration {
	if g.DisruptionBudget == "" {
		return 0
	}
	ended, known := s.ended[g.Request]
	if !known {
		if s.ended == nil {
			s.ended = map[string]time.Time{}
		}
		ended, s.ended[g.Request] = now, now
	}
	return ended.Add(onItsWay).Sub(now)
}

// exhausting is how many of the grants are of pods that go in spite of a PodDisruptionBudget.
func exhausting(grants []v1alpha1.BudgetGrant) (n int) {
	for _, g := range grants {
		if g.DisruptionBudget != "" {
			n++
		}
	}
	return n
}
