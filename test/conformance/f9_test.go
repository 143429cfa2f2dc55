package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// F9 Completion and cancellation.
func TestConformance_F9(t *testing.T) {
	mgr := startManager(t, manager.Options{Change: noCompletionGrace})

	for name, tc := range map[string]struct {
		// before and after the request is created and its first interceptor active.
		before, after func(*testing.T, *world, *corev1.Pod)
		turns         []string
		condition     string
		reason        string
		kept          bool
	}{
		"90 a pod that succeeds is evicted": {
			after: func(t *testing.T, w *world, pod *corev1.Pod) { t.Helper(); w.ends(t, pod, corev1.PodSucceeded) },
			turns: []string{"", "[a]", "a Evicted"}, condition: v1alpha1.ConditionEvicted, reason: v1alpha1.ReasonPodTerminal, kept: true,
		},
		"90 a pod that fails is evicted": {
			after: func(t *testing.T, w *world, pod *corev1.Pod) { t.Helper(); w.ends(t, pod, corev1.PodFailed) },
			turns: []string{"", "[a]", "a Evicted"}, condition: v1alpha1.ConditionEvicted, reason: v1alpha1.ReasonPodTerminal, kept: true,
		},
		"90 a pod that had ended before is evicted at once": {
			before: func(t *testing.T, w *world, pod *corev1.Pod) { t.Helper(); w.ends(t, pod, corev1.PodSucceeded) },
			turns:  []string{"", "Evicted"}, condition: v1alpha1.ConditionEvicted, reason: v1alpha1.ReasonPodTerminal, kept: true,
		},
		"91 a pod that is deleted is evicted": {
			after: func(t *testing.T, w *world, pod *corev1.Pod) { t.Helper(); w.deletePod(t, pod) },
			turns: []string{"", "[a]", "a Evicted"}, condition: v1alpha1.ConditionEvicted, reason: v1alpha1.ReasonPodDeleted,
		},
		"92 a request that nobody wants any more is canceled": {
			after: func(t *testing.T, w *world, pod *corev1.Pod) { t.Helper(); w.withdrawAll(t, pod) },
			turns: []string{"", "[a]", "a Canceled"}, condition: v1alpha1.ConditionCanceled, reason: v1alpha1.ReasonNoRequesters, kept: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, mgr)
			pod := w.pod(t, "web", interceptorA, interceptorB)
			if tc.before != nil {
				tc.before(t, w, pod)
			}
			tr := w.request(t, pod)
			if tc.after != nil {
				w.untilActive(t, tr.ObjectKey, interceptorA)
				tc.after(t, w, pod)
			}
			er := w.untilTrue(t, tr.ObjectKey, tc.condition)
			if got := meta.FindStatusCondition(er.Status.Conditions, tc.condition).Reason; got != tc.reason {
				t.Errorf("reason %s, want %s", got, tc.reason)
			}
			if diff := cmp.Diff(tc.turns, tr.turns(t)); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
			if tc.kept {
				w.lives(t, pod)
			}
			w.neverEvicted(t, pod)
		})
	}
	t.Run("97 requesters that come back do not revive it, a new request does", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, mgr)
		pod := w.pod(t, "web", interceptorA)
		tr := w.request(t, pod)
		first := w.untilActive(t, tr.ObjectKey, interceptorA)
		w.withdrawAll(t, pod)
		er := w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionCanceled)
		er.Spec.Requesters = []v1alpha1.Requester{{Name: "drain.example.com"}}
		checkAnswer(t, w.admin.Update(t.Context(), er), "requesters")
		w.witness(t, "witness")
		if diff := cmp.Diff([]string{"", "[a]", "a Canceled"}, tr.turns(t)); diff != "" {
			t.Errorf("turns (-want +got):\n%s", diff)
		}

		if err := w.admin.Delete(t.Context(), er); err != nil {
			t.Fatal(err)
		}
		again := builder.EvictionRequest(w.ns, pod.Name, pod.UID).Requesters("drain.example.com").Obj()
		if err := w.admin.Create(t.Context(), again); err != nil {
			t.Fatalf("create the request anew: %v", err)
		}
		if second := w.untilActive(t, tr.ObjectKey, interceptorA); second.UID == first.UID {
			t.Error("it is the old request")
		}
	})
	for name, tc := range map[string]struct {
		finish    func(*testing.T, *world, *corev1.Pod)
		condition string
	}{
		"94 its requester can delete an evicted request": {
			func(t *testing.T, w *world, pod *corev1.Pod) { t.Helper(); w.deletePod(t, pod) }, v1alpha1.ConditionEvicted,
		},
		"94 its requester can delete a canceled request": {
			func(t *testing.T, w *world, pod *corev1.Pod) { t.Helper(); w.withdrawAll(t, pod) }, v1alpha1.ConditionCanceled,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, mgr)
			pod := w.pod(t, "web", interceptorA)
			user := w.newRequester(t, "requester", "drain.example.com")
			if err := user.create(t, pod); err != nil {
				t.Fatalf("create: %v", err)
			}
			er := w.untilActive(t, keyOf(pod), interceptorA)
			tc.finish(t, w, pod)
			w.untilTrue(t, keyOf(pod), tc.condition)
			if err := user.client.Delete(t.Context(), er); err != nil {
				t.Fatalf("delete: %v", err)
			}
			waitGone(t, w.admin, er)
		})
	}
}

// keyOf is the key of a pod's request.
func keyOf(pod *corev1.Pod) client.ObjectKey {
	return v1alpha1.RequestKey(pod)
}

// withdrawAll takes all requesters out of the pod's request.
func (w *world) withdrawAll(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	w.updateSpec(t, keyOf(pod), func(er *v1alpha1.EvictionRequest) { er.Spec.Requesters = nil })
}

// F9: what the manager finds when it comes back.
func TestConformance_F9_Absent(t *testing.T) {
	mgr := startManager(t, manager.Options{Change: noCompletionGrace})
	w := newWorld(t, mgr)
	both := w.pod(t, "both", interceptorA)
	replaced := w.pod(t, "replaced", interceptorA)
	canceled := w.pod(t, "canceled", interceptorA)
	evicted := w.pod(t, "evicted", interceptorA)
	traces := map[*corev1.Pod]*trace{}
	for _, pod := range []*corev1.Pod{both, replaced, canceled, evicted} {
		traces[pod] = w.request(t, pod)
		w.untilActive(t, keyOf(pod), interceptorA)
	}
	w.withdrawAll(t, canceled)
	w.untilTrue(t, keyOf(canceled), v1alpha1.ConditionCanceled)
	w.deletePod(t, evicted)
	w.untilTrue(t, keyOf(evicted), v1alpha1.ConditionEvicted)

	mgr.Kill()
	w.withdrawAll(t, both)
	w.deletePod(t, both)
	w.deletePod(t, replaced)
	successor := w.pod(t, "replaced", interceptorA)
	w.deletePod(t, canceled)
	w.withdrawAll(t, evicted)
	w.mgr = startManager(t, manager.Options{Change: noCompletionGrace, Clock: mgr.Clock})

	for name, tc := range map[string]struct {
		pod   *corev1.Pod
		turns []string
	}{
		"93 a request that nobody wants for a pod that is gone is Evicted": {both, []string{"", "[a]", "a Evicted"}},
		"93 a canceled request stays so when its pod goes":                 {canceled, []string{"", "[a]", "a Canceled"}},
		"93 an evicted request stays so when its requesters go":            {evicted, []string{"", "[a]", "a Evicted"}},
		"91 a pod that was replaced meanwhile is evicted":                  {replaced, []string{"", "[a]", "a Evicted"}},
	} {
		t.Run(name, func(t *testing.T) {
			er := w.until(t, keyOf(tc.pod), "the manager to have looked", func(er *v1alpha1.EvictionRequest) bool {
				return er.Status.ObservedGeneration == er.Generation && len(er.Status.ActiveInterceptors) == 0
			})
			before := er.Status
			w.updateSpec(t, keyOf(tc.pod), func(er *v1alpha1.EvictionRequest) { er.Labels = map[string]string{"touched": "yes"} })
			w.witness(t, podName(t))
			if diff := cmp.Diff(before, w.get(t, keyOf(tc.pod)).Status); diff != "" {
				t.Errorf("the status is not stable (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(tc.turns, traces[tc.pod].turns(t)); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("91 the successor of the evicted pod is left alone", func(t *testing.T) {
		w.lives(t, successor)
		w.neverEvicted(t, successor)
		reason := meta.FindStatusCondition(w.get(t, keyOf(replaced)).Status.Conditions, v1alpha1.ConditionEvicted).Reason
		if reason != v1alpha1.ReasonPodDeleted {
			t.Errorf("reason %s, want %s", reason, v1alpha1.ReasonPodDeleted)
		}
	})
}

// F9: the interceptor that ends the pod still has the time to say so.
func TestConformance_F9_Grace(t *testing.T) {
	mgr := startManager(t, manager.Options{Change: longCompletionGrace})
	for name, end := range map[string]func(*testing.T, *world, *corev1.Pod){
		"90 the active interceptor can report after the pod has ended": succeed,
		"91 the active interceptor can report after the pod is gone":   func(t *testing.T, w *world, pod *corev1.Pod) { t.Helper(); w.deletePod(t, pod) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, mgr)
			pod := w.pod(t, "web", interceptorA)
			tr := w.request(t, pod)
			w.untilActive(t, tr.ObjectKey, interceptorA)
			end(t, w, pod)
			w.sync(t, tr.ObjectKey)
			now := w.now()
			w.report(t, tr.ObjectKey, beats(interceptorA, now), completes(interceptorA, now))
			er := w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)
			if item := v1alpha1.ReportOf(er, interceptorA); !item.CompletionTime.Equal(&now) {
				t.Errorf("completionTime %v, want %v", item.CompletionTime, now)
			}
			if diff := cmp.Diff([]string{"", "[a]", "a Evicted"}, tr.turns(t)); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
		})
	}
}

// F9: the request is deleted half-way.
func TestConformance_F9_Deleted(t *testing.T) {
	mgr := startManager(t, manager.Options{})
	alive := func(t *testing.T) {
		t.Helper()
		select {
		case <-mgr.Done():
			t.Error("the manager has ended")
		default:
		}
	}
	t.Run("95 while an interceptor is active", func(t *testing.T) {
		w := newWorld(t, mgr)
		pod := w.pod(t, "web", interceptorA)
		er := w.untilActive(t, w.request(t, pod).ObjectKey, interceptorA)
		if err := w.admin.Delete(t.Context(), er); err != nil {
			t.Fatal(err)
		}
		w.advanceTo(w.now().Add(deadline)) // At which the next one would have had its turn.
		w.witness(t, "witness")
		w.neverEvicted(t, pod)
		w.lives(t, pod)
		alive(t)
	})
	t.Run("95 during the backoff", func(t *testing.T) {
		w := newWorld(t, mgr)
		pod := w.deployment(t, builder.Deployment(w.ns, "web"))[0]
		budget := w.blockWeb(t)
		er := w.untilRetries(t, w.request(t, &pod).ObjectKey, 1)
		if err := w.admin.Delete(t.Context(), er); err != nil {
			t.Fatal(err)
		}
		w.witness(t, "witness-1") // The deletion is known by now.
		calls := len(w.evictionsOf(t, &pod))
		w.allow(t, budget)
		w.advanceTo(w.now().Add(deadline))
		w.witness(t, "witness-2")
		if got := w.evictionsOf(t, &pod); len(got) != calls {
			t.Errorf("evictions:\n%s\nwant no more than the first %d", got, calls)
		}
		w.lives(t, &pod)
		alive(t)
	})
	t.Run("95 while somebody else's finalizer holds it", func(t *testing.T) {
		w := newWorld(t, mgr)
		pod := w.pod(t, "web", interceptorA)
		tr := w.request(t, pod, func(er *v1alpha1.EvictionRequest) { er.Finalizers = []string{"example.com/audit"} })
		er := w.untilActive(t, tr.ObjectKey, interceptorA)
		if err := w.admin.Delete(t.Context(), er); err != nil {
			t.Fatal(err)
		}
		held := w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionDeleting)
		if c := meta.FindStatusCondition(held.Status.Conditions, v1alpha1.ConditionDeleting); !strings.Contains(c.Message, "example.com/audit") {
			t.Errorf("the condition does not say who holds it: %q", c.Message)
		}
		if held.Status.Summary.State != v1alpha1.StateDeleting || held.Status.ObservedGeneration != held.Generation {
			t.Errorf("state %s, observedGeneration %d of %d", held.Status.Summary.State, held.Status.ObservedGeneration, held.Generation)
		}
		w.advanceTo(w.now().Add(deadline))
		w.witness(t, "witness")
		if diff := cmp.Diff([]string{"", "[a]", "a"}, tr.turns(t)); diff != "" {
			t.Errorf("turns (-want +got):\n%s", diff)
		}
		w.neverEvicted(t, pod)
		w.lives(t, pod)
		w.updateSpec(t, tr.ObjectKey, func(er *v1alpha1.EvictionRequest) { er.Finalizers = nil })
		waitGone(t, w.admin, er)
		alive(t)
	})
}

// F9 Retention (ruling R4, which takes the place of statement 96).
func TestConformance_F9_Retention(t *testing.T) {
	// finished makes a request of each outcome and returns when the last one ended.
	finished := func(t *testing.T, w *world) (keys []client.ObjectKey, last time.Time) {
		t.Helper()
		gone := w.pod(t, "gone")
		canceled := w.pod(t, "canceled", interceptorA)
		w.request(t, gone)
		tr := w.request(t, canceled)
		w.untilActive(t, tr.ObjectKey, interceptorA)
		w.withdrawAll(t, canceled)
		for pod, condition := range map[*corev1.Pod]string{gone: v1alpha1.ConditionEvicted, canceled: v1alpha1.ConditionCanceled} {
			er := w.untilTrue(t, keyOf(pod), condition)
			if at := meta.FindStatusCondition(er.Status.Conditions, condition).LastTransitionTime; at.After(last) {
				last = at.Time
			}
			keys = append(keys, keyOf(pod))
		}
		return keys, last
	}
	t.Run("96 a finished request is deleted after an hour, and not before", func(t *testing.T) {
		mgr := startManager(t, manager.Options{})
		w := newWorld(t, mgr)
		running := w.request(t, w.pod(t, "running", interceptorA))
		keys, last := finished(t, w)
		w.advanceTo(last.Add(time.Hour - 10*time.Second - awaitTimeout)) // Room for a slow machine.
		w.witness(t, "witness")
		for _, key := range keys {
			w.get(t, key)
		}
		w.advanceTo(last.Add(time.Hour))
		for _, key := range keys {
			waitGone(t, w.admin, &v1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
		}
		w.get(t, running.ObjectKey)
	})
	t.Run("96 with no retention it is kept for ever", func(t *testing.T) {
		mgr := startManager(t, manager.Options{Change: func(o *app.Options) { o.Retention = 0 }})
		w := newWorld(t, mgr)
		keys, last := finished(t, w)
		w.advanceTo(last.Add(1000 * time.Hour))
		w.witness(t, "witness")
		for _, key := range keys {
			err := w.admin.Get(t.Context(), key, &v1alpha1.EvictionRequest{})
			if apierrors.IsNotFound(err) {
				t.Errorf("request %s was deleted", key.Name)
			} else if err != nil {
				t.Fatal(err)
			}
		}
	})
}
