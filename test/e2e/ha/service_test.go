//go:build unix

package ha

import (
	"context"
	"fmt"
	"testing"

	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// leader tells which of the replicas leads.
func leader(t *testing.T, replicas ...*manager.Process) (leads, other *manager.Process) {
	t.Helper()
	eventually(t, "a leader", func(ctx context.Context) error {
		for i, p := range replicas {
			value, err := p.Metric(ctx, `leader_election_master_status{name="drawbridge-leader"}`)
			if err != nil {
				return err
			}
			if value == 1 {
				leads, other = p, replicas[(i+1)%len(replicas)]
				return nil
			}
		}
		return fmt.Errorf("none of %d leads", len(replicas))
	})
	return leads, other
}
