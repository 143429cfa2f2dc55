package conformance

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// F5 Controller validation.
func TestConformance_F5(t *testing.T) {
	mgr := startManager(t, manager.Options{})

	cases := map[string]struct {
		// prepare returns the pod that the request is for, as the requester sees it.
		prepare func(*testing.T, *world) *corev1.Pod
		// message of the condition, given that pod and the one that has its name.
		message func(target, found *corev1.Pod) string
	}{
		"51 a pod that does not exist": {
			prepare: func(_ *testing.T, w *world) *corev1.Pod {
				return builder.Pod(w.ns, "web").UID(uuid.NewUUID()).Obj()
			},
			message: func(*corev1.Pod, *corev1.Pod) string { return "Target Pod web was not found." },
		},
		"51 a pod that is gone already": {
			prepare: func(t *testing.T, w *world) *corev1.Pod {
				pod := w.pod(t, "web", interceptorA)
				w.deletePod(t, pod)
				return pod
			},
			message: func(*corev1.Pod, *corev1.Pod) string { return "Target Pod web was not found." },
		},
		"52 a pod of that name with another UID": {
			prepare: func(t *testing.T, w *world) *corev1.Pod {
				pod := w.pod(t, "web", interceptorA).DeepCopy()
				pod.UID = uuid.NewUUID()
				return pod
			},
			message: func(target, found *corev1.Pod) string {
				return fmt.Sprintf("Target Pod web was not found. The pod of that name has UID %s, the request names UID %s.", found.UID, target.UID)
			},
		},
		"53 a pod of a group": {
			prepare: func(t *testing.T, w *world) *corev1.Pod {
				// The scheduler waits for the group, so it does not run.
				pod := builder.Pod(w.ns, "web").Interceptors(interceptorA).Change(func(p *corev1.Pod) {
					p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("training")}
				}).Obj()
				if err := w.admin.Create(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				if pod.Spec.SchedulingGroup == nil {
					t.Fatal("the API server has dropped spec.schedulingGroup")
				}
				return pod
			},
			message: func(*corev1.Pod, *corev1.Pod) string {
				return "Target Pod web is part of a Workload/PodGroup. Eviction of such pods is currently not supported."
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, mgr)
			target := tc.prepare(t, w)
			tr := w.request(t, target)
			er := w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionCanceled)

			found := &corev1.Pod{}
			if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(target), found); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			want := &v1alpha1.EvictionRequestStatus{
				ObservedGeneration: 1,
				Conditions: []metav1.Condition{{
					Type: v1alpha1.ConditionCanceled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonValidationFailed,
					Message: tc.message(target, found), ObservedGeneration: 1,
				}},
				Summary: &v1alpha1.EvictionRequestSummary{State: "Canceled", Requesters: 1},
			}
			if diff := cmp.Diff(want, withoutTimes(er)); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"", "Canceled"}, tr.turns(t)); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
		})
	}
}

// withoutTimes is the status without the times of its conditions.
func withoutTimes(er *v1alpha1.EvictionRequest) *v1alpha1.EvictionRequestStatus {
	status := er.Status.DeepCopy()
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	return status
}

// F5: a refused request stays refused, whatever happens.
func TestConformance_F5_Final(t *testing.T) {
	t.Run("54 nothing more happens after the validation has failed", func(t *testing.T) {
		mgr := startManager(t, manager.Options{})
		w := newWorld(t, mgr)
		missing := w.request(t, builder.Pod(w.ns, "missing").UID(uuid.NewUUID()).Obj())
		running := w.pod(t, "running", interceptorA)
		other := running.DeepCopy()
		other.UID = uuid.NewUUID()
		mismatch := w.request(t, other)
		refused := []*trace{missing, mismatch}
		var before []v1alpha1.EvictionRequestStatus
		for _, tr := range refused {
			before = append(before, w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionCanceled).Status)
		}
		check := func(when string) {
			t.Helper()
			for i, tr := range refused {
				after := w.sync(t, tr.ObjectKey).Status
				after.ObservedGeneration, after.Summary = before[i].ObservedGeneration, before[i].Summary // They follow the spec.
				if diff := cmp.Diff(before[i], after); diff != "" {
					t.Errorf("%s, the status of %s (-want +got):\n%s", when, tr.Name, diff)
				}
			}
		}
		check("when a requester comes")
		check("when a requester goes")

		w.pod(t, "missing", interceptorA)
		w.updatePod(t, running, func(pod *corev1.Pod) { pod.Labels = map[string]string{"a": "b"} })
		check("when a pod of the name appears")

		w.advanceTo(w.now().Add(deadline))
		check("after 20 minutes")

		mgr.Kill()
		w.mgr = startManager(t, manager.Options{Clock: mgr.Clock, Change: noStartupGrace})
		check("after a restart")

		w.deletePod(t, running)
		check("when the pod has gone")

		for _, tr := range refused {
			if diff := cmp.Diff([]string{"", "Canceled"}, tr.turns(t)); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
			if er := w.get(t, tr.ObjectKey); len(er.Labels) > 0 {
				t.Errorf("labels %v were copied from a pod that is not its own", er.Labels)
			}
		}
		if calls := w.asked(t, evictCall); len(calls) > 0 {
			t.Errorf("it evicts:\n%s", calls)
		}
	})
}

// F5: what cannot be read is not absent. The permission to read pods is taken
// away while the manager runs; its cache goes on being filled by a watch that has
// begun already.
func TestConformance_F5_Errors(t *testing.T) {
	mgr := startManager(t, manager.Options{Change: func(o *app.Options) { o.Policy.CompletionGrace = 0 }})
	w := newWorld(t, mgr)
	failedGets := func(pod string, atLeast int) {
		t.Helper()
		await(t, "the manager to have tried again and again", func(context.Context) error {
			gets := w.asked(t, func(r cluster.Request) bool {
				return r.Verb == "get" && r.Resource == "pods" && r.Name == pod && r.Code == http.StatusForbidden
			})
			if len(gets) < atLeast {
				return fmt.Errorf("%d failed reads, want %d", len(gets), atLeast)
			}
			return nil
		})
	}
	active := w.request(t, w.pod(t, "web", interceptorA))
	w.untilActive(t, active.ObjectKey, interceptorA)
	restore := denyReadingPods(t)

	t.Run("55 an error at the first sync is no verdict", func(t *testing.T) {
		tr := w.request(t, builder.Pod(w.ns, "missing").UID(uuid.NewUUID()).Obj())
		failedGets("missing", 3)
		if diff := cmp.Diff([]string{""}, tr.turns(t)); diff != "" {
			t.Errorf("turns (-want +got):\n%s", diff)
		}
		if got := w.get(t, tr.ObjectKey).Status.ObservedGeneration; got != 0 {
			t.Errorf("observedGeneration %d of a request that could not be looked at", got)
		}
		restore()
		w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionCanceled)
	})
	t.Run("55 an error later is no verdict either", func(t *testing.T) {
		restore := denyReadingPods(t)
		w.deletePod(t, builder.Pod(w.ns, "web").Obj())
		failedGets("web", 3)
		if diff := cmp.Diff([]string{"", "[a]"}, active.turns(t)); diff != "" {
			t.Errorf("turns (-want +got):\n%s", diff)
		}
		restore()
		er := w.untilTrue(t, active.ObjectKey, v1alpha1.ConditionEvicted)
		if diff := cmp.Diff("a Evicted", progress(er)); diff != "" {
			t.Errorf("in the end (-want +got):\n%s", diff)
		}
	})
}

// denyReadingPods takes the verb get on pods from the manager until restore is
// called or the test ends. Its watches go on.
func denyReadingPods(t *testing.T) (restore func()) {
	t.Helper()
	c := asAdmin(t)
	set := func(ctx context.Context, allowed bool) error {
		role := &rbacv1.ClusterRole{}
		if err := c.Get(ctx, client.ObjectKey{Name: drawbridge.Release + "-reader"}, role); err != nil {
			return err
		}
		for i, rule := range role.Rules {
			if !slices.Contains(rule.Resources, "pods") {
				continue
			}
			rule.Verbs = slices.DeleteFunc(rule.Verbs, func(verb string) bool { return verb == "get" })
			if allowed {
				rule.Verbs = append(rule.Verbs, "get")
			}
			role.Rules[i] = rule
		}
		return c.Update(ctx, role)
	}
	inForce := func(ctx context.Context, allowed bool) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               managerUser(),
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"},
		}}
		if err := c.Create(ctx, review); err != nil {
			return err
		}
		if review.Status.Allowed != allowed {
			return fmt.Errorf("allowed: %t", review.Status.Allowed)
		}
		return nil
	}
	if err := set(t.Context(), false); err != nil {
		t.Fatalf("change role: %v", err)
	}
	once := sync.OnceFunc(func() {
		if err := set(context.WithoutCancel(t.Context()), true); err != nil {
			t.Errorf("restore role: %v", err)
		}
	})
	t.Cleanup(once)
	await(t, "the permission to be gone", func(ctx context.Context) error { return inForce(ctx, false) })
	return func() {
		once()
		await(t, "the permission to be back", func(ctx context.Context) error { return inForce(ctx, true) })
	}
}

// F5: the events of a pod and of its request come in any order.
func TestConformance_F5_Order(t *testing.T) {
	lag := &podLag{}
	mgr := startManager(t, manager.Options{Wrap: lag.wrap})

	t.Run("56 requests that were created right after their pods are not canceled", func(t *testing.T) {
		const pods = 40
		w := newWorld(t, mgr)
		w.notCancelled(t, w.requestedAtOnce(t, pods))
	})
	t.Run("56 a request whose pod is not in the cache yet is not canceled", func(t *testing.T) {
		w := newWorld(t, mgr)
		release := lag.hold(t)
		keys := w.requestedAtOnce(t, 3)
		w.notCancelled(t, keys) // With the pods' events still held up.
		for _, key := range keys {
			w.untilActive(t, key, interceptorA)
		}
		release()
		w.sync(t, keys[0])
		w.notCancelled(t, keys)
	})
	t.Run("56 a request for a replaced pod is not canceled when the cache has only the old one", func(t *testing.T) {
		w := newWorld(t, mgr)
		old := w.pod(t, "web", interceptorA)
		w.untilActive(t, w.request(t, old).ObjectKey, interceptorA) // So the cache knows it.
		lag.hold(t)
		w.deletePod(t, old)
		tr := w.request(t, w.pod(t, "web", interceptorA))
		w.notCancelled(t, []client.ObjectKey{tr.ObjectKey})
		w.untilActive(t, tr.ObjectKey, interceptorA)
	})
}

// requestedAtOnce creates so many pods and, with nothing in between, a request for
// each.
func (w *world) requestedAtOnce(t *testing.T, pods int) []client.ObjectKey {
	t.Helper()
	keys := make([]client.ObjectKey, pods)
	var group sync.WaitGroup
	for i := range pods {
		group.Go(func() {
			pod := builder.Pod(w.ns, fmt.Sprintf("web-%d", i)).Interceptors(interceptorA).Obj()
			if err := w.admin.Create(t.Context(), pod); err != nil {
				t.Errorf("create pod: %v", err)
				return
			}
			er := builder.EvictionRequest(pod.Namespace, pod.Name, pod.UID).Requesters("drain.example.com").Obj()
			if err := w.admin.Create(t.Context(), er); err != nil {
				t.Errorf("create request: %v", err)
			}
			keys[i] = client.ObjectKeyFromObject(er)
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return keys
}

// notCancelled waits until the manager has looked at each request; it must not
// have canceled it.
func (w *world) notCancelled(t *testing.T, keys []client.ObjectKey) {
	t.Helper()
	for _, key := range keys {
		er := w.until(t, key, "a first verdict", func(er *v1alpha1.EvictionRequest) bool { return er.Status.ObservedGeneration > 0 })
		if c := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCanceled); c != nil {
			t.Errorf("%s is canceled: %s", er.Spec.Target.Pod.Name, c.Message)
		}
	}
}

// podLag holds up the events of pods, or of another kind, on their way to the manager.
type podLag struct {
	// path of the kind's list; that of pods if empty.
	path string

	mu sync.Mutex
	// open is closed while events may pass; nil means that they may, too.
	open chan struct{}
}

// hold lets no event of a pod pass until release is called or the test ends.
func (l *podLag) hold(t *testing.T) (release func()) {
	t.Helper()
	open := make(chan struct{})
	l.mu.Lock()
	l.open = open
	l.mu.Unlock()
	release = sync.OnceFunc(func() { close(open) })
	t.Cleanup(release)
	return release
}

func (l *podLag) wait(closed <-chan struct{}) {
	l.mu.Lock()
	open := l.open
	l.mu.Unlock()
	if open == nil {
		return
	}
	select {
	case <-open:
	case <-closed:
	}
}

func (l *podLag) wrap(next http.RoundTripper) http.RoundTripper {
	path := l.path
	if path == "" {
		path = "/api/v1/pods"
	}
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err == nil && req.URL.Path == path && req.URL.Query().Get("watch") != "" {
			resp.Body = &laggingBody{ReadCloser: resp.Body, lag: l, closed: make(chan struct{})}
		}
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// laggingBody is what a watch reads.
type laggingBody struct {
	io.ReadCloser
	lag    *podLag
	once   sync.Once
	closed chan struct{}
}

func (b *laggingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.lag.wait(b.closed)
	return n, err
}

func (b *laggingBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}
