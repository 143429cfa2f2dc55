package page

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const (
	first  = "copy.example.com"
	second = "flush.example.com"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) time.Time { return noon.Add(-d) }

// world has a node that is drained, one that somebody else drains, and one in peace.
func world() *state.Snapshot {
	stale := builder.Budget("shop", "stale").Selects("role", "primary").MinAvailable("1")
	stale.Status.ExpectedPods, stale.Status.CurrentHealthy, stale.Status.DesiredHealthy = 1, 1, 1
	guard := builder.Budget("shop", v1alpha1.GuardBudgetName).Selects(v1alpha1.GuardLabel, "closed").MinAvailable("2147483647")
	guard.Labels = map[string]string{v1alpha1.GuardBudgetLabel: "true"}
	s := state.NewSnapshot(noon,
		builder.Node("node-1").Cordoned().Obj(), builder.Node("node-2").Obj(), builder.Node("node-3").Obj(),
		builder.Pod("shop", "db-0").UID("db-0").Node("node-1").Label("app", "db").Ready().Obj(),
		builder.Pod("shop", "db-1").UID("db-1").Node("node-1").Label("app", "db").Ready().Obj(),
		builder.Pod("shop", "web").UID("web").Node("node-2").Label(v1alpha1.GuardLabel, "closed").Ready().Obj(),
		builder.EvictionRequest("shop", "db-0", "db-0").Created(before(10*time.Minute)).NodeName("node-1").Observed().Requesters("m."+v1alpha1.MaintenanceRequesterSuffix).
			Interceptors(first, second).Processed(first).
			Started(first, before(9*time.Minute)).Completed(first, before(5*time.Minute)).
			Active(second, before(4*time.Minute)).Started(second, before(4*time.Minute)).Heartbeat(second, before(time.Minute)).
			Report(second, func(s *v1alpha1.InterceptorStatus) { s.Message = "flushing tables" }).Obj(),
		builder.EvictionRequest("shop", "db-1", "db-1").Created(before(10*time.Minute)).NodeName("node-1").Observed().Requesters("m."+v1alpha1.MaintenanceRequesterSuffix).
			Interceptors().Active(v1alpha1.ImperativeEvictionInterceptor, before(9*time.Minute)).
			Refused(3, "quorum").Obj(),
		builder.EvictionRequest("shop", "old", "old").Created(before(time.Hour)).NodeName("node-1").Observed().Requesters("m."+v1alpha1.MaintenanceRequesterSuffix).
			Interceptors(first).Processed(first, v1alpha1.ImperativeEvictionInterceptor).
			Started(first, before(time.Hour)).Completed(first, before(30*time.Minute)).Evicted("PodDeleted", before(29*time.Minute)).Obj(),
		builder.EvictionRequest("shop", "web", "web").Created(before(time.Minute)).NodeName("node-2").Observed().Requesters("alice.users.drawbridge.dev").
			Interceptors(first).Active(first, before(time.Minute)).Obj(),
		builder.EvictionInterceptor(first).Obj(),
		builder.Budget("shop", "quorum").Selects("app", "db").MinAvailable("2").Obj(),
		stale.Obj(),
		guard.Obj(),
		builder.NodeMaintenance("m").Nodes("node-1").Drain().Reason("kernel update").Obj(),
	)
	s.Maintenances[0].Status.Stage = v1alpha1.StageDrain
	s.Maintenances[0].Status.Nodes = []v1alpha1.MaintenanceNodeStatus{{Name: "node-1", Stage: v1alpha1.StageDrain, PodsEvacuated: 1, PodsPendingEvacuation: 2, PodsBlocking: 1, BlockingPods: []v1alpha1.BlockingPod{
		{Namespace: "shop", Name: "db-1", Reason: v1alpha1.BlockBudgetNeverAllows, Message: "budget quorum can never allow a disruption (maxUnavailable is 0)"},
	}}}
	return s
}

// words are what a person reads on a page, with single spaces.
func words(t *testing.T, content Content) string {
	t.Helper()
	var all []string
	for _, e := range elementsOf(t, content)[:1] { // The first is the document.
		for n := range e.Descendants() {
			if n.Type == html.TextNode {
				all = append(all, strings.Fields(n.Data)...)
			}
		}
	}
	return strings.Join(all, " ")
}

// wantWords wants these texts on a page, and none of those.
func wantWords(t *testing.T, content Content, has, not []string) {
	t.Helper()
	said := words(t, content)
	for _, want := range has {
		if !strings.Contains(said, want) {
			t.Errorf("want %q in: %s", want, said)
		}
	}
	for _, unwanted := range not {
		if strings.Contains(said, unwanted) {
			t.Errorf("do not want %q in: %s", unwanted, said)
		}
	}
}

func render(t *testing.T, path string, r Request) (Content, error) {
	t.Helper()
	for _, p := range Pages() {
		if p.Pattern == path {
			return p.Render(t.Context(), r)
		}
	}
	t.Fatalf("there is no page %s", path)
	return Content{}, nil
}

func TestWhatPagesSay(t *testing.T) {
	cases := map[string]struct {
		pattern string
		values  map[string]string
		query   string
		has     []string
		not     []string
	}{
		"drains: what is blocked comes first, and everybody who drains": {"/", nil, "", []string{
			"1 pod blocked on 1 node. Longest: shop/db-1 on node-1", "What to do about shop/db-1",
			"2 nodes draining", "3 evictions in progress", "1 blocked", "1 finished recently",
			"m kernel update", "node-1 blocked", "shop/db-1: budget quorum can never allow", "maintenance m", "node-2 draining", "alice.users.drawbridge.dev", "not known", "shop/db-1",
		}, nil},
		"drains: nodes are found by their names": {"/", nil, "q=node-3", []string{"node-3 schedulable"}, []string{"node-1 cordoned"}},
		"drains: nothing is found":               {"/", nil, "q=node-9", []string{"No node matches.", "No draining node matches.", "No NodeMaintenance matches."}, nil},
		"a node: turns as lanes and in words": {"/nodes/{node}", map[string]string{"node": "node-1"}, "", []string{
			"Node node-1", "cordoned", "1 of 3 have left", "Maintenance m, blocked: kernel update Blocked by shop/db-1: budget quorum can never allow a disruption (maxUnavailable is 0) Drain markers",
			"3 healthy pods and has 3 currently. (since 11:51:00, 9m ago )",
			first + ", 11:51:00 to 11:55:00 (4m)", second + ", 11:56:00 until now (4m): flushing tables", "blocked", "gone",
		}, []string{"Requested by"}},
		"a node: who wants its pods to go":  {"/nodes/{node}", map[string]string{"node": "node-2"}, "", []string{"Requested by alice.users.drawbridge.dev"}, []string{"Blocked by"}},
		"interceptors: how long turns took": {"/interceptors", nil, "", []string{first, "not observed yet", "2 4m 30m", second, "not registered"}, nil},
		"budgets: who waits": {"/budgets", nil, "", []string{
			"shop quorum never any 2 of 2 healthy, 2 needed db-1 It can never allow a disruption (minAvailable is 2 of 2 pods)",
			"shop drawbridge-guard none 1 of 1 healthy none Drawbridge's guard", "shop stale none selects no pods none", "There is no EvictionBudget.",
		}, []string{"1 needed", "2147483647"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			query, err := url.ParseQuery(tc.query)
			if err != nil {
				t.Fatal(err)
			}
			content, err := render(t, tc.pattern, Request{Snapshot: world(), Values: tc.values, Query: query})
			if err != nil {
				t.Fatal(err)
			}
			wantWords(t, content, tc.has, tc.not)
		})
	}
}

func TestBlockedDrainsComeFirst(t *testing.T) {
	rows, _ := drainsOf(world())
	var got []string
	for _, r := range (nodeFilter{State: stateDraining}).Of(rows) {
		got = append(got, r.Node+" "+r.State)
	}
	if diff := cmp.Diff([]string{"node-1 blocked", "node-2 draining"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestAPageOfWhatIsNotThere(t *testing.T) {
	if _, err := render(t, "/nodes/{node}", Request{Snapshot: world(), Values: map[string]string{"node": "nowhere"}}); !errors.Is(err, ErrNotFound) {
		t.Errorf("want ErrNotFound, got %v", err)
	}
	broken := errors.New("the API server is away")
	_, err := render(t, "/pods/{namespace}/{pod}", Request{Snapshot: world(), Values: map[string]string{"namespace": "shop", "pod": "db-0"}, Backend: teller{err: broken}})
	if !errors.Is(err, broken) {
		t.Errorf("want %v, got %v", broken, err)
	}
}

// What is offered follows from what can be done, and to readers and in files nothing is.
func TestActionsThatAreOffered(t *testing.T) {
	cases := map[string]struct {
		pattern string
		values  map[string]string
		want    []string
	}{
		"drains":                   {"/", nil, []string{"/act/drain?node=node-1", "/act/drain?node=node-2", "/act/drain?node=node-3"}},
		"a node under maintenance": {"/nodes/{node}", map[string]string{"node": "node-1"}, []string{"/act/cancel?node=node-1", "/act/uncordon?node=node-1"}},
		"a node in peace":          {"/nodes/{node}", map[string]string{"node": "node-3"}, []string{"/act/drain?node=node-3"}},
		"a pod": {"/pods/{namespace}/{pod}", map[string]string{"namespace": "shop", "pod": "db-0"}, []string{
			"/act/skip?interceptor=" + second + "&namespace=shop&pod=db-0", "/act/cancel?namespace=shop&pod=db-0",
		}},
	}
	story := why.Story{Namespace: "shop", Pod: "db-0", Requesters: []why.Requester{{Name: "alice"}}, Interceptors: []why.Interceptor{{Name: second, Since: new(before(time.Minute))}}}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, r := range []Request{{}, {ReadOnly: true}, {Export: true}} {
				r.Snapshot, r.Values, r.Backend = world(), tc.values, teller{story: story}
				content, err := render(t, tc.pattern, r)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, e := range elementsOf(t, content) {
					for _, a := range e.Attr {
						if a.Key == "href" && strings.HasPrefix(a.Val, "/act/") {
							got = append(got, a.Val)
						}
					}
				}
				want := tc.want
				if r.ReadOnly || r.Export {
					want = nil
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("read-only %v, file %v: actions (-want +got):\n%s", r.ReadOnly, r.Export, diff)
				}
			}
		})
	}
}

func TestLongListsArePaged(t *testing.T) {
	var objects []client.Object
	for i := range 120 {
		objects = append(objects, builder.Node(fmt.Sprintf("node-%03d", i)).Obj())
	}
	s := state.NewSnapshot(noon, objects...)
	rowsOf := func(r Request) int {
		r.Snapshot = s
		content, err := render(t, "/", r)
		if err != nil {
			t.Fatal(err)
		}
		return len(content.Fragments[len(content.Fragments)-1].Children)
	}
	for query, want := range map[string]int{"": 50, "page=2": 50, "page=3": 20, "page=99": 20, "page=-1": 50, "page=x": 50} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got := rowsOf(Request{Query: values}); got != want {
			t.Errorf("%q: want %d rows, got %d", query, want, got)
		}
	}
	if got := rowsOf(Request{Export: true}); got != 120 {
		t.Errorf("a file: want all 120 rows, got %d", got)
	}
}
