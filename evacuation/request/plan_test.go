package request

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// A request of our webhook without anybody who intercepts its pod, or without one of those
// whom the webhook saw, is one of caches that lag behind.
func TestPlansOfTheWebhookLackNobodyBecauseOfACache(t *testing.T) {
	of := func() *builder.EvictionRequestWrapper { return builder.EvictionRequest("shop", "web-1", "uid-1") }
	leased := of().Leased("alice.example.com", "alice-node-1").Obj()
	saw := func(names string) *v1alpha1.EvictionRequest {
		return of().Leased("alice.example.com", "alice-node-1").Annotation(v1alpha1.SeenInterceptorsAnnotation, names).Obj()
	}
	plain := webPod().Clone()
	delete(plain.Annotations, v1alpha1.InterceptorsAnnotation)
	labeled := plain.Clone().Label("app", "web")
	failed := errors.New("no answer")
	cases := map[string]struct {
		request      *v1alpha1.EvictionRequest
		live, cached *builder.PodWrapper
		fails        error
		want         string
		reads        []string
	}{
		"its caller has a lease, and the registration is found live": {leased, labeled, plain, nil, "active [live.example.com] processed []", []string{"live Pod", "resolve app=web"}},
		"its caller has a lease, and really nobody intercepts it":    {leased, plain, plain, nil, "active [imperative-eviction.k8s.io] processed []", []string{"live Pod", "resolve app="}},
		"its caller has a lease, and the pod is gone":                {leased, nil, plain, nil, "active [] processed [] Canceled=True/ValidationFailed", []string{"live Pod"}},
		"its caller has a lease, and another pod has the name":       {leased, labeled.Clone().UID("uid-2"), plain, nil, "active [] processed [] Canceled=True/ValidationFailed", []string{"live Pod"}},
		"somebody intercepts it by the caches, too":                  {leased, webPod(), webPod(), nil, "active [a.example.com] processed []", nil},
		"the webhook saw one more":                                   {saw("a.example.com,live.example.com"), webPod().Label("app", "web"), webPod(), nil, "active [live.example.com] processed []", []string{"live Pod", "resolve app=web"}},
		"the webhook saw one who has gone":                           {saw("a.example.com,gone.example.com"), webPod(), webPod(), nil, "active [imperative-eviction.k8s.io] processed []", []string{"live Pod", "resolve app="}},
		"the webhook saw the same":                                   {saw("a.example.com"), webPod(), webPod(), nil, "active [a.example.com] processed []", nil},
		"the webhook saw fewer":                                      {saw("a.example.com"), builder.Pod("shop", "web-1").UID("uid-1").Interceptors("a.example.com", "b.example.com"), builder.Pod("shop", "web-1").UID("uid-1").Interceptors("a.example.com", "b.example.com"), nil, "active [a.example.com] processed []", nil},
		"it is not the webhook's":                                    {of().Requesters("x.example.com").Obj(), labeled, plain, nil, "active [imperative-eviction.k8s.io] processed []", nil},
		"nobody can tell":                                            {leased, labeled, plain, failed, "active [] processed []", []string{"live Pod", "resolve app=web"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			live := []client.Object{tc.request.DeepCopy()}
			if tc.live != nil {
				live = append(live, tc.live.Clone().Obj())
			}
			b := newBench(t, live...).lag(t, tc.request.DeepCopy(), tc.cached.Clone().Obj())
			b.ResolveLive = func(_ context.Context, pod *corev1.Pod) ([]string, func(string) v1alpha1.Interceptor, error) {
				b.reads = append(b.reads, "resolve app="+pod.Labels["app"])
				if pod.Labels["app"] == "" {
					return nil, nil, tc.fails
				}
				return []string{"live.example.com"}, deadlines{"live.example.com": time.Hour}.of, tc.fails
			}
			if _, err := b.reconcile(t); !errors.Is(err, tc.fails) {
				t.Errorf("error %v, want %v", err, tc.fails)
			}
			if got := b.state(t); got != tc.want {
				t.Errorf("request:\ngot:  %s\nwant: %s", got, tc.want)
			}
			if strings.Contains(tc.want, "live.example.com") {
				er := &v1alpha1.EvictionRequest{}
				if err := b.live.Get(t.Context(), client.ObjectKeyFromObject(tc.request), er); err != nil {
					t.Fatal(err)
				}
				if got := v1alpha1.HeartbeatDeadlineOf(er, "live.example.com"); got != time.Hour {
					t.Errorf("the registration that was found live has a deadline of an hour, planned is %s", got)
				}
			}
			if diff := cmp.Diff(tc.reads, b.reads); diff != "" {
				t.Errorf("live reads (-want +got):\n%s", diff)
			}
		})
	}
}
