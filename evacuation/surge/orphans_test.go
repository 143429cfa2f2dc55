package surge

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestOrphans(t *testing.T) {
	request := func(change func(*v1alpha1.EvictionRequest)) *v1alpha1.EvictionRequest {
		er := builder.EvictionRequest(ns, "web-1", "web-1").Obj()
		er.Finalizers = []string{"example.com/kept"}
		change(er)
		return er
	}
	ended := func(condition string) func(*v1alpha1.EvictionRequest) {
		return func(er *v1alpha1.EvictionRequest) {
			er.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue}}
		}
	}
	running := request(func(er *v1alpha1.EvictionRequest) {
		er.Status.ActiveInterceptors = []string{v1alpha1.ImperativeEvictionInterceptor}
	})
	deleted := request(func(er *v1alpha1.EvictionRequest) { er.DeletionTimestamp = &metav1.Time{Time: t0} })
	cases := map[string]struct {
		cached, live *v1alpha1.EvictionRequest
		want         bool
	}{
		"no request":                        {want: true},
		"a canceled one":                    {cached: request(ended(v1alpha1.ConditionCanceled)), live: request(ended(v1alpha1.ConditionCanceled)), want: true},
		"one that a finalizer holds":        {cached: deleted, live: deleted, want: true},
		"one that goes on without us":       {cached: running, live: running},
		"one the cache has not seen yet":    {live: running},
		"a new one after the canceled one":  {cached: request(ended(v1alpha1.ConditionCanceled)), live: running},
		"one whose pod has ended, they say": {cached: request(ended(v1alpha1.ConditionEvicted)), live: request(ended(v1alpha1.ConditionEvicted))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects := func(er *v1alpha1.EvictionRequest) []client.Object {
				all := []client.Object{deployment(1), replicaSet("web-new", 2, 1), up(t, pod("web-1", "web-new"), t0)}
				if er != nil {
					all = append(all, er.DeepCopy())
				}
				return all
			}
			w, cache := newWorld(objects(tc.live)...), newWorld(objects(tc.cached)...)
			w.Client = writeTo{cache.client, w.client}
			if _, err := (&orphans{w.Surge}).Reconcile(t.Context(), reconcile.Request{NamespacedName: keyOf(ns, "web-1")}); err != nil {
				t.Fatal(err)
			}
			if _, up := handedUp(w.get(t, "web-1")); up == tc.want {
				t.Errorf("it is handed up: %t, want it given back: %t", up, tc.want)
			}
		})
	}
}

func TestRequestsThatEndPointToTheirPods(t *testing.T) {
	er := builder.EvictionRequest(ns, "web-1", "web-1").Obj()
	if got := podOfEnded(t.Context(), er); got != nil {
		t.Errorf("one that runs: %v", got)
	}
	er.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionCanceled, Status: metav1.ConditionTrue}}
	if got := podOfEnded(t.Context(), er); len(got) != 1 || got[0].NamespacedName != keyOf(ns, "web-1") {
		t.Errorf("one that was canceled: %v", got)
	}
}
