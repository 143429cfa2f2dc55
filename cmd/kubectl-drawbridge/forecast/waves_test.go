package forecast

import (
	"cmp"
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

// tier makes a pod one of a wave of byTier.
func tier(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Labels["tier"] = name } }

// byTier are waves of pods by their label tier, with their timeouts; 0 is none.
func byTier(in Input, timeout time.Duration, names ...string) Input {
	in.Settings.Maintenance = "kernel"
	for _, name := range names {
		wave := v1alpha1.MaintenanceWave{Name: name, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": name}}}
		if timeout > 0 {
			wave.Timeout = &metav1.Duration{Duration: timeout}
		}
		in.Settings.Waves = append(in.Settings.Waves, wave)
	}
	return in
}

func TestWavesGoOneAfterTheOther(t *testing.T) {
	// Pods end after 2s, and the saver takes 10s.
	cases := map[string]struct {
		in func() Input
		// want are the pods in the order of their starts, with their waves and the seconds, roughly.
		want []string
	}{
		"without waves all go at once": {func() Input {
			return input(pod("x", "a"), pod("y", "a", tier("storage")))
		}, []string{"x  1", "y  1"}},
		"a wave waits for what goes before all": {func() Input {
			return byTier(input(pod("x", "a"), pod("y", "a", tier("storage"))), 0, "storage")
		}, []string{"x  1", "y storage 3"}},
		"and for the wave before": {func() Input {
			return byTier(input(pod("x", "a", tier("db"), saved), pod("y", "a", tier("storage"))), 0, "db", "storage")
		}, []string{"x db 1", "y storage 13"}},
		"at most for its timeout": {func() Input {
			return byTier(input(pod("x", "a", tier("db"), saved), pod("y", "a", tier("storage"))), 5*time.Second, "db", "storage")
		}, []string{"x db 1", "y storage 6"}},
		"not on another node": {func() Input {
			in := byTier(input(pod("x", "a", saved), pod("y", "b", tier("storage"))), 0, "storage")
			in.Nodes, in.Drain = append(in.Nodes, node("c", "3", 100)), []string{"a", "b"}
			return in
		}, []string{"x  1", "y storage 1"}},
		"one that has begun does not wait": {func() Input {
			in := byTier(input(pod("x", "a", saved), pod("y", "a", tier("storage"))), 0, "storage")
			in.Nodes[0].Annotations = map[string]string{v1alpha1.MaintenanceWavesAnnotation: "kernel=storage@" + now.Format(time.RFC3339)}
			return in
		}, []string{"x  1", "y storage 1"}},
		"the time of one that has begun is over sooner": {func() Input {
			in := byTier(input(pod("x", "a", tier("db"), saved), pod("y", "a", tier("storage"))), 5*time.Second, "db", "storage")
			in.Nodes[0].Annotations = map[string]string{v1alpha1.MaintenanceWavesAnnotation: "kernel=db@" + now.Add(-2*time.Second).Format(time.RFC3339)}
			return in
		}, []string{"x db 1", "y storage 3"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := Of(tc.in())
			slices.SortStableFunc(f.Pods, func(a, b Pod) int {
				return cmp.Or(cmp.Compare(a.StartSeconds, b.StartSeconds), strings.Compare(a.Name, b.Name))
			})
			var got []string
			for _, p := range f.Pods {
				got = append(got, fmt.Sprintf("%s %s %.0f", p.Name, p.Wave, p.StartSeconds))
			}
			if diff := gocmp.Diff(tc.want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
			if f.Verdict != Done {
				t.Errorf("verdict %s: %s", f.Verdict, f.Headline)
			}
		})
	}
}

// Pods of DaemonSets leave in their wave, unless they would be made again.
func TestPodsOfDaemonSetsGoLastOrStay(t *testing.T) {
	daemon := func(p *corev1.Pod) {
		p.OwnerReferences = builder.Pod("shop", "agent").DaemonSet("agent").Obj().OwnerReferences
		p.Labels = nil
	}
	tolerates := func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	in := input(pod("x", "a"), pod("y", "a", daemon), pod("z", "a", daemon, tolerates))
	in.Settings.Maintenance = "kernel"
	in.Settings.Waves = []v1alpha1.MaintenanceWave{{Name: "daemons", DaemonSets: true}}
	f := Of(in)
	got := map[string]string{}
	for _, p := range f.Pods {
		got[p.Name] = p.Wave + p.Stays
	}
	if diff := gocmp.Diff(map[string]string{"x": "", "y": "daemons", "z": "DaemonSet"}, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if f.Verdict != Done {
		t.Errorf("verdict %s: %s", f.Verdict, f.Headline)
	}
}

// A pod that never goes keeps all that go after it.
func TestAWaveThatNeverBegins(t *testing.T) {
	in := byTier(input(pod("x", "a"), pod("y", "a", tier("storage"), func(p *corev1.Pod) { p.Labels["app"] = "disk" })), 0, "storage")
	in.PDBs = []*policyv1.PodDisruptionBudget{disruptions("web", 0, 3)}
	got := Of(in)
	var who []string
	for _, b := range got.Blockers {
		who = append(who, b.Pod+" "+b.Who)
	}
	if diff := gocmp.Diff([]string{"x PodDisruptionBudget web", "y an earlier wave"}, who); diff != "" {
		t.Errorf("blockers (-want +got):\n%s", diff)
	}
	in.Settings.Waves[0].Timeout = &metav1.Duration{Duration: time.Second} // Nobody waits for that: it is the last one.
	if got := Of(in); len(got.Blockers) != 2 {
		t.Errorf("with a timeout of its own: %+v", got.Blockers)
	}
}

// In random worlds, no pod begins before those of the waves before it are gone.
func TestSmallWorldsWithWaves(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 2))
		in := smallWorld(seed)
		for _, group := range []string{"x", "y"}[:1+r.IntN(2)] {
			in.Settings.Waves = append(in.Settings.Waves, v1alpha1.MaintenanceWave{
				Name: group, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"group": group}},
			})
		}
		checkWorld(t, in)
		w := newWorld(&in)
		w.fitAll(newPlacer(&in, map[string]bool{"a": true, "b": len(in.Drain) > 1}))
		run := w.newRun(seed, 0)
		run.held = map[int]bool{}
		run.simulate()
		for i := range w.pods {
			for j := range w.pods {
				early, late := &run.pods[i], &run.pods[j]
				if w.pods[i].node != w.pods[j].node || w.pods[i].wave >= w.pods[j].wave || late.start == 0 {
					continue
				}
				if !early.ended || early.end > late.start {
					t.Fatalf("seed %d: pod %s of wave %d begins at %s, and pod %s of wave %d is there", seed,
						w.pods[j].pod.Name, w.pods[j].wave, late.start, w.pods[i].pod.Name, w.pods[i].wave)
				}
			}
		}
	}
}

func TestTheForecastOfAMaintenance(t *testing.T) {
	kernel := builder.NodeMaintenance("kernel").Term("zone", corev1.NodeSelectorOpIn, "1").Cordon().Keeps().Parallel(1).
		Wave("web", "app", "web").WaveTimeout(time.Minute).Obj()
	c := connect()
	for _, m := range []*v1alpha1.NodeMaintenance{kernel, builder.NodeMaintenance("nowhere").Nodes("z").Obj()} {
		if err := c.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	o, _ := commandOptions("")
	in, err := gather(t.Context(), o.Options, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.maintain(t.Context(), c, "kernel"); err != nil {
		t.Fatal(err)
	}
	want := Settings{KeepUnmanaged: true, KeepEmptyDir: true, MaxParallel: 1, Wait: in.Settings.Wait, Waves: kernel.Spec.Waves, Maintenance: "kernel"}
	if diff := gocmp.Diff(want, in.Settings); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff([]string{"a"}, in.Drain); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}

	o, out := commandOptions("")
	o.maintenance = "kernel"
	if err := o.run(t.Context(), c, nil); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(lines, "NODE NAMESPACE POD WAVE START") || !strings.Contains(lines, "a shop x web ") {
		t.Errorf("printed:\n%s", out)
	}
	for name, want := range map[string]string{"missing": `no NodeMaintenance "missing"`, "nowhere": "NodeMaintenance nowhere selects no node"} {
		o.maintenance = name
		if err := o.run(t.Context(), c, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
	}
}
