package events

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOrderEvents(t *testing.T) {
	tests := map[string]struct {
		got, want Event
	}{
		"timed out": {
			OrderTimedOut("storage-0", "n1", 10*time.Minute, "shop/web-0"),
			Event{"Warning", "OrderTimedOut", "OrderEvictions", "Pod storage-0 waits no longer after 10m, although pods are left on node n1 that leave before it: shop/web-0."},
		},
		"a circle": {
			OrderCircle("storage-0", "shop/web-0"),
			Event{"Warning", "OrderCircle", "OrderEvictions", "Pod storage-0 does not wait for pods that wait for it, as spec.after of their registrations says: shop/web-0."},
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
