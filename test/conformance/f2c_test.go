package conformance

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// What belongs to the controller of statements that the schema cannot know.
func TestConformance_F2_Controller(t *testing.T) {
	mgr := startManager(t, manager.Options{})
	t.Run("23 an old request never touches the new pod of that name", func(t *testing.T) {
		for name, stage := range map[string]struct {
			reach func(*testing.T, *world, *trace)
			want  []string
		}{
			"while an interceptor works": {
				func(t *testing.T, w *world, tr *trace) { w.untilActive(t, tr.ObjectKey, interceptorA) },
				[]string{"", "[a]", "a Evicted"},
			},
			"at the imperative stage, held by a budget": {
				func(t *testing.T, w *world, tr *trace) {
					w.untilActive(t, tr.ObjectKey, interceptorA)
					w.report(t, tr.ObjectKey, completes(interceptorA, w.now()))
					w.until(t, tr.ObjectKey, "an eviction to be refused", func(er *v1alpha1.EvictionRequest) bool {
						return er.Status.Summary != nil && er.Status.Summary.State == "Blocked"
					})
				},
				[]string{"", "[a]", "a [IE]", "a IE Evicted"},
			},
		} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, mgr)
				w.hold(t)
				old := w.pod(t, "web", interceptorA)
				tr := w.request(t, old)
				stage.reach(t, w, tr)

				w.deletePod(t, old)
				fresh := w.pod(t, "web", interceptorA)
				w.advanceTo(w.now().Add(policy.CompletionGrace + time.Second))
				er := w.until(t, tr.ObjectKey, "the request to end", func(er *v1alpha1.EvictionRequest) bool {
					w.advanceTo(w.now().Add(time.Second)) // The grace counts from when the end was seen.
					return len(er.Status.Conditions) > 0
				})
				if diff := cmp.Diff(stage.want, tr.turns(t)); diff != "" {
					t.Errorf("turns (-want +got):\n%s", diff)
				}
				if got := er.Status.Conditions[0].Reason; got != v1alpha1.ReasonPodDeleted {
					t.Errorf("reason %s", got)
				}
				if err := w.admin.DeleteAllOf(t.Context(), builder.Budget(w.ns, "").Obj(), client.InNamespace(w.ns)); err != nil {
					t.Fatal(err)
				}
				w.advanceTo(w.now().Add(deadline))
				w.sync(t, tr.ObjectKey)
				w.lives(t, fresh)

				again := w.request(t, fresh)
				w.untilActive(t, again.ObjectKey, interceptorA)
				w.lives(t, fresh)
				w.report(t, again.ObjectKey, completes(interceptorA, w.now()))
				w.untilTrue(t, again.ObjectKey, v1alpha1.ConditionEvicted)
				waitGone(t, w.admin, fresh)
			})
		}
	})
	t.Run("37 observedGeneration follows every change of the spec, whatever the stage", func(t *testing.T) {
		w := newWorld(t, mgr)
		w.hold(t)
		tr := w.request(t, w.pod(t, "web", interceptorA))
		check := func(stage string) {
			t.Helper()
			for range 3 {
				if er := w.sync(t, tr.ObjectKey); er.Status.ObservedGeneration != er.Generation {
					t.Errorf("%s: observedGeneration %d of generation %d", stage, er.Status.ObservedGeneration, er.Generation)
				}
			}
		}
		if er := w.untilActive(t, tr.ObjectKey, interceptorA); er.Status.ObservedGeneration != 1 {
			t.Errorf("observedGeneration %d after the first sync, want 1", er.Status.ObservedGeneration)
		}
		check("while an interceptor works")
		w.report(t, tr.ObjectKey, completes(interceptorA, w.now()))
		w.untilActive(t, tr.ObjectKey, imperative)
		check("at the imperative stage")
		w.updatePod(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "web"}}, func(p *corev1.Pod) { p.Labels = labels{"a": "b"} })
		w.deletePod(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "web"}})
		w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)
		check("at the end")
	})
}
