package native

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/evacuation/process"
)

const (
	runs      = " Failed=False/AwaitingEviction TargetEvicted=False/AwaitingEviction"
	evicted   = " Failed=False/Succeeded TargetEvicted=True/PodDeleted"
	isOver    = " Failed=False/Succeeded TargetEvicted=True/PodTerminal"
	unwanted  = " Failed=True/CanceledDueToNoRequesters TargetEvicted=False/EvictionFailed"
	spent     = " Failed=True/NoFurtherResponder TargetEvicted=False/EvictionFailed"
	isInvalid = " Failed=True/EvictionInvalid TargetEvicted=False/EvictionFailed"
)

// The rows of A.6, each from a world in which its guard holds.
func TestNative_A6(t *testing.T) {
	withdraw := func(w *world) {
		r := w.Requests[0].DeepCopy()
		r.Spec.Intent, r.Generation = lifecyclev1alpha1.EvictionRequestIntentWithdrawn, 2
		w.Requests[0] = r
	}
	gone := func(w *world) { w.Target.Presence = process.Gone }
	for name, tc := range map[string]struct {
		do   func(*world)
		want string
		wake time.Duration
	}{
		"N54, N66 row 1: the first sync makes the plan, and the first one is active": {func(*world) {}, " first=Active second=Inactive evictor=Inactive" + runs, 20 * time.Minute},
		"N55, N57 rows 2 and 4: completion activates the next one in the same write": {func(w *world) { w.completes(0, first) },
			" first=Completed second=Active evictor=Inactive" + runs, 20 * time.Minute},
		"N56 row 3: it stays active as long as it is heard": {func(w *world) {
			w.after(19 * time.Minute)
			w.reports(0, first, func(r *lifecyclev1alpha1.ResponderStatus) { r.HeartbeatTime = new(metav1.NewTime(w.Now)) })
			w.after(2 * time.Minute)
		}, " first=Active second=Inactive evictor=Inactive" + runs, 18 * time.Minute},
		"N58, N77 row 5: after 20 minutes of silence the next one is active": {func(w *world) { w.after(20 * time.Minute) },
			" first=Interrupted second=Active evictor=Inactive" + runs, 20 * time.Minute},
		"N57, N58 row 4 before row 5: completion beats silence": {func(w *world) { w.completes(0, first); w.after(20 * time.Minute) },
			" first=Completed second=Active evictor=Inactive" + runs, 20 * time.Minute},
		"N59 row 6: at the end of the target completion activates nobody": {func(w *world) { w.completes(0, first); gone(w) },
			" first=Completed second=Inactive evictor=Inactive" + evicted, 0},
		"N60 row 7: within the grace it may still report": {gone, " first=Active second=Inactive evictor=Inactive" + runs, 5 * time.Second},
		"N61, N67 row 8: after the grace it is interrupted": {func(w *world) { gone(w); w.settle(); w.after(5 * time.Second) },
			" first=Interrupted second=Inactive evictor=Inactive" + evicted, 0},
		"N61, N68 row 8: a pod that ended by itself": {func(w *world) { w.Target.Terminal = true; w.settle(); w.after(5 * time.Second) },
			" first=Interrupted second=Inactive evictor=Inactive" + isOver, 0},
		"N62, N69 row 9: nobody wants it any more": {withdraw, " first=Canceled second=Inactive evictor=Inactive" + unwanted, 0},
		"N62, N63 row 9: completion beats cancellation": {func(w *world) { w.completes(0, first); withdraw(w) },
			" first=Completed second=Inactive evictor=Inactive" + unwanted, 0},
		"N62 row 9: a request that is being deleted wants nothing": {func(w *world) {
			r := w.Requests[0].DeepCopy()
			r.DeletionTimestamp, r.Finalizers = new(metav1.NewTime(w.Now)), []string{"example.com/wait"}
			w.Requests[0] = r
		}, " first=Canceled second=Inactive evictor=Inactive" + unwanted, 0},
		"N61, N62 rows 6 to 8 before 9: the end of the target beats cancellation": {func(w *world) { withdraw(w); gone(w); w.settle(); w.after(5 * time.Second) },
			" first=Interrupted second=Inactive evictor=Inactive" + evicted, 0},
		"N58 but the evictor is never silent": {func(w *world) {
			w.completes(0, first)
			w.settle()
			w.completes(0, second)
			w.settle()
			w.after(time.Hour)
		}, " first=Completed second=Completed evictor=Active" + runs, 0},
		"N64, N70 row 11: the last one is final and the target lives": {func(w *world) {
			for _, name := range []string{first, second, theEvictor} {
				w.completes(0, name)
				w.step()
			}
		}, " first=Completed second=Completed evictor=Completed" + spent, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, first, second)
			w.wants("drain", "drain.example.com/me")
			w.settle()
			tc.do(w)
			w.settle()
			wake := Decide(w.Situation).WakeAt
			short := strings.NewReplacer("acme.example.com/", "", "imperative-eviction.k8s.io/", "").Replace(w.says(0))
			if diff := cmp.Diff("pod-1-web:"+tc.want, short); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			var wait time.Duration
			if !wake.IsZero() {
				wait = wake.Sub(w.Now)
			}
			if wait != tc.wake {
				t.Errorf("wakes after %s, want %s; 0 is never", wait, tc.wake)
			}
			if diff := cmp.Diff(endOf(w.Evictions[0].Status.Conditions), endOf(w.Requests[0].Status.Conditions)); diff != "" {
				t.Errorf("the request says (-eviction +request):\n%s", diff)
			}
		})
	}
	t.Run("N63, N65 rows 10 and 12: without a plan, gone wins", func(t *testing.T) {
		w := newWorld(t, first)
		w.wants("drain", "drain.example.com/me")
		w.step()
		gone(w)
		w.settle()
		if diff := cmp.Diff("pod-1-web:"+evicted, w.says(0)); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
	})
}

// What the first sync of a request finds.
func TestNative_A8(t *testing.T) {
	for name, tc := range map[string]struct {
		target  process.Target
		message string
	}{
		"N71, N73 no such pod": {process.Target{Presence: process.Gone}, "Target Pod web was not found."},
		"N71, N74 another pod of that name": {process.Target{Presence: process.Replaced},
			"Target Pod web was not found. The pod of that name has UID other, the request names UID " + string(podUID) + "."},
		"N71, N75 a pod of a group": {process.Target{Presence: process.Present, Grouped: true},
			"Target Pod web is part of a Workload/PodGroup. Eviction of such pods is currently not supported."},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, first)
			w.Target, w.FoundUID = tc.target, "other"
			w.wants("drain", "drain.example.com/me")
			w.settle()
			if len(w.Evictions) > 0 {
				t.Errorf("there is an Eviction: %s", w.says(0))
			}
			if diff := cmp.Diff(isInvalid, endOf(w.Requests[0].Status.Conditions)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.message, meta.FindStatusCondition(w.Requests[0].Status.Conditions, failed).Message); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			if *w.Requests[0].Status.ObservedGeneration != 1 {
				t.Error("the generation is not observed")
			}
		})
	}
}

// The races that upstream's review left open (A.13).
func TestNative_A13(t *testing.T) {
	t.Run("1 the hot chain pauses, longer each time, and is pruned", func(t *testing.T) {
		w := newWorld(t, first)
		w.wants("drain", "drain.example.com/me")
		var began []time.Duration
		for range 9 {
			w.settle()
			last := len(w.Evictions) - 1
			began = append(began, w.Now.Sub(w.Evictions[0].CreationTimestamp.Time))
			for _, name := range []string{first, theEvictor} {
				w.completes(last, name)
				w.settle()
			}
			w.Now = Decide(w.Situation).WakeAt
		}
		want := []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 320 * time.Second, 640 * time.Second, 1280 * time.Second}
		if diff := cmp.Diff(want, began); diff != "" {
			t.Errorf("an Eviction began after (-want +got):\n%s", diff)
		}
		if got := len(w.Evictions); got != 6 {
			t.Errorf("%d Evictions are kept, want the first, four more, and the last", got)
		}
	})
	t.Run("2 an outage does not end the evictor's turn, nor that of others at once", func(t *testing.T) {
		w := newWorld(t, first)
		w.wants("drain", "drain.example.com/me")
		w.settle()
		w.after(time.Hour)
		w.StartedAt = w.Now
		w.settle()
		if diff := cmp.Diff("pod-1-web: "+first+"=Active "+theEvictor+"=Inactive"+runs, w.says(0)); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
	})
	t.Run("N83 races 3 and 5: labels that somebody wiped, and owners, come back", func(t *testing.T) {
		w := newWorld(t, first)
		w.wants("drain", "drain.example.com/me")
		w.settle()
		wiped := w.Evictions[0].DeepCopy()
		wiped.Labels, wiped.OwnerReferences = map[string]string{"team": "a"}, nil
		w.Evictions[0] = wiped
		w.wants("scale", "scale.example.com/me")
		w.settle()
		want := map[string]string{"team": "a", "drain.example.com/me": "requester", "scale.example.com/me": "requester", first: "responder", theEvictor: "responder"}
		if diff := cmp.Diff(want, w.Evictions[0].Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		if got := len(w.Evictions[0].OwnerReferences); got != 2 {
			t.Errorf("%d owners, want both requests", got)
		}
	})
	t.Run("4 a request that was served stays so, whatever is deleted and edited", func(t *testing.T) {
		w := newWorld(t)
		w.wants("drain", "drain.example.com/me")
		w.settle()
		w.Target.Presence = process.Gone
		w.settle()
		w.after(5 * time.Second)
		w.settle()
		w.Evictions = nil
		edited := w.Requests[0].DeepCopy()
		edited.Generation++
		w.Requests[0] = edited
		w.settle()
		if diff := cmp.Diff(evicted, endOf(w.Requests[0].Status.Conditions)); diff != "" {
			t.Errorf("conditions (-want +got):\n%s", diff)
		}
		if got := *w.Requests[0].Status.ObservedGeneration; got != 2 {
			t.Errorf("observed generation %d, want 2", got)
		}
	})
	t.Run("5 an Eviction that nobody asked for is canceled, and goes", func(t *testing.T) {
		w := newWorld(t, first)
		w.Policy.Retention = time.Hour
		w.byHand("by-hand")
		w.settle()
		if diff := cmp.Diff("by-hand: "+first+"=Inactive "+theEvictor+"=Inactive"+unwanted, w.says(0)); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
		w.after(time.Hour)
		w.settle()
		if len(w.Evictions) > 0 {
			t.Errorf("it is still there: %s", w.says(0))
		}
	})
	t.Run("N79 race 7: of 130 requests of 120 names, 100 names are kept, those that want first", func(t *testing.T) {
		w := newWorld(t)
		for i := range 130 {
			r := w.wants(fmt.Sprintf("r-%03d", i), fmt.Sprintf("drain.example.com/r-%03d", i%120))
			if i < 20 {
				r.Spec.Intent = lifecyclev1alpha1.EvictionRequestIntentWithdrawn
			}
		}
		w.settle()
		got := w.Evictions[0].Status.Requesters
		if len(got) != 100 || got[0].Name != "drain.example.com/r-020" || got[99].Intent != lifecyclev1alpha1.RequesterIntentEviction {
			t.Errorf("%d requesters, the first is %+v, the last %+v", len(got), got[0], got[len(got)-1])
		}
	})
	t.Run("N76 equal timestamps: the name decides, in every look", func(t *testing.T) {
		for _, order := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c", "a"}} {
			w := newWorld(t, first)
			w.wants("drain", "drain.example.com/me")
			for _, name := range order {
				w.byHand(name)
			}
			w.settle()
			for i, e := range w.Evictions {
				want := e.Name + ":" + isInvalid
				if e.Name == "a" {
					want = "a: " + first + "=Active " + theEvictor + "=Inactive" + runs
				}
				if diff := cmp.Diff(want, w.says(i)); diff != "" {
					t.Errorf("status (-want +got):\n%s", diff)
				}
			}
			if got := endOf(w.Requests[0].Status.Conditions); got != runs {
				t.Errorf("the request says%s", got)
			}
		}
	})
	t.Run("an Eviction that lies about the end of its pod does not end the wish", func(t *testing.T) {
		w := newWorld(t, first)
		w.wants("drain", "drain.example.com/me")
		w.settle()
		lie := w.Evictions[0].DeepCopy()
		conclusion{evicted: podDeleted}.write(&lie.Status.Conditions, 1, "", w.Now)
		lie.Status.TargetResponders[0].State = lifecyclev1alpha1.ResponderStateCanceled
		w.Evictions[0] = lie
		w.settle()
		w.after(10 * time.Second)
		w.settle()
		if diff := cmp.Diff("pod-2-web: "+first+"=Active "+theEvictor+"=Inactive"+runs, w.says(1)); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
	})
}

func TestNamesOfEvictions(t *testing.T) {
	long := strings.Repeat("a", 250)
	if name := nextName("web", []string{"pod-2-web", "pod-10-web", "pod-11-other", "pod-x-web", "web"}); name != "pod-11-web" {
		t.Errorf("next name %s", name)
	}
	name := nextName(long, nil)
	if len(name) > 253 {
		t.Errorf("%d characters", len(name))
	}
	// What was cut is recognized, or the number would begin again (B4).
	if second := nextName(long, []string{name}); !strings.HasPrefix(second, "pod-2-aaa") {
		t.Errorf("next name %s", second)
	}
	if other := nextName(long+"b", []string{name}); !strings.HasPrefix(other, "pod-1-aaa") || other == name {
		t.Errorf("the name of another pod is %s", other)
	}
}

func TestKeysOfRequesters(t *testing.T) {
	for name, want := range map[string]string{
		"kubectl-drain.drawbridge.dev": "drawbridge.dev/kubectl-drain",
		"drain.example.com":            "drain.example.com/requester",
		"a.b.drawbridge.dev":           "a.b.drawbridge.dev/requester",
		"node-drainer.k8s.io":          "drawbridge.dev/node-drainer-k8s-io",
		"x.Kubernetes.io.":             "drawbridge.dev/x-kubernetes-io",
	} {
		if got := RequesterKey(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
