package conformance

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// exampleInterceptor is what examples/interceptor speaks for in these tests.
const exampleInterceptor = "example.example.com"

// F12 The contract of interceptors: the example, as a program of its own under a
// service account of its own. It has the real clock, so nobody advances the
// manager's here.
func TestConformance_F12(t *testing.T) {
	mgr := startManager(t, manager.Options{})

	t.Run("109, 111 the example acts in its turn, and not before or after", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, mgr)
		w.startInterceptor(t, exampleInterceptor, time.Second)
		pod := w.pod(t, "web", interceptorA, exampleInterceptor, interceptorB)
		tr := w.request(t, pod)
		w.untilActive(t, tr.ObjectKey, interceptorA)
		w.sync(t, tr.ObjectKey)
		w.report(t, tr.ObjectKey, completes(interceptorA, w.now()))
		w.untilActive(t, tr.ObjectKey, interceptorB)
		w.report(t, tr.ObjectKey, completes(interceptorB, w.now()))
		er := w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)

		var order []string
		for _, r := range w.heard(t) {
			switch {
			case evictCall(r):
				order = append(order, "eviction")
			case r.Subresource != "status" || !r.Writes() || r.Code != http.StatusOK:
			case r.User == "reporter":
				order = append(order, "other")
			case strings.HasSuffix(r.User, ":"+exampleInterceptor):
				order = append(order, "example")
			}
		}
		// It reports the start and the completion; it works for less than a heartbeat.
		if diff := cmp.Diff([]string{"other", "example", "example", "other", "eviction"}, order); diff != "" {
			t.Errorf("what the API server heard (-want +got):\n%s", diff)
		}
		if item := v1alpha1.ReportOf(er, exampleInterceptor); item.StartTime == nil || !item.StartTime.Equal(item.HeartbeatTime) || item.CompletionTime == nil {
			t.Errorf("report %+v, want start, first heartbeat and completion", item)
		}
	})
	for name, end := range map[string]struct {
		end  func(*testing.T, *world, *corev1.Pod)
		says string
	}{
		"109 the example stops when the request is canceled": {
			func(t *testing.T, w *world, pod *corev1.Pod) { t.Helper(); w.withdrawAll(t, pod) },
			"stopping, because the request is Canceled (NoRequesters)",
		},
		"109 the example stops when the request is deleted": {
			func(t *testing.T, w *world, pod *corev1.Pod) {
				t.Helper()
				if err := w.admin.Delete(t.Context(), w.get(t, keyOf(pod))); err != nil {
					t.Fatal(err)
				}
			},
			"stopping, because the request was deleted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, mgr)
			program := w.startInterceptor(t, exampleInterceptor, 2*time.Second)
			pod := w.pod(t, "web", exampleInterceptor)
			w.request(t, pod)
			waitLine(t, program, "web: started")
			end.end(t, w, pod)
			waitLine(t, program, end.says)
			// Another pod's turn takes as long as this one would have taken.
			other := w.pod(t, "other", exampleInterceptor)
			w.untilTrue(t, w.request(t, other).ObjectKey, v1alpha1.ConditionEvicted)
			reports := w.reportsBy(t, exampleInterceptor).Where(func(r cluster.Request) bool { return r.Name == string(pod.UID) })
			if len(reports) != 1 {
				t.Errorf("reports about the first pod:\n%s\nwant only the start", reports)
			}
			w.lives(t, pod)
		})
	}
	t.Run("110 who declines hands over, and the pod is untouched", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, mgr)
		pod := w.pod(t, "web", interceptorA, interceptorB)
		tr := w.request(t, pod)
		w.untilActive(t, tr.ObjectKey, interceptorA)
		// Every eviction that is held up is marked as such by Drawbridge, at its beginning,
		// and the guard is closed.
		await(t, "the pod to be marked", func(ctx context.Context) error {
			if err := w.admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return err
			}
			if pod.Annotations["descheduler.alpha.kubernetes.io/eviction-in-progress"] == "" || pod.Labels[v1alpha1.GuardLabel] != v1alpha1.GuardClosed {
				return fmt.Errorf("annotations %v, labels %v", pod.Annotations, pod.Labels)
			}
			return nil
		})
		w.report(t, tr.ObjectKey, completes(interceptorA, w.now())) // Without having begun.
		w.untilActive(t, tr.ObjectKey, interceptorB)
		now := &corev1.Pod{}
		if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(pod, now); diff != "" {
			t.Errorf("pod (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"", "[a]", "a [b]"}, tr.turns(t)); diff != "" {
			t.Errorf("turns (-want +got):\n%s", diff)
		}
	})
	for name, tc := range map[string]struct {
		verb, subresource string
		allowed           bool
	}{
		"113 the evictor may evict pods":      {"create", "eviction", true},
		"113 the evictor may not delete pods": {"delete", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               managerUser(),
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "default", Verb: tc.verb, Resource: "pods", Subresource: tc.subresource},
			}}
			if err := asAdmin(t).Create(t.Context(), review); err != nil {
				t.Fatal(err)
			}
			if review.Status.Allowed != tc.allowed {
				t.Errorf("allowed %t, want %t", review.Status.Allowed, tc.allowed)
			}
		})
	}
}

// F12: the example meets what is not its business.
func TestConformance_F12_Strangers(t *testing.T) {
	mgr := startManager(t, manager.Options{Change: noStartupGrace})
	t.Run("109 the example stops when it was passed over", func(t *testing.T) {
		w := newWorld(t, mgr)
		program := w.startInterceptor(t, exampleInterceptor, time.Hour)
		tr := w.request(t, w.pod(t, "web", exampleInterceptor, interceptorB))
		waitLine(t, program, "web: started")
		w.advanceTo(w.now().Add(deadline + skew))
		w.untilActive(t, tr.ObjectKey, interceptorB)
		waitLine(t, program, "stopping, because it is not our turn any more")
		if reports := w.reportsBy(t, exampleInterceptor); len(reports) != 1 {
			t.Errorf("reports:\n%s\nwant only the start", reports)
		}
	})
	// The SDK does not look at pods: what its interceptors do to them carries the UID.
	t.Run("109 the example in plain client-go leaves another pod of the same name alone", func(t *testing.T) {
		w := newWorld(t, mgr)
		pod := w.pod(t, "web", exampleInterceptor)
		tr := w.request(t, pod)
		w.untilActive(t, tr.ObjectKey, exampleInterceptor)
		mgr.Kill() // So that nobody tells that the pod is gone.
		w.deletePod(t, pod)
		successor := w.pod(t, "web", exampleInterceptor)
		program := w.startExample(t, manager.BuildClientGoInterceptor, exampleInterceptor, 0)
		waitLine(t, program, "another pod has the name, nothing to do")
		if reports := w.reportsBy(t, exampleInterceptor); len(reports) != 0 {
			t.Errorf("it reports:\n%s", reports)
		}
		w.lives(t, successor)
	})
}

// F12: the contract of requesters. Drawbridge itself is one, on behalf of callers
// of the eviction API.
func TestConformance_F12_Requester(t *testing.T) {
	const (
		caller = "carol"
		entry  = "carol.users.drawbridge.dev"
		native = "drain.example.com"
	)
	mgr := startManager(t, manager.Options{})
	w := newWorld(t, mgr)
	evictions := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}}
	if err := grant(t.Context(), w.admin, w.ns, caller, evictions); err != nil {
		t.Fatal(err)
	}
	carol := as(t, caller)
	// evict calls the eviction API until the request is as wanted.
	evict := func(t *testing.T, pod *corev1.Pod, what string, wanted func(*v1alpha1.EvictionRequest) bool) *v1alpha1.EvictionRequest {
		t.Helper()
		er := &v1alpha1.EvictionRequest{}
		await(t, what, func(ctx context.Context) error {
			if err := carol.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{}); !apierrors.IsTooManyRequests(err) {
				return fmt.Errorf("the answer is not 429: %w", err)
			}
			er = &v1alpha1.EvictionRequest{}
			if err := w.admin.Get(ctx, keyOf(pod), er); err != nil {
				return err
			}
			if !wanted(er) {
				return fmt.Errorf("requesters %v", requestersOf(er))
			}
			return nil
		})
		return er
	}
	has := func(names ...string) func(*v1alpha1.EvictionRequest) bool {
		return func(er *v1alpha1.EvictionRequest) bool { return cmp.Equal(names, requestersOf(er)) }
	}

	t.Run("114 it names the request by the pod's UID and its target by name and UID", func(t *testing.T) {
		pod := w.pod(t, "new", interceptorA)
		er := evict(t, pod, "a request", has(entry))
		want := v1alpha1.EvictionTarget{Pod: &v1alpha1.LocalPodReference{Name: pod.Name, UID: pod.UID}}
		if diff := cmp.Diff(want, er.Spec.Target); diff != "" {
			t.Errorf("target (-want +got):\n%s", diff)
		}
		if er.Name != string(pod.UID) {
			t.Errorf("name %s, want %s", er.Name, pod.UID)
		}
	})
	t.Run("114 it joins by server-side apply, comes back when removed, and leaves when done", func(t *testing.T) {
		pod := w.pod(t, "old", interceptorA)
		tr := w.request(t, pod) // By a native requester.
		w.untilActive(t, tr.ObjectKey, interceptorA)
		er := evict(t, pod, "the caller to join", has(native, entry))
		var manager string
		for _, fields := range er.ManagedFields {
			if fields.FieldsV1 != nil && fields.Subresource == "" && strings.Contains(fields.FieldsV1.GetRawString(), entry) {
				manager = string(fields.Operation) + " " + fields.Manager
			}
		}
		if !strings.HasPrefix(manager, string(metav1.ManagedFieldsOperationApply)+" drawbridge-requester-") {
			t.Errorf("its entry is owned by %q, want an apply by a field manager of its own", manager)
		}

		w.updateSpec(t, tr.ObjectKey, func(er *v1alpha1.EvictionRequest) { er.Spec.Requesters = er.Spec.Requesters[:1] })
		w.until(t, tr.ObjectKey, "the caller to be removed", has(native))
		w.advanceTo(w.now().Add(30 * time.Second)) // It has forgotten what it wrote itself.
		evict(t, pod, "the caller to be back", has(native, entry))

		// It does not call any more: its lease runs out.
		w.advanceTo(w.now().Add(15 * time.Minute))
		after := w.until(t, tr.ObjectKey, "the caller to leave", has(native))
		if got := progress(after); got != "[a]" {
			t.Errorf("progress %q, want [a]: a requester is left", got)
		}
		w.lives(t, pod)
	})
}
