package site

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/drawbridge-dev/drawbridge/test/framework/browser"
)

// make site-picture sets it.
var pictures = flag.String("screenshots", "", "folder that the picture of the landing page is written to")

// serve shows the site on this machine, under its path, as a server of static files does.
func serve(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + listener.Addr().String() + "/drawbridge/"
	server := httptest.NewUnstartedServer(http.StripPrefix("/drawbridge/", http.FileServer(http.Dir(theSite(t)))))
	if err := server.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return address
}

// The pages work in a real browser, which cannot reach any other machine: light and dark, wide and narrow, and for people
// who use a reader of screens or only the keyboard. A tab fails its test for anything that the page complains about.
func TestPagesWorkInABrowser(t *testing.T) {
	b := browser.ForTest(t)
	address := serve(t)
	for name, where := range map[string]string{
		"the landing page":        "",
		"a page with a diagram":   "docs/concepts/",
		"a page with pictures":    "docs/guides/dashboard/",
		"a page with wide tables": "docs/reference/metrics/",
		"the fields of the API":   "docs/reference/api/",
		"the list of pages":       "docs/",
		"a page that is missing":  "404.html",
	} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(name+", "+scheme, func(t *testing.T) {
				tab := b.Tab(t)
				tab.Scheme(scheme)
				tab.Open(address + where)
				tab.Visible("h1")
				tab.Accessible(name)
				tab.Size(browser.Narrow, 800)
				if wide := browser.Eval[int](tab, "document.documentElement.scrollWidth"); wide > browser.Narrow {
					t.Errorf("the page is %d pixels wide in a window of %d", wide, browser.Narrow)
				}
			})
		}
	}
}

func TestTheSearchFindsASectionWithTheKeyboard(t *testing.T) {
	tab := browser.ForTest(t).Tab(t)
	tab.Open(serve(t) + "docs/faq/")
	tab.Key("/")
	tab.Type("#search", "heartbeatDead")
	tab.Shows("#results", "heartbeatDeadline")
	tab.Accessible("the results")
	tab.Key(browser.KeyDown)
	tab.Visible("#results [aria-selected=true]")
	tab.FollowKey(browser.KeyEnter)
	tab.Until("the page of the section", "location.pathname.startsWith('/drawbridge/docs/') && location.hash !== '' && document.querySelector(location.hash)")
}

// Whoever types a name sees first what has this name, and gets to its row.
func TestTheSearchShowsFirstWhatHasTheName(t *testing.T) {
	b := browser.ForTest(t)
	address := serve(t)
	for name, want := range map[string]string{
		"--heartbeat-deadline":      "docs/reference/flags/#heartbeat-deadline",
		"drawbridge_budget_waiting": "docs/reference/metrics/#drawbridge_budget_waiting",
		"deadlinereached":           "docs/reference/events/#deadlinereached",
		"drawbridge.dev/surge":      "docs/reference/labels-and-annotations/#drawbridge-dev-surge",
		"too-many-new":              "docs/reference/answers/#too-many-new",
		"EvictionBudget":            "docs/reference/evictionbudget/#evictionbudget",
	} {
		t.Run(name, func(t *testing.T) {
			tab := b.Tab(t)
			tab.Open(address)
			tab.Type("#search", name)
			tab.Until("the name to be the first result", fmt.Sprintf("document.querySelector('#result-0')?.getAttribute('href') === %q", "/drawbridge/"+want))
			tab.FollowKey(browser.KeyEnter)
			tab.Until("its place to be the target", "document.querySelector(':target')?.textContent.length > 0")
		})
	}
}

// A message of a denied eviction has names in it that no page has.
func TestTheSearchFindsAMessageThatIsPasted(t *testing.T) {
	tab := browser.ForTest(t).Tab(t)
	tab.Open(serve(t))
	tab.Type("#search", `Eviction triggered evacuation: waiting for interceptor "failover.xyzzyplugh.io" (1 of 2)`)
	tab.Shows("#results", "Answers to callers of the eviction subresource")
}

// The link of a row is there for the keyboard, and its target is seen.
func TestARowOfATableCanBeLinkedTo(t *testing.T) {
	tab := browser.ForTest(t).Tab(t)
	tab.Scheme("light")
	tab.Open(serve(t) + "docs/reference/api/")
	const link = "#evictioninterceptorspec-priority .anchor"
	if got := browser.Eval[string](tab, fmt.Sprintf("getComputedStyle(document.querySelector(%q)).opacity", link)); got != "0" {
		t.Errorf("the link has the opacity %s before anybody wants it", got)
	}
	browser.Eval[bool](tab, fmt.Sprintf("(document.querySelector(%q).focus(), true)", link))
	tab.Until("the link to be seen", fmt.Sprintf("getComputedStyle(document.querySelector(%q)).opacity === '1'", link))
	tab.Key(browser.KeyEnter)
	tab.Until("its row to be the target", "document.querySelector('tr:target')?.id === 'evictioninterceptorspec-priority'")
}

func TestTheSearchSaysThatNothingIsFound(t *testing.T) {
	tab := browser.ForTest(t).Tab(t)
	tab.Open(serve(t))
	tab.Type("#search", "xyzzyplugh")
	tab.Shows("#results", "Nothing found")
}

func TestTheLandingPageIsPictured(t *testing.T) {
	if *pictures == "" {
		t.Skip("no picture is wanted: make site-picture takes it")
	}
	tab := browser.ForTest(t).Tab(t)
	tab.Scheme("light")
	tab.Open(serve(t))
	tab.Visible("h1")
	tab.Picture(filepath.Join(*pictures, "site.png"))
}
