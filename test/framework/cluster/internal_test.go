package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestLockIsExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), path, func() { t.Error("waited for a lock that nobody has") })
	if err != nil {
		t.Fatal(err)
	}

	waiting := make(chan struct{})
	got := make(chan error)
	go func() {
		unlockSecond, err := lockFile(t.Context(), path, func() { close(waiting) })
		if err == nil {
			unlockSecond()
		}
		got <- err
	}()
	<-waiting
	select {
	case err := <-got:
		t.Fatalf("two have the lock (error: %v)", err)
	default:
	}
	unlock()
	if err := <-got; err != nil {
		t.Errorf("the lock is free again: %v", err)
	}
}

func TestWaitingForALockEndsWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), path, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := lockFile(ctx, path, cancel); err == nil {
		t.Error("got a lock that somebody else has")
	}
}

func TestVersionIsThatOfTheModule(t *testing.T) {
	for _, r := range []release{newest, oldest} {
		content, err := os.ReadFile(filepath.Join(r.folder, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if want := "k8s.io/kubernetes " + r.version + "\n"; !strings.Contains(string(content), want) {
			t.Errorf("the binary would report %s, which is not what %s/go.mod requires", r.version, r.folder)
		}
	}
}

func TestOldestIsWhatTheChartAllows(t *testing.T) {
	chart, err := os.ReadFile(filepath.Join("..", "..", "..", "charts", "drawbridge", "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("kubeVersion: \">=1.%d.0-0\"\n", oldest.minor()); !strings.Contains(string(chart), want) {
		t.Errorf("Chart.yaml has no line %s", want)
	}
}

func TestReleaseIsChosenByTheEnvironment(t *testing.T) {
	tests := map[string]struct {
		value string
		want  release
		err   string
	}{
		"nothing set is the newest": {want: newest},
		"the newest by name":        {value: "newest", want: newest},
		"the oldest by name":        {value: "oldest", want: oldest},
		"anything else is refused": {
			value: "1.30",
			err:   `DRAWBRIDGE_KUBERNETES="1.30" is unknown: set it to "newest" (` + newest.version + `) or "oldest" (` + oldest.version + `), or not at all`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv(releaseEnv, tt.value)
			got, err := chosenRelease()
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(release{})); diff != "" {
				t.Errorf("release (-want +got):\n%s", diff)
			}
			message := ""
			if err != nil {
				message = err.Error()
			}
			if diff := cmp.Diff(tt.err, message); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlyTheControlPlaneIsOld(t *testing.T) {
	binaries := Binaries{release: oldest, newest: "new", chosen: "old"}
	got := map[string]string{kubectlPart: binaries.of(kubectlPart)}
	for _, name := range componentOrder {
		got[string(name)] = binaries.of(string(name))
	}
	want := map[string]string{
		"etcd": "new", "kwok": "new",
		"kube-apiserver": "old", "kube-controller-manager": "old", "kube-scheduler": "old", "kubectl": "old",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("binaries of the parts (-want +got):\n%s", diff)
	}
}

func TestOldBuildsAreRemoved(t *testing.T) {
	store := t.TempDir()
	keep, old, fresh, other := filepath.Join(store, "kube-keep"), filepath.Join(store, "kube-old"), filepath.Join(store, "kube-fresh"), filepath.Join(store, "other")
	longAgo := time.Now().Add(-2 * staleBuild)
	for _, dir := range []string{keep, old, fresh, other} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if dir == fresh {
			continue
		}
		if err := os.Chtimes(dir, longAgo, longAgo); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeStale(store, keep); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(store, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{fresh, keep, other}, left); diff != "" {
		t.Errorf("folders left (-want +got):\n%s", diff)
	}
}

func TestSchedulerConfigIsCompleted(t *testing.T) {
	tests := map[string]struct{ given, want string }{
		"an empty one": {
			want: `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: KUBECONFIG, qps: 1000, burst: 2000}
leaderElection: {leaderElect: false}
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
`,
		},
		"what was given stays": {
			given: "podMaxBackoffSeconds: 7\nextenders: [{urlPrefix: http://127.0.0.1:1}]\n",
			want: `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: KUBECONFIG, qps: 1000, burst: 2000}
leaderElection: {leaderElect: false}
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 7
extenders: [{urlPrefix: "http://127.0.0.1:1"}]
`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := schedulerConfig(tt.given, "KUBECONFIG")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decode(t, tt.want), decode(t, string(got))); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := schedulerConfig("\tno yaml", "KUBECONFIG"); err == nil {
		t.Error("what is no YAML is an error")
	}
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var value map[string]any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestDNSLabel(t *testing.T) {
	tests := map[string]struct {
		text  string
		limit int
		want  string
	}{
		"a test with a subtest":           {text: "TestDrain/two nodes", limit: 40, want: "testdrain-two-nodes"},
		"no hyphen at the cut":            {text: "abc-def", limit: 4, want: "abc"},
		"no hyphen at the ends":           {text: "(a)", limit: 10, want: "a"},
		"a user":                          {text: "system:kube-scheduler", limit: 60, want: "system-kube-scheduler"},
		"nothing usable leaves no hyphen": {text: "!?", limit: 10, want: ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, dnsLabel(tt.text, tt.limit)); diff != "" {
				t.Errorf("label (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPortsAreDifferentAndFree(t *testing.T) {
	ports, err := freePorts(50)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range ports {
		if port < firstPort || port > lastPort || seen[port] {
			t.Errorf("port %d is out of range or there twice", port)
		}
		seen[port] = true
	}
}

// The apiserver writes while it is killed: a request without its second line, and
// part of a line.
func TestRequestLogOfAKilledServer(t *testing.T) {
	log := &RequestLog{path: filepath.Join(t.TempDir(), "audit.log")}
	if got, err := log.Since(t.Context(), log.Mark()); err != nil || len(got) > 0 {
		t.Fatalf("no file, no requests; got %v, %v", got, err)
	}
	mark := log.Mark()
	appendTo(t, log.path, event("1", "RequestReceived", "get", 0)+event("1", "ResponseComplete", "get", 200)+
		event("2", "RequestReceived", "update", 0)+`{"auditID":"3","sta`)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := log.Since(ctx, mark); err == nil || !strings.Contains(err.Error(), "update") {
		t.Errorf("a request is open and named in the error, got: %v", err)
	}
	log.abandon()
	appendTo(t, log.path, event("4", "RequestReceived", "patch", 0)+event("4", "ResponseComplete", "patch", 201))
	requests, err := log.Since(t.Context(), mark)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, request := range requests {
		got = append(got, fmt.Sprintf("%s %d", request.Verb, request.Code))
	}
	if diff := cmp.Diff([]string{"get 200", "update 0", "patch 201"}, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}

	appendTo(t, log.path, "no JSON\n")
	if _, err := log.Since(t.Context(), mark); err == nil {
		t.Error("a line that cannot be read is an error")
	}
}

func event(id, stage, verb string, code int) string {
	return fmt.Sprintf(`{"auditID":%q,"stage":%q,"verb":%q,"responseStatus":{"code":%d}}`+"\n", id, stage, verb, code)
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestServingCertificateIsTrusted(t *testing.T) {
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := ca.serving()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.pool(), MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	for _, host := range []string{"localhost", "127.0.0.1"} {
		_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
		response, err := client.Get("https://" + host + ":" + port)
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		if err := response.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}

// IgnoringEnv is set in a process of TestAChildIsInterruptedAlsoIfWeIgnoreInterrupts, which
// ignores SIGINT and needs no cluster.
const IgnoringEnv = "DRAWBRIDGE_TEST_IGNORES_INTERRUPTS"

func TestAChildIsInterruptedAlsoIfWeIgnoreInterrupts(t *testing.T) {
	if os.Getenv(IgnoringEnv) == "" {
		// A process that has ignored a signal goes on ignoring it after signal.Reset, and
		// so do its children. So this must not be the process of the other tests.
		command := exec.CommandContext(t.Context(), "/bin/sh", "-c", `trap "" INT; exec "$0" "$@"`, os.Args[0], "-test.run=^"+t.Name()+"$")
		command.Env = append(os.Environ(), IgnoringEnv+"=yes")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if !signal.Ignored(syscall.SIGINT) { // As after `make test &` in a script.
		t.Fatal("the shell lets this process be interrupted")
	}
	p, err := spawn(exec.Command("sleep", "60"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-p.done
	status, ok := p.command.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != syscall.SIGINT {
		t.Errorf("the child ended with %v, want by an interrupt", p.command.ProcessState)
	}
}
