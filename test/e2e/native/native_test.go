//go:build unix

package native

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// A native request for a pod with two responders, both of which are programs that know nothing
// of Drawbridge.
func TestTwoRespondersOfAnotherHand(t *testing.T) {
	shareManager(t)
	namespace, node := placed(t)
	first, second := in(namespace, migrate), in(namespace, save)
	startResponder(t, first, time.Second)
	startResponder(t, second, time.Second)
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(first, second).Obj())
	r := wants(t, pod)
	gone(t, pod)
	e := waitEviction(t, pod, "evicted", isEvicted)
	want := fmt.Sprintf("pod-1-db-0: %s=Completed %s=Completed %s=Completed%s", first, second, evictor, evicted)
	if diff := cmp.Diff(want, says(e)); diff != "" {
		t.Errorf("Eviction (-want +got):\n%s", diff)
	}
	labels := map[string]string{"drain.example.com/me": "requester", first: "responder", second: "responder", evictor: "responder"}
	if diff := cmp.Diff(labels, e.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	waitWish(t, r, evicted)
	noRequest(t, pod)
}

// A pod that nobody answers for costs six writes of ours besides the eviction itself: the
// Eviction, its three statuses of which the evictor reports one, and two of the request. A conflict
// is none: a cache that is behind makes the evictor say once more that it is done.
func TestWritesOfAPlainNativeEviction(t *testing.T) {
	shareManager(t)
	namespace, node := placed(t)
	pod := createPod(t, builder.Pod(namespace, "web-0").Node(node).Obj())
	mark := kube.RequestLog().Mark()
	r := wants(t, pod)
	gone(t, pod)
	waitWish(t, r, evicted)
	logged, err := kube.RequestLog().Since(t.Context(), mark)
	if err != nil {
		t.Fatal(err)
	}
	writes := logged.By(account()).Where(func(r cluster.Request) bool {
		return r.Namespace == namespace && r.Writes() && r.Resource != "events" && r.Code != http.StatusConflict
	})
	counts := map[string]int{}
	for _, w := range writes {
		counts[fmt.Sprintf("%s %s/%s", w.Verb, w.Resource, w.Subresource)]++
	}
	want := map[string]int{
		"create evictions/": 1, "update evictions/status": 2, "patch evictions/status": 1,
		"update evictionrequests/status": 2, "create pods/eviction": 1,
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("writes (-want +got):\n%s\n%s", diff, writes)
	}
}

// asks are the ways to want an eviction.
var asks = map[string]func(*testing.T, *corev1.Pod){
	"a native request":        func(t *testing.T, pod *corev1.Pod) { wants(t, pod) },
	"a request of ours":       func(t *testing.T, pod *corev1.Pod) { joins(t, pod) },
	"a legacy call":           func(t *testing.T, pod *corev1.Pod) { calls(t, pod) },
	"a native one and a call": func(t *testing.T, pod *corev1.Pod) { wants(t, pod); calls(t, pod) },
}

// natively reports whether a way to ask makes a native EvictionRequest of a stranger's.
func natively(how string) bool { return how == "a native request" || how == "a native one and a call" }

// kinds are pods by who answers for them.
var kinds = map[string]func(*builder.PodWrapper, string) *builder.PodWrapper{
	"native responders": func(p *builder.PodWrapper, ns string) *builder.PodWrapper { return p.Responders(in(ns, migrate)) },
	"interceptors":      func(p *builder.PodWrapper, ns string) *builder.PodWrapper { return p.Interceptors(in(ns, ours)) },
	"both": func(p *builder.PodWrapper, ns string) *builder.PodWrapper {
		return p.Responders(in(ns, migrate)).Interceptors(in(ns, ours))
	},
	"both, and names ours itself": func(p *builder.PodWrapper, ns string) *builder.PodWrapper {
		return p.Responders(in(ns, migrate), nativeOurs).Interceptors(in(ns, ours))
	},
}

// One pod, one sequence, whatever asks and whoever answers.
func TestEverybodyHasOneTurn(t *testing.T) {
	shareManager(t)
	for kind, build := range kinds {
		for how, ask := range asks {
			t.Run(how+" for a pod with "+kind, func(t *testing.T) {
				t.Parallel()
				namespace, node := placed(t)
				pod := createPod(t, build(builder.Pod(namespace, "db-0").Node(node), namespace).Obj())
				ask(t, pod)
				if kind != "interceptors" {
					waitEviction(t, pod, "in the hands of its responder", turnOf(in(namespace, migrate)))
					lives(t, pod)
					completes(t, pod, in(namespace, migrate))
				}
				if kind != "native responders" {
					intercepts(t, pod, in(namespace, ours))
				}
				gone(t, pod)
				if kind != "interceptors" || natively(how) {
					e := waitEviction(t, pod, "evicted", isEvicted)
					for _, r := range e.Status.TargetResponders {
						if r.State != lifecyclev1alpha1.ResponderStateCompleted {
							t.Errorf("%s", says(e))
						}
					}
					if found, err := evictions(t.Context(), pod); err != nil || len(found) != 1 {
						t.Errorf("%d Evictions, error %v", len(found), err)
					}
				}
				if kind != "native responders" || how != "a native request" {
					er := cluster.WaitRequest(t, admin, pod, "evicted", v1alpha1.IsFinished)
					for _, i := range er.Status.TargetInterceptors {
						if i.Name != v1alpha1.ImperativeEvictionInterceptor && v1alpha1.ReportOf(er, i.Name).CompletionTime == nil {
							t.Errorf("%s has not completed: %+v", i.Name, er.Status)
						}
					}
				}
			})
		}
	}
}

// A withdrawn wish cancels everything, on both sides.
func TestWithdrawn(t *testing.T) {
	shareManager(t)
	t.Run("while a responder works", func(t *testing.T) {
		t.Parallel()
		namespace, node := placed(t)
		name := in(namespace, migrate)
		p := startResponder(t, name, time.Hour/4)
		pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(name).Interceptors(in(namespace, ours)).Obj())
		r := wants(t, pod)
		waitEviction(t, pod, "at work", func(e *lifecyclev1alpha1.Eviction) bool {
			return turnOf(name)(e) && e.Status.Responders[0].HeartbeatTime != nil
		})
		withdraw(t, r)
		waitEviction(t, pod, "canceled", isCanceled)
		ctx, cancel := context.WithTimeout(t.Context(), cluster.Patience)
		defer cancel()
		if _, err := p.WaitLine(ctx, "canceled"); err != nil {
			t.Error(err)
		}
		noRequest(t, pod)
		lives(t, pod)
	})
	t.Run("while an interceptor of ours works, and wanted again", func(t *testing.T) {
		t.Parallel()
		namespace, node := placed(t)
		pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(in(namespace, migrate)).Interceptors(in(namespace, ours)).Obj())
		r := wants(t, pod)
		completes(t, pod, in(namespace, migrate))
		cluster.WaitRequest(t, admin, pod, "in the hands of ours", func(er *v1alpha1.EvictionRequest) bool {
			return len(er.Status.ActiveInterceptors) == 1 && er.Status.ActiveInterceptors[0] == in(namespace, ours)
		})
		withdraw(t, r)
		waitEviction(t, pod, "canceled", isCanceled)
		cluster.WaitRequest(t, admin, pod, "canceled", v1alpha1.IsFinished)
		lives(t, pod)
		if err := admin.Patch(t.Context(), r, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"intent":"Eviction"}}`))); err != nil {
			t.Fatal(err)
		}
		waitEviction(t, pod, "another one", func(e *lifecyclev1alpha1.Eviction) bool {
			return e.Name == "pod-2-db-0" && turnOf(in(namespace, migrate))(e)
		})
		waitWish(t, r, runs)
	})
	t.Run("a drain that is canceled", func(t *testing.T) {
		t.Parallel()
		namespace, node := placed(t)
		pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(in(namespace, migrate)).Obj())
		er := joins(t, pod)
		waitEviction(t, pod, "in the hands of its responder", turnOf(in(namespace, migrate)))
		leaves(t, pod)
		waitEviction(t, pod, "canceled", isCanceled)
		cluster.WaitRequest(t, admin, pod, "canceled", v1alpha1.IsFinished)
		wish := &lifecyclev1alpha1.EvictionRequest{}
		wish.Namespace, wish.Name = namespace, wishes(t, pod)[0].Name
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(wish), wish); err != nil || wish.Spec.Intent != lifecyclev1alpha1.EvictionRequestIntentWithdrawn ||
			wish.OwnerReferences[0].UID != er.UID || wish.Spec.Requester != "drain.example.com/requester" {
			t.Errorf("the wish in its name: %+v, error %v", wish, err)
		}
		lives(t, pod)
	})
}
