package page

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// many has nodes in each state; the last digit of a name says since how many minutes it waits.
func many() *state.Snapshot {
	request := func(node string, since time.Duration) *builder.EvictionRequestWrapper {
		return builder.EvictionRequest("shop", "of-"+node, types.UID("of-"+node)).Created(before(since)).NodeName(node).Observed().Requesters("alice.users.drawbridge.dev")
	}
	return state.NewSnapshot(noon,
		builder.Node("blocked-5").Cordoned().Obj(), builder.Node("waiting-9").Cordoned().Obj(), builder.Node("working-1").Obj(), builder.Node("done").Obj(), builder.Node("cordoned").Cordoned().Obj(), builder.Node("peace").Obj(),
		request("blocked-5", 5*time.Minute).Interceptors().Active(v1alpha1.ImperativeEvictionInterceptor, before(5*time.Minute)).Refused(3, "quorum").Obj(),
		request("waiting-9", 9*time.Minute).Interceptors(v1alpha1.BudgetInterceptor).Active(v1alpha1.BudgetInterceptor, before(9*time.Minute)).Obj(),
		request("working-1", time.Minute).Interceptors(first).Active(first, before(time.Minute)).Obj(),
		request("done", time.Hour).Interceptors(first).Processed(first).Evicted("PodDeleted", before(29*time.Minute)).Obj(),
	)
}

func TestNodesAreFilteredAndOrdered(t *testing.T) {
	cases := map[string]struct {
		query   string
		want    []string
		unknown string
	}{
		"all, those that are blocked first": {"", []string{"blocked-5", "waiting-9", "working-1", "cordoned", "done", "peace"}, ""},
		"what has waited longest first":     {"sort=longest", []string{"waiting-9", "blocked-5", "working-1", "cordoned", "done", "peace"}, ""},
		"blocked":                           {"state=blocked", []string{"blocked-5"}, ""},
		"waiting for a budget":              {"state=waiting", []string{"waiting-9"}, ""},
		"evictions in progress":             {"state=in-progress&sort=longest", []string{"waiting-9", "blocked-5", "working-1"}, ""},
		"draining":                          {"state=draining", []string{"blocked-5", "waiting-9", "working-1", "cordoned"}, ""},
		"finished":                          {"state=finished", []string{"done"}, ""},
		"cordoned":                          {"state=cordoned&q=-", []string{"blocked-5", "waiting-9"}, ""},
		"schedulable":                       {"state=schedulable", []string{"working-1", "done", "peace"}, ""},
		"by name, with spaces around it":    {"q=+ing-+", []string{"waiting-9", "working-1"}, ""},
		"nothing":                           {"q=nowhere", nil, ""},
		"a state that is not known":         {"state=<i>odd", []string{"blocked-5", "waiting-9", "working-1", "cordoned", "done", "peace"}, `There is no state "<i>odd"; it can be blocked, waiting,`},
		"an order that is not known":        {"sort=odd&state=blocked", []string{"blocked-5"}, `There is no sort "odd"; it can be longest.`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			query, err := url.ParseQuery(tc.query)
			if err != nil {
				t.Fatal(err)
			}
			f := nodeFilterOf(query)
			all, _ := drainsOf(many())
			var got []string
			for _, d := range f.Of(all) {
				got = append(got, d.Node)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
			content, err := render(t, "/", Request{Snapshot: many(), Query: query})
			if err != nil {
				t.Fatal(err)
			}
			if said := words(t, content); strings.Contains(said, "There is no s") != (tc.unknown != "") || !strings.Contains(said, tc.unknown) {
				t.Errorf("want %q in: %s", tc.unknown, said)
			}
		})
	}
}

// A card says how many there are and leads to them; the one that was chosen leads back.
func TestCardsLeadToWhatTheyCount(t *testing.T) {
	_, count := drainsOf(many())
	query := url.Values{"q": {"-"}, "state": {stateBlocked}, "drains": {"2"}}
	got := cardsOf(count, query, nodeFilterOf(query))
	want := []card{
		{1, "blocked", "?q=-", toneBad, true}, {1, "waiting for a budget", "?q=-&state=waiting", toneWait, false}, {3, "evictions in progress", "?q=-&state=in-progress", toneBusy, false},
		{4, "nodes draining", "?q=-&state=draining", toneBusy, false}, {1, "finished recently", "?q=-&state=finished", toneGood, false},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cards (-want +got):\n%s", diff)
	}
}

func TestTheFirstPageSaysWhatIsStuckAndWhatToDo(t *testing.T) {
	only := func(names ...string) *state.Snapshot {
		s := many()
		kept := s.Nodes[:0:0]
		for _, n := range s.Nodes {
			for _, name := range names {
				if n.Name == name {
					kept = append(kept, n)
				}
			}
		}
		s.Nodes = kept
		return s
	}
	cases := map[string]struct {
		nodes []string
		want  string
	}{
		"blocked":     {[]string{"blocked-5", "waiting-9"}, "Drains 1 pod blocked on 1 node. Longest: shop/of-blocked-5 on blocked-5, since 11:55:00 (5m ago)."},
		"it waits":    {[]string{"waiting-9", "working-1"}, "Drains Nothing is blocked. Waiting longest: shop/of-waiting-9 on waiting-9, since 11:51:00 (9m ago). budgets.drawbridge.dev What shop/of-waiting-9 waits for"},
		"in progress": {[]string{"cordoned"}, "Drains Nothing is blocked. No pod waits for an interceptor or a budget now."},
		"peace":       {[]string{"peace", "done"}, "Drains No node is draining. To drain one, choose Drain in the list of nodes, or run kubectl drawbridge drain NODE."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			content, err := render(t, "/", Request{Snapshot: only(tc.nodes...)})
			if err != nil {
				t.Fatal(err)
			}
			// An element's end is no space for people.
			said := strings.NewReplacer(" ,", ",", " .", ".", "( ", "(", " )", ")").Replace(words(t, content))
			if !strings.HasPrefix(said, tc.want) {
				t.Errorf("want %q at the beginning of: %s", tc.want, said)
			}
		})
	}
}

func TestThePodsOfANodeAreABar(t *testing.T) {
	cases := map[string]struct {
		bar  podBar
		text string
		want []podBarPart
	}{
		"nothing": {podBarOf(0, 0, 0, 0, 0), "0 of 0", nil},
		"one of each, and two that did not begin": {podBarOf(1, 3, 1, 1, 6), "1 of 6, 1 in progress, 1 waiting for a budget, 1 blocked", []podBarPart{
			{0, percent(100) / 6, toneGood}, {percent(100) / 6, percent(100) / 6, toneBusy}, {percent(200) / 6, percent(100) / 6, toneWait}, {percent(300) / 6, percent(100) / 6, toneBad},
		}},
		"a maintenance that counts fewer":     {podBarOf(2, 2, 0, 0, 3), "2 of 4, 2 in progress", []podBarPart{{0, 50, toneGood}, {50, 50, toneBusy}}},
		"a maintenance that has more blocked": {podBarOf(0, 1, 0, 2, 2), "0 of 2, 2 blocked", []podBarPart{{0, 100, toneBad}}},
	}
	for name, tc := range cases {
		if diff := cmp.Diff(tc.want, tc.bar.Parts()); diff != "" || tc.bar.Text() != tc.text {
			t.Errorf("%s: %q, want %q; parts (-want +got):\n%s", name, tc.bar.Text(), tc.text, diff)
		}
	}
}
