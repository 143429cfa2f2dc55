//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// waitGuard waits until the guard of a pod is closed, or open.
func waitGuard(t *testing.T, pod *corev1.Pod, closed bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("the guard of pod %s to be closed: %t", pod.Name, closed), func(ctx context.Context) error {
		now := &corev1.Pod{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
			return err
		}
		if got := now.Labels[v1alpha1.GuardLabel] == v1alpha1.GuardClosed; got != closed {
			return fmt.Errorf("labels %v", now.Labels)
		}
		return nil
	})
}

// guardBudgets are the guard's budgets in some namespaces.
func guardBudgets(t *testing.T, namespaces ...string) []policyv1.PodDisruptionBudget {
	t.Helper()
	list := &policyv1.PodDisruptionBudgetList{}
	if err := admin.List(t.Context(), list, client.MatchingLabels{v1alpha1.GuardBudgetLabel: "true"}); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(pdb policyv1.PodDisruptionBudget) bool { return !slices.Contains(namespaces, pdb.Namespace) })
}

// guardMetric is a series of drawbridge_guard_pods.
func guardMetric(t *testing.T, m *manager.Manager, state string) int {
	t.Helper()
	for _, family := range must(m.Metrics.Gather())(t) {
		if family.GetName() != "drawbridge_guard_pods" {
			continue
		}
		for _, series := range family.GetMetric() {
			if series.GetLabel()[0].GetValue() == state {
				return int(series.GetGauge().GetValue())
			}
		}
	}
	return 0
}

// probe evicts, as a dry run, a pod that does not exist, until the error is the one
// wanted. It works at the end of a test, too.
func probe(t *testing.T, what string, want func(error) bool) {
	t.Helper()
	nobody := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "nobody"}}
	err := cluster.Wait(context.Background(), what, func(ctx context.Context) error {
		got := admin.SubResource("eviction").Create(ctx, nobody.DeepCopy(), &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}})
		if !want(got) {
			return fmt.Errorf("the answer is %v", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// startGuarded starts a manager as startManager does, with the failure policy that
// the chart has with the guard, until the test ends. Its labeling can be stopped.
func startGuarded(t *testing.T, change func(*app.Options)) (*manager.Manager, *labelStop) {
	t.Helper()
	// At the end, when no manager runs: with Ignore the next one could not tell when the
	// API server begins to call it.
	t.Cleanup(func() {
		setFailurePolicy(context.Background(), t, admissionregistrationv1.Fail)
		probe(t, "the API server to need the webhook again", apierrors.IsInternalError)
	})
	labels := &labelStop{}
	m := startStoppable(t, change, labels)
	setFailurePolicy(t.Context(), t, admissionregistrationv1.Ignore)
	return m, labels
}

// setFailurePolicy sets the policy and what the manager is to make of it.
func setFailurePolicy(ctx context.Context, t *testing.T, policy admissionregistrationv1.FailurePolicyType) {
	t.Helper()
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := admin.Get(ctx, client.ObjectKey{Name: inst.Release}, config); err != nil {
		t.Fatal(err)
	}
	before := config.DeepCopy()
	config.Webhooks[0].FailurePolicy = &policy
	config.Annotations[failurepolicy.WantedAnnotation] = string(policy)
	if err := admin.Patch(ctx, config, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// outage stops the manager of startGuarded and waits until evictions pass by the
// webhook.
func outage(t *testing.T, m *manager.Manager) {
	t.Helper()
	m.StopFor(t)
	probe(t, "the API server to ignore the webhook", apierrors.IsNotFound)
}

// back starts the manager again, and waits until it is asked about the evictions of
// a pod that is intercepted: a dry run is answered with a warning then.
func back(t *testing.T, change func(*app.Options), pod *corev1.Pod, labels *labelStop) *manager.Manager {
	t.Helper()
	m := startStoppable(t, change, labels)
	eventually(t, "the API server to ask us again", func(context.Context) error {
		call := eviction(pod)
		call.DeleteOptions.DryRun = []string{metav1.DryRunAll}
		if got := evict(t, "kim", pod, call); got.header.Get("Warning") == "" {
			return fmt.Errorf("without a warning: %d %s", got.code, got.body)
		}
		return nil
	})
	return m
}

// startStoppable starts a manager whose labeling can be stopped.
func startStoppable(t *testing.T, change func(*app.Options), labels *labelStop) *manager.Manager {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m := must(inst.Start(ctx, manager.Options{Change: withPresets(change), Wrap: labels.wrap}))(t)
	t.Cleanup(func() { m.StopFor(t) })
	return m
}

// labelStop stops a manager's labeling of pods, so that a test can look at the moment
// before a guard opens.
type labelStop struct {
	mu   sync.Mutex
	open chan struct{}
}

// stop holds up what comes from now on, until release.
func (l *labelStop) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = make(chan struct{})
}

func (l *labelStop) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.open)
	l.open = nil
}

func (l *labelStop) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		l.mu.Lock()
		open := l.open
		l.mu.Unlock()
		if open != nil && r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/pods/") {
			select {
			case <-open:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// onlyTheGuard lets nothing else patch pods.
func onlyTheGuard(o *app.Options) { o.DeschedulerMark = false }

// inParallel calls f for each number below n, so many at a time.
func inParallel(t *testing.T, n, atATime int, f func(ctx context.Context, i int) error) {
	t.Helper()
	var group sync.WaitGroup
	next := make(chan int)
	for range atATime {
		group.Go(func() {
			for i := range next {
				if err := f(t.Context(), i); err != nil {
					t.Errorf("%d: %v", i, err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
}
