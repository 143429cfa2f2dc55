package guard

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// world is a guarded server, with a raw client that follows no redirect and keeps no cookie.
type world struct {
	*testing.T
	*Guard
	url string
}

// answer is what a client sees.
type answer struct {
	Status int
	Body   string
}

const secretPage = "the page"

func newWorld(t *testing.T) *world {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	address, err := url.Parse("http://" + server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(0)
	if err != nil {
		t.Fatal(err)
	}
	g.port = address.Port()
	server.Config.Handler = g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, secretPage) }))
	server.Start()
	t.Cleanup(server.Close)
	return &world{T: t, Guard: g, url: server.URL}
}

// ask sends a request that is as our own page would send it, changed as the test wants.
func (w *world) ask(method, path string, form url.Values, change func(*http.Request)) (answer, http.Header) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, w.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		w.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: w.cookie(), Value: w.token})
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", w.url)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if change != nil {
		change(r)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // It was read.
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.Fatal(err)
	}
	return answer{response.StatusCode, strings.TrimSpace(string(body))}, response.Header
}

func cookiesOf(h http.Header) []*http.Cookie { return (&http.Response{Header: h}).Cookies() }

const notSignedIn = "not signed in: open the address that kubectl drawbridge dashboard has printed"

func TestOnlyOurOwnPagesGetIn(t *testing.T) {
	w := newWorld(t)
	form := func(token string) url.Values { return url.Values{FormParameter: {token}} }
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	noCookie := func(r *http.Request) { r.Header.Del("Cookie") }
	cases := map[string]struct {
		method, path string // Default: GET /.
		form         url.Values
		change       func(*http.Request)
		want         answer
	}{
		"our page":                       {want: answer{http.StatusOK, secretPage}},
		"by the other name":              {change: func(r *http.Request) { r.Host = "localhost:" + w.port }, want: answer{http.StatusOK, secretPage}},
		"our form":                       {method: http.MethodPost, form: form(w.FormToken()), want: answer{http.StatusOK, secretPage}},
		"a bookmark":                     {change: header("Sec-Fetch-Site", "none"), want: answer{http.StatusOK, secretPage}},
		"another host":                   {change: func(r *http.Request) { r.Host = "attacker.example:" + w.port }, want: answer{http.StatusForbidden, "wrong host"}},
		"a host that begins like ours":   {change: func(r *http.Request) { r.Host = "127.0.0.1:" + w.port + ".attacker.example" }, want: answer{http.StatusForbidden, "wrong host"}},
		"no port":                        {change: func(r *http.Request) { r.Host = "127.0.0.1" }, want: answer{http.StatusForbidden, "wrong host"}},
		"another port":                   {change: func(r *http.Request) { r.Host = "127.0.0.1:1" }, want: answer{http.StatusForbidden, "wrong host"}},
		"another origin":                 {change: header("Origin", "http://attacker.example"), want: answer{http.StatusForbidden, "wrong origin"}},
		"the origin of another port":     {change: header("Origin", "http://127.0.0.1:1"), want: answer{http.StatusForbidden, "wrong origin"}},
		"the origin of a sandbox":        {change: header("Origin", "null"), want: answer{http.StatusForbidden, "wrong origin"}},
		"two origins":                    {change: func(r *http.Request) { r.Header["Origin"] = []string{w.url, w.url} }, want: answer{http.StatusForbidden, "wrong origin"}},
		"no cookie":                      {change: noCookie, want: answer{http.StatusUnauthorized, notSignedIn}},
		"no cookie, no such path":        {path: "/nothing/here", change: noCookie, want: answer{http.StatusUnauthorized, notSignedIn}},
		"a wrong cookie":                 {change: header("Cookie", w.cookie()+"=wrong"), want: answer{http.StatusUnauthorized, notSignedIn}},
		"the form's token as the cookie": {change: header("Cookie", w.cookie()+"="+w.FormToken()), want: answer{http.StatusUnauthorized, notSignedIn}},
		"a wrong token":                  {path: "/?token=wrong", want: answer{http.StatusUnauthorized, notSignedIn}},
		"an empty token":                 {path: "/?token=", want: answer{http.StatusUnauthorized, notSignedIn}},
		"a right and a wrong token":      {path: "/?token=" + w.token + "&token=wrong", want: answer{http.StatusUnauthorized, notSignedIn}},
		"embedded by another page": {change: func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Mode", "no-cors")
			r.Header.Set("Sec-Fetch-Dest", "image")
		}, want: answer{http.StatusForbidden, "wrong origin"}},
		"framed by another page": {change: func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Mode", "navigate")
			r.Header.Set("Sec-Fetch-Dest", "iframe")
		}, want: answer{http.StatusForbidden, "wrong origin"}},
		"posted by another page": {method: http.MethodPost, form: form(w.FormToken()), change: func(r *http.Request) {
			r.Header.Set("Origin", "http://attacker.example")
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		}, want: answer{http.StatusForbidden, "wrong origin"}},
		"posted by another port": {method: http.MethodPost, form: form(w.FormToken()), change: header("Sec-Fetch-Site", "same-site"), want: answer{http.StatusForbidden, "wrong origin"}},
		"posted from nowhere": {method: http.MethodPost, form: form(w.FormToken()), change: func(r *http.Request) {
			r.Header.Del("Origin")
			r.Header.Del("Sec-Fetch-Site")
		}, want: answer{http.StatusForbidden, "wrong origin"}},
		"posted without the form's token":  {method: http.MethodPost, want: answer{http.StatusForbidden, "the form is not from this dashboard, or from one that has ended: load the page again"}},
		"posted with the token in the URL": {method: http.MethodPost, path: "/?csrf=" + w.FormToken(), want: answer{http.StatusForbidden, "the form is not from this dashboard, or from one that has ended: load the page again"}},
		"posted too much": {method: http.MethodPost, form: url.Values{FormParameter: {w.FormToken()}, "x": {strings.Repeat("x", maxForm)}},
			want: answer{http.StatusBadRequest, "the form cannot be read, or is too large"}},
		"posted without a cookie": {method: http.MethodPost, form: form(w.FormToken()), change: noCookie, want: answer{http.StatusUnauthorized, notSignedIn}},
		"another method":          {method: http.MethodDelete, want: answer{http.StatusMethodNotAllowed, "wrong method"}},
		"a preflight":             {method: http.MethodOptions, want: answer{http.StatusMethodNotAllowed, "wrong method"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := &world{T: t, Guard: w.Guard, url: w.url}
			if tc.method == "" {
				tc.method = http.MethodGet
			}
			if tc.path == "" {
				tc.path = "/"
			}
			got, header := w.ask(tc.method, tc.path, tc.form, tc.change)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if policy := header.Get("Content-Security-Policy"); policy != Policy {
				t.Errorf("the answer has the policy %q", policy)
			}
			if allowed := header.Get("Access-Control-Allow-Origin"); allowed != "" {
				t.Errorf("pages of %q may read the answer", allowed)
			}
			if got.Status != http.StatusOK && len(cookiesOf(header)) > 0 {
				t.Errorf("who is refused got cookies %v", cookiesOf(header))
			}
		})
	}
}

func TestTheTokenBecomesACookie(t *testing.T) {
	w := newWorld(t)
	for path, want := range map[string]string{
		"/?token=" + w.token:                        "/",
		"/nodes/node-1?page=2&token=" + w.token:     "/nodes/node-1?page=2",
		"//attacker.example/?token=" + w.token:      "/attacker.example/",
		"/%5C%5Cattacker.example/?token=" + w.token: "/attacker.example/",
		"/%2F%2Fattacker.example/?token=" + w.token: "/attacker.example/",
	} {
		got, header := w.ask(http.MethodGet, path, nil, func(r *http.Request) { r.Header.Del("Cookie") })
		if got.Status != http.StatusSeeOther || header.Get("Location") != want {
			t.Errorf("GET %s: got %d to %q, want 303 to %q", path, got.Status, header.Get("Location"), want)
		}
		cookies := cookiesOf(header)
		if len(cookies) != 1 || cookies[0].Value != w.token || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode || cookies[0].Path != "/" {
			t.Errorf("GET %s: the cookies are %v", path, cookies)
		}
	}
}

func TestAReadOnlyDashboardAcceptsNoForm(t *testing.T) {
	w := newWorld(t)
	w.ReadOnly = true
	got, _ := w.ask(http.MethodPost, "/act/drain", url.Values{FormParameter: {w.FormToken()}}, nil)
	if diff := cmp.Diff(answer{http.StatusForbidden, "this dashboard is read-only"}, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestEveryRunHasAnotherToken(t *testing.T) {
	a, errA := New(1)
	b, errB := New(1)
	if errA != nil || errB != nil || a.token == b.token || a.FormToken() == b.FormToken() || len(a.token) < 43 {
		t.Errorf("tokens %q and %q, errors %v and %v", a.token, b.token, errA, errB)
	}
}
