package rollback

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

// scripted is an API server that answers lists with these resource versions in turn; an
// empty one is a failure. Whoever asks for more is told that the test is over.
type scripted struct {
	client.Reader

	answers []string
	over    context.CancelFunc
}

func (s *scripted) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if len(s.answers) == 0 {
		s.over()
		return context.Canceled
	}
	answer := s.answers[0]
	s.answers = s.answers[1:]
	if answer == "" {
		return errors.New("connection refused")
	}
	list.SetResourceVersion(answer)
	return nil
}

// now is a clock without pauses.
type now struct{ *testingclock.FakeClock }

func (c now) After(d time.Duration) <-chan time.Time {
	c.Step(d)
	at := make(chan time.Time, 1)
	at <- c.Now()
	return at
}

func TestTheManagerEndsWhenTheStoreWentBack(t *testing.T) {
	start := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		// seen is what the informer says.
		seen    string
		answers []string
		// note is the event's, empty if the manager goes on.
		note string
		// took is how long that took.
		took time.Duration
	}{
		"the store goes on": {"100", []string{"100", "101", "105"}, "", 3 * period},
		"older than the informer": {
			"100", []string{"90", "91"},
			events.StoreRolledBack("pods", "100", "91").Note, soon,
		},
		"older than an earlier answer, which the informer does not know": {
			"100", []string{"120", "110", "111"},
			events.StoreRolledBack("pods", "120", "111").Note, period + soon,
		},
		"not twice": {"100", []string{"90", "101", "101"}, "", soon + 2*period},
		"after an outage, in which is asked more often": {
			"100", []string{"100", "", "", "90", "91"},
			events.StoreRolledBack("pods", "100", "91").Note, period + 3*soon,
		},
		"nothing seen yet": {"", []string{"5", "6"}, "", 2 * period},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			clientset, clock := fake.NewClientset(), now{testingclock.NewFakeClock(start)}
			w := &Watcher{
				Live:  &scripted{answers: tc.answers, over: cancel},
				Kinds: []Kind{{Resource: "pods", List: corev1.SchemeGroupVersion.WithKind("PodList"), Seen: func(context.Context) (string, error) { return tc.seen, nil }}},
				Clock: clock, Events: clientset.EventsV1(),
				Regarding: func(context.Context) *corev1.ObjectReference {
					return &corev1.ObjectReference{Kind: "Pod", Namespace: "drawbridge-system", Name: "drawbridge-0"}
				},
				Metrics: metrics.NewRollback(prometheus.NewRegistry()),
			}
			err := w.Start(ctx)
			if ended := errors.Is(err, ErrRolledBack); ended != (tc.note != "") || !ended && err != nil {
				t.Errorf("the watcher ended with %v", err)
			}
			var notes, want []string
			if tc.note != "" {
				want = []string{tc.note}
			}
			list, err := clientset.EventsV1().Events("drawbridge-system").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, event := range list.Items {
				notes = append(notes, event.Note)
			}
			if diff := cmp.Diff(want, notes); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			took := clock.Since(start)
			if tc.note == "" {
				took = min(took, tc.took) // Its last pause may be over, or not.
			}
			if took != tc.took {
				t.Errorf("that took %s, want %s", took, tc.took)
			}
		})
	}
}

func TestTheWatcherSaysWhatItLacks(t *testing.T) {
	err := (&Watcher{}).SetupWithManager(nil)
	if err == nil {
		t.Fatal("an empty watcher is no error")
	}
	want := "rollback watcher: Clock is not set\nEvents is not set\nKinds is not set\nLive is not set\nMetrics is not set\nRegarding is not set"
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}
