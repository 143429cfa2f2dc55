package forecast

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

const saver = "saver.example.com"

// node has room for many pods.
func node(name, zone string, cpu int64) *corev1.Node {
	n := builder.Node(name).Label("zone", zone).Obj()
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(cpu, resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("1000"),
	}
	return n
}

// pod of a ReplicaSet became ready 4s after it was made.
func pod(name, on string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := builder.Pod("shop", name).UID(types.UID("uid-"+name)).Node(on).OwnedBy("ReplicaSet", "web").Label("app", "web").
		Created(now.Add(-time.Hour)).GracePeriod(30).CPU("1").Ready().Obj()
	for i := range p.Status.Conditions {
		p.Status.Conditions[i].LastTransitionTime = metav1.NewTime(now.Add(-time.Hour + 4*time.Second))
	}
	for _, c := range change {
		c(p)
	}
	return p
}

// past is a kept request whose saver took so long, and whose pod ended after 2s.
func past(name string, took time.Duration) *v1alpha1.EvictionRequest {
	began := now.Add(-2 * time.Hour)
	return builder.EvictionRequest("shop", name, types.UID("past-"+name)).Created(began).Interceptors(saver, v1alpha1.ImperativeEvictionInterceptor).
		Processed(saver, v1alpha1.ImperativeEvictionInterceptor).Completed(saver, began.Add(took)).Evicted(v1alpha1.ReasonPodDeleted, began.Add(took+2*time.Second)).Obj()
}

func saved(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.InterceptorsAnnotation: saver} }

func disruptions(name string, allowed, expected int32) *policyv1.PodDisruptionBudget {
	b := builder.Budget("shop", name).Selects("app", "web").MinAvailable(fmt.Sprint(expected - allowed)).Obj()
	b.Status = policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, ExpectedPods: expected, CurrentHealthy: expected, DesiredHealthy: expected - allowed}
	return b
}

func input(pods ...*corev1.Pod) Input {
	return Input{
		Now: now, Drain: []string{"a"}, Seed: 7, Runs: 20, Pods: pods,
		Settings: Settings{KeepUnmanaged: true, KeepEmptyDir: true, Wait: new(time.Duration)},
		Nodes:    []*corev1.Node{node("a", "1", 100), node("b", "2", 100)},
		Requests: []*v1alpha1.EvictionRequest{past("p1", 10*time.Second), past("p2", 10*time.Second), past("p3", 10*time.Second)},
	}
}

func TestVerdicts(t *testing.T) {
	cases := map[string]struct {
		in   func() Input
		want Verdict
		// seconds that it takes, roughly, and what is said of the first blocker or unknown.
		least, most float64
		says        string
	}{
		"nothing is to go": {func() Input { return input() }, Done, 0, 0, ""},
		"pods go at once":  {func() Input { return input(pod("x", "a"), pod("y", "a")) }, Done, 2, 3, ""},
		"they wait for their owner": {func() Input {
			in := input(pod("x", "a"))
			in.Settings.Wait = new(time.Minute)
			return in
		}, Done, 62, 63.5, ""},
		"an interceptor takes what it took": {func() Input { return input(pod("x", "a", saved)) }, Done, 12, 13, ""},
		"an interceptor without history": {func() Input {
			in := input(pod("x", "a", saved))
			in.Requests = nil
			return in
		}, Unknown, 30, 32, "interceptor " + saver + " has no history"},
		"a budget lets one go at a time": {func() Input {
			in := input(pod("x", "a"), pod("y", "a"), pod("z", "a"))
			in.PDBs = []*policyv1.PodDisruptionBudget{disruptions("web", 1, 3)}
			return in
		}, Done, 10, 13, ""},
		"a budget that never allows anything": {func() Input {
			in := input(pod("x", "a"))
			in.PDBs = []*policyv1.PodDisruptionBudget{disruptions("web", 0, 3)}
			return in
		}, Blocked, 0, 0, "PodDisruptionBudget web"},
		"a budget that can never allow, by arithmetic": {func() Input {
			in := input(pod("x", "a"), pod("y", "b"))
			in.PDBs = []*policyv1.PodDisruptionBudget{disruptions("web", 0, 2)}
			return in
		}, Blocked, 0, 0, "PodDisruptionBudget web: it can never allow a disruption (minAvailable is 2 of 2 pods)"},
		"two budgets": {func() Input {
			in := input(pod("x", "a"))
			in.PDBs = []*policyv1.PodDisruptionBudget{disruptions("web", 1, 3), disruptions("more", 1, 3)}
			return in
		}, Blocked, 0, 0, "PodDisruptionBudgets web, more"},
		"emptyDir data": {func() Input {
			return input(pod("x", "a", func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			}))
		}, Blocked, 0, 0, "the drain"},
		"replacements that fit nowhere never give the budget back": {func() Input {
			in := input(pod("x", "a"), pod("y", "a"))
			in.Nodes[1] = node("b", "2", 0)
			in.PDBs = []*policyv1.PodDisruptionBudget{disruptions("web", 1, 2)}
			return in
		}, Blocked, 2, 3, "PodDisruptionBudget web"},
		"an EvictionBudget that allows nothing": {func() Input {
			in := input(pod("x", "a"))
			in.Budgets = []*v1alpha1.EvictionBudget{builder.EvictionBudget("shop", "web", "app", "web").MaxUnavailable("0").Obj()}
			return in
		}, Blocked, 0, 0, "EvictionBudget"},
		"an EvictionBudget paces by its interval": {func() Input {
			in := input(pod("x", "a"), pod("y", "a"))
			in.Budgets = []*v1alpha1.EvictionBudget{builder.EvictionBudget("shop", "web", "app", "web").MaxUnavailable("2").MinInterval(time.Minute).Obj()}
			return in
		}, Done, 63, 65, ""},
		"a window that opens in an hour": {func() Input {
			in := input(pod("x", "a"))
			in.Budgets = []*v1alpha1.EvictionBudget{builder.EvictionBudget("shop", "web", "app", "web").MaxUnavailable("1").Window("0 13 * * *", time.Hour).Obj()}
			return in
		}, Done, 3600, 3605, ""},
		"pods of DaemonSets stay": {func() Input {
			return input(builder.Pod("shop", "agent").Node("a").DaemonSet("agent").Obj())
		}, Done, 0, 0, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Of(tc.in())
			if got.Verdict != tc.want {
				t.Errorf("verdict %s, want %s: %s", got.Verdict, tc.want, got.Headline)
			}
			if got.P50Seconds < tc.least || got.P50Seconds > tc.most {
				t.Errorf("p50 is %gs, want %g to %g", got.P50Seconds, tc.least, tc.most)
			}
			said := strings.Join(got.Unknowns, " ")
			if len(got.Blockers) > 0 {
				said = got.Blockers[0].Who + ": " + got.Blockers[0].Why
			}
			if !strings.Contains(said, tc.says) {
				t.Errorf("said %q, want %q", said, tc.says)
			}
		})
	}
}

// Whoever is not done when a deadline comes is cut off, and the pod goes then.
func TestADeadlineCutsTurnsShort(t *testing.T) {
	cases := map[string]struct {
		turn     string
		deadline time.Duration
		// seconds that it takes, roughly.
		least, most float64
		cut         string
	}{
		"it comes too early":                {saver, 3 * time.Second, 3, 8, "12:00:03"},
		"it is over":                        {saver, -time.Minute, 0, 5, "12:00:00"},
		"the interceptor has finished":      {saver, time.Hour, 9, 15, ""},
		"native responders are not hurried": {v1alpha1.NativeInterceptor, -time.Minute, 9, 15, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := pod("x", "a", saved)
			in := input(p)
			for _, before := range in.Requests {
				before.Status.TargetInterceptors[0].Name, before.Status.Interceptors[0].Name, before.Status.ProcessedInterceptors[0] = tc.turn, tc.turn, tc.turn
			}
			in.Requests = append(in.Requests, builder.EvictionRequest("shop", "x", p.UID).Created(now).
				Interceptors(tc.turn, v1alpha1.ImperativeEvictionInterceptor).Active(tc.turn, now).Deadline("spot.example.com", now.Add(tc.deadline)).Obj())
			got := Of(in).Pods[0]
			if got.EndSeconds < tc.least || got.EndSeconds > tc.most {
				t.Errorf("it is gone after %v s, want %v to %v", got.EndSeconds, tc.least, tc.most)
			}
			_, gone, _ := got.Times()
			_, cut, _ := strings.Cut(gone, ", cut off at ")
			if diff := cmp.Diff(tc.cut, cut); diff != "" {
				t.Errorf("cut off (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsMissingElsewhere(t *testing.T) {
	in := input(pod("x", "a"), pod("y", "a"), pod("z", "a"))
	in.Nodes[1] = node("b", "2", 1)
	want := Fit{
		Asked: 3, UnplacedPods: 2, Missing: map[corev1.ResourceName]string{corev1.ResourceCPU: "2"},
		Unplaced: []Unplaced{
			{Namespace: "shop", Pod: "y", Why: "cpu 1 is free on none of the 1 nodes that it may go to"},
			{Namespace: "shop", Pod: "z", Why: "cpu 1 is free on none of the 1 nodes that it may go to"},
		},
	}
	if diff := cmp.Diff(want, Of(in).Fit); diff != "" {
		t.Errorf("fit (-want +got):\n%s", diff)
	}
}

// smallWorld is a random one. It has an EvictionBudget or a PodDisruptionBudget, or both.
func smallWorld(seed uint64) Input {
	r := rand.New(rand.NewPCG(seed, 1))
	var all []*corev1.Pod
	n := 1 + r.IntN(12)
	for i := range n {
		all = append(all, pod(fmt.Sprintf("p%d", i), string(rune('a'+r.IntN(3))), func(p *corev1.Pod) {
			if r.IntN(3) == 0 {
				saved(p)
			}
			if r.IntN(10) == 0 {
				p.Status.Conditions = nil
			}
			if r.IntN(20) == 0 {
				p.OwnerReferences = nil
			}
			p.Labels["group"] = string(rune('x' + r.IntN(3)))
		}))
	}
	in := input(all...)
	in.Runs, in.Seed = 4, seed
	in.Nodes = []*corev1.Node{node("a", "1", 100), node("b", "2", 100), node("c", "3", int64(r.IntN(20)))}
	in.Drain = []string{"a", "b"}[:1+r.IntN(2)]
	in.Settings.MaxParallel = r.IntN(3)
	if r.IntN(2) == 0 {
		in.PDBs = []*policyv1.PodDisruptionBudget{disruptions("web", int32(r.IntN(3)), int32(n))}
	}
	if r.IntN(2) == 0 {
		b := builder.EvictionBudget("shop", "web", "app", "web").MaxUnavailable(fmt.Sprint(r.IntN(4)))
		if r.IntN(2) == 0 {
			b.ByPodLabel("group", 1+r.Int32N(2))
		}
		if r.IntN(3) == 0 {
			b.MinInterval(time.Duration(r.IntN(30)) * time.Second)
		}
		if r.IntN(3) == 0 {
			b.Settle(time.Duration(r.IntN(30)) * time.Second)
		}
		in.Budgets = []*v1alpha1.EvictionBudget{b.Obj()}
	}
	return in
}

// checkWorld checks what is true of every forecast.
func checkWorld(t *testing.T, in Input) {
	t.Helper()
	got := Of(in)
	if diff := cmp.Diff(got, Of(in)); diff != "" {
		t.Fatalf("seed %d: another forecast of the same input (-first +second):\n%s", in.Seed, diff)
	}
	going := 0
	for _, p := range got.Pods {
		if p.Blocked {
			going++
		}
	}
	if (got.Verdict == Blocked) != (going > 0) || (got.Verdict == Blocked) != (len(got.Blockers) > 0) {
		t.Fatalf("seed %d: verdict %s with %d pods that never go and %d blockers", in.Seed, got.Verdict, going, len(got.Blockers))
	}
	checkSchedule(t, in)
}

// checkSchedule counts by itself what the budgets allow while a run goes on.
func checkSchedule(t *testing.T, in Input) {
	t.Helper()
	w := newWorld(&in)
	w.fitAll(newPlacer(&in, map[string]bool{"a": true, "b": len(in.Drain) > 1}))
	r := w.newRun(in.Seed, 0)
	r.held = map[int]bool{}
	spare, out := 0, map[int]string{}
	if len(in.PDBs) > 0 {
		spare = int(in.PDBs[0].Status.DisruptionsAllowed)
	}
	r.trace = func(at time.Duration, what kind, i int) {
		v := &w.pods[i]
		switch what {
		case tries:
			if spare--; len(in.PDBs) > 0 && v.ready && spare < 0 {
				t.Errorf("seed %d: at %s pod %s goes although its PodDisruptionBudget allows none", in.Seed, at, v.pod.Name)
			}
			if !v.ready {
				spare++
			}
		case decides:
			if !v.ready {
				return // It is not available anyway.
			}
			out[i] = v.pod.Labels["group"]
			most := in.Budgets[0].Spec.MaxUnavailable.IntValue()
			groups, own := map[string]bool{}, 0
			for _, group := range out {
				groups[group] = true
				if in.Budgets[0].Spec.GroupBy == nil || group == out[i] {
					own++
				}
			}
			if own > most {
				t.Errorf("seed %d: at %s %d pods are out, and the EvictionBudget allows %d", in.Seed, at, own, most)
			}
			if limit := in.Budgets[0].Spec.MaxGroups; limit != nil && len(groups) > int(*limit) {
				t.Errorf("seed %d: at %s %d groups are disrupted", in.Seed, at, len(groups))
			}
		case replaced:
			delete(out, i)
			if len(v.pdbs) > 0 {
				spare++
			}
		case gone:
			if v.owner < 0 {
				delete(out, i) // Nobody misses it.
			}
		}
	}
	r.simulate()
	if r.short != "" {
		t.Errorf("seed %d: a small world does not end: %s", in.Seed, r.short)
	}
}

func TestSmallWorlds(t *testing.T) {
	for seed := range uint64(2000) {
		checkWorld(t, smallWorld(seed))
	}
}

func FuzzForecast(f *testing.F) {
	for seed := range uint64(5) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { checkWorld(t, smallWorld(seed)) })
}

func TestMoreRoomNeverTakesLonger(t *testing.T) {
	for seed := range uint64(300) {
		in := smallWorld(seed)
		small := Of(in)
		in.Nodes = append(in.Nodes, node("d", "4", 1000))
		large := Of(in)
		if len(large.Blockers) > len(small.Blockers) || len(small.Blockers) == 0 && large.P50Seconds > small.P50Seconds {
			t.Errorf("seed %d: %gs and %d blockers with more room, %gs and %d before", seed, large.P50Seconds, len(large.Blockers), small.P50Seconds, len(small.Blockers))
		}
	}
}

func largeWorld(drained int) Input {
	in := Input{Now: now, Seed: 1, Settings: Settings{Wait: new(time.Duration)}}
	for i := range 500 {
		name := fmt.Sprintf("node-%03d", i)
		in.Nodes = append(in.Nodes, node(name, fmt.Sprint(i%3), 100))
		if i < drained {
			in.Drain = append(in.Drain, name)
		}
	}
	for i := range 20000 {
		app := fmt.Sprintf("app-%d", i%200)
		in.Pods = append(in.Pods, pod(fmt.Sprintf("p%d", i), fmt.Sprintf("node-%03d", i/40), func(p *corev1.Pod) {
			p.Labels["app"] = app
			p.OwnerReferences[0].UID = types.UID(app)
			if i%2 == 0 {
				saved(p)
			}
		}))
	}
	for i := range 200 {
		app := fmt.Sprintf("app-%d", i)
		if i%2 == 0 {
			in.Budgets = append(in.Budgets, builder.EvictionBudget("shop", app, "app", app).MaxUnavailable("10%").ByNodeLabel("zone", 1).Obj())
			continue
		}
		b := disruptions(app, 10, 100)
		b.Spec.Selector.MatchLabels["app"] = app
		in.PDBs = append(in.PDBs, b)
	}
	for i := range 2000 {
		in.Requests = append(in.Requests, past(fmt.Sprint(i), time.Duration(5+i%10)*time.Second))
	}
	return in
}

func BenchmarkForecast(b *testing.B) {
	for _, drained := range []int{1, 50, 500} {
		in := largeWorld(drained)
		b.Run(fmt.Sprintf("%d of 500 nodes", drained), func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(float64(Of(in).Runs), "runs")
			}
		})
	}
}
