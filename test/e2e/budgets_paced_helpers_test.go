//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/disruption"
)

// pacedSet is the StatefulSet of a paced namespace, and pace the budget for its pods.
const (
	pacedSet = "db"
	pace     = "pace"
)

// paced is a namespace with a StatefulSet behind a budget. All its pods are on one node, and
// nothing has room for others until the test says so.
type paced struct {
	namespace, node string
	// pods are sorted by name.
	pods   []corev1.Pod
	budget *v1alpha1.EvictionBudget
}

// newPaced creates a StatefulSet with so many pods, and a budget for them.
func newPaced(t *testing.T, replicas int32, change func(*builder.EvictionBudgetWrapper)) *paced {
	t.Helper()
	p := &paced{namespace: kube.Namespace(t)}
	p.node = addNodes(t, p.namespace, 1)[0]
	p.pods = createSet(t, p.namespace, pacedSet, replicas, p.node)
	b := builder.EvictionBudget(p.namespace, pace, builder.AppLabel, pacedSet)
	change(b)
	p.budget = createEvictionBudget(t, b, replicas)
	return p
}

// createSet creates a StatefulSet, and returns its pods, sorted by name, when they run on the
// node.
func createSet(t *testing.T, namespace, name string, replicas int32, node string, more ...func(*builder.PodWrapper)) []corev1.Pod {
	t.Helper()
	set := builder.StatefulSet(namespace, name).Replicas(replicas).Pods(onNodesOf(namespace, more...)).Obj()
	set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	create(t, set)
	var pods []corev1.Pod
	eventually(t, fmt.Sprintf("%d pods of %s to be ready", replicas, name), func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := admin.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{builder.AppLabel: name}); err != nil {
			return err
		}
		pods = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.Spec.NodeName != node || !isReady(&pod) })
		if len(pods) != int(replicas) {
			return fmt.Errorf("%d are", len(pods))
		}
		return nil
	})
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// room adds a node for other pods.
func (p *paced) room(t *testing.T) { addNodes(t, p.namespace, 1) }

// spec changes the budget.
func (p *paced) spec(t *testing.T, change func(*v1alpha1.EvictionBudgetSpec)) {
	t.Helper()
	patch(t, p.budget, func() { change(&p.budget.Spec) })
}

// live fails the test unless all pods run on but those.
func (p *paced) live(t *testing.T, but ...string) {
	t.Helper()
	for i := range p.pods {
		if !slices.Contains(but, p.pods[i].Name) {
			lives(t, &p.pods[i])
		}
	}
}

// leaves waits for the end of a drain, after which all pods are gone.
func (p *paced) leaves(t *testing.T, drain *cluster.Program) {
	t.Helper()
	finishWell(t, drain)
	for i := range p.pods {
		gone(t, &p.pods[i])
	}
}

// watch watches from outside how many pods are missing.
func (p *paced) watch(t *testing.T) *disruption.Watcher {
	t.Helper()
	return watchGroup(t, p.namespace, builder.AppLabel, pacedSet, len(p.pods))
}

func watchGroup(t *testing.T, namespace, label, value string, expected int) *disruption.Watcher {
	t.Helper()
	return must(disruption.Start(t.Context(), kube.Client(), disruption.Groups{Namespace: namespace, Label: label, Expected: map[string]int{value: expected}}))(t)
}

// oneAtATime fails the test if more than one pod of a group was missing, or none ever.
func oneAtATime(t *testing.T, w *disruption.Watcher, group string) {
	t.Helper()
	if most := must(w.Stop())(t).MostOf[group]; most != 1 {
		t.Errorf("%d pods of %s were missing at the same time, want 1", most, group)
	}
}

// evictions are those that the evictor was granted by the API server, in their order.
func (p *paced) evictions(t *testing.T, mark cluster.Mark) cluster.Requests {
	t.Helper()
	granted := evictionsBy(since(t, mark), drawbridge(), p.namespace).Where(func(r cluster.Request) bool { return r.Code == http.StatusCreated })
	if len(granted) != len(p.pods) {
		t.Fatalf("there were %d evictions, want %d:\n%s", len(granted), len(p.pods), granted)
	}
	return granted
}

// ask calls the eviction API once for each pod, which makes requests in this order.
func ask(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		if got := evict(t, "alice", pod, eviction(pod)); got.code != http.StatusTooManyRequests {
			t.Fatalf("the eviction of pod %s: want it to wait, got %d %s", pod.Name, got.code, got.body)
		}
		waitRequest(t, pod, "known", func(*v1alpha1.EvictionRequest) bool { return true })
	}
}

// waitBudgetsSay waits for a message of the budgets about a pod. A report is written at most
// once a minute, so all but the first one take longer than usual.
func waitBudgetsSay(t *testing.T, pod *corev1.Pod, texts ...string) *v1alpha1.EvictionRequest {
	t.Helper()
	var er *v1alpha1.EvictionRequest
	cluster.Eventually(t, fmt.Sprintf("the budgets to say %q about pod %s", texts, pod.Name), func(ctx context.Context) (err error) {
		if er, err = getRequest(ctx, pod); err != nil {
			return err
		}
		message := v1alpha1.ReportOf(er, v1alpha1.BudgetInterceptor).Message
		if slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(message, text) }) {
			return fmt.Errorf("they say %q", message)
		}
		return nil
	})
	return er
}

// budgetIs wants a condition of a budget.
func budgetIs(kind string, status metav1.ConditionStatus, reason string, texts ...string) func(*v1alpha1.EvictionBudgetStatus) bool {
	return func(s *v1alpha1.EvictionBudgetStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, kind)
		return c != nil && c.Status == status && c.Reason == reason &&
			!slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(c.Message, text) })
	}
}

// refusesWith wants that evictions wait for that reason.
func refusesWith(reason string, texts ...string) func(*v1alpha1.EvictionBudgetStatus) bool {
	return budgetIs(v1alpha1.ConditionGranting, metav1.ConditionFalse, reason, texts...)
}

// groupIs wants the state of a group.
func groupIs(want v1alpha1.BudgetGroup) func(*v1alpha1.EvictionBudgetStatus) bool {
	return func(s *v1alpha1.EvictionBudgetStatus) bool { return slices.Contains(s.Groups, want) }
}

// grantedPods are the names of the pods with a grant.
func grantedPods(s *v1alpha1.EvictionBudgetStatus) (names []string) {
	for _, g := range s.Grants {
		names = append(names, g.Pod)
	}
	return names
}

// grants wants that exactly those pods have a grant.
func grants(names ...string) func(*v1alpha1.EvictionBudgetStatus) bool {
	return func(s *v1alpha1.EvictionBudgetStatus) bool { return slices.Equal(grantedPods(s), names) }
}
