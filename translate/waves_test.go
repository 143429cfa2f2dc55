package translate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

func labeled(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func TestTheWaveOfAPod(t *testing.T) {
	waves, err := translate.CompileWaves([]v1alpha1.MaintenanceWave{
		{Name: "important", PriorityAtLeast: ptr.To[int32](1000)},
		{Name: "databases", PodSelector: labeled("app", "db")},
		{Name: "network", PriorityAtLeast: ptr.To[int32](0), NamespaceSelector: labeled("team", "network")},
		{Name: "storage", PodSelector: labeled("app", "storage"), NamespaceSelector: labeled("team", "storage")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !waves.SeeNamespaces() {
		t.Error("it does not see that two waves select namespaces")
	}
	cases := map[string]struct {
		app, team string
		priority  *int32
		want      string
	}{
		"no wave selects it":                           {app: "web", team: "shop"},
		"a priority that is not enough":                {priority: ptr.To[int32](999)},
		"a priority that is just enough":               {priority: ptr.To[int32](1000), want: "important"},
		"by its labels":                                {app: "db", want: "databases"},
		"two waves select it, and the last one counts": {app: "db", priority: ptr.To[int32](5000), want: "databases"},
		"without a priority it has 0":                  {team: "network", want: "network"},
		"one of two conditions":                        {team: "network", priority: ptr.To[int32](-1)},
		"its labels in another namespace":              {app: "storage", team: "shop"},
		"its labels in that namespace":                 {app: "storage", team: "storage", want: "storage"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": tc.app}}, Spec: corev1.PodSpec{Priority: tc.priority}}
			if got, want := waves.Of(pod, map[string]string{"team": tc.team}), waves.Position(tc.want); got != want {
				t.Errorf("wave %d, want %d (%q)", got, want, tc.want)
			}
		})
	}
	for i, want := range []string{"important", "databases", "network", "storage"} {
		if got := waves.Name(i + 1); got != want || waves.Position(want) != i+1 {
			t.Errorf("wave %d is %q at %d, want %q", i+1, got, waves.Position(want), want)
		}
	}
}

func TestASelectorOfEverythingSelectsEveryPod(t *testing.T) {
	waves, err := translate.CompileWaves([]v1alpha1.MaintenanceWave{{Name: "all", PodSelector: &metav1.LabelSelector{}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := waves.Of(&corev1.Pod{}, nil); got != 1 || waves.SeeNamespaces() {
		t.Errorf("wave %d, sees namespaces: %t", got, waves.SeeNamespaces())
	}
}

func TestTheWaveOfDaemonSets(t *testing.T) {
	waves, err := translate.CompileWaves([]v1alpha1.MaintenanceWave{
		{Name: "all", PodSelector: &metav1.LabelSelector{}},
		{Name: "daemons", DaemonSets: true, PodSelector: labeled("app", "agent")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := waves.DaemonSets(); got != 2 || waves.AllDaemonSets() {
		t.Errorf("the wave of DaemonSets is %d, of all: %t", got, waves.AllDaemonSets())
	}
	agent := func() *builder.PodWrapper {
		return builder.Pod("shop", "agent").Label("app", "agent").DaemonSet("agent")
	}
	tolerating := func(tolerations ...corev1.Toleration) *corev1.Pod {
		return agent().Change(func(p *corev1.Pod) { p.Spec.Tolerations = tolerations }).Obj()
	}
	cases := map[string]struct {
		pod   *corev1.Pod
		wave  int
		takes bool
	}{
		"one of a DaemonSet":              {agent().Obj(), 2, true},
		"one with other labels stays":     {builder.Pod("shop", "proxy").DaemonSet("proxy").Obj(), 0, false},
		"one of something else":           {builder.Pod("shop", "web").Label("app", "agent").OwnedBy("ReplicaSet", "web").Obj(), 1, false},
		"one of nobody":                   {builder.Pod("shop", "web").Label("app", "agent").Obj(), 1, false},
		"one that the node needs":         {agent().Priority("system-node-critical", 2000001000).Obj(), 0, false},
		"one that the cluster needs":      {agent().Change(func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-cluster-critical" }).Obj(), 0, false},
		"one that tolerates everything":   {tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}), 2, false},
		"one that tolerates our taint":    {tolerating(corev1.Toleration{Key: v1alpha1.MaintenanceTaint, Effect: corev1.TaintEffectNoSchedule}), 2, false},
		"one that tolerates another":      {tolerating(corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}), 2, true},
		"one that tolerates other effect": {tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}), 2, true},
		"one that tolerates other value":  {tolerating(corev1.Toleration{Key: v1alpha1.MaintenanceTaint, Operator: corev1.TolerationOpEqual, Value: "x"}), 2, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if wave, takes := waves.Of(tc.pod, nil), waves.Takes(tc.pod, nil); wave != tc.wave || takes != tc.takes {
				t.Errorf("wave %d, takes %t, want %d, %t", wave, takes, tc.wave, tc.takes)
			}
		})
	}
}

func TestTheWaveOfAllDaemonSets(t *testing.T) {
	priority := int32(0)
	cases := map[string]struct {
		wave v1alpha1.MaintenanceWave
		want bool
	}{
		"without selectors":   {v1alpha1.MaintenanceWave{DaemonSets: true}, true},
		"of any labels":       {v1alpha1.MaintenanceWave{DaemonSets: true, PodSelector: &metav1.LabelSelector{}}, true},
		"of some labels":      {v1alpha1.MaintenanceWave{DaemonSets: true, PodSelector: labeled("app", "agent")}, false},
		"of some namespaces":  {v1alpha1.MaintenanceWave{DaemonSets: true, NamespaceSelector: labeled("team", "storage")}, false},
		"of some priorities":  {v1alpha1.MaintenanceWave{DaemonSets: true, PriorityAtLeast: &priority}, false},
		"of no pods of these": {v1alpha1.MaintenanceWave{PodSelector: &metav1.LabelSelector{}}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			waves, err := translate.CompileWaves([]v1alpha1.MaintenanceWave{tc.wave})
			if err != nil || waves.AllDaemonSets() != tc.want {
				t.Errorf("all: %t, %v, want %t", waves.AllDaemonSets(), err, tc.want)
			}
		})
	}
}

func TestAWaveThatCannotBeReadIsNamed(t *testing.T) {
	_, err := translate.CompileWaves([]v1alpha1.MaintenanceWave{
		{Name: "a", PodSelector: &metav1.LabelSelector{}},
		{Name: "b", NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Resembles"}}}},
	})
	if err == nil || !strings.Contains(err.Error(), "spec.waves[1].namespaceSelector cannot be read: ") {
		t.Errorf("error %v", err)
	}
}

func TestTheAnnotationOfBegunWaves(t *testing.T) {
	noon := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		annotation string
		want       translate.BegunWaves
	}{
		"none":                {"", nil},
		"one":                 {"kernel=storage@2026-06-01T12:00:00Z", translate.BegunWaves{"kernel": {Name: "storage", Since: noon}}},
		"two":                 {"a=x@2026-06-01T12:00:00Z,b.c=y@2026-06-01T12:00:00Z", translate.BegunWaves{"a": {Name: "x", Since: noon}, "b.c": {Name: "y", Since: noon}}},
		"without a time":      {"a=x,b=y@2026-06-01T12:00:00Z", translate.BegunWaves{"b": {Name: "y", Since: noon}}},
		"without a wave":      {"a=@2026-06-01T12:00:00Z", translate.BegunWaves{}},
		"nothing that we say": {"?", translate.BegunWaves{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.MaintenanceWavesAnnotation: tc.annotation}}}
			got := translate.BegunWavesOf(node)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("waves (-want +got):\n%s", diff)
			}
			node.Annotations[v1alpha1.MaintenanceWavesAnnotation] = got.String()
			if diff := cmp.Diff(len(got), len(translate.BegunWavesOf(node))); diff != "" {
				t.Errorf("what is written is not read again (-want +got):\n%s", diff)
			}
		})
	}
	if got := (translate.BegunWaves{"b": {Name: "y", Since: noon.In(time.FixedZone("", 7200))}, "a": {Name: "x", Since: noon.Add(time.Millisecond)}}).String(); got != "a=x@2026-06-01T12:00:00Z,b=y@2026-06-01T12:00:00Z" {
		t.Errorf("annotation %q", got)
	}
}
