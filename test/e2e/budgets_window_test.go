//go:build unix

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// closedWindow is a window of an hour that opens next in some hours, and when.
func closedWindow() (w v1alpha1.BudgetWindow, opens time.Time) {
	opens = time.Now().UTC().Add(6 * time.Hour).Truncate(time.Hour)
	return v1alpha1.BudgetWindow{
		Schedule: fmt.Sprintf("0 %d * * *", opens.Hour()), Duration: metav1.Duration{Duration: time.Hour}, TimeZone: "UTC",
	}, opens
}

// openWindow is always open: it opens every minute for a minute.
func openWindow() v1alpha1.BudgetWindow {
	return v1alpha1.BudgetWindow{Schedule: "* * * * *", Duration: metav1.Duration{Duration: time.Minute}, TimeZone: "UTC"}
}

// Outside of its windows a budget says when the next one opens, to people and to tools, and
// goes on as soon as one is open.
func TestABudgetWaitsForItsWindow(t *testing.T) {
	shareManager(t)
	window, opens := closedWindow()
	p := newPaced(t, 2, func(b *builder.EvictionBudgetWrapper) { b.Spec.Windows = []v1alpha1.BudgetWindow{window} })
	p.room(t)
	drain := startDrain(t, "alice", p.node)
	for i := range p.pods {
		er := waitBudgetsSay(t, &p.pods[i], "EvictionBudget pace: no window is open, the next one opens at "+opens.Format(time.RFC3339)+".")
		if got := v1alpha1.ReportOf(er, v1alpha1.BudgetInterceptor).ExpectedFinishTime; got == nil || !got.Time.Equal(opens) {
			t.Errorf("expectedFinishTime: want %v, got %v", opens, got)
		}
	}
	now := waitBudget(t, p.budget, "wait for its window", refusesWith(v1alpha1.ReasonOutsideWindow, opens.Format(time.RFC3339)))
	if s := now.Status; *s.DisruptionsAllowed != 0 || s.Window == nil || !s.Window.Start.Time.Equal(opens) || !s.Window.End.Time.Equal(opens.Add(time.Hour)) {
		t.Errorf("status: want the window from %v for an hour and nothing allowed, got %+v", opens, s)
	}
	// People see the time where they look.
	eventually(t, "kubectl get er to have the time of the window", func(ctx context.Context) error {
		shown, err := kube.Kubectl(ctx, cluster.KubectlOptions{}, "get", "er", "-n", p.namespace)
		if err == nil && strings.Count(shown.Stdout, " "+opens.Format(time.RFC3339)+" ") != len(p.pods) {
			err = textError(shown.Stdout)
		}
		return err
	})
	p.live(t)
	drainGoesOn(t, drain)

	p.spec(t, func(s *v1alpha1.EvictionBudgetSpec) { s.Windows = []v1alpha1.BudgetWindow{window, openWindow()} })
	p.leaves(t, drain)
	waitBudget(t, p.budget, "have an open window", func(s *v1alpha1.EvictionBudgetStatus) bool {
		return *s.Waiting == 0 && s.Window != nil && s.Window.Start.Time.Before(time.Now()) && s.Window.End.After(time.Now())
	})
}

// A window that cannot be read holds the pods, and says what is wrong, until it is repaired.
func TestABudgetWithABadWindowHoldsItsPods(t *testing.T) {
	shareManager(t)
	p := newPaced(t, 1, func(b *builder.EvictionBudgetWrapper) {
		b.Spec.Windows = []v1alpha1.BudgetWindow{{Schedule: "0 22 * * *", Duration: metav1.Duration{Duration: time.Hour}, TimeZone: "Mars/Phobos"}}
	})
	p.room(t)
	waitBudget(t, p.budget, "be refused", budgetIs(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalidWindow, `spec.windows[0]: time zone "Mars/Phobos" is not known`))
	drain := startDrain(t, "alice", p.node)
	waitBudgetsSay(t, &p.pods[0], "EvictionBudget pace: its spec is not accepted (InvalidWindow).")
	waitBudget(t, p.budget, "hold its pod", refusesWith(v1alpha1.ReasonNotAccepted))
	p.live(t)
	p.spec(t, func(s *v1alpha1.EvictionBudgetSpec) { s.Windows = []v1alpha1.BudgetWindow{openWindow()} })
	p.leaves(t, drain)
	waitBudget(t, p.budget, "be accepted", budgetIs(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted))
}
