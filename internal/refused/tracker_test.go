package refused

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	crinterceptor "sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	applyv1alpha1 "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// counted are the refusals by what and cause.
type counted map[string]int

func (c counted) Refused(what, cause string) { c[what+" "+cause]++ }

// emitted is an event.
type emitted struct{ regarding, reason, action string }

// recorded keeps events.
type recorded struct{ events []emitted }

func (r *recorded) Eventf(regarding, _ runtime.Object, _, reason, action, _ string, _ ...any) {
	ref := regarding.(*corev1.ObjectReference)
	r.events = append(r.events, emitted{ref.Kind + " " + ref.Namespace + "/" + ref.Name, reason, action})
}

// world is an API server that refuses what it is told to.
type world struct {
	*testing.T
	clock   *testingclock.FakeClock
	metrics counted
	events  *recorded
	tracker *Tracker
	client  client.Client
	// refuse is the answer to each write, and sent the writes.
	refuse error
	sent   []string
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{T: t, clock: testingclock.NewFakeClock(noon), metrics: counted{}, events: &recorded{}}
	w.tracker = NewTracker(w.clock, w.metrics, logr.Discard())
	w.tracker.Record(w.events)
	write := func(what string, do func() error) error {
		w.sent = append(w.sent, what)
		if w.refuse != nil {
			return w.refuse
		}
		return do()
	}
	c := crinterceptor.NewClient(fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithObjects(objects...).WithStatusSubresource(objects...).Build(), crinterceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return write("create", func() error { return c.Create(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return write("patch", func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return write("apply", func() error { return c.Apply(ctx, obj, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return write("patch "+sub, func() error { return c.SubResource(sub).Patch(ctx, obj, patch, opts...) })
		},
	})
	w.client = w.tracker.Wrap(c)
	return w
}

func overQuota() error {
	return apierrors.NewForbidden(batchv1.Resource("jobs"), "dump", errors.New("exceeded quota: none"))
}

func job() *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "dump"}}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name + "-uid")}}
}

// However often somebody asks, a write is sent a few times in the first minutes, and then
// once in five.
func TestARefusedWriteIsSentWithGrowingPauses(t *testing.T) {
	w := newWorld(t)
	w.refuse = overQuota()
	var sent []time.Duration
	for at := time.Duration(0); at <= 30*time.Minute; at += time.Second {
		before := len(w.sent)
		err := w.client.Create(t.Context(), job())
		var refusal *Error
		if !errors.As(err, &refusal) || refusal.Cause != Quota || refusal.Write != Job || !apierrors.IsForbidden(err) {
			t.Fatalf("error %v", err)
		}
		if len(w.sent) > before {
			sent = append(sent, at)
		}
		w.clock.Step(time.Second)
	}
	s, m := time.Second, time.Minute
	want := []time.Duration{0, 5 * s, 15 * s, 35 * s, 75 * s, 155 * s, 315 * s, 315*s + 5*m, 315*s + 10*m, 315*s + 15*m, 315*s + 20*m}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(counted{"job Quota": len(want)}, w.metrics); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

// Each pod that a write is for has one event per cause, and another one when it is accepted.
func TestARefusalIsToldOncePerPodAndCause(t *testing.T) {
	w := newWorld(t)
	a, b := About(t.Context(), Pod(pod("a"))), About(t.Context(), Pod(pod("b")))
	for _, refusal := range []error{overQuota(), apierrors.NewForbidden(batchv1.Resource("jobs"), "dump", errors.New("violates PodSecurity")), nil} {
		w.refuse = refusal
		for range 3 {
			for _, ctx := range []context.Context{a, b} {
				if err := w.client.Create(ctx, job()); (err == nil) != (refusal == nil) && !apierrors.IsAlreadyExists(err) {
					t.Fatal(err)
				}
			}
		}
		w.clock.Step(lastPause)
	}
	got := map[string]int{}
	for _, e := range w.events.events {
		got[e.regarding+" "+e.reason+" "+e.action]++
	}
	want := map[string]int{}
	for _, p := range []string{"a", "b"} {
		for _, reason := range []string{"RefusedByQuota", "RefusedByPolicy", "WriteAccepted"} {
			want["Pod shop/"+p+" "+reason+" WriteJob"] = 1
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Without About, a refusal is told on what is written, and for a request on its pod as well.
func TestARefusalIsToldOnWhatIsWritten(t *testing.T) {
	er := &v1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a-uid", UID: "request-uid"}}
	er.Spec.Target.Pod = &v1alpha1.LocalPodReference{Name: "a", UID: "a-uid"}
	w := newWorld(t, er, pod("b"))
	w.refuse = overQuota()
	after := er.DeepCopy()
	after.Status.NodeName = "n1"
	if err := w.client.Status().Patch(t.Context(), after, client.MergeFrom(er)); err == nil {
		t.Error("no error")
	}
	if err := w.client.Patch(t.Context(), pod("b"), client.RawPatch(types.MergePatchType, []byte("{}")), client.FieldOwner(managerGuard)); err == nil {
		t.Error("no error")
	}
	var got []string
	for _, e := range w.events.events {
		got = append(got, e.regarding+" "+e.action)
	}
	want := []string{"Pod shop/a WriteRequestStatus", "EvictionRequest shop/a-uid WriteRequestStatus", "Pod shop/b WriteGuardLabel"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Labels that a policy refuses hold up no request, and what refuses the request itself is told
// when it is tried without them. A quota does not care for labels: one attempt is enough.
func TestARequestIsTriedWithoutLabels(t *testing.T) {
	policy := apierrors.NewForbidden(v1alpha1.Resource("evictionrequests"), "a-uid", errors.New("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"))
	for name, tc := range map[string]struct {
		refuse error
		sent   int
	}{
		"a policy": {policy, 2}, "a quota": {overQuota(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.refuse = tc.refuse
			for range 3 {
				for _, labels := range []map[string]string{{"app": "db"}, nil} {
					request := applyv1alpha1.EvictionRequest("a-uid", "shop").WithLabels(labels)
					if err := w.client.Apply(About(t.Context(), Pod(pod("a"))), request, client.FieldOwner("x")); err == nil {
						t.Error("no error")
					}
				}
			}
			if len(w.sent) != tc.sent || len(w.events.events) != 1 {
				t.Errorf("sent %v, events %v", w.sent, w.events.events)
			}
		})
	}
}

// Conflicts, dry runs and reviews are none of our business.
func TestWhatIsNoRefusalPasses(t *testing.T) {
	w := newWorld(t)
	for name, tc := range map[string]struct {
		refuse error
		opts   []client.CreateOption
	}{
		"one that exists": {apierrors.NewAlreadyExists(batchv1.Resource("jobs"), "dump"), nil},
		"a dry run":       {overQuota(), []client.CreateOption{client.DryRunAll}},
	} {
		w.refuse, w.sent = tc.refuse, nil
		for range 3 {
			if err := w.client.Create(t.Context(), job(), tc.opts...); !errors.Is(err, tc.refuse) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if len(w.sent) != 3 || len(w.metrics) != 0 {
			t.Errorf("%s: sent %v, counted %v", name, w.sent, w.metrics)
		}
	}
}

// The pods of a namespace that is being deleted go with it, and it takes no events.
func TestANamespaceThatEndsIsNotTold(t *testing.T) {
	w := newWorld(t)
	w.refuse = answer(403, metav1.StatusReasonForbidden, "unable to create new content", metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	if err := w.client.Create(About(t.Context(), Pod(pod("a"))), job()); err == nil {
		t.Error("no error")
	}
	if got := w.events.events; len(got) != 0 {
		t.Errorf("events %v", got)
	}
}
