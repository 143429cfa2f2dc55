//go:build unix

package ha

import (
	"context"
	"fmt"
	"testing"

	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// leaderLease is the name of the leader's Lease.
const leaderLease = "drawbridge-leader"

// leader tells which of the replicas leads. Those that have ended do not.
func leader(t *testing.T, replicas ...*manager.Process) (leads, other *manager.Process) {
	t.Helper()
	eventually(t, "a leader", func(ctx context.Context) error {
		for i, p := range replicas {
			select {
			case <-p.Done():
				continue
			default:
			}
			value, err := p.Metric(ctx, `leader_election_master_status{name="`+leaderLease+`"}`)
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

// revive starts those of the replicas anew that have ended, as a kubelet does.
func revive(t *testing.T, s *manager.Service, replicas []*manager.Process, args ...string) {
	t.Helper()
	for i, p := range replicas {
		select {
		case <-p.Done():
			replicas[i] = s.Replica(t, args...)
		default:
		}
	}
}
