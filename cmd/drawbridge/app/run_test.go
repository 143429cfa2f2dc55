package app

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/drawbridge-dev/drawbridge/internal/health"
)

func TestWhoAmI(t *testing.T) {
	boom := errors.New("boom")
	cases := map[string]struct {
		username string
		err      error
		wantErr  bool
	}{
		"the name the API server sees": {username: "system:serviceaccount:a:b"},
		"nobody is an error":           {wantErr: true},
		"so is no answer":              {username: "x", err: boom, wantErr: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			client.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{
					UserInfo: authenticationv1.UserInfo{Username: tc.username},
				}}, tc.err
			})
			got, err := whoAmI(t.Context(), client.AuthenticationV1())
			if (err != nil) != tc.wantErr {
				t.Fatalf("error %v, want one: %t", err, tc.wantErr)
			}
			if err == nil && got != tc.username {
				t.Errorf("got %q, want %q", got, tc.username)
			}
		})
	}
}

func TestServesWorkloadRef(t *testing.T) {
	cases := map[string]struct {
		version string
		want    bool
		wantErr bool
	}{
		"1.34 has no groups":       {version: "v1.34.2"},
		"1.35 has them":            {version: "v1.35.0", want: true},
		"a vendor's 1.35 too":      {version: "v1.35.1-eks-abc1234", want: true},
		"1.36 names them anew":     {version: "v1.36.0"},
		"2.35 is not 1.35":         {version: "v2.35.0"},
		"an unreadable one is bad": {version: "banana", wantErr: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}, FakedServerVersion: &version.Info{GitVersion: tc.version}}
			got, err := servesWorkloadRef(server)
			if (err != nil) != tc.wantErr || got != tc.want {
				t.Errorf("got %t, %v, want %t", got, err, tc.want)
			}
		})
	}
}

// running is a manager that runs until its context ends, or fails at once.
type running struct {
	manager.Manager
	begun chan struct{}
	err   error
}

func (r running) GetLogger() logr.Logger { return logr.Discard() }

func (r running) Start(ctx context.Context) error {
	close(r.begun)
	if r.err != nil {
		return r.err
	}
	<-ctx.Done()
	return nil
}

func TestShutdownTurnsUnreadyFirst(t *testing.T) {
	const delay = 50 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	shutdown := &health.Shutdown{}
	mgr := running{begun: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- start(ctx, mgr, shutdown, delay) }()
	<-mgr.begun
	if err := shutdown.Check(nil); err != nil {
		t.Fatalf("unready before the end: %v", err)
	}
	before := time.Now()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("error %v", err)
	}
	if shutdown.Check(nil) == nil {
		t.Error("still ready")
	}
	if answered := time.Since(before); answered < delay {
		t.Errorf("the manager was stopped after %v, want at least %v", answered, delay)
	}
}

func TestAManagerThatFailsEndsTheProgram(t *testing.T) {
	boom := errors.New("boom")
	shutdown := &health.Shutdown{}
	if err := start(t.Context(), running{begun: make(chan struct{}), err: boom}, shutdown, time.Hour); !errors.Is(err, boom) {
		t.Errorf("error %v, want boom", err)
	}
}

func TestRunRefusesWrongOptions(t *testing.T) {
	if err := Run(t.Context(), nil, Options{}); err == nil {
		t.Error("the zero options were accepted")
	}
}

func TestRunLeavesTheCallersConfigAlone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // The first question to the API server fails.
	o := DefaultOptions()
	o.Namespace = "drawbridge-system"
	conf := &rest.Config{Host: "https://127.0.0.1:1"}
	if err := Run(ctx, conf, o); err == nil {
		t.Fatal("it ran without an API server")
	}
	if conf.UserAgent != "" || conf.QPS != 0 {
		t.Errorf("it was changed: user agent %q, QPS %v", conf.UserAgent, conf.QPS)
	}
}

func TestTheCommandHasAKubeconfigFlag(t *testing.T) {
	if NewCommand().Flags().Lookup("kubeconfig") == nil {
		t.Error("there is none")
	}
}
