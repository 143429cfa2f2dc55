package browser

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// page serves one page under a strict Content-Security-Policy.
func page(t *testing.T, body string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<!doctype html><html lang=en><head><title>A page</title></head><body><main>"+body+"</main></body></html>") // The browser has gone.
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestATabKeepsWhatThePageComplainsAbout(t *testing.T) {
	b := ForTest(t)
	cases := map[string]struct{ body, want string }{
		"nothing": {`<h1>Fine</h1>`, ""},
		"an inline script, which the policy forbids": {`<h1>Bad</h1><script>window.pwned = 1</script>`, "Content Security Policy"},
		"an inline style, which the policy forbids":  {`<h1 style="color: red">Bad</h1>`, "Content Security Policy"},
		"a handler in an attribute":                  {`<h1>Bad</h1><button onclick="window.pwned = 1">Press</button>`, "Content Security Policy"},
		"a script that is not there":                 {`<h1>Bad</h1><script src="/no.js"></script>`, "404"},
		"a picture of another host":                  {`<h1>Bad</h1><img alt="" src="http://example.com/a.png">`, "Content Security Policy"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tab := b.Tab(t)
			tab.Open(page(t, tc.body))
			if strings.Contains(tc.body, "<button") {
				tab.Click("button")
			}
			tab.Visible("h1")
			if tc.want != "" {
				untilProblem(t, tab, tc.want)
				tab.Expect(".") // It was provoked.
			}
			if got := Eval[string](tab, "typeof window.pwned"); got != "undefined" {
				t.Errorf("window.pwned is %s", got)
			}
		})
	}
}

func untilProblem(t *testing.T, tab *Tab, want string) {
	t.Helper()
	tab.until(t, "a problem with "+want, func() bool {
		return strings.Contains(strings.Join(tab.Problems(), "\n"), want)
	})
}

func TestExceptionsAndErrorsOfScriptsAreProblems(t *testing.T) {
	b := ForTest(t)
	tab := b.Tab(t)
	tab.Open(page(t, "<h1>Fine</h1>"))
	Eval[bool](tab, "setTimeout(() => { throw new Error('out of cheese') }); console.error('no', 'milk'); console.log('fine'); true")
	untilProblem(t, tab, "out of cheese")
	untilProblem(t, tab, "milk")
	if len(tab.Problems()) != 2 {
		t.Errorf("problems: %q", tab.Problems())
	}
	tab.Expect("cheese|milk")
}

func TestKeysColoursAndPictures(t *testing.T) {
	b := ForTest(t)
	tab := b.Tab(t)
	url := page(t, `<h1>Keys</h1><form action="/" method="get"><label>Why <input name="why"></label> <button>Go</button></form>`)
	tab.Open(url)
	tab.TabTo("input", 3)
	tab.Type("input", "because")
	tab.TabTo("button", 3)
	tab.FollowKey(KeyEnter)
	if got := tab.Address(); got != url+"/?why=because" {
		t.Errorf("address %s", got)
	}
	tab.Scheme("dark")
	if !Eval[bool](tab, "matchMedia('(prefers-color-scheme: dark)').matches") {
		t.Error("the colours are not dark")
	}
	tab.Size(Narrow, 700)
	if got := Eval[int](tab, "innerWidth"); got != Narrow {
		t.Errorf("width %d", got)
	}
	tab.Picture(filepath.Join(t.TempDir(), "a.png"))
	tab.Accessible("the page of this test")

	beside := tab.Beside()
	beside.Open(url)
	beside.Shows("h1", "Keys")
}

// A live page replaces elements between the look for one and the click on it.
func TestAClickOnWhatThePageReplaces(t *testing.T) {
	b := ForTest(t)
	tab := b.Tab(t)
	tab.Open(page(t, `<button>Go</button><p>not yet</p>`))
	Eval[bool](tab, `(() => {
		const end = performance.now() + 300;
		const again = () => {
			const old = document.querySelector("button"), button = old.cloneNode(true);
			button.onclick = () => { document.querySelector("p").innerText += "!"; };
			old.replaceWith(button);
			if (performance.now() < end) setTimeout(again);
		};
		again();
		return true;
	})()`)
	tab.Click("button")
	tab.Shows("p", "not yet!")
	if got := tab.Text("p"); got != "not yet!" {
		t.Errorf("the page shows %q, want one click", got)
	}
}

// It may also do so between the press of the button and its release. Nothing is clicked then.
func TestAClickOnWhatThePageReplacesWhenItIsPressed(t *testing.T) {
	b := ForTest(t)
	tab := b.Tab(t)
	tab.Open(page(t, `<button>Go</button><p>not yet</p>`))
	Eval[bool](tab, `(() => {
		let left = 2;
		document.addEventListener("mousedown", () => {
			if (left-- <= 0) return;
			const old = document.querySelector("button");
			old.replaceWith(old.cloneNode(true));
		});
		document.addEventListener("click", () => { document.querySelector("p").innerText += "!"; });
		return true;
	})()`)
	tab.Click("button")
	tab.Shows("p", "not yet!")
	if got := tab.Text("p"); got != "not yet!" {
		t.Errorf("the page shows %q, want one click", got)
	}
}

// The judge must be able to find something.
func TestAxeFindsWhatIsWrong(t *testing.T) {
	b := ForTest(t)
	tab := b.Tab(t)
	tab.Open(page(t, `<h1>Bad</h1><form><input name="why"></form>`))
	inner := &fakeTB{TB: t}
	tab.tb = inner
	tab.Accessible("a field without a label")
	tab.tb = t
	if !strings.Contains(inner.said, "critical label") {
		t.Errorf("said: %s", inner.said)
	}
}

// A page that is refused is shown as any other, and what the server answered is a problem.
func TestAPageThatIsRefused(t *testing.T) {
	b := ForTest(t)
	for name, body := range map[string]string{"with words": "who are you?", "without": ""} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusUnauthorized)
				_, _ = io.WriteString(w, body) // The browser has gone.
			}))
			t.Cleanup(server.Close)
			tab := b.Tab(t)
			tab.Open(server.URL)
			untilProblem(t, tab, "401")
			tab.Expect("401")
			if body != "" {
				tab.Shows("body", body)
			}
		})
	}
}
