package conformance

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// F7: the webhook of another replica makes requests only for pods that somebody
// intercepts, and says whom it saw. A plan that lacks one of them is one of caches that lag
// behind.
func TestConformance_F7_CachesThatLag(t *testing.T) {
	lag := &podLag{path: "/apis/" + v1alpha1.GroupName + "/v1alpha1/evictioninterceptors"}
	pods := &podLag{}
	mgr := startManager(t, manager.Options{Wrap: func(next http.RoundTripper) http.RoundTripper { return lag.wrap(pods.wrap(next)) }})

	// target is a pod whose label nobody looks at yet.
	target := func(t *testing.T, w *world, interceptors ...string) *corev1.Pod {
		t.Helper()
		pod := builder.Pod(w.ns, "web").Label("app", "web")
		if len(interceptors) > 0 {
			pod.Interceptors(interceptors...)
		}
		return w.createPod(t, pod.Obj())
	}
	register := func(t *testing.T, w *world, name, key, value string) {
		t.Helper()
		registration := builder.EvictionInterceptor(name).Pods(key, value).InNamespace(w.ns).Obj()
		if err := w.admin.Create(t.Context(), registration); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := w.admin.Delete(context.WithoutCancel(t.Context()), registration); err != nil {
				t.Error(err)
			}
		})
	}
	cases := map[string]struct {
		// change makes the pod an intercepted one, unseen by the manager.
		change func(*testing.T, *world, *corev1.Pod)
		// known are interceptors that the caches have; seen is what the webhook saw.
		known []string
		seen  string
		want  []string
	}{
		"62 a registration that the caches do not have is found": {
			change: func(t *testing.T, w *world, _ *corev1.Pod) {
				t.Helper()
				lag.hold(t)
				register(t, w, "new.example.com", "app", "web")
			},
			want: []string{"new.example.com", imperative},
		},
		"62 a label that the caches do not have is found": {
			change: func(t *testing.T, w *world, pod *corev1.Pod) {
				t.Helper()
				pods.hold(t)
				register(t, w, "labeled.example.com", "drained", "gently")
				patch := client.MergeFrom(pod.DeepCopy())
				pod.Labels["drained"] = "gently"
				if err := w.admin.Patch(t.Context(), pod, patch); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"labeled.example.com", imperative},
		},
		"62 a registration that the caches do not have is found beside one that they have": {
			change: func(t *testing.T, w *world, _ *corev1.Pod) {
				t.Helper()
				lag.hold(t)
				register(t, w, "second.example.com", "app", "web")
			},
			known: []string{interceptorA}, seen: interceptorA + ",second.example.com",
			want: []string{interceptorA, "second.example.com", imperative},
		},
		"63 a pod that nobody intercepts any more is planned without anybody": {
			change: func(*testing.T, *world, *corev1.Pod) {}, want: []string{imperative},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, mgr)
			w.hold(t)
			pod := target(t, w, tc.known...)
			seen := w.request(t, w.pod(t, "other", interceptorA))
			w.untilActive(t, seen.ObjectKey, interceptorA) // So the manager knows this namespace.
			tc.change(t, w, pod)
			const alice = "alice.users.drawbridge.dev"
			lease := translate.EncodeLease(translate.LeaseRecord{
				Requester: alice, Node: pod.Spec.NodeName + "-" + w.ns, Class: translate.ClassKubectl, TTL: time.Hour, RenewedAt: mgr.Clock.Now(),
			}, drawbridge.Namespace)
			er := builder.EvictionRequest(pod.Namespace, pod.Name, pod.UID).Leased(alice, lease.Name).Annotation(v1alpha1.SeenInterceptorsAnnotation, tc.seen).Obj()
			for _, object := range []client.Object{lease, er} {
				if err := w.admin.Create(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			}
			planned := w.untilActive(t, client.ObjectKeyFromObject(er), tc.want[0])
			var names []string
			for _, target := range planned.Status.TargetInterceptors {
				names = append(names, target.Name)
			}
			if diff := cmp.Diff(tc.want, names); diff != "" {
				t.Errorf("targetInterceptors (-want +got):\n%s", diff)
			}
		})
	}
}
