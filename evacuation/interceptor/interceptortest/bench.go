// Package interceptortest runs an interceptor in a unit test: without an API server,
// deterministically, on a clock that the test controls.
//
// The SDK itself calls the interceptor and reports, against a server that has one
// EvictionRequest and refuses what the real one refuses. A test says what happens (the
// request is canceled, a minute passes, the process dies) and checks the calls and
// reports. For the objects that the interceptor works on, use a fake client.
package interceptortest

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
)

// maxLooks is how often one step of a test may reconcile before it counts as a loop.
const maxLooks = 100_000

// Options of a Bench. The zero value is fine.
type Options struct {
	// SDK are the options of the interceptor. Default name:
	// interceptor.example.com; the clock is Clock, and Recorder and Watches are not
	// used.
	SDK interceptor.Options
	// Clock is the SDK's clock; pass it to your interceptor, too. Default: one that
	// shows the first second of 2026.
	Clock *testingclock.FakeClock
	// Pod is the one to evict. Default: pod-1 in namespace default, with the UID
	// 7b0e5f0c-4f3e-4a7e-9a53-0c3a5d9b7c11, on node-1.
	Pod      types.NamespacedName
	PodUID   types.UID
	NodeName string
	Labels   map[string]string
	// Requesters want the eviction. Default: drain.example.com.
	Requesters []string
}

// Call is one call of the interceptor.
type Call struct {
	// Method is Evacuate, Cancel or Gone.
	Method string
	At     time.Time
	Target interceptor.Target
	// Progress and Err are what it returned.
	Progress interceptor.Progress
	Err      error
}

// Bench has an interceptor and the EvictionRequest of one pod. Its methods are
// for one goroutine.
type Bench struct {
	t     testing.TB
	o     Options
	clock *testingclock.FakeClock

	server  *server
	sdk     reconcile.Reconciler
	backoff workqueue.TypedRateLimiter[reconcile.Request]
	calls   []Call
	// next is when to reconcile again, zero for never.
	next time.Time
}

// New creates a request in which the interceptor's turn is still to come.
func New(tb testing.TB, impl interceptor.Interceptor, o Options) *Bench {
	tb.Helper()
	if o.Clock == nil {
		o.Clock = testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	}
	orDefault(&o.SDK.Name, "interceptor.example.com")
	orDefault(&o.Pod, types.NamespacedName{Namespace: "default", Name: "pod-1"})
	orDefault(&o.PodUID, "7b0e5f0c-4f3e-4a7e-9a53-0c3a5d9b7c11")
	orDefault(&o.NodeName, "node-1")
	if o.Requesters == nil {
		o.Requesters = []string{"drain.example.com"}
	}
	b := &Bench{t: tb, o: o, clock: o.Clock, server: &server{t: tb, clock: o.Clock, name: o.SDK.Name}}
	b.server.create(o)
	b.start(impl)
	return b
}

func orDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// start starts a process.
func (b *Bench) start(impl interceptor.Interceptor) {
	b.t.Helper()
	recording := recorded(b, impl)
	o := b.o.SDK
	o.Clock, o.Recorder, o.Watches = b.clock, b.server, nil
	sdk, err := interceptor.NewReconciler(b.server, b.server, recording, o)
	if err != nil {
		b.t.Fatalf("interceptortest: %v", err)
	}
	b.sdk = sdk
	b.backoff = controllers.SlowBackoff()
	b.next = time.Time{}
}

// Activate makes it the interceptor's turn.
func (b *Bench) Activate() {
	b.t.Helper()
	b.server.activate()
	b.observe()
}

// Changed says that an object of Options.Watches has changed.
func (b *Bench) Changed() {
	b.t.Helper()
	b.observe()
}

// Advance moves the clock and does what falls due.
func (b *Bench) Advance(d time.Duration) {
	b.t.Helper()
	until := b.clock.Now().Add(d)
	for range maxLooks {
		if b.next.IsZero() || b.next.After(until) {
			b.clock.SetTime(until)
			return
		}
		if b.next.After(b.clock.Now()) {
			b.clock.SetTime(b.next)
		}
		b.observe()
	}
	b.t.Fatalf("interceptortest: Evacuate was called %d times within %s", maxLooks, d)
}

// Cancel removes the last requester: the request is canceled.
func (b *Bench) Cancel() {
	b.t.Helper()
	b.server.cancel()
	b.observe()
}

// Hurry makes a requester want the pod gone: the interceptor has this long, at least a
// second, and may be told so again with another time. PassOver is what happens then.
func (b *Bench) Hurry(left time.Duration) {
	b.t.Helper()
	b.server.hurry(b.clock.Now().Add(left))
	b.observe()
}

// Hard makes a requester not wait at all: all interceptors of the pod have this long, at least
// a second, to save what they can, whether it is their turn or not.
func (b *Bench) Hard(left time.Duration) {
	b.t.Helper()
	b.server.mustExist()
	b.server.request.Spec.Requesters[0].Type = v1alpha1.RequesterHard
	b.Hurry(left)
}

// PassOver gives the turn to the next interceptor, as if this one had missed the
// heartbeat deadline, or the deadline of a requester had come.
func (b *Bench) PassOver() {
	b.t.Helper()
	b.server.passOver()
	b.observe()
}

// Delete deletes the request.
func (b *Bench) Delete() {
	b.t.Helper()
	b.server.request = nil
	b.observe()
}

// Recreate creates the request again, with the same name and another UID. It is the
// interceptor's turn immediately. The SDK may see this without having seen the old one
// go.
func (b *Bench) Recreate() {
	b.t.Helper()
	b.server.create(b.o)
	b.server.activate()
	b.observe()
}

// PodEnds ends the pod: the request is fulfilled.
func (b *Bench) PodEnds() {
	b.t.Helper()
	b.server.evicted()
	b.observe()
}

// Restart kills the process of the interceptor and starts another one, which knows only
// what the API server has. Pass an interceptor that remembers nothing, either.
func (b *Bench) Restart(impl interceptor.Interceptor) {
	b.t.Helper()
	b.start(impl)
	b.observe()
}

// FailReports makes the server answer all reports with this error; nil stops that.
func (b *Bench) FailReports(err error) { b.server.failure = err }

// observe lets the SDK reconcile the request, as after an event.
func (b *Bench) observe() {
	b.t.Helper()
	req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: b.o.Pod.Namespace, Name: string(b.o.PodUID)}}
	result, err := b.sdk.Reconcile(context.Background(), req)
	b.next = time.Time{}
	switch {
	case err != nil:
		b.next = b.clock.Now().Add(b.backoff.When(req))
	default:
		b.backoff.Forget(req)
		if result.RequeueAfter > 0 {
			b.next = b.clock.Now().Add(result.RequeueAfter)
		}
	}
	if b.server.handOver() {
		b.observe()
	}
}

// NextLook is when Evacuate or Cancel is called next if nothing happens before; zero if
// only events lead to a call.
func (b *Bench) NextLook() time.Time { return b.next }

// Now is the time.
func (b *Bench) Now() time.Time { return b.clock.Now() }

// Calls returns all calls of the interceptor so far.
func (b *Bench) Calls() []Call { return b.calls }

// Methods returns the called methods, in order.
func (b *Bench) Methods() []string {
	var methods []string
	for _, call := range b.calls {
		methods = append(methods, call.Method)
	}
	return methods
}

// Report is the interceptor's report as the request has it now.
func (b *Bench) Report() v1alpha1.InterceptorStatus {
	if item := b.server.item(); item != nil {
		return *item.DeepCopy()
	}
	return v1alpha1.InterceptorStatus{}
}

// Reports returns all accepted reports, in order.
func (b *Bench) Reports() []v1alpha1.InterceptorStatus { return b.server.reports }

// Completed reports whether the interceptor has handed over.
func (b *Bench) Completed() bool { return b.Report().CompletionTime != nil }

// Events returns the events recorded so far, as "Type Reason: note".
func (b *Bench) Events() []string { return b.server.events }

// recorded wraps the interceptor to record the SDK's calls.
func recorded(b *Bench, impl interceptor.Interceptor) interceptor.Interceptor {
	base := recorder{b, impl}
	canceler, cancels := impl.(interceptor.Canceler)
	goner, cleans := impl.(interceptor.Goner)
	switch {
	case cancels && cleans:
		return &struct {
			cancelRecorder
			goneRecorder
		}{cancelRecorder{base, canceler}, goneRecorder{b, goner}}
	case cancels:
		return &cancelRecorder{base, canceler}
	case cleans:
		return &struct {
			recorder
			goneRecorder
		}{base, goneRecorder{b, goner}}
	default:
		return &base
	}
}

// recorder records the SDK's calls.
type recorder struct {
	b    *Bench
	impl interceptor.Interceptor
}

func (r *recorder) Evacuate(ctx context.Context, t interceptor.Target) (p interceptor.Progress, err error) {
	i := len(r.b.calls)
	r.b.calls = append(r.b.calls, Call{Method: "Evacuate", At: r.b.clock.Now(), Target: t, Err: errors.New("it did not return")})
	p, err = r.impl.Evacuate(ctx, t)
	r.b.calls[i].Progress, r.b.calls[i].Err = p, err
	return p, err
}

// cancelRecorder is a recorder for Cancelers.
type cancelRecorder struct {
	recorder
	canceler interceptor.Canceler
}

func (r *cancelRecorder) Cancel(ctx context.Context, t interceptor.Target) error {
	return r.b.record("Cancel", t, func() error { return r.canceler.Cancel(ctx, t) })
}

// goneRecorder is a recorder for Goners.
type goneRecorder struct {
	b     *Bench
	goner interceptor.Goner
}

func (r *goneRecorder) Gone(ctx context.Context, t interceptor.Target) error {
	return r.b.record("Gone", t, func() error { return r.goner.Gone(ctx, t) })
}

// record records a call that returns only an error.
func (b *Bench) record(method string, t interceptor.Target, call func() error) error {
	i := len(b.calls)
	b.calls = append(b.calls, Call{Method: method, At: b.clock.Now(), Target: t, Err: errors.New("it did not return")})
	err := call()
	b.calls[i].Err = err
	return err
}
