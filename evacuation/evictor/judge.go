package evictor

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/evacuation/evictor/answer"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/disruption"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// judged is the answer with what is known of the budget that gave it. Of many pods that wait
// for the same budget, the first has the pods counted; later only those whose pause is over.
func (e *Reconciler) judged(ctx context.Context, key types.NamespacedName, budgets []string, given answer.Answer, trigger translate.Trigger) answer.Answer {
	if given.Result != translate.ResultBudget || len(budgets) != 1 {
		return given
	}
	name := types.NamespacedName{Namespace: key.Namespace, Name: budgets[0]}
	if seen, known := e.budgets.Known(name); !known || trigger == translate.TriggerBackoff {
		pdb := &policyv1.PodDisruptionBudget{}
		switch err := e.Client.Get(ctx, name, pdb); {
		case err == nil:
			correct(e.queue, e.judge(ctx, pdb, seen))
		case !apierrors.IsNotFound(err):
			log.FromContext(ctx).Error(err, "Could not look at a budget", "budget", name)
		}
	}
	return given.Judged(e.budgets.Never(key))
}

// judge counts the budget's pods, and returns the requests to look at again because it has
// turned out that the budget can never allow, or that it can again.
func (e *Reconciler) judge(ctx context.Context, pdb *policyv1.PodDisruptionBudget, seen uint64) []types.NamespacedName {
	name := client.ObjectKeyFromObject(pdb)
	if pdb.Status.DisruptionsAllowed > 0 {
		return e.budgets.Judge(name, seen, "") // Nothing needs to be counted.
	}
	list := &corev1.PodList{}
	if err := e.Client.List(ctx, list, client.InNamespace(pdb.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Could not count the pods of a budget", "budget", name)
		return nil
	}
	all := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return e.budgets.Judge(name, seen, disruption.Of(pdb, disruption.Selected(pdb, all)).Says())
}

// Corrections are written at a pace: each is a write, and the pods that a changed budget lets go
// must not wait for thousands of them.
const (
	correctedAtOnce = 10
	correctionPause = 10 * time.Millisecond
)

// correct lets requests tell anew what is known of their budget.
func correct(queue controllers.Queue, keys []types.NamespacedName) {
	for i, key := range keys {
		queue.AddAfter(reconcile.Request{NamespacedName: key}, time.Duration(max(0, i+1-correctedAtOnce))*correctionPause)
	}
}

// Known is how many statuses of the budget were seen, and whether it is known if the budget
// can ever allow: somebody has looked since the last status, or it has allowed with this
// spec. Then only a pause that is over is a reason to count. While pods leave one after the
// other, each has a moment in which it is gone and its replacement is not there: all that wait
// would take the budget for one that never allows, and write twice for each pod that leaves.
func (q *budgetQueue) Known(name types.NamespacedName) (seen uint64, known bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b := q.budgets[name.Namespace][name.Name]; b != nil {
		return b.seen, b.judged || b.allowedOne && b.never == ""
	}
	return 0, false
}

// Doubtful reports whether a new status may change what those that wait for the budget say of
// it: that it never allows may be over, or begin with a new spec.
func (q *budgetQueue) Doubtful(name types.NamespacedName) (seen uint64, doubtful bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b := q.budgets[name.Namespace][name.Name]; b != nil {
		return b.seen, len(b.waiting) > 0 && (b.never != "" || b.changed)
	}
	return 0, false
}

// Judge notes whether the budget can ever allow, as of a status, unless there is a newer one.
// It returns the requests that wait for the budget if that has changed: what they say of it
// has to change, too.
func (q *budgetQueue) Judge(name types.NamespacedName, seen uint64, never string) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.budgets[name.Namespace][name.Name]
	if b == nil || b.seen != seen {
		return nil
	}
	before := b.never
	b.never, b.judged, b.changed = never, true, b.changed && !b.observed
	if before == never {
		return nil
	}
	keys := make([]types.NamespacedName, 0, len(b.waiting))
	for _, p := range b.waiting {
		keys = append(keys, p.key)
	}
	return keys
}

// Never is what is known of the only budget that selects the request's pod: that it can
// never allow; empty if it can.
func (q *budgetQueue) Never(key types.NamespacedName) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.places[key.Namespace][key]; p != nil && p.home != nil {
		return p.home.never
	}
	return ""
}
