package health_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/drawbridge-dev/drawbridge/internal/health"
)

// syncing is a cache that syncs, or not.
type syncing struct {
	cache.Cache
	ok bool
}

func (s syncing) WaitForCacheSync(context.Context) bool { return s.ok }

func TestCaches(t *testing.T) {
	cases := map[string]struct {
		ends      bool
		syncs     bool
		wantErr   bool
		wantReady bool
	}{
		"ready when they are in sync":                     {syncs: true, wantReady: true},
		"a failure when they never will be":               {wantErr: true},
		"neither when the manager stops while they start": {ends: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tc.ends {
				cancel()
			}
			c := &health.Caches{Cache: syncing{ok: tc.syncs}}
			if c.Synced() || c.Check(nil) == nil {
				t.Error("ready before the start")
			}
			if err := c.Start(ctx); (err != nil) != tc.wantErr {
				t.Errorf("error %v, want one: %t", err, tc.wantErr)
			}
			if got := c.Check(nil) == nil; got != tc.wantReady {
				t.Errorf("ready %t, want %t", got, tc.wantReady)
			}
		})
	}
}

func TestShutdown(t *testing.T) {
	var s health.Shutdown
	if err := s.Check(nil); err != nil {
		t.Errorf("not ready before the shutdown: %v", err)
	}
	s.Begin()
	if s.Check(nil) == nil {
		t.Error("ready in the shutdown")
	}
}

func TestCheckHasADeadline(t *testing.T) {
	boom := errors.New("boom")
	check := health.Check(func(ctx context.Context) error {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("no deadline")
		}
		return boom
	})
	if err := check(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil)); !errors.Is(err, boom) {
		t.Errorf("error %v, want boom", err)
	}
}

func TestInOrderStopsAtTheFirstError(t *testing.T) {
	boom := errors.New("boom")
	fails := func(*http.Request) error { return boom }
	never := func(*http.Request) error { t.Error("checked after an error"); return nil }
	if err := health.InOrder(healthz.Ping, fails, never)(nil); !errors.Is(err, boom) {
		t.Errorf("error %v, want boom", err)
	}
	if err := health.InOrder(healthz.Ping, healthz.Ping)(nil); err != nil {
		t.Errorf("error %v, want none", err)
	}
}

func TestChecksReportTheOneThatCannotBeAdded(t *testing.T) {
	boom := errors.New("boom")
	if err := (health.Checks{"a": healthz.Ping}).Add(func(string, healthz.Checker) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("error %v, want boom", err)
	}
}
