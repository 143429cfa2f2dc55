package forecast

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// lastOf registers that pods of a tier leave after those of another one.
func lastOf(value, after string) *builder.EvictionInterceptorWrapper {
	return builder.EvictionInterceptor(value+v1alpha1.OrderInterceptorSuffix).Pods("tier", value).After("tier", after)
}

// storageLast has a pod x of the web and a pod y of the storage, which leaves after it.
func storageLast(x, y func(*corev1.Pod), registrations ...*builder.EvictionInterceptorWrapper) Input {
	in := input(pod("x", "a", tier("web"), x), pod("y", "a", tier("storage"), y))
	in.Namespaces = []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "a"}}}}
	if registrations == nil {
		registrations = []*builder.EvictionInterceptorWrapper{lastOf("storage", "web")}
	}
	for _, r := range registrations {
		in.Interceptors = append(in.Interceptors, r.Obj())
	}
	return in
}

func asIs(*corev1.Pod) {}

// asked is the running request of the pod y.
func asked(interceptors ...string) *builder.EvictionRequestWrapper {
	return builder.EvictionRequest("shop", "y", "uid-y").Created(now.Add(-time.Hour)).Requesters("drain.example.com").
		Interceptors(append(interceptors, v1alpha1.ImperativeEvictionInterceptor)...)
}

func TestPodsLeaveAfterOthersOfTheirNode(t *testing.T) {
	const order = v1alpha1.OrderInterceptor
	lost := func(in Input) Input { return lostSince(in, time.Hour) }
	// Pods end after 2s, and the saver takes 10s.
	cases := map[string]struct {
		in func() Input
		// want are the pods in their order: their names, when they are gone, and after what.
		want []string
	}{
		"it goes last, right after the others": {func() Input {
			return storageLast(saved, asIs)
		}, []string{"x: 13s, " + saver, "y: 15s, order.drawbridge.dev (shop/x)"}},
		"its own interceptor has its turn afterwards": {func() Input {
			return storageLast(saved, asIs, builder.EvictionInterceptor(saver).Pods("tier", "storage").After("tier", "web"))
		}, []string{"x: 13s, order.drawbridge.dev, " + saver, "y: 25s, order.drawbridge.dev (shop/x), " + saver}},
		"not after those of another node": {func() Input {
			in := storageLast(saved, func(p *corev1.Pod) { p.Spec.NodeName = "b" })
			in.Nodes, in.Drain = append(in.Nodes, node("c", "3", 100)), []string{"a", "b"}
			return in
		}, []string{"y: 3s, order.drawbridge.dev", "x: 13s, " + saver}},
		"by the labels of a namespace": {func() Input {
			return storageLast(saved, asIs, builder.EvictionInterceptor("storage.order.drawbridge.dev").Pods("tier", "storage").
				After("tier", "web").AfterNamespaces("team", "a"))
		}, []string{"x: 13s, " + saver, "y: 15s, order.drawbridge.dev (shop/x)"}},
		"not by those of another one": {func() Input {
			return storageLast(saved, asIs, builder.EvictionInterceptor("storage.order.drawbridge.dev").Pods("tier", "storage").
				After("tier", "web").AfterNamespaces("team", "b"))
		}, []string{"y: 3s, order.drawbridge.dev", "x: 13s, " + saver}},
		"others are left to their owners first": {func() Input {
			in := storageLast(asIs, asIs)
			in.Settings.Wait = new(time.Minute)
			return in
		}, []string{"x: 63s, ", "y: 65s, order.drawbridge.dev (shop/x)"}},
		"for ten minutes, where one never goes": {func() Input {
			in := storageLast(asIs, func(p *corev1.Pod) { p.Labels["app"] = "disk" })
			in.PDBs = []*policyv1.PodDisruptionBudget{disruptions("web", 0, 3)}
			return in
		}, []string{"y: 602s, order.drawbridge.dev (shop/x; for shop/x until its timeout)", "x: never, "}},
		"for as long as it says, where the drain keeps one": {func() Input {
			return storageLast(func(p *corev1.Pod) { p.OwnerReferences = nil }, asIs, lastOf("storage", "web").AfterTimeout(time.Minute))
		}, []string{"y: 62s, order.drawbridge.dev (shop/x; for shop/x until its timeout)", "x: never, "}},
		"the others take too long": {func() Input {
			return storageLast(saved, asIs, lastOf("storage", "web").AfterTimeout(5*time.Second))
		}, []string{"y: 7s, order.drawbridge.dev (shop/x; for shop/x until its timeout)", "x: 13s, " + saver}},
		"not after pods of DaemonSets": {func() Input {
			return storageLast(func(p *corev1.Pod) { p.OwnerReferences = builder.Pod("", "").DaemonSet("net").Obj().OwnerReferences }, asIs)
		}, []string{"y: 3s, order.drawbridge.dev", "x: stays: DaemonSet, "}},
		"not even where these leave, too": {func() Input {
			in := storageLast(func(p *corev1.Pod) { p.OwnerReferences = builder.Pod("", "").DaemonSet("net").Obj().OwnerReferences }, asIs)
			in.Settings.Maintenance, in.Settings.Waves = "kernel", []v1alpha1.MaintenanceWave{{Name: "daemons", DaemonSets: true}}
			return in
		}, []string{"y: 3s, order.drawbridge.dev", "x: 6s, "}},
		"not after pods that have ended": {func() Input {
			return storageLast(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, asIs)
		}, []string{"y: 3s, order.drawbridge.dev", "x: stays: has ended, "}},
		"pods in a circle do not wait for each other": {func() Input {
			return storageLast(asIs, asIs, lastOf("storage", "web"), lastOf("web", "storage"))
		}, []string{"x: 3s, order.drawbridge.dev (not for shop/y, a circle)", "y: 3s, order.drawbridge.dev (not for shop/x, a circle)"}},
		"its wave is the one before": {func() Input {
			return byTier(storageLast(asIs, asIs, lastOf("storage", "web").AfterTimeout(time.Minute)), 0, "storage", "web")
		}, []string{"y: 63s, order.drawbridge.dev (shop/x; for shop/x until its timeout)", "x: 66s, "}},
		"it waits already, and its time is nearly over": {func() Input {
			in := storageLast(func(p *corev1.Pod) { p.OwnerReferences = nil }, asIs)
			in.Requests = append(in.Requests, asked(order).Active(order, now.Add(-9*time.Minute)).Obj())
			return in
		}, []string{"y: 62s, order.drawbridge.dev (shop/x; for shop/x until its timeout)", "x: never, "}},
		"a deadline is over before": {func() Input {
			in := storageLast(saved, asIs)
			in.Requests = append(in.Requests, asked(order).Active(order, now).Deadline("drain.example.com", now.Add(5*time.Second)).Obj())
			return in
		}, []string{"y: 7s, cut off at 12:00:05, order.drawbridge.dev (shop/x)", "x: 13s, " + saver}},
		"its request was planned without it": {func() Input {
			in := storageLast(saved, asIs)
			in.Requests = append(in.Requests, asked(saver).Processed(saver).Obj())
			return in
		}, []string{"y: 2s, ", "x: 13s, " + saver}},
		"and so it is in no circle": {func() Input {
			in := storageLast(asIs, asIs, lastOf("storage", "web"), lastOf("web", "storage"))
			in.Requests = append(in.Requests, asked(saver).Active(saver, now).Obj())
			return in
		}, []string{"y: 12s, " + saver, "x: 14s, order.drawbridge.dev (shop/y)"}},
		"on a lost node nobody waits": {func() Input {
			return lost(storageLast(saved, asIs))
		}, []string{"y: 1s, ", "x: 11s, " + saver}},
		"nor goes on waiting": {func() Input {
			in := lost(storageLast(saved, asIs))
			in.Requests = append(in.Requests, asked(order).Active(order, now.Add(-time.Minute)).Obj())
			return in
		}, []string{"y: 0s, ", "x: 11s, " + saver}},
		"an interceptor that can do nothing there is passed over": {func() Input {
			return lost(storageLast(saved, asIs, builder.EvictionInterceptor(saver).Pods("tier", "web").OnNodeLost(v1alpha1.NodeLostSkip)))
		}, []string{"x: 1s, ", "y: 1s, "}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range Of(tc.in()).Pods {
				_, gone, _ := p.Times()
				if gone != "never" && p.Stays == "" {
					_, cut, is := strings.Cut(gone, ",")
					if gone = fmt.Sprintf("%.0fs", p.EndSeconds); is {
						gone += "," + cut
					}
				}
				got = append(got, p.Name+": "+gone+", "+p.After())
			}
			if diff := gocmp.Diff(tc.want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

// Whoever waits for something unknown is gone at an unknown time, too.
func TestWhatIsUnknownOfOneIsOfThoseThatWaitForIt(t *testing.T) {
	cases := map[string]struct {
		in   func() Input
		want Verdict
		// atLeast are the pods of which only the least time is known.
		atLeast []string
	}{
		"nothing is unknown": {func() Input { return storageLast(saved, asIs) }, Done, nil},
		"by the order": {func() Input {
			in := storageLast(saved, asIs)
			in.Requests = nil
			return in
		}, Unknown, []string{"x", "y"}},
		"by way of another one": {func() Input {
			in := storageLast(asIs, asIs, lastOf("web", "storage"), lastOf("storage", "cache"))
			in.Pods, in.Requests = append(in.Pods, pod("z", "a", tier("cache"), saved)), nil
			return in
		}, Unknown, []string{"x", "y", "z"}},
		"by waves": {func() Input {
			in := byTier(storageLast(saved, asIs), 0, "web", "storage")
			in.Interceptors, in.Requests = nil, nil
			return in
		}, Unknown, []string{"x", "y"}},
		"not those that go before": {func() Input {
			in := byTier(storageLast(asIs, saved), 0, "web", "storage")
			in.Interceptors, in.Requests = nil, nil
			return in
		}, Unknown, []string{"y"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := Of(tc.in())
			var atLeast []string
			for _, p := range f.Pods {
				if p.AtLeast {
					atLeast = append(atLeast, p.Name)
				}
			}
			slices.Sort(atLeast)
			if diff := gocmp.Diff(tc.atLeast, atLeast); diff != "" || f.Verdict != tc.want {
				t.Errorf("verdict %s, pods of which only the least time is known (-want +got):\n%s", f.Verdict, diff)
			}
			for _, h := range f.History {
				if h.Name == v1alpha1.OrderInterceptor {
					t.Errorf("it depends on the history %+v", h)
				}
			}
		})
	}
}

// Lines stay short, and -o json has all of them.
func TestAFewPodsAreNamed(t *testing.T) {
	p := Pod{Turns: []string{saver, v1alpha1.OrderInterceptor}, WaitsFor: []string{"a/1", "a/2", "a/3", "a/4", "a/5"}, Circle: []string{"b/1"}}
	if diff := gocmp.Diff(saver+", order.drawbridge.dev (a/1, a/2, a/3 and 2 more; not for b/1, a circle)", p.After()); diff != "" {
		t.Errorf("after (-want +got):\n%s", diff)
	}
}

// In random worlds, no pod is evicted before one that it is behind, unless its timeout is over.
func TestSmallWorldsWithOrders(t *testing.T) {
	waited := 0
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 3))
		in := smallWorld(seed)
		in.Namespaces = []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}
		behind, timeouts := map[string]string{"y": "x", "z": "y"}, map[string]time.Duration{}
		circle := r.IntN(4) == 0
		if circle {
			behind["x"] = "z"
		}
		for group, other := range behind {
			timeouts[group] = time.Duration(1+r.IntN(30)) * time.Second
			in.Interceptors = append(in.Interceptors, builder.EvictionInterceptor(group+v1alpha1.OrderInterceptorSuffix).
				Pods("group", group).After("group", other).AfterTimeout(timeouts[group]).Obj())
		}
		checkWorld(t, in)
		w := newWorld(&in)
		w.fitAll(newPlacer(&in, map[string]bool{"a": true, "b": len(in.Drain) > 1}))
		run := w.newRun(seed, 0)
		run.held = map[int]bool{}
		run.trace = func(at time.Duration, what kind, i int) {
			v := &w.pods[i]
			other, is := behind[v.pod.Labels["group"]]
			if what != tries || !is || circle {
				return
			}
			for j := range w.pods {
				if w.pods[j].node != v.node || w.pods[j].pod.Labels["group"] != other {
					continue
				}
				waited++
				if over := run.pods[i].start + timeouts[v.pod.Labels["group"]]; !run.pods[j].ended && at < over-time.Second {
					t.Fatalf("seed %d: pod %s goes at %s, before pod %s", seed, v.pod.Name, at, w.pods[j].pod.Name)
				}
			}
		}
		run.simulate()
	}
	if waited < 500 {
		t.Errorf("only %d pods were behind others", waited)
	}
}
