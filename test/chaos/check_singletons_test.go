package chaos

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// inVersion makes a pod one of an application, in a version.
func inVersion(version, app string, change ...func(*corev1.Pod)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.ResourceVersion, p.Labels[builder.AppLabel] = version, app
		for _, c := range change {
			c(p)
		}
	}
}

// singleton is a state of a pod of an application.
func singleton(second float64, version, app, name string, change ...func(*corev1.Pod)) PodSeen {
	return PodSeen{At: at(second), Pod: pod(name, inVersion(version, app, change...))}
}

// deletes has the managers delete a pod of an application at that second, which they have recorded
// before that version. It is there until the next version.
func deletes(second float64, version, next, app, name string) func(*History) {
	return func(h *History) {
		uid := types.UID("uid-" + name)
		gone := singleton(second+0.2, next, app, name, dying(at(second)))
		gone.Gone = true
		h.Pods = append(h.Pods, singleton(second+0.1, version, app, name, dying(at(second))), gone)
		h.Deletions = append(h.Deletions, Deletion{At: at(second), Name: name, UID: uid, Code: 200})
		record := &v1alpha1.EvictionBudget{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "10"}}
		record.Status.Grants = []v1alpha1.BudgetGrant{{PodUID: string(uid), DisruptionBudget: singletonsBudget}}
		h.EvictionBudgets = append(h.EvictionBudgets, EvictionBudgetSeen{At: at(second), Budget: record})
	}
}

const singletonsBudget = "singletons"

// comes has a pod of an application come and be ready.
func comes(second float64, version, app, name string) func(*History) {
	return func(h *History) { h.Pods = append(h.Pods, singleton(second, version, app, name)) }
}

// alone is a history of two singletons, a and b, which are the evictor's since the first second.
func alone(change ...func(*History)) *History {
	h := &History{
		Plan: Plan{Mode: ModeFail, Singletons: &Singletons{}, Workloads: []Workload{
			{Name: "single-0", Kind: Singleton, Replicas: 1}, {Name: "single-1", Kind: Singleton, Replicas: 1},
		}},
		Names:    map[string][]string{},
		Deadline: deadline, Slack: 2 * grain,
		Pods: []PodSeen{singleton(0, "1", "single-0", "a"), singleton(0, "2", "single-1", "b")},
	}
	names := []string{v1alpha1.BudgetInterceptor, v1alpha1.ImperativeEvictionInterceptor}
	for _, pod := range []string{"a", "b"} {
		er := &v1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Name: "uid-" + pod, UID: types.UID("request-" + pod), CreationTimestamp: metav1.NewTime(start)}}
		er.Status.TargetInterceptors = []v1alpha1.Interceptor{{Name: names[0]}, {Name: names[1]}}
		er.Status.ProcessedInterceptors, er.Status.ActiveInterceptors = names[:1], names[1:]
		h.Requests = append(h.Requests, RequestSeen{At: at(1), Request: er})
	}
	for _, c := range change {
		c(h)
	}
	return h
}

func TestCheckSingletons(t *testing.T) {
	windows := func(h *History) { h.Plan.Singletons.Windows = true }
	cases := map[string]struct {
		history *History
		want    string // The promise that is broken.
		deleted int
	}{
		"after its time":  {alone(deletes(61, "20", "21", "single-0", "a")), never, 1},
		"before its time": {alone(deletes(50, "20", "21", "single-0", "a")), PromiseConsent, 1},
		"not in the evictor's turn": {alone(deletes(61, "20", "21", "single-0", "a"), func(h *History) {
			h.Requests[0].Request.Status.ProcessedInterceptors, h.Requests[0].Request.Status.ActiveInterceptors = nil, nil
		}), PromiseConsent, 1},
		"without a request": {alone(deletes(61, "20", "21", "single-0", "a"), unasked), PromiseConsent, 1},
		"without its UID":   {alone(deletes(61, "20", "21", "single-0", "a"), func(h *History) { h.Deletions[0].UID = "" }), PromiseConsent, 1},
		"the server died over it": {alone(deletes(61, "20", "21", "single-0", "a"), func(h *History) {
			h.Deletions[0].UID, h.Deletions[0].Code = "", 0
		}), never, 1},
		"refused": {alone(func(h *History) {
			h.Deletions = []Deletion{{At: at(61), Name: "a", UID: "uid-a", Code: 409}}
		}), never, 0},
		"refused, and before its time": {alone(func(h *History) {
			h.Deletions = []Deletion{{At: at(50), Name: "a", UID: "uid-a", Code: 409}}
		}), PromiseConsent, 0},
		"an interceptor is not done": {alone(deletes(61, "20", "21", "single-0", "a"), func(h *History) {
			h.Names["single-0"] = []string{first}
			status := &h.Requests[0].Request.Status
			status.TargetInterceptors = slices.Insert(status.TargetInterceptors, 0, v1alpha1.Interceptor{Name: first})
			status.ProcessedInterceptors = slices.Insert(slices.Clone(status.ProcessedInterceptors), 0, first)
			h.Ledger = []Entry{{At: at(59), Told: at(59), Deed: Began, Request: "request-a", Interceptor: first}}
		}), PromiseDone, 1},
		"another pod": {alone(func(h *History) {
			h.Plan.Workloads[0].Kind = Plain
			h.Deletions = []Deletion{{At: at(61), Name: "a", UID: "uid-a", Code: 200}}
		}), PromiseConsent, 0},
		"all pods": {alone(func(h *History) { h.Deletions = []Deletion{{At: at(61), Code: 200}} }), PromiseConsent, 0},

		"within a window":                  {alone(windows, deletes(150, "20", "21", "single-0", "a")), never, 1},
		"a moment after a window":          {alone(windows, deletes(61, "20", "21", "single-0", "a")), never, 1},
		"outside of a window":              {alone(windows, deletes(80, "20", "21", "single-0", "a")), PromiseConsent, 1},
		"a moment before a window":         {alone(windows, deletes(118, "20", "21", "single-0", "a")), never, 1},
		"well before a window":             {alone(windows, deletes(110, "20", "21", "single-0", "a")), PromiseConsent, 1},
		"outside of what is no window":     {alone(deletes(80, "20", "21", "single-0", "a")), never, 1},
		"by a clock that may be off by 4s": {alone(windows, deletes(114, "20", "21", "single-0", "a"), func(h *History) { h.Slack = 6 * grain }), never, 1},

		"one after the other": {alone(
			deletes(61, "20", "21", "single-0", "a"), comes(65, "25", "single-0", "a2"), deletes(66, "30", "31", "single-1", "b"),
		), never, 2},
		"two at a time": {alone(
			deletes(61, "20", "21", "single-0", "a"), deletes(62, "30", "31", "single-1", "b"), comes(65, "35", "single-0", "a2"),
		), PromiseConsent, 2},
		"while the place is filled and not ready": {alone(
			deletes(61, "20", "21", "single-0", "a"), func(h *History) {
				h.Pods = append(h.Pods, singleton(62, "25", "single-0", "a2", func(p *corev1.Pod) { p.Status.Conditions = nil }))
			}, deletes(63, "30", "31", "single-1", "b"),
		), PromiseConsent, 2},
		"in a gap": {alone(
			deletes(61, "20", "21", "single-0", "a"), func(h *History) {
				gone := singleton(70, "2", "single-1", "b")
				gone.Gone, gone.Gap = true, true
				h.Pods = append(h.Pods, gone)
				h.Deletions = append(h.Deletions, Deletion{At: at(66), Name: "b", UID: "uid-b", Code: 200})
			},
		), never, 2},
		"by nobody": {alone(deletes(61, "20", "21", "single-0", "a"), func(h *History) { h.Deletions = nil }), PromiseConsent, 1},
		"the eviction of a pod that does not run": {alone(func(h *History) {
			starts := func(p *corev1.Pod) { p.Status.Phase, p.Status.Conditions = corev1.PodPending, nil }
			h.Pods[0] = singleton(0, "1", "single-0", "a", starts)
			h.Pods = append(h.Pods, singleton(10, "20", "single-0", "a", starts, letGo(at(10)), dying(at(10))))
		}), never, 0},
		"not on record":          {alone(deletes(61, "20", "21", "single-0", "a"), func(h *History) { h.EvictionBudgets = nil }), PromiseConsent, 1},
		"on record afterwards":   {alone(deletes(61, "9", "21", "single-0", "a")), PromiseConsent, 1},
		"on record, it was lost": {alone(deletes(61, "9", "21", "single-0", "a"), func(h *History) { h.LostThread = true }), never, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := breaks(t, tc.history, tc.want)
			if diff := cmp.Diff(tc.deleted, v.Deleted); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
		})
	}
}

// A plan has singletons or none, all behind one budget, and time for them to go one after the other.
func TestManyPlansHaveSingletons(t *testing.T) {
	plans, pods := 0, map[int32]int{}
	for seed := range uint64(200) {
		p := MakePlan(seed, []TroubleKind{})
		if n := p.singletons(); (p.Singletons != nil) != (n > 0) || (p.Singletons != nil) != (p.consentTime() > 0) {
			t.Errorf("seed %d: %d singletons, %+v, drains take %s more", seed, n, p.Singletons, p.consentTime())
		} else if n > 0 {
			plans++
			pods[n]++
			if at := p.Singletons.At; at < 1 || at >= Steps {
				t.Errorf("seed %d: they are due in step %d", seed, at)
			}
		}
	}
	if plans < 30 || len(pods) < 4 {
		t.Errorf("%d of 200 plans have singletons, %v", plans, pods)
	}
}

func TestWindowsOpenInEvenMinutes(t *testing.T) {
	s := &Singletons{Windows: true}
	for from, want := range map[string]string{"03:02:00": "03:02:00", "03:02:59": "03:02:59", "03:03:00": "03:04:00", "03:03:30": "03:04:00", "03:59:59": "04:00:00"} {
		if got := s.opens(clockOf(t, from)); !got.Equal(clockOf(t, want)) {
			t.Errorf("from %s on it opens at %s, want %s", from, stamp(got), want)
		}
	}
}

func clockOf(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.DateTime, "2026-05-04 "+text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}
