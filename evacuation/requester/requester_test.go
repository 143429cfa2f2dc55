package requester

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	clientinterceptor "sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// eager is a clock on which no pause takes time. It keeps how long they were.
type eager struct {
	clock.RealClock
	pauses []time.Duration
}

func (c *eager) NewTimer(d time.Duration) clock.Timer {
	c.pauses = append(c.pauses, d)
	return c.RealClock.NewTimer(0)
}

func webPod(uid types.UID) *corev1.Pod {
	return builder.Pod("shop", "web").UID(uid).Obj()
}

// requesterOn asks through a client over these objects. It knows nothing of the
// merging of lists, which the conformance tests are for.
func requesterOn(t *testing.T, funcs clientinterceptor.Funcs, objects ...client.Object) (*Requester, *eager) {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithObjects(objects...).WithInterceptorFuncs(funcs).
		WithIndex(&v1alpha1.EvictionRequest{}, metav1.ObjectNameField, func(o client.Object) []string { return []string{o.GetName()} }).
		Build()
	clock := &eager{}
	return &Requester{Name: us, Client: c, Clock: clock}, clock
}

func TestWhatCannotBeAskedForIsRefusedClearly(t *testing.T) {
	cases := map[string]struct {
		name string
		pod  client.Object
		want string
	}{
		"a name that is no domain name": {"drain", webPod("u1"), `requester "drain": the name is no fully qualified domain name`},
		"a pod without UID":             {us, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}, "namespace, name and UID are required"},
		"a pod without namespace":       {us, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u1"}}, "namespace, name and UID are required"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := &Requester{Name: tc.name}
			_, join := r.Join(t.Context(), tc.pod)
			_, follow := r.Follow(t.Context(), tc.pod, nil)
			for call, err := range map[string]error{"Join": join, "Follow": follow, "Withdraw": r.Withdraw(t.Context(), tc.pod)} {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: error %v, want %q", call, err, tc.want)
				}
			}
		})
	}
}

func TestTheFieldManagerOfALongNameIsItsOwn(t *testing.T) {
	label := strings.Repeat("a", 60) + "."
	long := strings.Repeat(label, 3)
	owners := map[string]bool{}
	for _, name := range []string{us, long + "example.com", long + "example.org"} {
		owner := (&Requester{Name: name}).fieldOwner()
		if len(owner) > maxFieldOwner {
			t.Errorf("%d characters", len(owner))
		}
		owners[owner] = true
	}
	if len(owners) != 3 || !owners[us] {
		t.Errorf("field managers %v", owners)
	}
}

// watches hands out a new watch each time, and what follows tells it.
type watches struct {
	begun chan *watch.FakeWatcher
}

func (w watches) funcs() clientinterceptor.Funcs {
	return clientinterceptor.Funcs{
		Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
			fake := watch.NewFakeWithChanSize(10, false)
			w.begun <- fake
			return fake, nil
		},
	}
}

type followed struct {
	outcome Outcome
	err     error
}

// follow runs Follow beside the test.
func follow(ctx context.Context, r *Requester, each func(Update) error) <-chan followed {
	done := make(chan followed, 1)
	go func() {
		outcome, err := r.Follow(ctx, webPod("u1"), each)
		done <- followed{outcome, err}
	}()
	return done
}

func TestFollowOutlivesItsWatches(t *testing.T) {
	w := watches{make(chan *watch.FakeWatcher, 10)}
	r, pauses := requesterOn(t, w.funcs(), webPod("u1"), wanted(us))
	var states []v1alpha1.RequestState
	done := follow(t.Context(), r, func(u Update) error {
		states = append(states, u.State)
		return nil
	})
	expired := apierrors.NewResourceExpired("too old resource version").Status()
	(<-w.begun).Error(&expired)
	(<-w.begun).Stop()
	last := <-w.begun
	last.Action(watch.Bookmark, &v1alpha1.EvictionRequest{})
	last.Modify(with(wanted("another.example.com"), v1alpha1.ConditionEvicted, v1alpha1.ReasonPodDeleted))
	got := <-done
	if diff := cmp.Diff(Outcome{v1alpha1.StateEvicted, v1alpha1.ReasonPodDeleted, "because"}, got.outcome); diff != "" || got.err != nil {
		t.Errorf("error %v, outcome (-want +got):\n%s", got.err, diff)
	}
	// What did not change is told once.
	if diff := cmp.Diff([]v1alpha1.RequestState{v1alpha1.StatePending, v1alpha1.StateEvicted}, states); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	if len(pauses.pauses) != 2 || pauses.pauses[0] < firstPause || pauses.pauses[1] < 2*firstPause {
		t.Errorf("pauses %v, want two, the second longer", pauses.pauses)
	}
}

func TestFollowEnds(t *testing.T) {
	enough := errors.New("enough")
	refused := apierrors.NewForbidden(v1alpha1.Resource("evictionrequests"), "u1", errors.New("no"))
	cases := map[string]struct {
		objects []client.Object
		list    error
		each    func(Update) error
		// event is what the watch tells, if Follow gets there.
		event watch.Event
		want  Outcome
		err   error
		says  string
	}{
		"when the request was refused": {
			objects: []client.Object{webPod("u1"), with(wanted(us), v1alpha1.ConditionCanceled, v1alpha1.ReasonValidationFailed)},
			want:    Outcome{v1alpha1.StateCanceled, v1alpha1.ReasonValidationFailed, "because"},
		},
		"when the caller has heard enough": {
			objects: []client.Object{webPod("u1"), wanted(us)},
			each:    func(Update) error { return enough },
			err:     enough,
		},
		"when the pod is gone and nobody remembers the request": {
			want: Outcome{v1alpha1.StateEvicted, v1alpha1.ReasonPodDeleted, "The pod does not exist any more."},
		},
		"when another pod has the name and nobody remembers the request": {
			objects: []client.Object{webPod("u2")},
			want:    Outcome{v1alpha1.StateEvicted, v1alpha1.ReasonPodDeleted, "The pod does not exist any more."},
		},
		"when the request is deleted after the eviction": {
			objects: []client.Object{webPod("u1"), wanted(us)},
			event:   watch.Event{Type: watch.Deleted, Object: with(wanted(us), v1alpha1.ConditionEvicted, v1alpha1.ReasonPodTerminal)},
			want:    Outcome{v1alpha1.StateEvicted, v1alpha1.ReasonPodTerminal, "because"},
		},
		"when it is not allowed to": {
			list: refused,
			err:  refused,
			says: "a requester needs get, list, watch, create, patch and delete on evictionrequests.drawbridge.dev, and delete on the pod",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := watches{make(chan *watch.FakeWatcher, 10)}
			funcs := w.funcs()
			funcs.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if tc.list != nil {
					return tc.list
				}
				return c.List(ctx, list, opts...)
			}
			r, pauses := requesterOn(t, funcs, tc.objects...)
			done := follow(t.Context(), r, tc.each)
			if tc.event.Type != "" {
				(<-w.begun).Action(tc.event.Type, tc.event.Object)
			}
			got := <-done
			if diff := cmp.Diff(tc.want, got.outcome); diff != "" || !errors.Is(got.err, tc.err) {
				t.Errorf("error %v, want %v; outcome (-want +got):\n%s", got.err, tc.err, diff)
			}
			if tc.says != "" && !strings.Contains(got.err.Error(), tc.says) {
				t.Errorf("error %v, want %q", got.err, tc.says)
			}
			if len(pauses.pauses) != 0 {
				t.Errorf("it paused: %v", pauses.pauses)
			}
		})
	}
}

func TestFollowEndsWithItsContextAndLeavesTheRequest(t *testing.T) {
	w := watches{make(chan *watch.FakeWatcher, 10)}
	r, _ := requesterOn(t, w.funcs(), webPod("u1"), wanted(us))
	ctx, cancel := context.WithCancel(t.Context())
	done := follow(ctx, r, nil)
	<-w.begun
	cancel()
	if got := <-done; !errors.Is(got.err, context.Canceled) {
		t.Errorf("error %v, want %v", got.err, context.Canceled)
	}
	er, err := r.get(t.Context(), webPod("u1"))
	if err != nil || !hasRequester(er, us) {
		t.Errorf("error %v, request %v", err, er)
	}
}

func TestAJoinThatTheControllerOvertookBeginsAnew(t *testing.T) {
	// Between our look and our write the request is canceled (ruling R3).
	tries := 0
	funcs := clientinterceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, desired runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if tries++; tries > 1 {
				return c.Apply(ctx, desired, opts...)
			}
			stored := &v1alpha1.EvictionRequest{}
			if err := c.Get(ctx, v1alpha1.RequestKey(webPod("u1")), stored); err != nil {
				return err
			}
			stored.Spec.Requesters = nil
			if err := c.Update(ctx, stored); err != nil {
				return err
			}
			return apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("EvictionRequest").GroupKind(), "u1", nil)
		},
	}
	r, _ := requesterOn(t, funcs, webPod("u1"), wanted(them))
	er, err := r.Join(t.Context(), webPod("u1"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]v1alpha1.Requester{{Name: us}}, er.Spec.Requesters); diff != "" {
		t.Errorf("requesters (-want +got):\n%s", diff)
	}
}

func TestAJoinNeedsRoom(t *testing.T) {
	full := wanted()
	for range v1alpha1.MaxRequesters {
		full.Spec.Requesters = append(full.Spec.Requesters, v1alpha1.Requester{Name: them})
	}
	r, _ := requesterOn(t, clientinterceptor.Funcs{}, webPod("u1"), full)
	if _, err := r.Join(t.Context(), webPod("u1")); !errors.Is(err, ErrTooManyRequesters) {
		t.Errorf("error %v, want %v", err, ErrTooManyRequesters)
	}
}
