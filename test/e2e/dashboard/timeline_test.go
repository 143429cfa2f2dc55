//go:build unix

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/browser"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// longName is that of an interceptor which fits into no bar.
const longName = "moves-the-state-of-the-database-to-another-node.databases.example.com"

// eventful is a crowd that has more on its first nodes: on worker-000 a pod that is blocked, one
// that waits for a budget, one with a deadline, and some that have left; on worker-001 a pod that is blocked for longer.
func eventful(nodes, finished int) *crowd {
	c := newCrowd(nodes, nodes*4, nodes)
	now := time.Now().Truncate(time.Second)
	request := func(node, name string, began time.Duration) *builder.EvictionRequestWrapper {
		return builder.EvictionRequest("team-00", name, types.UID("pod-"+name)).UID(types.UID("er-" + name)).Created(now.Add(-began)).NodeName(node).Generation(1).Observed().
			Requesters("kernel.maintenance.drawbridge.dev")
	}
	for node, began := range map[string]time.Duration{"worker-000": 20 * time.Minute, "worker-001": 30 * time.Minute} {
		c.add(requestsOf, request(node, "stuck-on-"+node, began).Interceptors(longName).Processed(longName).
			Started(longName, now.Add(-began)).Completed(longName, now.Add(-began*9/10)).
			Active(v1alpha1.ImperativeEvictionInterceptor, now.Add(-began*9/10)).Refused(3, "quorum").Obj())
	}
	c.add(requestsOf, request("worker-000", "waits", 20*time.Minute).Interceptors(v1alpha1.BudgetInterceptor).
		Active(v1alpha1.BudgetInterceptor, now.Add(-20*time.Minute)).Obj())
	c.add(requestsOf, request("worker-000", "hurried", 20*time.Minute).Interceptors(checkpoint).
		Active(checkpoint, now.Add(-20*time.Minute)).Deadline("spot.example.com", now.Add(5*time.Minute)).Obj())
	for i := range finished {
		began := 19*time.Minute - time.Duration(i)*time.Second
		c.add(requestsOf, request("worker-000", fmt.Sprintf("gone-%02d", i), began).Interceptors(checkpoint).Processed(checkpoint).
			Started(checkpoint, now.Add(-began)).Completed(checkpoint, now.Add(time.Minute-began)).Evicted("PodDeleted", now.Add(time.Minute-began)).Obj())
	}
	return c
}

// heard changes the crowd until the page has shown a message that came meanwhile. A machine may
// take long for one.
func heard(t *testing.T, tab *browser.Tab, c *crowd) {
	t.Helper()
	// htmx says this when it has put into the page what the message brought.
	browser.Eval[bool](tab, `window.heard = false, document.addEventListener("htmx:sseMessage", () => { window.heard = true; }, {once: true}), true`)
	eventually(t, "the page to be told of a change", func(context.Context) error {
		churn(t, c, time.Second)
		if !browser.Eval[bool](tab, "window.heard") {
			return errors.New("it was told of none")
		}
		return nil
	})
}

// choose follows a link by keyboard: it has the focus also when a change replaces it meanwhile,
// while a click can come too late for the old one.
func choose(tab *browser.Tab, selector string) {
	tab.Visible(selector)
	browser.Eval[bool](tab, fmt.Sprintf("document.querySelector(%q).focus(), true", selector))
	tab.FollowKey(browser.KeyEnter)
}

// The time line can be read without anything else: whose turn a bar is, what its colours mean,
// what is stuck.
func TestTheTimelineExplainsItself(t *testing.T) {
	needBrowser(t)
	c := eventful(3, 12)
	d := startDashboard(t, apiOf(t, c))
	tab := newTab(t)
	tab.Open(d.first)
	tab.Open(d.at("/nodes/worker-000"))
	for _, words := range []string{"interceptor", "waiting for a budget", "eviction", "blocked", "expected", "heartbeat", "deadline"} {
		tab.Shows(".legend", words)
	}
	tab.Shows("#lanes-axis", "now")
	tab.Shows("#lanes-axis", "deadline")
	groups := browser.Eval[string](tab, `[...document.querySelectorAll('.lane-group')].map(e => e.innerText.trim()).join(', ')`)
	if want := "Blocked (1), In progress (3), Finished (12)"; groups != want {
		t.Errorf("groups: %s, want %s", groups, want)
	}

	// A name that is too long is cut, and is whole under the mouse and by keyboard.
	bar := `[...document.querySelectorAll('#lanes .bar-name')].find(e => e.textContent === '` + longName + `')`
	if !browser.Eval[bool](tab, bar+".scrollWidth > "+bar+".clientWidth && getComputedStyle("+bar+").textOverflow === 'ellipsis'") {
		t.Error("the long name is not cut")
	}
	if title := browser.Eval[string](tab, bar+".closest('g').querySelector('title').textContent"); !strings.HasPrefix(title, longName+", ") {
		t.Errorf("under the mouse it says %q", title)
	}
	said := `#lanes a.lane-name[href$="stuck-on-worker-000"] ~ .said`
	if browser.Eval[bool](tab, `document.querySelector('`+said+`').offsetHeight > 0`) {
		t.Error("the words are there before anybody wants them")
	}
	tab.TabTo(`#lanes a.lane-name[href$="stuck-on-worker-000"]`, 60)
	tab.Shows(said, longName)
	tab.Accessible("a node, with the words of a lane")

	// What was unfolded stays so, and where the keyboard is it stays.
	if browser.Eval[bool](tab, `document.querySelector('#lanes-finished').open`) {
		t.Error("twelve that have finished are not folded")
	}
	tab.Click("#lanes-finished summary")
	tab.Shows("#lanes-finished", "gone-11")
	heard(t, tab, c)
	if !browser.Eval[bool](tab, `document.querySelector('#lanes-finished').open`) {
		t.Error("they were folded by a change")
	}

	choose(tab, `.ranges a[href*="range=10m"]`)
	tab.Shows(`.ranges a[aria-current]`, "Last 10 minutes")
	tab.Shows("#lanes", "12 more finished before this range.")
	heard(t, tab, c)
	tab.Shows(`.ranges a[aria-current]`, "Last 10 minutes")
	tab.Gone("#lanes-finished")
	tab.Open(d.at("/nodes/worker-000?range=3w"))
	tab.Shows("#unknown", `There is no range "3w"; it can be 1h, 10m.`)
}

// On a telephone the time line scrolls by itself, and its names stay in view.
func TestTheTimelineScrollsByItself(t *testing.T) {
	needBrowser(t)
	d := startDashboard(t, apiOf(t, eventful(3, 2)))
	tab := newTab(t)
	tab.Open(d.first)
	tab.Size(browser.Narrow, 800)
	tab.Open(d.at("/nodes/worker-000"))
	tab.Visible("#lanes .scroll")
	fits(t, tab, "a node")
	left := func(selector string) float64 {
		return browser.Eval[float64](tab, `document.querySelector('`+selector+`').getBoundingClientRect().left`)
	}
	name, chart := left("#lanes a.lane-name"), left("#lanes a.lane-name + svg")
	if scrolled := browser.Eval[float64](tab, `(document.querySelector('#lanes .scroll').scrollLeft = 150, document.querySelector('#lanes .scroll').scrollLeft)`); scrolled != 150 {
		t.Fatalf("it scrolls by %g px", scrolled)
	}
	if diff := cmp.Diff([]float64{name, chart - 150}, []float64{left("#lanes a.lane-name"), left("#lanes a.lane-name + svg")}); diff != "" {
		t.Errorf("where the names and the bars are (-want +got):\n%s", diff)
	}
	tab.Accessible("a narrow node")
}

// Among 500 nodes those that are stuck are found with one click, and stay on the page.
func TestNodesAreFoundAmong500(t *testing.T) {
	needBrowser(t)
	c := eventful(500, 1)
	d := startDashboard(t, apiOf(t, c))
	tab := newTab(t)
	tab.Open(d.first)
	tab.Shows("#lead", "2 pods blocked on 2 nodes.")
	tab.Shows("#lead", "team-00/stuck-on-worker-001")
	tab.Accessible("500 nodes")
	nodes := func(want ...string) {
		t.Helper()
		got := browser.Eval[string](tab, `[...document.querySelectorAll('#draining tbody th')].map(e => e.innerText.trim()).join(' ')`)
		if got != strings.Join(want, " ") {
			t.Errorf("draining nodes: %q, want %q", got, want)
		}
	}
	choose(tab, `.cards a[href*="state=blocked"]`)
	tab.Shows(".cards a[aria-current]", "blocked")
	nodes("worker-000", "worker-001")
	stay(tab)
	heard(t, tab, c)
	nodes("worker-000", "worker-001")
	tab.Shows("#nodes", "worker-001")
	if n := browser.Eval[int](tab, `document.querySelectorAll('#nodes tbody tr').length`); n != 2 {
		t.Errorf("the list of all nodes has %d rows", n)
	}
	stayed(t, tab)
	if text := browser.Eval[string](tab, `document.querySelector('#draining .pod-bar').getAttribute('aria-label')`); !strings.Contains(text, "1 waiting for a budget, 1 blocked") {
		t.Errorf("the bar of a node says %q", text)
	}

	choose(tab, `#lead a[href*="sort=longest"]`)
	nodes("worker-001", "worker-000")
	heard(t, tab, c) // The first message replaces everything, also what was typed.
	tab.Type(`#filter [name="q"]`, "-000")
	tab.FollowKey(browser.KeyEnter)
	nodes("worker-000")
	if address := tab.Address(); !strings.Contains(address, "state=blocked") || !strings.Contains(address, "sort=longest") {
		t.Errorf("the form forgets what was chosen: %s", address)
	}
	choose(tab, `#filter a[href="/"]`)
	tab.Shows("#nodes .pager", "500 in all")

	tab.Open(d.at(`/?state=%3Cscript%3Ewindow.pwned=1%3C/script%3E&sort=%22onload=1&q=%22%3E%3Cscript%3Ewindow.pwned=1%3C/script%3E`))
	tab.Shows("#unknown", `There is no state "<script>window.pwned=1`)
	tab.Shows("#unknown", `There is no sort ""onload=1"`)
	tab.Shows("#nodes", "No node matches.")
	if got := browser.Eval[string](tab, "typeof window.pwned"); got != "undefined" {
		t.Errorf("the address ran: window.pwned is %s", got)
	}
}
