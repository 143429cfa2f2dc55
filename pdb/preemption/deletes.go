package preemption

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Verdict is the answer to a deletion by the scheduler.
type Verdict string

// The verdicts; the values of the metric's label verdict.
const (
	// VerdictNotCovered: the deletion follows no known decision of ours.
	VerdictNotCovered Verdict = "not_covered"
	// VerdictAllowed: the decision still holds, or another preemptor may violate the
	// budget.
	VerdictAllowed Verdict = "allowed"
	// VerdictUnsure: required objects could not be read in time. Allowed.
	VerdictUnsure Verdict = "unsure"
	// VerdictRefused: the budget has changed since, and would be violated now.
	VerdictRefused Verdict = "refused"
)

// DeleteInput is everything that the verdict about one deletion depends on.
type DeleteInput struct {
	// Victim is the pod to be deleted.
	Victim types.UID
	// Decisions are those that cover it.
	Decisions []DecidedNode
	// Now are the victims of the last of them that still live, including the victim
	// itself, in their current state.
	Now []Victim
}

// DecidedNode is a node that a decision left to the scheduler.
type DecidedNode struct {
	Preemptor Preemptor
	// Victims as they were then.
	Victims []Victim
}

// Refusal says why a pod is not to be deleted. The zero value is none.
type Refusal struct {
	// Budget as it is now.
	Budget *Budget
	// Disruptions are the remaining ones.
	Disruptions int32
	// Preemptor is the one that the deletion makes room for.
	Preemptor Preemptor
}

// DecideDelete says whether the scheduler may delete a victim. It is refused only if
// every decision that covers the victim held it guarded, for the scheduler does not
// say for whom it deletes, and one of its budgets has changed since the last of them
// and would be violated by the victims that still live.
func DecideDelete(in DeleteInput) (Verdict, Refusal) {
	if len(in.Decisions) == 0 {
		return VerdictNotCovered, Refusal{}
	}
	for _, decided := range in.Decisions {
		then := find(decided.Victims, in.Victim)
		if then == nil || !then.guarded(&decided.Preemptor) {
			return VerdictAllowed, Refusal{}
		}
	}
	last := in.Decisions[len(in.Decisions)-1]
	before := map[types.UID]string{}
	for _, b := range find(last.Victims, in.Victim).Budgets {
		before[b.UID] = b.ResourceVersion
	}
	victim := find(in.Now, in.Victim)
	if victim == nil {
		return VerdictAllowed, Refusal{} // It is already being deleted.
	}
	disruptions := count(in.Now)
	for _, b := range victim.Budgets {
		if before[b.UID] == b.ResourceVersion {
			continue
		}
		if n := disruptions[b]; n > 0 && n > b.Allowed {
			return VerdictRefused, Refusal{Budget: b, Disruptions: n, Preemptor: last.Preemptor}
		}
	}
	return VerdictAllowed, Refusal{}
}

func find(victims []Victim, uid types.UID) *Victim {
	for i := range victims {
		if victims[i].UID == uid {
			return &victims[i]
		}
	}
	return nil
}

// Deletes gathers what DecideDelete needs.
type Deletes struct {
	View   *View
	Recent *RecentDecisions
	// Live reads pods and budgets from the API server: the caches may be behind by
	// the very change that matters.
	Live client.Reader
}

// Check returns the verdict about the deletion of a pod by the scheduler. Only a
// deletion that a decision covers costs calls: a GET per budget of the pod, and one
// per victim of the same node that still lives, before it is refused.
func (d *Deletes) Check(ctx context.Context, uid types.UID) (Verdict, Refusal, error) {
	in := DeleteInput{Victim: uid}
	for _, c := range d.Recent.covering(uid) {
		in.Decisions = append(in.Decisions, DecidedNode{Preemptor: c.preemptor, Victims: c.victims})
	}
	if len(in.Decisions) == 0 {
		return VerdictNotCovered, Refusal{}, nil
	}
	last := in.Decisions[len(in.Decisions)-1]
	namespace := find(last.Victims, uid).Namespace
	budgets := liveBudgets{reader: d.Live, known: map[*Budget]*Budget{}}
	for i := range last.Victims {
		if last.Victims[i].Namespace != namespace {
			continue // It shares no budget with the victim.
		}
		now, ok := d.View.lookUp(last.Victims[i].UID)
		if !ok || now.UID != uid && now.Free {
			continue
		}
		if err := budgets.refresh(ctx, &now); err != nil {
			return VerdictUnsure, Refusal{}, err
		}
		in.Now = append(in.Now, now)
	}
	verdict, refusal := DecideDelete(in)
	if verdict != VerdictRefused {
		return verdict, refusal, nil
	}
	// Some of them may have been deleted a moment ago.
	for i := range in.Now {
		if err := d.refreshPod(ctx, &in.Now[i]); err != nil {
			return VerdictUnsure, Refusal{}, err
		}
	}
	verdict, refusal = DecideDelete(in)
	return verdict, refusal, nil
}

// refreshPod checks whether a victim still lives.
func (d *Deletes) refreshPod(ctx context.Context, v *Victim) error {
	pod := &corev1.Pod{}
	err := d.Live.Get(ctx, types.NamespacedName{Namespace: v.Namespace, Name: v.Name}, pod)
	switch {
	case apierrors.IsNotFound(err), err == nil && pod.UID != v.UID:
		v.Free = true
	case err != nil:
		return fmt.Errorf("get pod %s/%s: %w", v.Namespace, v.Name, err)
	default:
		v.Free, v.Ready = free(pod), ready(pod)
	}
	return nil
}

// liveBudgets reads each budget once.
type liveBudgets struct {
	reader client.Reader
	known  map[*Budget]*Budget
}

// refresh replaces the cached budgets by live ones.
func (l *liveBudgets) refresh(ctx context.Context, v *Victim) error {
	now := make([]*Budget, 0, len(v.Budgets))
	for _, cached := range v.Budgets {
		live, ok := l.known[cached]
		if !ok {
			pdb := &policyv1.PodDisruptionBudget{}
			err := l.reader.Get(ctx, types.NamespacedName{Namespace: cached.Namespace, Name: cached.Name}, pdb)
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("get budget %s/%s: %w", cached.Namespace, cached.Name, err)
			}
			if err == nil {
				live = NewBudget(pdb)
			}
			l.known[cached] = live
		}
		if live != nil {
			now = append(now, live)
		}
	}
	v.Budgets = now
	return nil
}
