package conformance

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/clock"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// F7 Selection.
func TestConformance_F7_Selection(t *testing.T) {
	mgr := startManager(t, manager.Options{})

	cases := map[string]struct{ pod []string }{
		"62, 64, 65 two interceptors keep their order":                              {pod: []string{interceptorB, interceptorA}},
		"62, 64, 65 one interceptor":                                                {pod: []string{interceptorA}},
		"62, 64, 65 fifteen interceptors":                                           {pod: manyNames(v1alpha1.MaxPodInterceptors)},
		"63, 64, 65 a pod without interceptors has only imperative-eviction.k8s.io": {},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, mgr)
			w.hold(t)
			tr := w.request(t, w.pod(t, "web", tc.pod...))
			want := append(slices.Clone(tc.pod), imperative)
			first := w.untilActive(t, tr.ObjectKey, want[0])

			var targets, reports []string
			for _, i := range first.Status.TargetInterceptors {
				targets = append(targets, i.Name)
			}
			for _, i := range first.Status.Interceptors {
				reports = append(reports, i.Name)
			}
			if diff := cmp.Diff(want, targets); diff != "" {
				t.Errorf("targetInterceptors (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, reports); diff != "" {
				t.Errorf("interceptors (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want[:1], first.Status.ActiveInterceptors); diff != "" {
				t.Errorf("activeInterceptors (-want +got):\n%s", diff)
			}
			// All of it is there from the first write on.
			for _, er := range tr.all(t) {
				if (len(er.Status.TargetInterceptors) > 0) != (len(er.Status.ActiveInterceptors) > 0) {
					t.Errorf("version %s has targets without an active one, or the other way round: %+v", er.ResourceVersion, er.Status)
				}
			}
		})
	}
}

// F7: the pod's annotation is immutable; a cluster whose administrator has taken
// the policy away shows that nothing depends on it.
func TestConformance_F7_Frozen(t *testing.T) {
	mgr := startManager(t, manager.Options{})
	t.Run("73 a list that changes after the first sync has no effect", func(t *testing.T) {
		for name, value := range map[string]string{
			"another list": "x.example.com," + interceptorB + "," + interceptorC,
			"no list":      "",
		} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, mgr)
				w.hold(t)
				pod := w.pod(t, "web", interceptorA, interceptorB)
				tr := w.request(t, pod)
				w.untilActive(t, tr.ObjectKey, interceptorA)
				withoutPodPolicy(t, w.admin, func() error {
					if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
						return err
					}
					pod.Labels = labels{"changed": "yes"}
					pod.Annotations[v1alpha1.InterceptorsAnnotation] = value
					if value == "" {
						delete(pod.Annotations, v1alpha1.InterceptorsAnnotation)
					}
					return w.admin.Update(t.Context(), pod)
				})
				w.until(t, tr.ObjectKey, "the manager to have seen the pod", func(er *v1alpha1.EvictionRequest) bool { return er.Labels["changed"] == "yes" })

				w.report(t, tr.ObjectKey, completes(interceptorA, w.now()))
				w.untilActive(t, tr.ObjectKey, interceptorB)
				w.report(t, tr.ObjectKey, completes(interceptorB, w.now()))
				w.untilActive(t, tr.ObjectKey, imperative)
				if diff := cmp.Diff([]string{"", "[a]", "a [b]", "a b [IE]"}, tr.turns(t)); diff != "" {
					t.Errorf("turns (-want +got):\n%s", diff)
				}
			})
		}
	})
}

// withoutPodPolicy does something that the policy for the pod annotation forbids.
func withoutPodPolicy(t *testing.T, admin client.Client, do func() error) {
	t.Helper()
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: podInterceptorsPolicy}, binding); err != nil {
		t.Fatal(err)
	}
	restored := binding.DeepCopy()
	restored.ResourceVersion, restored.UID = "", ""
	if err := admin.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	defer func() {
		// Whatever happens: other tests need it, and need it in force.
		if err := admin.Create(context.WithoutCancel(t.Context()), restored); err != nil {
			t.Errorf("restore the policy: %v", err)
			return
		}
		await(t, "the policy to be in force again", func(ctx context.Context) error {
			probe := newPod("default", "policy-probe")
			probe.Annotations = map[string]string{v1alpha1.InterceptorsAnnotation: "not a domain name"}
			if err := admin.Create(ctx, probe, client.DryRunAll); err == nil {
				return fmt.Errorf("a malformed annotation is accepted")
			}
			return nil
		})
	}()
	await(t, "the policy to be away", func(context.Context) error { return do() })
}

// F7 Progression: completion.
func TestConformance_F7_Completion(t *testing.T) {
	mgr := startManager(t, manager.Options{})

	t.Run("67 completion hands over in one write", func(t *testing.T) {
		w := newWorld(t, mgr)
		w.hold(t)
		tr := w.request(t, w.pod(t, "web", interceptorA, interceptorB))
		w.untilActive(t, tr.ObjectKey, interceptorA)
		w.report(t, tr.ObjectKey, beats(interceptorA, w.now()))
		w.report(t, tr.ObjectKey, completes(interceptorA, w.now()))
		second := w.untilActive(t, tr.ObjectKey, interceptorB)
		if second.Status.ActivationTime.Before(w.get(t, tr.ObjectKey).Status.Interceptors[0].CompletionTime) {
			t.Errorf("B was activated at %s, before A completed", second.Status.ActivationTime)
		}
		w.report(t, tr.ObjectKey, completes(interceptorB, w.now()))
		w.untilActive(t, tr.ObjectKey, imperative)
		// Nothing in between: no version in which nobody is active, and none in which
		// the old one is neither active nor processed.
		if diff := cmp.Diff([]string{"", "[a]", "a [b]", "a b [IE]"}, tr.turns(t)); diff != "" {
			t.Errorf("turns (-want +got):\n%s", diff)
		}
	})
	t.Run("67 who declines without having begun hands over as well", func(t *testing.T) {
		w := newWorld(t, mgr)
		tr := w.request(t, w.pod(t, "web", interceptorA, interceptorB))
		w.untilActive(t, tr.ObjectKey, interceptorA)
		w.report(t, tr.ObjectKey, completes(interceptorA, w.now()))
		w.untilActive(t, tr.ObjectKey, interceptorB)
		if diff := cmp.Diff([]string{"", "[a]", "a [b]"}, tr.turns(t)); diff != "" {
			t.Errorf("turns (-want +got):\n%s", diff)
		}
	})
	t.Run("72 after the last completion imperative-eviction.k8s.io evicts", func(t *testing.T) {
		w := newWorld(t, mgr)
		pod := w.pod(t, "web", interceptorA)
		tr := w.request(t, pod)
		w.untilActive(t, tr.ObjectKey, interceptorA)
		w.lives(t, pod)
		w.report(t, tr.ObjectKey, completes(interceptorA, w.now()))
		w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)
		waitGone(t, w.admin, pod)
		if diff := cmp.Diff([]string{"", "[a]", "a [IE]", "a IE Evicted"}, tr.turns(t)); diff != "" {
			t.Errorf("turns (-want +got):\n%s", diff)
		}
	})
	t.Run("63 without interceptors it evicts at once", func(t *testing.T) {
		w := newWorld(t, mgr)
		pod := w.pod(t, "web")
		tr := w.request(t, pod)
		w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)
		if diff := cmp.Diff([]string{"", "[IE]", "IE Evicted"}, tr.turns(t)); diff != "" {
			t.Errorf("turns (-want +got):\n%s", diff)
		}
	})
	t.Run("67 with 15 interceptors each has its turn, in order", func(t *testing.T) {
		w := newWorld(t, mgr)
		w.hold(t)
		names := manyNames(v1alpha1.MaxPodInterceptors)
		tr := w.request(t, w.pod(t, "web", names...))
		for _, name := range names {
			w.untilActive(t, tr.ObjectKey, name)
			w.report(t, tr.ObjectKey, completes(name, w.now()))
		}
		er := w.untilActive(t, tr.ObjectKey, imperative)
		if diff := cmp.Diff(names, er.Status.ProcessedInterceptors); diff != "" {
			t.Errorf("processedInterceptors (-want +got):\n%s", diff)
		}
	})
}

// F7: both reasons to hand over at once.
func TestConformance_F7_CompletionAfterSilence(t *testing.T) {
	t.Run("74 completion together with an expired heartbeat counts as completion, once", func(t *testing.T) {
		mgr := startManager(t, manager.Options{Change: noStartupGrace})
		w := newWorld(t, mgr)
		tr := w.request(t, w.pod(t, "web", interceptorA, interceptorB))
		w.untilActive(t, tr.ObjectKey, interceptorA)
		w.report(t, tr.ObjectKey, beats(interceptorA, w.now()))
		stopManager(t, mgr)
		mgr.Clock.Advance(2 * deadline)
		w.report(t, tr.ObjectKey, completes(interceptorA, w.now()))

		w.mgr = startManager(t, manager.Options{Clock: mgr.Clock, Change: noStartupGrace})
		er := w.untilActive(t, tr.ObjectKey, interceptorB)
		w.sync(t, tr.ObjectKey)
		if diff := cmp.Diff([]string{"", "[a]", "a [b]"}, tr.turns(t)); diff != "" {
			t.Errorf("turns (-want +got):\n%s", diff)
		}
		if since := w.now().Sub(er.Status.ActivationTime.Time); since > deadline {
			t.Errorf("the turn of B counts from %s ago", since)
		}
		// The report of a completion, and none of a silence.
		await(t, "the events", func(context.Context) error {
			if told := w.eventsOf(t, tr.ObjectKey); told["InterceptorCompleted"] != 1 || told["InterceptorTimedOut"] != 0 {
				return fmt.Errorf("told %v", told)
			}
			return nil
		})
	})
}

// F7 Progression: silence.
func TestConformance_F7_Silence(t *testing.T) {
	// A clock that is behind the API server's shows that creationTimestamp counts.
	behind := clock.New()
	behind.Advance(-10 * time.Minute)
	mgr := startManager(t, manager.Options{Clock: behind})

	t.Run("69 who never sends a heartbeat has 20 minutes from the creation", func(t *testing.T) {
		w := newWorld(t, mgr)
		tr := w.request(t, w.pod(t, "web", interceptorA, interceptorB))
		er := w.untilActive(t, tr.ObjectKey, interceptorA)
		if !er.Status.ActivationTime.Before(&er.CreationTimestamp) {
			t.Fatalf("activated at %s, created at %s: want the creation to be later", er.Status.ActivationTime, er.CreationTimestamp)
		}
		w.handsOver(t, tr, er.CreationTimestamp.Add(deadline), interceptorB)
	})
	t.Run("68 the turn ends 20 minutes after the last heartbeat", func(t *testing.T) {
		w := newWorld(t, mgr)
		w.hold(t)
		tr := w.request(t, w.pod(t, "web", interceptorA, interceptorB))
		w.untilActive(t, tr.ObjectKey, interceptorA)
		w.report(t, tr.ObjectKey, beats(interceptorA, w.now()))
		w.advanceTo(w.now().Add(7 * time.Minute))
		last := w.now()
		w.report(t, tr.ObjectKey, beats(interceptorA, last))
		er := w.handsOver(t, tr, last.Add(deadline), interceptorB)
		if er.Status.Interceptors[0].CompletionTime != nil {
			t.Error("somebody has put a completionTime into the report of A")
		}
		if diff := cmp.Diff([]string{"", "[a]", "a [b]"}, tr.turns(t)); diff != "" {
			t.Errorf("turns (-want +got):\n%s", diff)
		}
	})
	t.Run("68 who has another deadline in its registration has that one, as it was at the beginning", func(t *testing.T) {
		const name, own = "impatient.example.com", 5 * time.Minute
		w := newWorld(t, mgr)
		w.hold(t)
		registration := builder.EvictionInterceptor(name).Pods("nobody", "has-this").HeartbeatDeadline(own).Obj()
		if err := w.admin.Create(t.Context(), registration); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := w.admin.Delete(context.WithoutCancel(t.Context()), registration); err != nil {
				t.Error(err)
			}
		})
		await(t, "the registration to be accepted", func(ctx context.Context) error {
			err := w.admin.Get(ctx, client.ObjectKeyFromObject(registration), registration)
			if err == nil && !meta.IsStatusConditionTrue(registration.Status.Conditions, v1alpha1.ConditionAccepted) {
				err = fmt.Errorf("conditions %v", registration.Status.Conditions)
			}
			return err
		})
		tr := w.request(t, w.pod(t, "web", name, interceptorB))
		er := w.untilActive(t, tr.ObjectKey, name)
		registration.Spec.HeartbeatDeadline.Duration = time.Hour
		if err := w.admin.Update(t.Context(), registration); err != nil {
			t.Fatal(err)
		}
		last := w.now()
		w.report(t, tr.ObjectKey, beats(name, last))
		b := w.handsOver(t, tr, last.Add(own), interceptorB)
		w.handsOver(t, tr, b.Status.ActivationTime.Add(deadline), imperative)
		want := []v1alpha1.Interceptor{{Name: name, HeartbeatDeadline: &metav1.Duration{Duration: own}}, {Name: interceptorB}, {Name: imperative}}
		if diff := cmp.Diff(want, er.Status.TargetInterceptors); diff != "" {
			t.Errorf("plan (-want +got):\n%s", diff)
		}
	})
	t.Run("69 or from its activation if that is later", func(t *testing.T) {
		w := newWorld(t, mgr)
		w.advanceTo(time.Now().Add(time.Hour))
		tr := w.request(t, w.pod(t, "web", interceptorA, interceptorB))
		er := w.untilActive(t, tr.ObjectKey, interceptorA)
		w.handsOver(t, tr, er.Status.ActivationTime.Add(deadline), interceptorB)
	})
	t.Run("70, 72 each silent interceptor has 20 minutes of its own, then imperative-eviction.k8s.io evicts", func(t *testing.T) {
		w := newWorld(t, mgr)
		w.hold(t)
		pod := w.pod(t, "web", interceptorA, interceptorB)
		tr := w.request(t, pod)
		a := w.untilActive(t, tr.ObjectKey, interceptorA)
		b := w.handsOver(t, tr, a.Status.ActivationTime.Add(deadline), interceptorB)
		w.handsOver(t, tr, b.Status.ActivationTime.Add(deadline), imperative)
		w.lives(t, pod)
		if err := w.admin.DeleteAllOf(t.Context(), budgetOf(w), client.InNamespace(w.ns)); err != nil {
			t.Fatal(err)
		}
		w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)
		if diff := cmp.Diff([]string{"", "[a]", "a [b]", "a b [IE]", "a b IE Evicted"}, tr.turns(t)); diff != "" {
			t.Errorf("turns (-want +got):\n%s", diff)
		}
	})
	t.Run("70 the second of an old request is not passed over at once", func(t *testing.T) {
		w := newWorld(t, mgr)
		tr := w.request(t, w.pod(t, "web", interceptorA, interceptorB))
		w.untilActive(t, tr.ObjectKey, interceptorA)
		for range 3 { // An hour of work.
			w.report(t, tr.ObjectKey, beats(interceptorA, w.now()))
			w.advanceTo(w.now().Add(deadline - time.Minute))
		}
		w.report(t, tr.ObjectKey, completes(interceptorA, w.now()))
		b := w.untilActive(t, tr.ObjectKey, interceptorB)
		w.handsOver(t, tr, b.Status.ActivationTime.Add(deadline), imperative)
	})
	t.Run("71 heartbeats keep the turn for 24 hours", func(t *testing.T) {
		w := newWorld(t, mgr)
		tr := w.request(t, w.pod(t, "web", interceptorA, interceptorB))
		w.untilActive(t, tr.ObjectKey, interceptorA)
		begin := w.now()
		var last time.Time
		beatsSent := 0
		for last.Before(begin.Add(24 * time.Hour)) {
			at := w.now()
			w.report(t, tr.ObjectKey, beats(interceptorA, at))
			beatsSent++
			last = at.Time
			w.advanceTo(last.Add(deadline - time.Minute))
			if er := w.sync(t, tr.ObjectKey); progress(er) != "[a]" && w.mgr.Clock.Now().Before(last.Add(deadline)) {
				t.Fatalf("after %s: %s", last.Sub(begin.Time), progress(er))
			}
		}
		if diff := cmp.Diff([]string{"", "[a]"}, tr.turns(t)); diff != "" {
			t.Errorf("turns (-want +got):\n%s", diff)
		}
		t.Logf("%d heartbeats", beatsSent)
		w.handsOver(t, tr, last.Add(deadline), interceptorB) // It was the heartbeats that kept it.
	})
}

// handsOver lets the manager look shortly before the deadline, up to 19:59 of 20
// minutes, and then waits for the next one's turn, which must not have begun before
// it. The clock also flows by itself, so a slow machine sees less.
func (w *world) handsOver(t *testing.T, tr *trace, due time.Time, next string) *v1alpha1.EvictionRequest {
	t.Helper()
	before := progress(w.get(t, tr.ObjectKey))
	for _, early := range []time.Duration{time.Minute, 10 * time.Second, time.Second} {
		w.advanceTo(due.Add(-early))
		if er := w.sync(t, tr.ObjectKey); w.mgr.Clock.Now().Before(due) && progress(er) != before {
			t.Errorf("%s before its end the turn is over: %s", early, progress(er))
		}
	}
	w.advanceTo(due)
	er := w.untilActive(t, tr.ObjectKey, next)
	if got := er.Status.ActivationTime.Time; got.Before(due) || got.After(w.mgr.Clock.Now()) {
		t.Errorf("%s was activated at %s, must be at %s or a little later", next, got, due)
	}
	return er
}
