package conformance

import (
	"context"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// labels are those of a request or a pod; no label at all is an empty map.
type labels = map[string]string

// F6 Labels.
func TestConformance_F6(t *testing.T) {
	mgr := startManager(t, manager.Options{})

	cases := map[string]struct {
		// pod and request are the labels they are created with.
		pod, request labels
		// later are the labels that the pod gets after the first sync, in turn.
		later []labels
		want  labels
	}{
		"57 the pod's labels are copied":                        {pod: labels{"app": "web", "example.com/tier": "front", "empty": ""}, want: labels{"app": "web", "example.com/tier": "front", "empty": ""}},
		"57 a pod without labels leaves none":                   {want: labels{}},
		"58 the pod's value wins":                               {pod: labels{"app": "web"}, request: labels{"app": "other"}, want: labels{"app": "web"}},
		"59 labels that only the request has stay":              {pod: labels{"app": "web"}, request: labels{"team": "a"}, want: labels{"app": "web", "team": "a"}},
		"60 a changed value follows":                            {pod: labels{"app": "web"}, later: []labels{{"app": "db"}}, want: labels{"app": "db"}},
		"60 an added label follows":                             {pod: labels{"app": "web"}, later: []labels{{"app": "web", "new": "yes"}}, want: labels{"app": "web", "new": "yes"}},
		"60 a removed label goes":                               {pod: labels{"app": "web", "old": "yes"}, later: []labels{{"app": "web"}}, want: labels{"app": "web"}},
		"60 all labels of the pod can go":                       {pod: labels{"app": "web"}, request: labels{"team": "a"}, later: []labels{{}}, want: labels{"team": "a"}},
		"60 a label that comes back follows":                    {pod: labels{"app": "web"}, later: []labels{{}, {"app": "again"}}, want: labels{"app": "again"}},
		"60 a label whose value the pod has overruled goes":     {pod: labels{"app": "web"}, request: labels{"app": "other"}, later: []labels{{}}, want: labels{}},
		"59, 60 a label that both had stays with the request's": {pod: labels{"app": "web"}, request: labels{"app": "web"}, later: []labels{{}}, want: labels{"app": "web"}},
	}
	t.Run("table", func(t *testing.T) {
		w := newWorld(t, mgr)
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				pod := builder.Pod(w.ns, podName(t)).Interceptors(interceptorA).Change(func(p *corev1.Pod) { p.Labels = maps.Clone(tc.pod) }).Obj()
				w.createPod(t, pod)
				tr := w.request(t, pod, func(er *v1alpha1.EvictionRequest) { er.Labels = maps.Clone(tc.request) })
				w.untilActive(t, tr.ObjectKey, interceptorA)
				for _, later := range tc.later {
					w.updatePod(t, pod, func(p *corev1.Pod) { p.Labels = maps.Clone(later) })
					w.until(t, tr.ObjectKey, "the request to follow", func(er *v1alpha1.EvictionRequest) bool { return contains(er.Labels, later) })
				}
				w.until(t, tr.ObjectKey, "the labels to be as they must", func(er *v1alpha1.EvictionRequest) bool {
					return maps.Equal(er.Labels, tc.want)
				})
				er := w.sync(t, tr.ObjectKey) // And they stay so.
				if diff := cmp.Diff(tc.want, maps.Collect(maps.All(er.Labels))); diff != "" {
					t.Errorf("labels (-want +got):\n%s", diff)
				}
			})
		}
	})
	t.Run("58 a foreign change of a pod's label is put right", func(t *testing.T) {
		w := newWorld(t, mgr)
		pod := w.createPod(t, builder.Pod(w.ns, "web").Interceptors(interceptorA).Label("app", "web").Obj())
		tr := w.request(t, pod)
		w.untilActive(t, tr.ObjectKey, interceptorA)
		for what, change := range map[string]change{
			"changed": func(er *v1alpha1.EvictionRequest) { er.Labels["app"] = "mine" },
			"removed": func(er *v1alpha1.EvictionRequest) { delete(er.Labels, "app") },
		} {
			w.updateSpec(t, tr.ObjectKey, change)
			w.until(t, tr.ObjectKey, "the label to be back after it was "+what, func(er *v1alpha1.EvictionRequest) bool { return er.Labels["app"] == "web" })
		}
	})
	t.Run("60 a label follows at every stage, and no longer when the request has ended", func(t *testing.T) {
		w := newWorld(t, mgr)
		w.hold(t)
		pod := w.pod(t, "web", interceptorA)
		tr := w.request(t, pod)
		w.untilActive(t, tr.ObjectKey, interceptorA)
		w.report(t, tr.ObjectKey, completes(interceptorA, w.now()))
		w.untilActive(t, tr.ObjectKey, imperative)
		w.updatePod(t, pod, func(p *corev1.Pod) { p.Labels = labels{"stage": "imperative"} })
		w.until(t, tr.ObjectKey, "the label", func(er *v1alpha1.EvictionRequest) bool { return er.Labels["stage"] == "imperative" })

		w.updateSpec(t, tr.ObjectKey, func(er *v1alpha1.EvictionRequest) { er.Spec.Requesters = nil })
		w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionCanceled)
		w.updatePod(t, pod, func(p *corev1.Pod) { p.Labels = labels{"stage": "later"} })
		sentinel := w.pod(t, "sentinel", interceptorA) // Its events come after those of the other pod.
		w.untilActive(t, w.request(t, sentinel).ObjectKey, interceptorA)
		if diff := cmp.Diff(labels{"stage": "imperative"}, w.get(t, tr.ObjectKey).Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
	})
	t.Run("61 a watch by the pod's labels sees the request and its turns", func(t *testing.T) {
		w := newWorld(t, mgr)
		c, err := client.NewWithWatch(kube.Config(), client.Options{Scheme: scheme})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), awaitTimeout)
		defer cancel()
		watched, err := c.Watch(ctx, &v1alpha1.EvictionRequestList{}, client.InNamespace(w.ns), client.MatchingLabels{"app": "web"})
		if err != nil {
			t.Fatal(err)
		}
		defer watched.Stop()
		w.untilActive(t, w.request(t, w.createPod(t, builder.Pod(w.ns, "db").Interceptors(interceptorA).Label("app", "db").Obj())).ObjectKey, interceptorA)
		tr := w.request(t, w.createPod(t, builder.Pod(w.ns, "web").Interceptors(interceptorA).Label("app", "web").Obj()))

		var seen []string
		for len(seen) < 2 {
			e, ok := <-watched.ResultChan()
			er, isRequest := e.Object.(*v1alpha1.EvictionRequest)
			if !ok || !isRequest {
				t.Fatalf("the watch ended: %v, seen so far %q", e.Object, seen)
			}
			if er.Name != tr.Name {
				t.Errorf("it sees the request of another pod: %s", er.Spec.Target.Pod.Name)
			}
			seen = append(seen, string(e.Type)+" "+progress(er))
		}
		// The labels come first: whoever selects by them misses no activation.
		if diff := cmp.Diff([]string{"ADDED ", "MODIFIED [a]"}, seen); diff != "" {
			t.Errorf("seen (-want +got):\n%s", diff)
		}
		list := &v1alpha1.EvictionRequestList{}
		if err := w.admin.List(t.Context(), list, client.InNamespace(w.ns), client.MatchingLabels{"app": "web"}); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 || list.Items[0].Name != tr.Name {
			t.Errorf("a list by the label has %d requests", len(list.Items))
		}
	})
	t.Run("60 no sync of labels moves the generation", func(t *testing.T) {
		w := newWorld(t, mgr)
		pod := w.pod(t, "web", interceptorA)
		tr := w.request(t, pod)
		w.untilActive(t, tr.ObjectKey, interceptorA)
		w.updatePod(t, pod, func(p *corev1.Pod) { p.Labels = labels{"a": "b"} })
		er := w.until(t, tr.ObjectKey, "the label", func(er *v1alpha1.EvictionRequest) bool { return er.Labels["a"] == "b" })
		if er.Generation != 1 || er.Status.ObservedGeneration != 1 {
			t.Errorf("generation %d, observed %d, want 1", er.Generation, er.Status.ObservedGeneration)
		}
	})
}

func contains(all, some labels) bool {
	for key, value := range some {
		if have, ok := all[key]; !ok || have != value {
			return false
		}
	}
	return true
}
