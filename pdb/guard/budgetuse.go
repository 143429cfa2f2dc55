package guard

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// budgetUse is who needs the budgets of namespaces, and what we have made and removed. All
// of it is a hint. It starts empty, and is filled by the first reconciliation of every pod.
// It is safe for concurrent use.
type budgetUse struct {
	mu sync.Mutex
	// waiting are the pods that wait for their namespace's budget.
	waiting map[string]map[types.NamespacedName]struct{}
	// needed is when a namespace's budget was needed last.
	needed map[string]time.Time
	// made is when we made a namespace's budget; the cache may not show it yet.
	made map[string]time.Time
	// removed are the budgets that we have deleted; the cache may still have them.
	removed map[string]types.UID
}

func newBudgetUse() *budgetUse {
	return &budgetUse{
		waiting: map[string]map[types.NamespacedName]struct{}{},
		needed:  map[string]time.Time{},
		made:    map[string]time.Time{},
		removed: map[string]types.UID{},
	}
}

// wait notes that the pod waits for its namespace's budget.
func (u *budgetUse) wait(pod types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.waiting[pod.Namespace] == nil {
		u.waiting[pod.Namespace] = map[types.NamespacedName]struct{}{}
	}
	u.waiting[pod.Namespace][pod] = struct{}{}
}

// settle notes that the pod no longer waits.
func (u *budgetUse) settle(pod types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.waiting[pod.Namespace], pod)
	if len(u.waiting[pod.Namespace]) == 0 {
		delete(u.waiting, pod.Namespace)
	}
}

// waitingIn are the pods of the namespace that wait, sorted.
func (u *budgetUse) waitingIn(namespace string) []types.NamespacedName {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.SortedFunc(maps.Keys(u.waiting[namespace]), func(a, b types.NamespacedName) int {
		return strings.Compare(a.Name, b.Name)
	})
}

// use takes the budget into use, unless it was removed.
func (u *budgetUse) use(namespace string, budget types.UID, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.removed[namespace] == budget {
		return false
	}
	u.needed[namespace] = now
	return true
}

// need notes that the namespace's budget is needed now.
func (u *budgetUse) need(namespace string, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.needed[namespace] = now
}

// lastNeeded is when the namespace's budget was needed last. If that is not
// known, it is now.
func (u *budgetUse) lastNeeded(namespace string, now time.Time) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	last, ok := u.needed[namespace]
	if !ok {
		u.needed[namespace] = now
		return now
	}
	return last
}

// remove notes that the budget is to be removed, unless it came into use after
// that time.
func (u *budgetUse) remove(namespace string, budget types.UID, unusedSince time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.waiting[namespace]) > 0 || u.needed[namespace].After(unusedSince) {
		return false
	}
	u.removed[namespace] = budget
	return true
}

// wasRemoved reports whether we have removed the budget.
func (u *budgetUse) wasRemoved(namespace string, budget types.UID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.removed[namespace] == budget
}

// forgetBudget notes that the budget is gone, or was not removed after all.
func (u *budgetUse) forgetBudget(namespace string, budget types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.removed[namespace] == budget {
		delete(u.removed, namespace)
	}
}

// make notes that the namespace's budget was made.
func (u *budgetUse) make(namespace string, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.made[namespace] = now
}

// justMade reports whether the namespace's budget was made less than the pause ago.
// Once the cache has shown a budget, or its end, that counts.
func (u *budgetUse) justMade(namespace string, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	at, ok := u.made[namespace]
	return ok && now.Sub(at) < pause
}

// seen notes that the cache shows the namespace's budget, or has just shown its end.
func (u *budgetUse) seen(namespace string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.made, namespace)
}

// forgetNamespace notes that the namespace has no budget and needs none.
func (u *budgetUse) forgetNamespace(namespace string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.needed, namespace)
	delete(u.made, namespace)
}
