package webhook

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

func TestLeaseIndexFollowsItsInformer(t *testing.T) {
	named := func(name, version string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ownNamespace, Name: name, ResourceVersion: version}}
	}
	tests := map[string]struct {
		events func(x *LeaseIndex)
		want   string // The version of lease a; empty if there is none.
	}{
		"one that nobody has seen": {events: func(*LeaseIndex) {}},
		"one that was added":       {events: func(x *LeaseIndex) { x.put(named("a", "1")) }, want: "1"},
		"one that was renewed":     {events: func(x *LeaseIndex) { x.put(named("a", "1")); x.put(named("a", "2")) }, want: "2"},
		"another one":              {events: func(x *LeaseIndex) { x.put(named("b", "1")) }},
		"one that was deleted":     {events: func(x *LeaseIndex) { x.put(named("a", "1")); x.drop(named("a", "1")) }},
		"one whose deletion was missed": {events: func(x *LeaseIndex) {
			x.put(named("a", "1"))
			x.drop(toolscache.DeletedFinalStateUnknown{Obj: named("a", "1")})
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			x := &LeaseIndex{}
			tt.events(x)
			got := ""
			if lease := x.Lease("a"); lease != nil {
				got = lease.ResourceVersion
			}
			if got != tt.want {
				t.Errorf("want version %q, got %q", tt.want, got)
			}
		})
	}
}
