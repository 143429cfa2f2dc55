package native

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Seed 31 of the chaos plans: a native request was deleted, and its event came two seconds late.
// Each write for it was refused, and the garbage collector took back that it owned the Eviction,
// which was an event, so that all was written again.
func TestWhatTheServerDoesNotHaveIsNotWrittenAgain(t *testing.T) {
	resource := schema.GroupResource{Group: lifecyclev1alpha1.GroupName, Resource: "evictionrequests"}
	version := func(v string) objects {
		return objects{requests: []*lifecyclev1alpha1.EvictionRequest{{ObjectMeta: metav1.ObjectMeta{Name: "drain", UID: "uid-r", ResourceVersion: v}}}}
	}
	gone := apierrors.NewNotFound(resource, "drain")
	cases := map[string]struct {
		err   error
		cache objects
		after time.Duration
		want  bool
		wait  time.Duration
	}{
		"it was deleted, and the event has not come": {err: gone, cache: version("7"), want: true, wait: outdatedRetry},
		"it was changed, and the event has not come": {err: apierrors.NewConflict(resource, "drain", errors.New("changed")), cache: version("7"), after: 4 * time.Second, want: true, wait: 6 * time.Second},
		"the event has come":                         {err: gone, cache: version("8")},
		"the deletion has come":                      {err: gone},
		"no event comes":                             {err: gone, cache: version("7"), after: outdatedRetry},
		"its kind is served no more":                 {err: apierrors.NewGenericServerResponse(404, "PUT", resource, "drain", "404 page not found", 0, true), cache: version("7")},
		"the write was refused for another reason":   {err: apierrors.NewForbidden(resource, "drain", errors.New("no")), cache: version("7")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
			r, key := &Reconciler{Clock: clock}, types.NamespacedName{Namespace: "shop", Name: "uid-1"}
			if err := r.noteRefused(key, version("7").requests[0], "7", tc.err); !errors.Is(err, tc.err) {
				t.Errorf("got error %v, want that of the write", err)
			}
			clock.Step(tc.after)
			if diff := cmp.Diff(tc.want, r.isStale(key, tc.cache)); diff != "" {
				t.Errorf("is stale (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wait, r.outdatedFor(key)); diff != "" {
				t.Errorf("decided again in (-want +got):\n%s", diff)
			}
		})
	}
}

// The garbage collector and the controller must not answer each other without a pause.
func TestWhatIsTakenBackIsWrittenAgainAfterAPause(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	owned := func(by ...string) *lifecyclev1alpha1.Eviction {
		e := &lifecyclev1alpha1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "pod-1-db-0", UID: "uid-e", Labels: map[string]string{"app": "db"}}}
		for _, name := range by {
			e.OwnerReferences = append(e.OwnerReferences, metav1.OwnerReference{Name: name, BlockOwnerDeletion: new(bool)})
		}
		return e
	}
	last := owned("drain", "other")
	cases := map[string]struct {
		at      time.Time
		wanted  *lifecyclev1alpha1.Eviction
		written bool
		due     time.Time
	}{
		"the same, at once":       {at: now.Add(time.Second), wanted: owned("drain", "other"), due: now.Add(joinPause)},
		"the same, after a pause": {at: now.Add(joinPause), wanted: owned("drain", "other"), written: true},
		"something else, at once": {at: now, wanted: owned("drain"), written: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, key := &Reconciler{}, types.NamespacedName{Namespace: "shop", Name: "uid-1"}
			r.remember(key, func(m *memory) {
				m.described = map[types.UID]description{last.UID: {last.Labels, last.OwnerReferences, now}}
			})
			left, due := r.withoutRepeats(key, tc.at, []*lifecyclev1alpha1.Eviction{tc.wanted})
			if diff := cmp.Diff(tc.written, len(left) > 0); diff != "" {
				t.Errorf("is written (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.due, due); diff != "" {
				t.Errorf("due (-want +got):\n%s", diff)
			}
		})
	}
}

// Each write of an object that the cache has stops the next ones, if the API server says that it
// has another version. A write of labels and owners is remembered.
func TestEachRefusedWriteIsNoted(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Group: lifecyclev1alpha1.GroupName}, "pod-1-db-0", errors.New("changed"))
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "pod-1-db-0", UID: "uid-e", ResourceVersion: "7"}
	eviction, request := &lifecyclev1alpha1.Eviction{ObjectMeta: meta}, &lifecyclev1alpha1.EvictionRequest{ObjectMeta: meta}
	cases := map[string]struct {
		decision Decision
		cache    objects
	}{
		"labels and owners":         {Decision{Metadata: []*lifecyclev1alpha1.Eviction{eviction}}, objects{evictions: []*lifecyclev1alpha1.Eviction{eviction}}},
		"the status of an Eviction": {Decision{Statuses: []*lifecyclev1alpha1.Eviction{eviction}}, objects{evictions: []*lifecyclev1alpha1.Eviction{eviction}}},
		"the status of a request":   {Decision{RequestStatuses: []*lifecyclev1alpha1.EvictionRequest{request}}, objects{requests: []*lifecyclev1alpha1.EvictionRequest{request}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			written := 0
			var answer error
			funcs := interceptor.Funcs{
				Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
					written++
					return answer
				},
				SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
					written++
					return answer
				},
			}
			r := &Reconciler{
				Clock: clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)), May: func() bool { return true },
				Client: interceptor.NewClient(fake.NewClientBuilder().Build(), funcs),
			}
			s := Situation{Now: r.Clock.Now(), Namespace: "shop", UID: "uid-1"}
			for range 2 {
				if _, err := r.apply(t.Context(), s, tc.decision, nil); err != nil {
					t.Fatal(err)
				}
			}
			if want := 2 - len(tc.decision.Metadata); written != want {
				t.Errorf("%d writes of two, want %d", written, want)
			}
			if r.isStale(s.key(), tc.cache) {
				t.Error("a write that was taken counts as refused")
			}
			answer = conflict
			s.Now = s.Now.Add(joinPause)
			if _, err := r.apply(t.Context(), s, tc.decision, nil); !errors.Is(err, conflict) {
				t.Errorf("got error %v, want the conflict", err)
			}
			if !r.isStale(s.key(), tc.cache) {
				t.Error("a refused write is decided again on the same version")
			}
		})
	}
}
