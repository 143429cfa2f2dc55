package budget

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// request is an EvictionRequest of a namespace with budgets.
type request struct {
	key      types.NamespacedName
	uid, pod types.UID
	podName  string
	created  time.Time
	// waits: it is the turn of the budgets. past: it was, and the eviction goes on.
	waits, past bool
	answer      answer
}

// goes reports whether nothing can keep the pod any more: the report of what was granted may
// be on its way.
func (r *request) goes() bool { return r.past || r.answer.granted }

// answer is what was decided last; the zero value is nothing.
type answer struct {
	granted bool
	// message is a sentence for people, and until when the wait may be over.
	message string
	until   time.Time
}

// putRequest notes a request.
func (st *state) putRequest(er *v1alpha1.EvictionRequest) {
	st.mu.Lock()
	s := st.spaces[er.Namespace]
	if s == nil {
		st.mu.Unlock()
		return
	}
	var changed []string
	if s.see(er) {
		changed = s.of(podOf(er))
	}
	st.mu.Unlock()
	st.tell(er.Namespace, changed)
}

// removeRequest notes that a request is gone.
func (st *state) removeRequest(namespace string, uid, pod types.UID) {
	st.mu.Lock()
	var changed []string
	if s := st.spaces[namespace]; s != nil && s.requests[uid] != nil {
		delete(s.requests, uid)
		changed = s.of(pod)
	}
	st.mu.Unlock()
	st.tell(namespace, changed)
}

// see notes a request and reports whether its turn has changed.
func (s *space) see(er *v1alpha1.EvictionRequest) (changed bool) {
	waits, past := turnOf(er)
	known := s.requests[er.UID]
	if !waits && !past {
		delete(s.requests, er.UID)
		return known != nil
	}
	if known != nil && known.waits == waits && known.past == past {
		return false
	}
	r := &request{key: client.ObjectKeyFromObject(er), uid: er.UID, pod: podOf(er), created: er.CreationTimestamp.Time, waits: waits, past: past}
	if target := er.Spec.Target.Pod; target != nil {
		r.podName = target.Name
	}
	if known != nil && waits {
		r.answer = known.answer
	}
	s.requests[er.UID] = r
	return true
}

// of are the budgets that cover a pod, by name.
func (s *space) of(pod types.UID) (names []string) {
	for _, e := range s.covering[pod] {
		names = append(names, e.key.Name)
	}
	return names
}

func podOf(er *v1alpha1.EvictionRequest) types.UID {
	if er.Spec.Target.Pod == nil {
		return ""
	}
	return er.Spec.Target.Pod.UID
}

// turnOf says whether it is the turn of the budgets, or was and the eviction goes on.
func turnOf(er *v1alpha1.EvictionRequest) (waits, past bool) {
	if !er.DeletionTimestamp.IsZero() || v1alpha1.IsFinished(er) || meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionCanceled) {
		return false, false
	}
	done := v1alpha1.ReportOf(er, v1alpha1.BudgetInterceptor).CompletionTime != nil
	switch {
	case slices.Contains(er.Status.ActiveInterceptors, v1alpha1.BudgetInterceptor):
		return !done, done
	case slices.Contains(er.Status.ProcessedInterceptors, v1alpha1.BudgetInterceptor):
		return false, true
	}
	return false, false
}

// answerOf returns what was decided about a request that waits, and whether it is known and
// its pod covered by a budget.
func (st *state) answerOf(namespace string, uid, pod types.UID) (a answer, budgets []string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := st.spaces[namespace]
	if s == nil {
		return answer{}, nil
	}
	if r := s.requests[uid]; r != nil {
		a = r.answer
	}
	return a, s.of(pod)
}

// component are the budgets that are decided together with one: those that share pods of
// requests with it that wait and have no grant, in turn. It is sorted.
func (s *space) component(name string) (names []string, requests []*request) {
	byBudget := map[string][]*request{}
	for _, r := range s.requests {
		if r.goes() {
			continue
		}
		for _, e := range s.covering[r.pod] {
			byBudget[e.key.Name] = append(byBudget[e.key.Name], r)
		}
	}
	found, taken := map[string]bool{name: true}, map[types.UID]bool{}
	for queue := []string{name}; len(queue) > 0; queue = queue[1:] {
		for _, r := range byBudget[queue[0]] {
			if taken[r.uid] {
				continue
			}
			taken[r.uid] = true
			requests = append(requests, r)
			for _, e := range s.covering[r.pod] {
				if other := e.key.Name; !found[other] {
					found[other] = true
					queue = append(queue, other)
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), requests
}
