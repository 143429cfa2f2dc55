package forecastpage

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/lru"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/page"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// A page is rendered often. It simulates again when something has changed, but not each time.
func TestAForecastIsKeptForAWhile(t *testing.T) {
	begin := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	node := builder.Node("a").Obj()
	snapshot := func(after time.Duration, version uint64, pods int) *state.Snapshot {
		s := &state.Snapshot{Now: begin.Add(after), Version: version, Nodes: []*corev1.Node{node}, NodeByName: map[string]*corev1.Node{"a": node}}
		for i := range pods {
			s.Pods = append(s.Pods, builder.Pod("shop", fmt.Sprintf("web-%d", i)).Node("a").OwnedBy("ReplicaSet", "web").Obj())
		}
		return s
	}
	m := &cache{known: lru.New(remembered)}
	for _, step := range []struct {
		name  string
		asked *state.Snapshot
		want  int
	}{
		{"the first", snapshot(0, 1, 1), 1},
		{"a change at once", snapshot(time.Second, 2, 2), 1},
		{"a change that stays", snapshot(2*time.Second, 2, 2), 2},
		// Only the versions tell: the pods differ here to show which snapshot was used.
		{"no change", snapshot(11*time.Second, 2, 3), 2},
		{"no change for long", snapshot(12*time.Second, 2, 3), 3},
		{"a clock that was set back", snapshot(0, 2, 4), 4},
	} {
		if got := len(m.of(step.asked, []string{"a"}).Pods); got != step.want {
			t.Errorf("%s: %d pods, want %d", step.name, got, step.want)
		}
	}
}

func TestThePage(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	a, b := builder.Node("a").Obj(), builder.Node("b").Obj()
	hostile := builder.Pod("shop", "web").UID("uid").Node("a").OwnedBy("ReplicaSet", "web").Deleting(now.Add(-time.Hour)).Finalizer("<script>alert(1)</script>").Obj()
	snapshot := &state.Snapshot{Now: now, Nodes: []*corev1.Node{a, b}, Pods: []*corev1.Pod{hostile}, NodeByName: map[string]*corev1.Node{"a": a, "b": b}}
	cases := map[string]struct {
		query    string
		readOnly bool
		has, not string
	}{
		"nothing is asked":                {"", false, "Name nodes", "Pods in order"},
		"a node that is not there":        {"node=%3Cscript%3E", false, "There is no node &lt;script&gt;", "<script"},
		"messages are shown as text":      {"node=a", false, "&lt;script&gt;alert(1)&lt;/script&gt;", "<script"},
		"a drain is offered":              {"node=a", false, `href="/act/drain?node=a"`, "style="},
		"to readers it is not":            {"node=a", true, "Pods in order", "/act/"},
		"several nodes stand in one line": {"node=a+b", false, "Drain b", "There is no node"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			query, err := url.ParseQuery(tc.query)
			if err != nil {
				t.Fatal(err)
			}
			content, err := Pages()[0].Render(t.Context(), page.Request{Snapshot: snapshot, Query: query, ReadOnly: tc.readOnly})
			if err != nil {
				t.Fatal(err)
			}
			var html strings.Builder
			for _, f := range content.Fragments {
				html.WriteString(string(f.HTML))
			}
			if !strings.Contains(html.String(), tc.has) || strings.Contains(html.String(), tc.not) {
				t.Errorf("the page should have %q and not %q:\n%s", tc.has, tc.not, html.String())
			}
		})
	}
}
