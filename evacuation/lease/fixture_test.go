package lease

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/index"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// bench is the controller over a fake API server, with the indexes of the
// real cache. Writes counts what it wrote.
type bench struct {
	*Reconciler
	t      *testing.T
	server client.WithWatch
	clock  *testingclock.FakeClock
	log    *builder.NoteLog
	writes []string
	// beforePatch runs before the next patch of a request.
	beforePatch func()
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	b := &bench{t: t, clock: testingclock.NewFakeClock(at(0)), log: &builder.NoteLog{}, server: newServer(t, objects...)}
	b.Reconciler = &Reconciler{
		Client: b.intercept(b.server), APIReader: b.server, Clock: b.clock, Policy: DefaultPolicy(),
		Recorder: b.log, Namespace: "drawbridge-system", startedAt: at(-100000),
	}
	b.init()
	return b
}

func newServer(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	with := fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithStatusSubresource(&v1alpha1.EvictionRequest{}).WithObjects(objects...)
	index.All(func(object client.Object, name string, extract client.IndexerFunc) {
		with.WithIndex(object, name, extract)
	})
	return with.Build()
}

func (b *bench) intercept(server client.WithWatch) client.WithWatch {
	return interceptor.NewClient(server, interceptor.Funcs{
		Delete: func(ctx context.Context, _ client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			b.writes = append(b.writes, "delete "+obj.GetName())
			return b.server.Delete(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, _ client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if do := b.beforePatch; do != nil {
				b.beforePatch = nil
				do()
			}
			b.writes = append(b.writes, "patch "+obj.GetName())
			// The API server answers a failed test of a patch with 422, the fake one
			// with an error of its own.
			live := &v1alpha1.EvictionRequest{}
			if err := b.server.Get(ctx, client.ObjectKeyFromObject(obj), live); err != nil {
				return err
			}
			if live.ResourceVersion != obj.GetResourceVersion() {
				return apierrors.NewGenericServerResponse(422, "", v1alpha1.Resource("evictionrequests"), "", "testing value failed", 0, false)
			}
			return b.server.Patch(ctx, obj, patch, opts...)
		},
	})
}

func (b *bench) reconcile() time.Duration {
	b.t.Helper()
	result, err := b.Reconcile(b.t.Context(), b.key(aliceLease))
	if err != nil {
		b.t.Fatalf("reconcile: %v", err)
	}
	return result.RequeueAfter
}

// requesters are the names left in a request, nil if it does not exist.
func (b *bench) requesters(name string) []string {
	b.t.Helper()
	er := &v1alpha1.EvictionRequest{}
	if err := b.server.Get(b.t.Context(), types.NamespacedName{Namespace: "shop", Name: name}, er); err != nil {
		b.t.Fatal(err)
	}
	names := []string{}
	for _, r := range er.Spec.Requesters {
		names = append(names, r.Name)
	}
	return names
}

func (b *bench) leaseExists() bool {
	b.t.Helper()
	err := b.server.Get(b.t.Context(), b.key(aliceLease).NamespacedName, &coordinationv1.Lease{})
	if client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	}
	return err == nil
}

func leasedRequest(uid types.UID) *builder.EvictionRequestWrapper {
	return builder.EvictionRequest("shop", "web-1", uid).Leased(requesterName, aliceLease)
}

var stepTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// at is a time of the tests, in seconds after their start.
func at(seconds int) time.Time { return stepTime.Add(time.Duration(seconds) * time.Second) }

var key = types.NamespacedName{Namespace: "shop", Name: "uid-1"}
