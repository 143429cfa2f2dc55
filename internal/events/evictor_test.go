package events

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEvictorEvents(t *testing.T) {
	tests := map[string]struct {
		got, want Event
	}{
		"accepted": {
			EvictionAccepted("web-1", "budget"),
			Event{"Normal", "EvictionAccepted", "EvictPod", "The eviction of pod web-1 was accepted (because a budget made room)."},
		},
		"refused": {
			EvictionRefused(ReasonEvictionBlocked, "web-1", "backoff", "PodDisruptionBudget web allows no disruption now.", 3),
			Event{"Warning", "EvictionBlocked", "EvictPod", "The eviction of pod web-1 failed (attempt 3, after a pause). PodDisruptionBudget web allows no disruption now."},
		},
		"not supported": {
			EvictionNotSupported("No eviction of such pods"),
			Event{"Warning", "EvictionNotSupported", "EvictPod", "No eviction of such pods."},
		},
		"deleted": {
			DeletedDespiteBudget("db-0", "The pod is deleted in spite of PodDisruptionBudget db, as EvictionBudget night says."),
			Event{"Warning", "DeletedDespiteBudget", "DeletePod", "Pod db-0: The pod is deleted in spite of PodDisruptionBudget db, as EvictionBudget night says."},
		},
		"requester expired": {
			RequesterExpired("alice.users.drawbridge.dev", "kubectl (alice)", 163400*time.Millisecond),
			Event{"Normal", "RequesterExpired", "RemoveRequester", "Requester alice.users.drawbridge.dev (kubectl (alice)) was removed: no call for an eviction was recorded for 2m43s."},
		},
		"requester nobody can name expired": {
			RequesterExpired("alice.users.drawbridge.dev", "", 163400*time.Millisecond),
			Event{"Normal", "RequesterExpired", "RemoveRequester", "Requester alice.users.drawbridge.dev (an unknown caller) was removed: no call for an eviction was recorded for 2m43s."},
		},
		"lease missing": {
			RequesterLeaseMissing("alice.users.drawbridge.dev", "alice-n1"),
			Event{"Normal", "RequesterExpired", "RemoveRequester", "Requester alice.users.drawbridge.dev was removed: its lease alice-n1 does not exist."},
		},
		"requester withdrawn": {
			RequesterWithdrawn("alice.users.drawbridge.dev", "kubectl (alice)", "n1", []string{"a", "b"}, time.Minute),
			Event{"Normal", "RequesterWithdrawn", "RemoveRequester", "Requester alice.users.drawbridge.dev (kubectl (alice)) was removed: node n1 is not drained any more (a, b gone for 1m0s)."},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.got); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}
