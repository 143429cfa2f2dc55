//go:build unix

package manager

import (
	"context"
	"fmt"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// ForTest starts a manager of the test's own, which is stopped at its end. The test
// must not be parallel: nothing but its own calls reach the webhook then.
func (i *Installation) ForTest(tb testing.TB, o Options) *Manager {
	tb.Helper()
	m := i.startFor(tb, o)
	tb.Cleanup(func() { m.StopFor(tb) })
	return m
}

func (i *Installation) startFor(tb testing.TB, o Options) *Manager {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), cluster.Patience)
	defer cancel()
	m, err := i.Start(ctx, o)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// StopFor shuts the manager down, if the test has not done so. An error fails the test.
func (m *Manager) StopFor(tb testing.TB) {
	tb.Helper()
	select {
	case <-m.Done():
		return
	default:
	}
	// The test's own context may have ended by now.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), cluster.Patience)
	defer cancel()
	if err := m.Stop(ctx); err != nil {
		tb.Errorf("stop the manager: %v", err)
	}
}

// Shared is a manager for the parallel tests of a package. The zero value is fine.
type Shared struct {
	mu      sync.Mutex
	manager *Manager
	users   int
}

// ForTest makes the test parallel and returns the shared manager, which the first of
// them starts and the last one stops. Tests with a manager of their own run before.
func (s *Shared) ForTest(t *testing.T, i *Installation, o Options) *Manager {
	t.Helper()
	t.Parallel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		s.manager = i.startFor(t, o)
	}
	s.users++
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.users--; s.users == 0 {
			s.manager.StopFor(t)
		}
	})
	return s.manager
}

// LetOperate gives a group the role that the chart makes for people on call.
func (i *Installation) LetOperate(ctx context.Context, group string) error {
	_, err := i.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: group},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: i.Release + "-operator"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: group}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("bind the role of operators: %w", err)
	}
	return nil
}
