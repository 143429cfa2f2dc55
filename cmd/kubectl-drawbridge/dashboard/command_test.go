package dashboard

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/act"
)

// noActions has none.
type noActions struct{}

func (noActions) Plan(context.Context, string, url.Values) (act.Plan, error) {
	return act.Plan{Title: "Drain", Submit: "Drain"}, nil
}

func (noActions) Do(context.Context, string, url.Values) (act.Result, error) {
	return act.Result{}, errors.New("it was done")
}

// output waits for what is printed.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	said chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() {
		select {
		case o.said <- struct{}{}:
		default:
		}
	}()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// refusing is an API server that allows nothing, and its kubeconfig.
func refusing(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}`)
	}))
	t.Cleanup(server.Close)
	return kubeconfig(t, server.URL)
}

func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"prod","context":{"cluster":"c","user":"u"}}],"current-context":"prod","users":[{"name":"u","user":{}}]}`, server)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// command is the command, its output, and its result when it has ended.
func command(ctx context.Context, kubeconfig string, args ...string) (*output, chan error) {
	out := &output{said: make(chan struct{}, 1)}
	o := cli.DefaultOptions()
	o.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: out}
	o.Config.KubeConfig = &kubeconfig
	cmd := NewCommand(o, Parts{Actions: func(*cli.Options) act.Actions { return noActions{} }})
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	return out, ended
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+/\?token=\S+`)

// serve runs the dashboard until the end of the test, and returns its first address.
func serve(t *testing.T, args ...string) *url.URL {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, ended := command(ctx, refusing(t), args...)
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for {
		if found := address.FindString(out.String()); found != "" {
			u, err := url.Parse(found)
			if err != nil {
				t.Fatal(err)
			}
			return u
		}
		select {
		case <-out.said:
		case err := <-ended:
			ended <- nil
			t.Fatalf("it ended: %v\n%s", err, out)
		case <-deadline.C:
			t.Fatalf("no address is printed: %s", out)
		}
	}
}

// raw sends a request as it is written, byte by byte.
func raw(t *testing.T, host, request string) (status int, body string, header http.Header) {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(all), response.Header
}

// What reaches the port from elsewhere gets nothing, whatever it is; this is the whole
// program, and a client that says what it likes.
func TestOnlyTheUsersBrowserGetsIn(t *testing.T) {
	u := serve(t)
	token := u.Query().Get("token")
	cookie := "Cookie: drawbridge-" + u.Port() + "=" + token + "\n"
	host := "Host: " + u.Host + "\n"
	const last, form = "Connection: close\n", "Content-Type: application/x-www-form-urlencoded\nContent-Length: 11\n"
	cases := map[string]struct {
		request string
		status  int
		says    string
	}{
		"no token":                       {"GET / HTTP/1.1\n" + host + last + "\n", 401, "not signed in"},
		"a wrong token":                  {"GET /?token=AAAA HTTP/1.1\n" + host + last + "\n", 401, "not signed in"},
		"a wrong cookie":                 {"GET / HTTP/1.1\n" + host + "Cookie: drawbridge-" + u.Port() + "=AAAA\n" + last + "\n", 401, "not signed in"},
		"no page is told apart":          {"GET /no/such/page HTTP/1.1\n" + host + last + "\n", 401, "not signed in"},
		"changes without a token":        {"GET /live?path=/ HTTP/1.1\n" + host + last + "\n", 401, "not signed in"},
		"a name of somebody else's":      {"GET / HTTP/1.1\nHost: evil.example.com:" + u.Port() + "\n" + cookie + last + "\n", 403, "wrong host"},
		"another port":                   {"GET / HTTP/1.1\nHost: 127.0.0.1:1\n" + cookie + last + "\n", 403, "wrong host"},
		"the token by a wrong name":      {"GET /?token=" + token + " HTTP/1.1\nHost: evil.example.com\n" + last + "\n", 403, "wrong host"},
		"another page's script":          {"GET / HTTP/1.1\n" + host + cookie + "Origin: http://evil.example.com\n" + last + "\n", 403, "wrong origin"},
		"a page in a sandbox":            {"GET / HTTP/1.1\n" + host + cookie + "Origin: null\n" + last + "\n", 403, "wrong origin"},
		"another page's image":           {"GET / HTTP/1.1\n" + host + cookie + "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: no-cors\nSec-Fetch-Dest: image\n" + last + "\n", 403, "wrong origin"},
		"a form of another site":         {"POST /act/drain HTTP/1.1\n" + host + cookie + "Origin: http://evil.example.com\nSec-Fetch-Site: cross-site\n" + form + last + "\nnode=node-1", 403, "wrong origin"},
		"a form of nobody":               {"POST /act/drain HTTP/1.1\n" + host + cookie + form + last + "\nnode=node-1", 403, "wrong origin"},
		"a form without its own token":   {"POST /act/drain HTTP/1.1\n" + host + cookie + "Origin: http://" + u.Host + "\n" + form + last + "\nnode=node-1", 403, "not from this dashboard"},
		"a form without the cookie":      {"POST /act/drain HTTP/1.1\n" + host + "Origin: http://" + u.Host + "\n" + form + last + "\nnode=node-1", 401, "not signed in"},
		"another method":                 {"DELETE / HTTP/1.1\n" + host + cookie + last + "\n", 405, "wrong method"},
		"the user's own browser gets in": {"GET / HTTP/1.1\n" + host + cookie + last + "\n", 200, "Drains"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			status, body, header := raw(t, u.Host, tc.request)
			if status != tc.status || !strings.Contains(body, tc.says) {
				t.Errorf("want %d and %q, got %d:\n%s", tc.status, tc.says, status, body)
			}
			if status != http.StatusOK && len(body) > 200 {
				t.Errorf("it tells more than it has to:\n%s", body)
			}
			if strings.Contains(body, token) {
				t.Errorf("the token is in:\n%s", body)
			}
			if header.Get("Access-Control-Allow-Origin") != "" || header.Get("X-Frame-Options") != "DENY" {
				t.Errorf("headers: %v", header)
			}
		})
	}
	status, _, header := raw(t, u.Host, "GET /nodes/a?token="+token+"&x=y HTTP/1.1\n"+host+last+"\n")
	got := header.Get("Set-Cookie")
	if status != http.StatusSeeOther || header.Get("Location") != "/nodes/a?x=y" || !strings.Contains(got, "SameSite=Strict") || !strings.Contains(got, "HttpOnly") {
		t.Errorf("the first address: %d, to %q, with the cookie %q", status, header.Get("Location"), got)
	}
}

// Nobody but this machine can connect at all.
func TestItListensOnThisMachineOnly(t *testing.T) {
	u := serve(t)
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var dialer net.Dialer
	for _, a := range addresses {
		network, ok := a.(*net.IPNet)
		if !ok || network.IP.IsLoopback() {
			continue
		}
		if conn, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort(network.IP.String(), u.Port())); err == nil {
			t.Errorf("it can be reached at %s: %v", network.IP, conn.Close())
		}
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	var listen net.ListenConfig
	taken, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	away := httptest.NewServer(nil)
	away.Close()
	cases := map[string]struct {
		kubeconfig string
		args       []string
		says       string
	}{
		"a port that is taken":           {refusing(t), []string{"--port=" + port}, "choose another --port"},
		"a port that there is not":       {refusing(t), []string{"--port=65536"}, "--port must be from 0 to 65535, but is 65536"},
		"a negative port":                {refusing(t), []string{"--port=-1"}, "--port must be from 0 to 65535"},
		"an argument":                    {refusing(t), []string{"node-1"}, "node-1"},
		"a cluster that is away":         {kubeconfig(t, away.URL), nil, "connection refused"},
		"a kubeconfig that is not there": {filepath.Join(t.TempDir(), "nowhere"), nil, "nowhere"},
		"a file of two pages":            {refusing(t), []string{"export", "--node=a", "--pod=b"}, "not both"},
		"a file of a node that is not":   {refusing(t), []string{"export", "--node=nowhere"}, `there is no node "nowhere"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			out, ended := command(t.Context(), tc.kubeconfig, tc.args...)
			if err := <-ended; err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("want an error with %q, got %v\n%s", tc.says, err, out)
			}
		})
	}
}

// A file that nobody may see everything in says so.
func TestAFileSaysWhatIsLeftOut(t *testing.T) {
	out, ended := command(t.Context(), refusing(t), "export")
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{"<!DOCTYPE html>", `http-equiv="Content-Security-Policy"`, "evictionrequests", "you may not list and watch them", "prod"} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in:\n%s", want, text)
		}
	}
	for _, unwanted := range []string{"<script", ` href="/`, "<form", "src="} {
		if strings.Contains(text, unwanted) {
			t.Errorf("do not want %q in:\n%s", unwanted, text)
		}
	}
}
