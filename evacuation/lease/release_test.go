package lease

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// TestLeasesCallerThatComesBackKeepsItsRequests: it made a new lease of the same
// name while we were still at the requests of the old one.
func TestLeasesCallerThatComesBackKeepsItsRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t, leaseOf(aliceRecord()), leasedRequest("uid-1").Obj(), leasedRequest("uid-2").Obj())
	b.reconcile() // It sees the lease.
	b.clock.Step(160 * time.Second)
	b.beforePatch = func() {
		rec := aliceRecord()
		rec.RenewedAt = b.clock.Now()
		fresh := leaseOf(rec)
		fresh.UID = "lease-2"
		if err := b.server.Create(t.Context(), fresh); err != nil {
			t.Error(err)
		}
	}
	b.reconcile()
	if left := len(b.requesters("uid-1")) + len(b.requesters("uid-2")); left != 1 || len(b.writes) != 2 {
		t.Errorf("%d requesters are left after %v, want one after the lease's deletion and one patch", left, b.writes)
	}
	if after := b.reconcile(); after != 160*time.Second || len(b.writes) != 2 {
		t.Errorf("it comes back in %s and wrote %v, want 2m40s and nothing more", after, b.writes)
	}
}

// TestLeasesRetryAfterAConflict: somebody changes the request between our look and
// our patch.
func TestLeasesRetryAfterAConflict(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(*v1alpha1.EvictionRequest)
		want   []string
	}{
		"another requester in front": {
			func(er *v1alpha1.EvictionRequest) {
				er.Spec.Requesters = append([]v1alpha1.Requester{{Name: "native.example.com"}}, er.Spec.Requesters...)
			},
			[]string{"native.example.com"},
		},
		"the requester has another lease now": {
			func(er *v1alpha1.EvictionRequest) { er.Spec.Requesters[0].LeaseName = "other-lease" },
			[]string{requesterName},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, leaseOf(aliceRecord()), leasedRequest("uid-1").Obj())
			b.reconcile() // It sees the lease.
			b.beforePatch = func() {
				er := &v1alpha1.EvictionRequest{}
				if err := b.server.Get(t.Context(), key, er); err != nil {
					t.Error(err)
				}
				tc.change(er)
				if err := b.server.Update(t.Context(), er); err != nil {
					t.Error(err)
				}
			}
			b.clock.Step(160 * time.Second)
			b.reconcile()
			if diff := cmp.Diff(tc.want, b.requesters("uid-1")); diff != "" {
				t.Errorf("requesters (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLeasesSeveralRequestersOfOneLease(t *testing.T) {
	t.Parallel()
	er := builder.EvictionRequest("shop", "web-1", "uid-1").Leased("a.example.com", aliceLease).
		Requesters("b.example.com").Leased("c.example.com", aliceLease).Leased("d.example.com", aliceLease)
	b := newBench(t, leaseOf(aliceRecord()), er.Obj())
	b.reconcile() // It sees the lease.
	b.clock.Step(160 * time.Second)
	b.reconcile()
	if diff := cmp.Diff([]string{"b.example.com"}, b.requesters("uid-1")); diff != "" {
		t.Errorf("requesters (-want +got):\n%s", diff)
	}
}

// TestLeasesFailedPatchIsTriedAgain: the lease is gone by then, and the reason is
// still told.
func TestLeasesFailedPatchIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, leaseOf(aliceRecord()), leasedRequest("uid-1").Obj(), leasedRequest("uid-2").Obj())
	failing := interceptor.NewClient(b.server, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if obj.GetName() == "uid-1" {
				return apierrors.NewInternalError(errors.New("x"))
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
	working := b.Client
	b.Client = failing
	b.reconcile() // It sees the lease.
	b.clock.Step(160 * time.Second)
	if _, err := b.Reconcile(t.Context(), b.key(aliceLease)); !apierrors.IsInternalError(err) {
		t.Fatalf("the error is %v, want the server's", err)
	}
	if got := b.requesters("uid-2"); len(got) != 0 {
		t.Errorf("one failure kept the other request: %v", got)
	}
	b.Client = working
	b.reconcile()
	if got := b.requesters("uid-1"); len(got) != 0 {
		t.Errorf("requesters are %v, want none", got)
	}
	if len(b.log.Events) != 2 || b.log.Events[0] != b.log.Events[1] {
		t.Errorf("events are %v, want the same one twice", b.log.Events)
	}
}
