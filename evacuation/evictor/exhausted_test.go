package evictor

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/disruption"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const neverText = "PodDisruptionBudget web can never allow a disruption (maxUnavailable is 0)."

// newExhausted is a bench with a pod whose budget can never let it go, and EvictionBudgets.
func newExhausted(t *testing.T, consents ...disruption.Consent) *bench {
	t.Helper()
	pdb := testBudget("web", 0)
	pdb.Spec.MaxUnavailable = new(intstr.FromInt32(0))
	pdb.Status.ExpectedPods, pdb.Status.DesiredHealthy, pdb.Status.CurrentHealthy = 1, 1, 1
	b := newBench(t, ourRequest().Obj(), ourPod().OwnedBy("StatefulSet", "web").Ready().Obj(), pdb)
	b.budgets.Observe(pdb)
	b.Exhausted, b.consents = b, consents
	return b
}

func (b *bench) report() v1alpha1.InterceptorStatus {
	return v1alpha1.ReportOf(b.request(), v1alpha1.ImperativeEvictionInterceptor)
}

// TestEvictorDeletesInSpiteOfABudget: from the first refusal, over the time that is told, to the
// deletion.
func TestEvictorDeletesInSpiteOfABudget(t *testing.T) {
	t.Parallel()
	due := at(30 * 60)
	soon := disruption.Consent{Waits: true, By: "db", At: due, Says: "EvictionBudget db has the pod deleted from T on."}
	by := corev1.ObjectReference{APIVersion: "drawbridge.dev/v1alpha1", Kind: "EvictionBudget", Namespace: "shop", Name: "db"}
	goes := disruption.Consent{Deletes: true, By: "db", Says: "The pod is deleted in spite of it.", Budgets: []corev1.ObjectReference{by}}
	b := newExhausted(t, soon)
	b.answers = []error{builder.BlockedAnswer()}
	if after := b.reconcile(); after != 5*time.Second {
		t.Errorf("back after %v, want the usual pause", after)
	}
	b.wantRefusal("before", &v1alpha1.EvictionRefusal{Reason: "EvictionBlocked", Budgets: []string{"web"}, Message: neverText + " " + soon.Says})
	if got := b.report().ExpectedFinishTime; got == nil || !got.Time.Equal(due) {
		t.Errorf("expectedFinishTime is %v, want %v", got, due)
	}
	if !b.since.IsZero() {
		t.Errorf("refused since %v, before there was a report", b.since)
	}

	// The last pause is no longer than the time that is left.
	b.clock.SetTime(at(29*60 + 59))
	b.answers, b.consents = []error{builder.BlockedAnswer()}, []disruption.Consent{soon}
	if after := b.reconcile(); after != time.Second {
		t.Errorf("back after %v, want 1s", after)
	}
	if !b.since.Equal(at(0)) {
		t.Errorf("refused since %v, want the first report, %v", b.since, at(0))
	}

	b.clock.SetTime(due)
	b.answers, b.consents, b.deletions = []error{builder.BlockedAnswer()}, []disruption.Consent{goes}, []error{nil}
	b.log.Events = nil
	b.reconcile()
	if diff := cmp.Diff([]target{callTarget}, b.deleted); diff != "" {
		t.Fatalf("deletions (-want +got):\n%s", diff)
	}
	report := b.report()
	if report.Message != goes.Says || report.Refusal != nil || report.ExpectedFinishTime != nil {
		t.Errorf("report: %+v", report)
	}
	const note = "DeletedDespiteBudget: Pod web-1: The pod is deleted in spite of it."
	if diff := cmp.Diff([]string{"EvictionRequest " + note, "Pod " + note, "EvictionBudget " + note}, b.log.Events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]float64{"budget-never-allows first": 1, "budget-never-allows backoff": 1, "evicted backoff": 1}, b.attempts()); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	if after := b.reconcile(); after <= 0 || len(b.deleted) != 1 {
		t.Errorf("back after %v, with %d deletions", after, len(b.deleted))
	}
}

// TestASlowAttemptHasANextOne: no event of a budget that can never allow would bring it back.
func TestASlowAttemptHasANextOne(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		thinking, standstill time.Duration
		want                 time.Duration
		reported             bool
	}{
		"the EvictionBudgets are slow":  {time.Minute, 0, 5 * time.Second, true},
		"the process has stood still":   {0, time.Hour, time.Millisecond, false},
		"it has stood still a little":   {0, 4 * time.Second, time.Second, true},
		"until the very end of a pause": {0, 5 * time.Second, time.Millisecond, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newExhausted(t, disruption.Consent{Waits: true, By: "db", At: at(4 * 3600), Says: "It goes later."})
			b.thinking, b.failures.then = tc.thinking, func() { b.clock.Step(tc.standstill) }
			b.answers = []error{builder.BlockedAnswer()}
			if after := b.reconcile(); after != tc.want {
				t.Errorf("back after %v, want %v", after, tc.want)
			}
			if reported := b.report().Refusal != nil; reported != tc.reported {
				t.Errorf("it is reported: %t, want %t", reported, tc.reported)
			}
		})
	}
}

// TestACanceledRequestDeletesNothing: not even while the EvictionBudgets are asked.
func TestACanceledRequestDeletesNothing(t *testing.T) {
	t.Parallel()
	b := newExhausted(t, disruption.Consent{Deletes: true, By: "db", Says: "It goes."})
	b.meanwhile = func() {
		er := b.request()
		er.Spec.Requesters = nil
		if err := b.server.Update(t.Context(), er); err != nil {
			t.Error(err)
		}
	}
	b.answers = []error{builder.BlockedAnswer()}
	b.reconcile()
	if len(b.deleted) > 0 {
		t.Errorf("deleted: %v", b.deleted)
	}
	if diff := cmp.Diff(map[string]float64{"budget-never-allows first": 1}, b.attempts()); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
}

// TestADeletionGivesThePodItsTime: whatever a requester asks for, the pod may end in its own time.
func TestADeletionGivesThePodItsTime(t *testing.T) {
	t.Parallel()
	now, long := int64(0), int64(600)
	for name, tc := range map[string]struct{ asked, want *int64 }{
		"nothing":     {nil, nil},
		"at once":     {&now, nil},
		"a long time": {&long, &long},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newExhausted(t, disruption.Consent{Deletes: true, By: "db", Says: "It goes."})
			er := b.request()
			er.Spec.Requesters = []v1alpha1.Requester{{Name: "drain.example.com", GracePeriodSeconds: tc.asked}}
			if err := b.server.Update(t.Context(), er); err != nil {
				t.Fatal(err)
			}
			b.answers, b.deletions = []error{builder.BlockedAnswer()}, []error{nil}
			b.reconcile()
			if diff := cmp.Diff([]*int64{tc.asked, tc.want}, b.graces); diff != "" {
				t.Errorf("grace periods of the eviction and the deletion (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEvictorDeletesNothing: whoever refuses, nobody deletes without consent.
func TestEvictorDeletesNothing(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(corev1.Resource("pods"), "web-1", nil)
	cases := map[string]struct {
		change    func(*bench)
		deletions []error
		asked     int
		want      *v1alpha1.EvictionRefusal
	}{
		"they say nothing": {
			func(b *bench) { b.consents = []disruption.Consent{{}} }, nil, 1,
			&v1alpha1.EvictionRefusal{Reason: "BudgetNeverAllows", Budgets: []string{"web"}, Message: neverText},
		},
		"they do not agree": {
			func(b *bench) { b.consents = []disruption.Consent{{By: "db", Says: "But no."}} }, nil, 1,
			&v1alpha1.EvictionRefusal{Reason: "BudgetNeverAllows", Budgets: []string{"web"}, Message: neverText + " But no."},
		},
		"something has to pass": {
			func(b *bench) { b.consents = []disruption.Consent{{Waits: true, By: "db", Says: "But later."}} }, nil, 1,
			&v1alpha1.EvictionRefusal{Reason: "EvictionBlocked", Budgets: []string{"web"}, Message: neverText + " But later."},
		},
		"they cannot be asked": {
			func(b *bench) { b.consents = nil }, nil, 1,
			&v1alpha1.EvictionRefusal{Reason: "EvictionBlocked", Budgets: []string{"web"}, Message: neverText},
		},
		"there are none": {
			func(b *bench) { b.Exhausted = nil }, nil, 0,
			&v1alpha1.EvictionRefusal{Reason: "BudgetNeverAllows", Budgets: []string{"web"}, Message: neverText},
		},
		"the budget may allow": {
			func(b *bench) {
				pdb := &policyv1.PodDisruptionBudget{}
				if err := b.server.Get(b.t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, pdb); err != nil {
					b.t.Fatal(err)
				}
				pdb.Spec.MaxUnavailable = new(intstr.FromInt32(1))
				if err := b.server.Update(b.t.Context(), pdb); err != nil {
					b.t.Fatal(err)
				}
			}, nil, 0,
			&v1alpha1.EvictionRefusal{Reason: "EvictionBlocked", Budgets: []string{"web"}, Message: "The disruption budget web needs 3 healthy pods and has 3 currently."},
		},
		"the API server forbids the deletion": {
			func(b *bench) { b.consents = []disruption.Consent{{Deletes: true, By: "db", Says: "It goes."}} }, []error{forbidden}, 1,
			&v1alpha1.EvictionRefusal{Reason: "EvictionForbidden", Message: "The API server forbids the eviction (RBAC or an admission plugin). " + forbidden.Error() + "."},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newExhausted(t)
			tc.change(b)
			b.answers, b.deletions = []error{builder.BlockedAnswer()}, tc.deletions
			b.reconcile()
			b.wantRefusal("in the end", tc.want)
			if len(b.deletions) > 0 || b.asked != tc.asked {
				t.Errorf("%d deletions are left, asked %d times, want %d", len(b.deletions), b.asked, tc.asked)
			}
			if got := b.report().ExpectedFinishTime; got != nil {
				t.Errorf("expectedFinishTime is %v", got)
			}
		})
	}
}

// TestRemoveCallSendsUIDAndGracePeriod: the deletion is of one incarnation only.
func TestRemoveCallSendsUIDAndGracePeriod(t *testing.T) {
	t.Parallel()
	var line string
	var got metav1.DeleteOptions
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line = r.Method + " " + r.URL.Path
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &got)
		}
		if err != nil {
			t.Errorf("the body is no DeleteOptions: %v: %s", err, body)
		}
		w.Header().Set("Content-Type", "application/json")
		if _, err := io.WriteString(w, `{"apiVersion":"v1","kind":"Status","status":"Success"}`); err != nil {
			t.Errorf("write the answer: %v", err)
		}
	}))
	t.Cleanup(server.Close)
	calls, err := newClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	seconds := int64(40)
	if err := newRemove(calls, time.Minute)(context.Background(), callTarget, &seconds); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("DELETE /api/v1/namespaces/shop/pods/web-1", line); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	got.TypeMeta = metav1.TypeMeta{}
	if diff := cmp.Diff(metav1.DeleteOptions{GracePeriodSeconds: &seconds, Preconditions: metav1.NewUIDPreconditions("uid-1")}, got); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}
