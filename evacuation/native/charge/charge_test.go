package charge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	k8sevents "k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// server is an API server as far as Charge knows it.
type server struct {
	mu     sync.Mutex
	served bool
	err    error
	// asked is how often.
	asked int
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *server) set(served bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served, s.err = served, err
}

func (s *server) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	switch {
	case s.err != nil:
		return nil, s.err
	case !s.served:
		return nil, apierrors.NewNotFound(schema.GroupResource{}, "")
	}
	return &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "evictions"}, {Name: "evictionrequests"}}}, nil
}

// bench runs a Charge beside a server.
type bench struct {
	*Charge
	server *server
	clock  *testingclock.FakeClock
	// refuse has every call about the ConfigMap fail.
	refuse error
	mu     sync.Mutex
	// broken has Serve fail at once.
	broken error
	// ready is what Serve was given, nil if it does not run. taken counts calls of Taken.
	ready func()
	taken int
	who   string
}

func (b *bench) InCharge(who string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.who = who
}

func (b *bench) serving() func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ready
}

func newChargeBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{server: &server{}, clock: testingclock.NewFakeClock(now)}
	failing := func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.refuse
	}
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return errors.Join(failing(), c.Get(ctx, key, obj, opts...))
		},
	}).Build()
	b.Charge = &Charge{
		Mode: Auto, Discovery: b.server, Client: c, ConfigMap: types.NamespacedName{Namespace: "drawbridge-system", Name: "drawbridge-native"},
		Clock: b.clock, Recorder: k8sevents.NewFakeRecorder(100), Metrics: b, Log: testr.New(t),
		Serve: func(ctx context.Context, ready func()) error {
			b.mu.Lock()
			broken := b.broken
			if broken == nil {
				b.ready = ready
			}
			b.mu.Unlock()
			if broken != nil {
				return broken
			}
			<-ctx.Done()
			b.mu.Lock()
			b.ready = nil
			b.mu.Unlock()
			return nil
		},
		Taken: func() { b.mu.Lock(); b.taken++; b.mu.Unlock() },
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	for _, start := range []func(context.Context) error{b.Start, Leader{b.Charge}.Start} {
		running.Go(func() {
			if err := start(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	return b
}

// is waits until it is so, and lets the time pass that is waited for.
func (b *bench) is(t *testing.T, what string, check func() bool) {
	t.Helper()
	waiting.Eventually(t, what, func(context.Context) error {
		if check() {
			return nil
		}
		b.clock.Step(lookEvery)
		return fmt.Errorf("in charge %t, serving %t", b.Charge.InCharge(), b.serving() != nil)
	})
}

func (b *bench) served(t *testing.T) {
	t.Helper()
	b.server.set(true, nil)
	b.is(t, "the API to be followed", func() bool { return b.serving() != nil })
}

// stands has everybody look a few times, in which something could go wrong.
func (b *bench) stands(t *testing.T, what string, check func() bool) {
	t.Helper()
	for range 5 {
		asked := b.server.count()
		waiting.Eventually(t, "another look", func(context.Context) error {
			if b.server.count() > asked {
				return nil
			}
			b.clock.Step(lookEvery)
			return errors.New("nobody has looked")
		})
		if !check() {
			t.Error(what)
		}
	}
}

func byAnother(at time.Time) *lifecyclev1alpha1.Eviction {
	e := &lifecyclev1alpha1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pod-1-web"}}
	e.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "evictionrequest-controller", Subresource: "status", Time: new(metav1.NewTime(at)), FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{}}}`),
	}}
	return e
}

func TestTheAPIComesAndGoes(t *testing.T) {
	b := newChargeBench(t)
	b.stands(t, "it follows an API that is not served", func() bool { return b.serving() == nil && !b.Charge.InCharge() })
	b.served(t)
	b.stands(t, "it takes charge before every Eviction was seen", func() bool { return !b.Charge.InCharge() })
	b.serving()()
	b.is(t, "to be in charge", b.Charge.InCharge)
	if b.taken != 1 || b.who != metrics.NativeDrawbridge {
		t.Errorf("taken %d times, %s in charge", b.taken, b.who)
	}
	b.server.set(true, errors.New("no route to host"))
	b.stands(t, "an API server that does not answer counts as one without the API", func() bool { return b.serving() != nil && b.Charge.InCharge() })
	b.server.set(false, nil)
	b.is(t, "the API not to be followed", func() bool { return b.serving() == nil && !b.Charge.InCharge() })
	b.served(t)
	b.serving()()
	b.is(t, "to be in charge again", b.Charge.InCharge)
}

func TestWhoWasThereBeforeStays(t *testing.T) {
	b := newChargeBench(t)
	b.served(t)
	b.Saw(byAnother(now.Add(-time.Hour)))
	b.serving()()
	b.is(t, "the cluster to be in charge", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.who == metrics.NativeCluster })
	b.stands(t, "two are in charge", func() bool { return !b.Charge.InCharge() })
}

func TestAnotherOneAppearsAndAPersonDecides(t *testing.T) {
	b := newChargeBench(t)
	b.served(t)
	b.serving()()
	b.is(t, "to be in charge", b.Charge.InCharge)
	b.Saw(byAnother(b.clock.Now()))
	if b.Charge.InCharge() {
		t.Error("it is still in charge when Saw has returned")
	}
	stored := &corev1.ConfigMap{}
	b.is(t, "it to be remembered", func() bool {
		return b.Client.Get(t.Context(), b.ConfigMap, stored) == nil && stored.Data[keyInCharge] == string(Cluster)
	})
	b.stands(t, "it has taken charge again", func() bool { return !b.Charge.InCharge() })
	if err := b.Client.Delete(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	b.is(t, "to be in charge, as a person wants it", b.Charge.InCharge)
}

func TestWhatCannotBeReadChangesNothing(t *testing.T) {
	b := newChargeBench(t)
	refuse := func(err error) { b.mu.Lock(); b.refuse = err; b.mu.Unlock() }
	refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "drawbridge-native", nil))
	b.served(t)
	b.serving()()
	b.stands(t, "it takes charge without knowing", func() bool { return !b.Charge.InCharge() })
	refuse(nil)
	b.is(t, "to be in charge", b.Charge.InCharge)
	refuse(errors.New("timeout"))
	b.stands(t, "it lets go because of an outage", b.Charge.InCharge)
}

func TestWhatThereIsNativelyIsNotKnownBeforeItWasSeen(t *testing.T) {
	t.Run("an API that is served", func(t *testing.T) {
		b := newChargeBench(t)
		b.served(t)
		b.stands(t, "it claims to know what there is, and has seen nothing", func() bool { return !b.Known() })
		b.serving()()
		b.is(t, "it to be known", b.Known)
		b.server.set(true, errors.New("no route to host"))
		b.stands(t, "it has forgotten what there is", b.Known)
		b.server.set(false, nil)
		b.is(t, "the API not to be followed", func() bool { return b.serving() == nil })
		b.stands(t, "it does not know that there is nothing", b.Known)
		b.served(t)
		b.is(t, "it not to be known again", func() bool { return !b.Known() })
	})
	t.Run("an API that is not served", func(t *testing.T) {
		b := newChargeBench(t)
		b.is(t, "it to be known that there is nothing", b.Known)
	})
	t.Run("an API that nobody looks at", func(t *testing.T) {
		if c := (&Charge{Mode: Off}); !c.Known() {
			t.Error("somebody waits for an API that Drawbridge keeps out of")
		}
	})
	t.Run("an API that cannot be followed", func(t *testing.T) {
		b := newChargeBench(t)
		b.mu.Lock()
		b.broken = errors.New("forbidden")
		b.mu.Unlock()
		b.server.set(true, nil)
		b.is(t, "nobody to wait for it any more", b.Known)
	})
	t.Run("an API server that does not say what it serves", func(t *testing.T) {
		c := &Charge{Discovery: &server{err: errors.New("forbidden")}, Log: testr.New(t)}
		for look, want := range []bool{false, true, true} {
			if c.isServed(false); c.Known() != want {
				t.Errorf("after look %d: known %t, want %t", look+1, !want, want)
			}
		}
	})
}
