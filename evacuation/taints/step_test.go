package taints

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// in is so many seconds after noon, which is now.
func in(seconds int64) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

func taint(key, value string) corev1.Taint {
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoExecute}
}

func added(t corev1.Taint, seconds int64) corev1.Taint {
	t.TimeAdded = &metav1.Time{Time: in(seconds)}
	return t
}

// exists tolerates a key for so many seconds; forever tolerates it.
func exists(key string, seconds int64) corev1.Toleration {
	t := forever(key)
	t.TolerationSeconds = &seconds
	return t
}

func forever(key string) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
}

func equal(key, value string, seconds int64) corev1.Toleration {
	return corev1.Toleration{Key: key, Value: value, TolerationSeconds: &seconds}
}

func TestWhenATaintDeletesAPod(t *testing.T) {
	many := func(tolerations ...corev1.Toleration) []corev1.Toleration { return tolerations }
	cases := map[string]struct {
		taints      []corev1.Taint
		tolerations []corev1.Toleration
		// placed is when the pod came, in seconds before noon; 0 is long ago.
		placed int64
		want   deletion
	}{
		"no taint": {tolerations: many(exists("a", 60))},
		"a taint that only keeps pods from coming": {
			taints: []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}},
		},
		"nothing tolerates it": {
			taints: []corev1.Taint{taint("a", "")}, want: deletion{AtOnce: true, Taint: "a"},
		},
		"it is tolerated for a while": {
			taints: []corev1.Taint{taint("a", "")}, tolerations: many(exists("a", 300)), want: deletion{At: in(300), Taint: "a"},
		},
		"it is tolerated forever": {
			taints: []corev1.Taint{taint("a", "")}, tolerations: many(forever("a")),
		},
		"zero seconds": {
			taints: []corev1.Taint{taint("a", "")}, tolerations: many(exists("a", 0)), want: deletion{AtOnce: true, Taint: "a"},
		},
		"negative seconds": {
			taints: []corev1.Taint{taint("a", "")}, tolerations: many(exists("a", -5)), want: deletion{AtOnce: true, Taint: "a"},
		},
		"more seconds than there are": {
			taints: []corev1.Taint{taint("a", "")}, tolerations: many(exists("a", math.MaxInt64)), want: deletion{At: in(maxSeconds), Taint: "a"},
		},
		"a toleration of everything, forever": {
			taints: []corev1.Taint{taint("a", "b"), taint("c", "")}, tolerations: many(corev1.Toleration{Operator: corev1.TolerationOpExists}),
		},
		"a toleration of everything, for a while": {
			taints: []corev1.Taint{taint("a", "b"), taint("c", "")}, tolerations: many(exists("", 60)), want: deletion{At: in(60), Taint: "a"},
		},
		"its value is tolerated": {
			taints: []corev1.Taint{taint("a", "x")}, tolerations: many(equal("a", "x", 60)), want: deletion{At: in(60), Taint: "a"},
		},
		"another value is tolerated": {
			taints: []corev1.Taint{taint("a", "x")}, tolerations: many(equal("a", "y", 60)), want: deletion{AtOnce: true, Taint: "a"},
		},
		"another effect is tolerated": {
			taints: []corev1.Taint{taint("a", "")}, tolerations: many(corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}),
			want: deletion{AtOnce: true, Taint: "a"},
		},
		"numbers are compared": {
			taints: []corev1.Taint{taint("a", "5")}, tolerations: many(corev1.Toleration{Key: "a", Operator: corev1.TolerationOpLt, Value: "9"}),
		},
		"the first toleration that matches counts": {
			taints: []corev1.Taint{taint("a", "")}, tolerations: many(exists("a", 600), exists("a", 60), forever("")), want: deletion{At: in(600), Taint: "a"},
		},
		"the shortest of those that came together": {
			taints: []corev1.Taint{taint("a", ""), taint("b", ""), taint("c", "")}, tolerations: many(exists("a", 600), exists("b", 60), forever("c")),
			want: deletion{At: in(60), Taint: "b"},
		},
		"one of several is not tolerated": {
			taints: []corev1.Taint{taint("a", ""), taint("b", "")}, tolerations: many(exists("a", 600)), want: deletion{AtOnce: true, Taint: "b"},
		},
		"it has been there for a while": {
			taints: []corev1.Taint{added(taint("a", ""), -100)}, tolerations: many(exists("a", 300)), want: deletion{At: in(200), Taint: "a"},
		},
		"the pod came later": {
			taints: []corev1.Taint{added(taint("a", ""), -100)}, tolerations: many(exists("a", 300)), placed: 40, want: deletion{At: in(260), Taint: "a"},
		},
		"it was added by a clock that is ahead": {
			taints: []corev1.Taint{added(taint("a", ""), 100)}, tolerations: many(exists("a", 300)), want: deletion{At: in(300), Taint: "a"},
		},
		"its time is over, and the pod lives": {
			taints: []corev1.Taint{added(taint("a", ""), -1000)}, tolerations: many(exists("a", 300)), want: deletion{At: in(300), Taint: "a"},
		},
		"a later one does not change the schedule": {
			taints: []corev1.Taint{added(taint("a", ""), -10), added(taint("b", ""), -100)}, tolerations: many(exists("a", 60), exists("b", 600)),
			want: deletion{At: in(500), Taint: "b"},
		},
		"one that is tolerated forever begins nothing": {
			taints: []corev1.Taint{added(taint("a", ""), -100), added(taint("b", ""), -10)}, tolerations: many(forever("a"), exists("b", 60)),
			want: deletion{At: in(50), Taint: "b"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			placed := in(-24 * 3600)
			if tc.placed > 0 {
				placed = in(-tc.placed)
			}
			if diff := cmp.Diff(tc.want, deletionOf(tc.taints, tc.tolerations, placed, noon)); diff != "" {
				t.Errorf("deletion (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsDoneAboutARequest(t *testing.T) {
	later, atOnce := deletion{At: in(60), Taint: "a"}, deletion{AtOnce: true, Taint: "a"}
	cases := map[string]struct {
		d      deletion
		joined bool
		asked  time.Time
		want   wish
	}{
		"never":                     {},
		"never, after all":          {joined: true, asked: in(60), want: wishWithdraw},
		"in a while":                {d: later, want: wishJoin},
		"in a while, and asked for": {d: later, joined: true, asked: in(30)},
		"in a while, but our deadline was erased": {d: later, joined: true, want: wishJoin},
		"at once":                {d: atOnce},
		"at once, and asked for": {d: atOnce, joined: true, asked: in(30)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := step(tc.d, tc.joined, tc.asked); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestAPodIsPlacedWhenItIsScheduled(t *testing.T) {
	pod := builder.Pod("shop", "db-0").Obj()
	pod.CreationTimestamp = metav1.NewTime(in(-60))
	made := placedAt(pod)
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(in(-30))}}
	if diff := cmp.Diff([]time.Time{in(-60), in(-30)}, []time.Time{made, placedAt(pod)}); diff != "" {
		t.Errorf("without and with the condition (-want +got):\n%s", diff)
	}
}
