package why

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const budgets = v1alpha1.BudgetInterceptor

// budgetTurn is a request for which it has just become the turn of the EvictionBudgets,
// which say this.
func budgetTurn(message string) *builder.EvictionRequestWrapper {
	return evictionRequest().Interceptors(interA, budgets).Processed(interA).Active(budgets, ago(time.Minute)).Heartbeat(budgets, ago(time.Second)).
		Report(budgets, func(s *v1alpha1.InterceptorStatus) { s.Message = message })
}

// zones lets any number of pods of one zone go.
func zones() *builder.EvictionBudgetWrapper {
	return builder.EvictionBudget("shop", "db", "app", "db").ByPodLabel("zone", 1).MaxUnavailable("100%").Observed()
}

func named(name string, b *builder.EvictionBudgetWrapper) *builder.EvictionBudgetWrapper {
	b.Name = name
	return b
}

// inZone is a pod of a zone that has long been ready.
func inZone(name, zone string) *builder.PodWrapper {
	return builder.Pod("shop", name).Node("node-2").Label("app", "db").Label("zone", zone).Ready()
}

// withEvictionBudgets has these, whose turn it is.
func withEvictionBudgets(all ...*builder.EvictionBudgetWrapper) func(*Facts) {
	return func(f *Facts) {
		f.Request = budgetTurn("").Obj()
		for _, b := range all {
			f.EvictionBudgets = append(f.EvictionBudgets, *b.Obj())
		}
	}
}

func TestVerdictsOfEvictionBudgets(t *testing.T) {
	const (
		skip    = "To evict it anyway: kubectl drawbridge skip db-0 budgets.drawbridge.dev -n shop --reason=WHY, or by a member of webhook.breakGlassGroups"
		cancel  = "To cancel the eviction: kubectl drawbridge cancel pod/db-0 -n shop"
		edit    = "kubectl edit evictionbudget db -n shop"
		leader  = "See whether Drawbridge runs and has a leader, which decides about EvictionBudget db: kubectl -n drawbridge-system get pods,leases"
		message = `EvictionBudget db: group "b" is disrupted, and at most 1 may be at a time.`
	)
	single := func() *builder.EvictionBudgetWrapper {
		return builder.EvictionBudget("shop", "db", "app", "db").Observed()
	}
	ring := single().Condition(v1alpha1.ConditionGranting, metav1.ConditionFalse, v1alpha1.ReasonConditionFalse, "condition ring-is-healthy is not true")
	ring.Spec.Config = &v1alpha1.BudgetConfig{APIVersion: "mimir.example.com/v1", Kind: "Ring", Name: "ingesters"}
	node := func(name, zone string) corev1.Node { return *builder.Node(name).Label("zone", zone).Obj() }
	cases := map[string]struct {
		budgets     []*builder.EvictionBudgetWrapper
		message     string
		unavailable []*builder.PodWrapper
		nodes       []corev1.Node
		change      func(*Facts)
		want        Verdict // Default: VerdictWaitsForBudget.
		headline    string
		advice      []string // Without the last two.
	}{
		"another group is disrupted": {
			budgets: []*builder.EvictionBudgetWrapper{zones().Group("b", 4, 3, 0).Group("a", 4, 0, 1)}, message: message,
			unavailable: []*builder.PodWrapper{inZone("db-b-1", "b").Unready(), inZone("db-b-0", "b").Deleting(now), inZone("db-a-1", "a").Unready()},
			headline:    "The eviction waits for EvictionBudget db (2 of 3). " + message,
			advice:      []string{`Wait until they are available again, or repair them: 3 of 4 pods of group "b" (db-b-0 is being deleted, db-b-1 is not ready, 1 of them not there).`},
		},
		"many groups and pods": {
			budgets: []*builder.EvictionBudgetWrapper{zones().Group("b", 4, 4, 0).Group("c", 4, 1, 0).Group("d", 4, 1, 0).Group("e", 4, 1, 0)}, message: message,
			unavailable: []*builder.PodWrapper{inZone("db-b-0", "b").Unready(), inZone("db-b-1", "b").Unready(), inZone("db-b-2", "b").Unready(), inZone("db-b-3", "b").Unready()},
			headline:    "The eviction waits for EvictionBudget db (2 of 3). " + message,
			advice: []string{`Wait until they are available again, or repair them: 4 of 4 pods of group "b" (db-b-0 is not ready, db-b-1 is not ready, db-b-2 is not ready, and 1 more); ` +
				`1 of 4 pods of group "c" (1 of them not there); 1 of 4 pods of group "d" (1 of them not there); and 1 more groups.`},
		},
		"groups by nodes": {
			budgets:     []*builder.EvictionBudgetWrapper{zones().ByNodeLabel("zone", 1).Group("b", 4, 2, 0)},
			message:     message,
			unavailable: []*builder.PodWrapper{inZone("db-1", "").Node("node-2").Unready(), inZone("db-2", "").Node("node-3").Unready(), inZone("db-3", "").Node("node-4").Unready()},
			nodes:       []corev1.Node{node("node-2", "b"), node("node-3", "a")},
			headline:    "The eviction waits for EvictionBudget db (2 of 3). " + message,
			advice:      []string{`Wait until they are available again, or repair them: 2 of 4 pods of group "b" (db-1 is not ready, 1 of them not there).`},
		},
		"the group of the pod is not known": {
			budgets: []*builder.EvictionBudgetWrapper{zones().ByNodeLabel("zone", 1)}, message: message, change: func(f *Facts) { f.Node = nil },
			headline: "The eviction waits for EvictionBudget db (2 of 3). " + message,
			advice:   []string{"See which groups are in the way, since that of the pod is not known: kubectl drawbridge budgets db -n shop"},
		},
		"too many pods, without groups": {
			budgets:     []*builder.EvictionBudgetWrapper{single().Group("", 3, 1, 1)},
			message:     "EvictionBudget db: at most 1 of its pods may be unavailable, and as many are.",
			unavailable: []*builder.PodWrapper{inZone("db-1", "").Unready()},
			headline:    "The eviction waits for EvictionBudget db (2 of 3). EvictionBudget db: at most 1 of its pods may be unavailable, and as many are.",
			advice:      []string{"Wait until they are available again, or repair them: 1 of 3 pods (db-1 is not ready)."},
		},
		"too many pods, until the window closes": {
			budgets:     []*builder.EvictionBudgetWrapper{single().Group("", 3, 1, 1).Window("* * * * *", time.Hour).Outside(v1alpha1.OutsideWindowContinue).Opening(ago(time.Minute), now.Add(time.Hour))},
			unavailable: []*builder.PodWrapper{inZone("db-1", "").Unready()},
			headline:    "The eviction waits for EvictionBudget db (2 of 3), which has no decision yet.",
			advice:      []string{"Wait until they are available again, or repair them: 1 of 3 pods (db-1 is not ready). When the window closes at 2026-11-22T13:00:00Z (in 60m), the pod goes anyway."},
		},
		"no window is open": {
			budgets:  []*builder.EvictionBudgetWrapper{single().Window("0 22 * * *", time.Hour).Opening(now.Add(10*time.Hour), now.Add(11*time.Hour))},
			message:  "EvictionBudget db: no window is open, the next one opens at 2026-11-22T22:00:00Z.",
			headline: "The eviction waits for EvictionBudget db (2 of 3). EvictionBudget db: no window is open, the next one opens at 2026-11-22T22:00:00Z.",
			advice:   []string{"Wait until 2026-11-22T22:00:00Z (in 10h), when the next window of EvictionBudget db opens."},
		},
		"no window opens any more": {
			budgets:  []*builder.EvictionBudgetWrapper{single().Window("0 22 * * *", time.Hour)},
			headline: "The eviction waits for EvictionBudget db (2 of 3), which has no decision yet.",
			advice:   []string{"Give EvictionBudget db a window that opens: " + edit},
		},
		"nobody looks for the next window": {
			budgets:  []*builder.EvictionBudgetWrapper{single().Window("0 22 * * *", time.Hour).Opening(ago(2*time.Hour), ago(time.Hour))},
			headline: "The eviction waits for EvictionBudget db (2 of 3), which has no decision yet.", advice: []string{leader},
		},
		"it was granted a moment ago": {
			budgets:  []*builder.EvictionBudgetWrapper{single().MinInterval(time.Minute).Grant("db-1", "uid-1b", "", ago(30*time.Second))},
			headline: "The eviction waits for EvictionBudget db (2 of 3), which has no decision yet.",
			advice:   []string{"Wait until 2026-11-22T12:00:30Z (in 30s), when EvictionBudget db allows the next eviction."},
		},
		"a condition is not true": {
			budgets: []*builder.EvictionBudgetWrapper{ring}, message: "EvictionBudget db: condition ring-is-healthy is not true.",
			headline: "The eviction waits for EvictionBudget db (2 of 3). EvictionBudget db: condition ring-is-healthy is not true.",
			advice:   []string{"Wait until the conditions of EvictionBudget db are true. They read: kubectl get ring.mimir.example.com ingesters -n shop -o yaml."},
		},
		"it is not accepted": {
			budgets: []*builder.EvictionBudgetWrapper{single().Condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalidWindow, "bad")},
			message: "EvictionBudget db: its spec is not accepted (InvalidWindow).", headline: "The eviction waits for EvictionBudget db (2 of 3). EvictionBudget db: its spec is not accepted (InvalidWindow).",
			advice: []string{"Correct EvictionBudget db, which allows no evictions until then: " + edit},
		},
		"it allows nothing": {
			budgets: []*builder.EvictionBudgetWrapper{single().MaxUnavailable("0%")}, message: "EvictionBudget db: it allows no pod to be unavailable.",
			headline: "The eviction waits for EvictionBudget db (2 of 3). EvictionBudget db: it allows no pod to be unavailable.",
			advice:   []string{"EvictionBudget db allows no evictions, because maxUnavailable is 0%. If that is not meant: " + edit},
		},
		"it has granted too many": {
			budgets:  []*builder.EvictionBudgetWrapper{single().Condition(v1alpha1.ConditionGranting, metav1.ConditionFalse, v1alpha1.ReasonGrantsFull, "")},
			headline: "The eviction waits for EvictionBudget db (2 of 3), which has no decision yet.",
			advice:   []string{"Wait until the pods whose eviction EvictionBudget db has granted have successors, or find out why not: kubectl drawbridge budgets db -n shop"},
		},
		"another generation": {
			budgets:  []*builder.EvictionBudgetWrapper{builder.EvictionBudget("shop", "db", "app", "db")},
			headline: "The eviction waits for EvictionBudget db (2 of 3), which has no decision yet.", advice: []string{leader},
		},
		"two of three keep it": {
			budgets: []*builder.EvictionBudgetWrapper{
				builder.EvictionBudget("shop", "open", "app", "db").Observed(), single().MaxUnavailable("0"), named("zones", zones()).Group("b", 4, 1, 0),
			},
			message:  "EvictionBudget db: it allows no pod to be unavailable.",
			headline: "The eviction waits for EvictionBudgets db, zones (2 of 3). EvictionBudget db: it allows no pod to be unavailable.",
			advice: []string{
				"EvictionBudget db allows no evictions, because maxUnavailable is 0. If that is not meant: " + edit,
				`Wait until they are available again, or repair them: 1 of 4 pods of group "b" (1 of them not there).`,
			},
		},
		"it is the turn of others": {
			budgets: []*builder.EvictionBudgetWrapper{zones()}, message: "EvictionBudget db: pods of other groups have waited much longer.",
			headline: "The eviction waits for EvictionBudget db (2 of 3). EvictionBudget db: pods of other groups have waited much longer.", advice: []string{"Nothing: wait."},
		},
		"they cannot be read": {
			message: message, headline: "The eviction waits for EvictionBudgets (2 of 3). " + message, advice: []string{"Nothing: wait."},
		},
		"they are switched off": {
			budgets: []*builder.EvictionBudgetWrapper{zones()}, change: func(f *Facts) {
				f.BudgetsOff, f.Request.Status.Interceptors[1].HeartbeatTime = true, &metav1.Time{Time: ago(time.Hour)}
			},
			headline: "The eviction waits for EvictionBudgets (2 of 3), and nothing decides about them: they are disabled.",
			advice:   []string{"Switch them on (budgets.enabled=true), or delete those of the pod: kubectl -n shop get evictionbudgets"},
		},
		"nobody decides": {
			budgets: []*builder.EvictionBudgetWrapper{zones()}, want: VerdictInterceptorSilent, change: func(f *Facts) {
				f.Request.Status.Interceptors[1].HeartbeatTime = &metav1.Time{Time: ago(time.Hour)}
			},
			headline: "Interceptor budgets.drawbridge.dev (2 of 3) last reported 60m ago.",
			advice:   []string{"See whether Drawbridge, which decides about EvictionBudgets, runs, and whether it may patch evictionrequests/status."},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := facts(pod().Label("zone", "a"), withEvictionBudgets(tc.budgets...), answering(waits), func(f *Facts) {
				f.Request = budgetTurn(tc.message).Obj()
				f.Nodes = tc.nodes
				for _, p := range tc.unavailable {
					f.Unavailable = append(f.Unavailable, *p.Obj())
				}
			})
			if tc.change != nil {
				tc.change(&f)
			}
			want := tc.want
			if want == "" {
				want = VerdictWaitsForBudget
			}
			s := Tell(f)
			if s.Verdict != want || s.Headline != tc.headline {
				t.Errorf("got %s: %s\nwant %s: %s", s.Verdict, s.Headline, want, tc.headline)
			}
			if want != VerdictWaitsForBudget {
				s.Advice = s.Advice[:1]
			} else {
				tc.advice = append(tc.advice, skip, cancel)
			}
			if diff := cmp.Diff(tc.advice, s.Advice); diff != "" {
				t.Errorf("advice (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEvictionBudgetsAreToldUntilTheyLetThePodGo(t *testing.T) {
	tonight := now.Add(10 * time.Hour)
	covering := withEvictionBudgets(
		builder.EvictionBudget("shop", "night", "app", "db").Observed().Window("0 22 * * *", time.Hour).Opening(tonight, tonight.Add(time.Hour)),
		zones().Group("b", 4, 1, 0), builder.EvictionBudget("shop", "other", "app", "other"),
	)
	want := []EvictionBudget{
		{Name: "db", When: `after group "b" is available again`, Reason: v1alpha1.ReasonGroupsDisrupted, Groups: []string{"b"}},
		{Name: "night", When: "not before 2026-11-22T22:00:00Z, when its next window opens", Until: &tonight, Reason: v1alpha1.ReasonOutsideWindow},
	}
	waiting := Tell(facts(pod().Label("zone", "a"), covering))
	if diff := cmp.Diff(want, waiting.EvictionBudgets); diff != "" {
		t.Errorf("EvictionBudgets (-want +got):\n%s", diff)
	}
	if got, want := waiting.Interceptors[1].Source, "EvictionBudget db, night, priority 500"; got != want {
		t.Errorf("source %q, want %q", got, want)
	}
	var printed strings.Builder
	if err := Print(&printed, waiting, now, false); err != nil {
		t.Fatal(err)
	}
	if section := "EvictionBudgets\n  db     after group \"b\" is available again\n  night  not before 2026-11-22T22:00:00Z, when its next window opens\n"; !strings.Contains(printed.String(), section) {
		t.Errorf("the story lacks\n%s\n%s", section, printed.String())
	}
	done := Tell(facts(pod().Label("zone", "a"), covering, func(f *Facts) {
		f.Request.Status.Interceptors[1].CompletionTime = &metav1.Time{Time: now}
	}))
	if len(done.EvictionBudgets) > 0 {
		t.Errorf("after their turn: %+v", done.EvictionBudgets)
	}
}

func TestEvictionBudgetsWouldIntercept(t *testing.T) {
	covered := facts(pod().Label("zone", "a"), withEvictionBudgets(zones()), answering(warned), func(f *Facts) { f.Request = nil })
	want := []Interceptor{
		{Name: budgets, Source: "EvictionBudget db, priority 500", State: stateWould},
		{Name: last, Source: "always the last", State: stateWould},
	}
	got := Tell(covered)
	if diff := cmp.Diff(want, got.Interceptors); diff != "" || got.Verdict != VerdictWouldIntercept || len(got.EvictionBudgets) != 1 {
		t.Errorf("verdict %s, EvictionBudgets %+v, interceptors (-want +got):\n%s", got.Verdict, got.EvictionBudgets, diff)
	}
	covered.BudgetsOff, covered.DryRun = true, accepted
	if off := Tell(covered); off.Verdict != VerdictNothingBlocks || len(off.Interceptors)+len(off.EvictionBudgets) > 0 {
		t.Errorf("while they are switched off: %s, interceptors %+v, EvictionBudgets %+v", off.Verdict, off.Interceptors, off.EvictionBudgets)
	}
}

func TestWhereTheBudgetInterceptorComesFrom(t *testing.T) {
	er := budgetTurn("")
	cases := map[string]struct {
		facts Facts
		want  string
	}{
		"no budget covers it any more": {facts(pod(), with(er)), "no EvictionBudget covers the pod now"},
		"the pod is gone":              {facts(nil, with(er)), "built in, priority 500"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Tell(tc.facts).Interceptors[1].Source; got != tc.want {
				t.Errorf("source %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPodsThatAreInTheWayAreRead(t *testing.T) {
	byNode := builder.EvictionBudget("shop", "db", "app", "db").ByNodeLabel("zone", 1).Observed().Obj()
	objects := fake.NewClientBuilder().WithScheme(cli.Scheme).WithObjects(
		inZone("db-1", "").Unready().Obj(), inZone("db-2", "").Obj(), inZone("db-3", "").Unready().Phase(corev1.PodSucceeded).Obj(),
		inZone("web", "").Label("app", "web").Unready().Obj(), inZone("db-4", "").Node("gone").Unready().Obj(),
		builder.Node("node-2").Label("zone", "b").Obj(),
	).Build()
	o := cli.DefaultOptions()
	g := gatherer{o, &cli.Connection{Client: objects, Namespace: "shop"}}
	f := facts(pod(), with(budgetTurn("")), func(f *Facts) { f.EvictionBudgets = []v1alpha1.EvictionBudget{*byNode} })
	g.gatherUnavailable(t.Context(), &f)
	got := map[string]bool{}
	for i := range f.Unavailable {
		got[f.Unavailable[i].Name] = true
	}
	for i := range f.Nodes {
		got[f.Nodes[i].Name] = true
	}
	if diff := cmp.Diff(map[string]bool{"db-1": true, "db-4": true, "node-2": true}, got); diff != "" || len(f.Unread) > 0 {
		t.Errorf("pods and nodes (-want +got), unread %v:\n%s", f.Unread, diff)
	}
	other := facts(pod(), with(evictionRequest()), func(f *Facts) { f.EvictionBudgets = []v1alpha1.EvictionBudget{*byNode} })
	g.gatherUnavailable(t.Context(), &other)
	if len(other.Unavailable) > 0 {
		t.Errorf("while it is not their turn: %d pods", len(other.Unavailable))
	}
}
