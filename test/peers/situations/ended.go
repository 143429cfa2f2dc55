//go:build unix

package situations

import (
	"context"
	"fmt"
	"testing"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// Ended waits until a drain of kubectl has ended well.
func Ended(t testing.TB, drain *cluster.Program) {
	t.Helper()
	cluster.Eventually(t, "the drain to end", func(context.Context) error {
		select {
		case <-drain.Done():
			return nil
		default:
			return fmt.Errorf("so far %v", drain.Lines())
		}
	})
	if err := cluster.Must(drain.Wait())(t).Err(); err != nil {
		t.Fatal(err)
	}
}
