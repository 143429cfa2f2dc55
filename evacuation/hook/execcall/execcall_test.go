package execcall

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

var call = Call{Namespace: "shop", Pod: "db-0", Container: "db", Command: []string{"sh", "-c", "echo 'a&b'"}}

// streams are what a command of the test writes to. status ends it.
type streams struct {
	stdout, stderr io.Writer
	status         func(metav1.Status)
	// cut breaks the connection.
	cut func()
	// gone is closed when the client is.
	gone <-chan struct{}
}

type connKey struct{}

// serve begins a server that speaks v5.channel.k8s.io with the API server's own library.
func serve(t *testing.T, run func(*http.Request, streams)) *Executor {
	t.Helper()
	return executorOf(t, func(w http.ResponseWriter, r *http.Request) {
		conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
			remotecommand.StreamProtocolV5Name: {Binary: true, Channels: []wsstream.ChannelType{
				wsstream.ReadChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.ReadChannel,
			}},
		})
		_, channels, err := conn.Open(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = io.Copy(io.Discard, channels[remotecommand.StreamStdIn])
		}()
		run(r, streams{
			stdout: channels[remotecommand.StreamStdOut], stderr: channels[remotecommand.StreamStdErr],
			status: func(s metav1.Status) {
				data, err := json.Marshal(s)
				if err != nil {
					t.Error(err)
				}
				_, _ = channels[remotecommand.StreamErr].Write(data)
			},
			cut: func() {
				if conn, ok := r.Context().Value(connKey{}).(net.Conn); ok {
					_ = conn.Close()
				}
			},
			gone: gone,
		})
	})
}

// executorOf returns an Executor for a TLS server.
func executorOf(t *testing.T, handler http.HandlerFunc) *Executor {
	t.Helper()
	var serving sync.WaitGroup
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serving.Add(1)
		defer serving.Done()
		handler(w, r)
	}))
	server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, conn)
	}
	server.StartTLS()
	t.Cleanup(func() {
		server.Close()
		serving.Wait()
	})
	executor, err := New(&rest.Config{Host: server.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return executor
}

var success = metav1.Status{Status: metav1.StatusSuccess}

func exit(code int) metav1.Status {
	return metav1.Status{
		Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason, Message: "command terminated with non-zero exit code",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(code)}}},
	}
}

func write(w io.Writer, s string) { _, _ = io.WriteString(w, s) }

func TestHowACommandEnds(t *testing.T) {
	cases := map[string]struct {
		run       func(*http.Request, streams)
		want      Answer
		wantError string
	}{
		"exit code 0": {
			run:  func(_ *http.Request, s streams) { write(s.stdout, "flushed\n"); s.status(success) },
			want: Answer{Output: "flushed\n"},
		},
		"without output": {
			run: func(_ *http.Request, s streams) { s.status(success) },
		},
		"another exit code is an answer": {
			run:  func(_ *http.Request, s streams) { write(s.stderr, "disk full\n"); s.status(exit(3)) },
			want: Answer{ExitCode: 3, Output: "disk full\n"},
		},
		"the end of the output": {
			run: func(_ *http.Request, s streams) {
				write(s.stdout, strings.Repeat("a", 5000))
				write(s.stdout, strings.Repeat("b", 1000)+"the end")
				s.status(exit(1))
			},
			want: Answer{ExitCode: 1, Output: strings.Repeat("a", 1024-1007) + strings.Repeat("b", 1000) + "the end"},
		},
		"output that is no UTF-8": {
			run:  func(_ *http.Request, s streams) { write(s.stdout, "a\xffb"); s.status(success) },
			want: Answer{Output: "a\uFFFDb"},
		},
		"a container that is not there": {
			run: func(_ *http.Request, s streams) {
				s.status(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: "container not found (\"db\")"})
			},
			wantError: `exec in container db of pod shop/db-0: container not found ("db")`,
		},
		"a connection that breaks": {
			run:       func(_ *http.Request, s streams) { s.cut() },
			wantError: "exec in container db of pod shop/db-0: error reading from error stream: next reader: websocket: close 1006 (abnormal closure): unexpected EOF",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := serve(t, tc.run).Run(t.Context(), call)
			message := ""
			if err != nil {
				message = err.Error()
			}
			if diff := cmp.Diff(tc.wantError, message); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsAsked(t *testing.T) {
	type asked struct {
		Method, Path, Token string
		Query               url.Values
	}
	var got asked
	_, err := serve(t, func(r *http.Request, s streams) {
		got = asked{r.Method, r.URL.Path, r.Header.Get("Authorization"), r.URL.Query()}
		s.status(success)
	}).Run(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	want := asked{"GET", "/api/v1/namespaces/shop/pods/db-0/exec", "Bearer secret", url.Values{
		"container": {"db"}, "command": {"sh", "-c", "echo 'a&b'"}, "stdout": {"true"}, "stderr": {"true"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRefusedByTheAPIServer(t *testing.T) {
	var asked []string
	_, err := executorOf(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Upgrade"))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: `pods "db-0" is forbidden`,
		})
	}).Run(t.Context(), call)
	if !apierrors.IsForbidden(err) {
		t.Errorf("got %v, want Forbidden", err)
	}
	// It is not tried again by other means.
	if diff := cmp.Diff([]string{"websocket"}, asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// writerFunc is called with what is written.
type writerFunc func()

func (f writerFunc) Write(data []byte) (int, error) {
	f()
	return len(data), nil
}

// The context ends when output has come: client-go leaks its readers if it ends while the
// streams are being made.
func TestContextThatEnds(t *testing.T) {
	gone := make(chan struct{})
	executor := serve(t, func(_ *http.Request, s streams) {
		write(s.stdout, "dumping")
		<-s.gone
		close(gone)
	})
	why := errors.New("the eviction was canceled")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := executor.run(ctx, call, writerFunc(func() { cancel(why) }))
	if !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	// The server sees the end of the connection.
	<-gone
}

func TestSeveralCommandsAtATime(t *testing.T) {
	executor := serve(t, func(r *http.Request, s streams) {
		write(s.stdout, r.URL.Query().Get("command"))
		s.status(success)
	})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			want := strconv.Itoa(i)
			got, err := executor.Run(t.Context(), Call{Namespace: "shop", Pod: "db-0", Container: "db", Command: []string{want}})
			if err != nil || got.Output != want {
				t.Errorf("got %v, %v, want %s", got, err, want)
			}
		})
	}
	all.Wait()
}

func TestTail(t *testing.T) {
	cases := map[string]struct {
		writes []string
		want   string
	}{
		"nothing":                        {nil, ""},
		"less than fits":                 {[]string{"a", "b"}, "ab"},
		"what just fits":                 {[]string{"ab", "cd"}, "abcd"},
		"around the end":                 {[]string{"abc", "def"}, "cdef"},
		"more than fits at once":         {[]string{"a", "bcdefgh"}, "efgh"},
		"often around":                   {[]string{"abc", "def", "ghi", "jkl"}, "ijkl"},
		"a character that lost its head": {[]string{"ä", "abc"}, "abc"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ring := newTail(4)
			for _, s := range tc.writes {
				if n, err := ring.Write([]byte(s)); n != len(s) || err != nil {
					t.Errorf("wrote %d, %v", n, err)
				}
			}
			if diff := cmp.Diff(tc.want, ring.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("of several writers", func(t *testing.T) {
		ring := newTail(16)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 100 {
					_, _ = ring.Write([]byte("äö"))
					if s := ring.String(); !utf8.ValidString(s) {
						t.Errorf("%q is no UTF-8", s)
					}
				}
			})
		}
		all.Wait()
	})
}
