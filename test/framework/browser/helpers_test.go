package browser

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// until waits for something outside of the page.
func (t *Tab) until(tb testing.TB, what string, check func() bool) {
	tb.Helper()
	err := waiting.For(t.ctx, what, func(context.Context) error {
		if !check() {
			return errors.New("it is not so")
		}
		return nil
	})
	if err != nil {
		tb.Fatalf("%v; problems: %q", err, t.Problems())
	}
}

// fakeTB keeps errors instead of failing.
type fakeTB struct {
	testing.TB
	said string
}

func (f *fakeTB) Errorf(format string, args ...any) { f.said += fmt.Sprintf(format, args...) }
