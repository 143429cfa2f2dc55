package browser

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/util/wait"
)

// until waits for something outside of the page.
func (t *Tab) until(tb testing.TB, what string, check func() bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) { return check(), nil })
	if err != nil {
		tb.Fatalf("not within %s: %s; problems: %q", patience, what, t.Problems())
	}
}

// fakeTB keeps errors instead of failing.
type fakeTB struct {
	testing.TB
	said string
}

func (f *fakeTB) Errorf(format string, args ...any) { f.said += fmt.Sprintf(format, args...) }
