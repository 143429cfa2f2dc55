//go:build unix

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// tier is a label by which waves select the pods of these tests.
const tier = "example.com/tier"

// ofTier is a pod of a tier, with an interceptor that the test plays.
func ofTier(namespace, name, value, node string) *builder.PodWrapper {
	return builder.Pod(namespace, name).Node(node).Label(tier, value).Interceptors("db.example.com")
}

// waveIs wants the status of the only node to have that wave, with so many pods behind it.
func waveIs(wave string, later int32) func(*v1alpha1.NodeMaintenance) bool {
	return func(m *v1alpha1.NodeMaintenance) bool {
		return len(m.Status.Nodes) == 1 && m.Status.Nodes[0].Wave == wave && m.Status.Nodes[0].PodsInLaterWaves == later
	}
}

// Three waves: each begins when the pods before it are gone. A pod that comes late to one that
// has begun goes at once, takes nothing back, and is waited for by the next one.
func TestPodsLeaveANodeInWaves(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	web := createPod(t, ofTier(namespace, "web", "web", node).Obj())
	db := createPod(t, ofTier(namespace, "db", "db", node).Obj())
	storage := createPod(t, ofTier(namespace, "storage", "storage", node).Obj())
	m := maintain(t, ofNamespace(namespace, "-m").Drain().Wave("databases", tier, "db").Wave("storage", tier, "storage"))
	wanted := wantedBy(m.RequesterName())

	waitRequest(t, web, "wanted", wanted)
	waitMaintenance(t, m, "before its first wave", waveIs("", 2))
	noRequest(t, db)
	noRequest(t, storage)
	if told := storyOf(t, db, 0); told.Verdict != why.VerdictWaitsForWave || !strings.Contains(told.Headline, "wave databases (1 of 2)") {
		t.Errorf("why: %s: %s", told.Verdict, told.Headline)
	}
	complete(t, web, "db.example.com", time.Now)
	gone(t, web)

	waitRequest(t, db, "wanted", wanted)
	waitMaintenance(t, m, "in its first wave", waveIs("databases", 1))
	noRequest(t, storage)
	late := createPod(t, ofTier(namespace, "late", "web", node).Obj())
	waitRequest(t, late, "wanted", wanted)
	waitRequest(t, db, "still wanted", wanted)
	complete(t, db, "db.example.com", time.Now)
	gone(t, db)
	waitMaintenance(t, m, "without the database", func(m *v1alpha1.NodeMaintenance) bool { return m.Status.Progress.PodsPendingEvacuation == 2 })
	noRequest(t, storage)
	complete(t, late, "db.example.com", time.Now)
	gone(t, late)

	waitRequest(t, storage, "wanted", wanted)
	waitNodeEvent(t, waitNode(t, node, cordonIs{true, v1alpha1.CordonOurs, m.Name + "=Drain"}), "NodeWaveBegan")
	complete(t, storage, "db.example.com", time.Now)
	gone(t, storage)
	waitMaintenance(t, m, "drained", inStage(v1alpha1.StageDrainComplete))
	change(t, m, func(s *v1alpha1.NodeMaintenanceSpec) { s.Cordon, s.Drain = false, false })
	if value, ok := waitNode(t, node, cordonIs{}).Annotations[v1alpha1.MaintenanceWavesAnnotation]; ok {
		t.Errorf("the released node still says which wave has begun: %q", value)
	}
}

// The order of graceful node shutdown: by priority. The last wave that selects a pod counts, and
// namespaces are selected, too.
func TestWavesByPriorityAndNamespace(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: nameIn(namespace, "high")}, Value: 1000000}
	create(t, class)
	t.Cleanup(func() {
		if err := admin.Delete(context.Background(), class); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete the priority class: %v", err)
		}
	})
	eventually(t, "the API server to know the class", func(ctx context.Context) error {
		return admin.Create(ctx, ofTier(namespace, "probe", "web", node).Priority(class.Name, class.Value).Obj(), client.DryRunAll)
	})
	low := createPod(t, ofTier(namespace, "low", "web", node).Obj())
	high := createPod(t, ofTier(namespace, "high", "web", node).Priority(class.Name, class.Value).Obj())
	storage := createPod(t, ofTier(namespace, "storage", "storage", node).Priority(class.Name, class.Value).Obj())
	here := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	elsewhere := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "elsewhere"}}
	m := maintain(t, ofNamespace(namespace, "-m").Drain().
		AnyWave(v1alpha1.MaintenanceWave{Name: "important", PriorityAtLeast: ptr.To[int32](1000000)}).
		AnyWave(v1alpha1.MaintenanceWave{Name: "storage", PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{tier: "storage"}}, NamespaceSelector: here}).
		AnyWave(v1alpha1.MaintenanceWave{Name: "elsewhere", NamespaceSelector: elsewhere}))
	pods := []*corev1.Pod{low, high, storage}
	for i, pod := range pods {
		waitRequest(t, pod, "wanted", wantedBy(m.RequesterName()))
		for _, later := range pods[i+1:] {
			noRequest(t, later)
		}
		complete(t, pod, "db.example.com", time.Now)
		gone(t, pod)
	}
	waitMaintenance(t, m, "drained", inStage(v1alpha1.StageDrainComplete))
}

// A pod that does not go holds the next wave up for the timeout of its own, and no other one.
func TestAWaveWithATimeoutHoldsNothingUpForGood(t *testing.T) {
	manager := startManager(t, nil)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	db := createPod(t, ofTier(namespace, "db", "db", node).Obj())
	network := createPod(t, ofTier(namespace, "network", "network", node).Obj())
	storage := createPod(t, ofTier(namespace, "storage", "storage", node).Obj())
	m := maintain(t, ofNamespace(namespace, "-m").Drain().
		Wave("databases", tier, "db").WaveTimeout(10*time.Minute).
		Wave("network", tier, "network").Wave("storage", tier, "storage"))
	wanted := wantedBy(m.RequesterName())
	waitRequest(t, db, "wanted", wanted)
	waitMaintenance(t, m, "in its first wave", waveIs("databases", 2))
	noRequest(t, network)

	manager.Clock.Advance(10 * time.Minute)
	waitRequest(t, network, "wanted", wanted)
	waitNodeEvent(t, waitNode(t, node, cordonIs{true, v1alpha1.CordonOurs, m.Name + "=Drain"}), "NodeWaveForced")
	noRequest(t, storage)
	complete(t, network, "db.example.com", manager.Clock.Now)
	gone(t, network)
	waitRequest(t, storage, "wanted", wanted)
	lives(t, db)
	waitRequest(t, db, "still wanted", wanted)
}

// What cannot be an order is refused, or said in a condition.
func TestWavesThatCannotWork(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	many := ofNamespace(namespace, "-many")
	for i := range 11 {
		many.Wave(fmt.Sprintf("w%d", i), tier, "db")
	}
	refused := map[string]struct {
		maintenance *builder.NodeMaintenanceWrapper
		want        string
	}{
		"no selector":             {ofNamespace(namespace, "-a").AnyWave(v1alpha1.MaintenanceWave{Name: "all"}), "a wave must select pods"},
		"two of one name":         {ofNamespace(namespace, "-b").Wave("db", tier, "db").Wave("db", tier, "web"), "Duplicate value"},
		"a name for people":       {ofNamespace(namespace, "-c").Wave("My Databases", tier, "db"), "name must be lower-case letters, digits and hyphens"},
		"no name":                 {ofNamespace(namespace, "-d").Wave("", tier, "db"), "spec.waves[0].name"},
		"no time":                 {ofNamespace(namespace, "-e").Wave("db", tier, "db").WaveTimeout(0), "timeout must be at least 1s and at most 168h"},
		"more time than a week":   {ofNamespace(namespace, "-f").Wave("db", tier, "db").WaveTimeout(169 * time.Hour), "timeout must be at least 1s and at most 168h"},
		"more waves than anybody": {many, "spec.waves"},
	}
	for name, tc := range refused {
		t.Run(name, func(t *testing.T) {
			err := admin.Create(t.Context(), tc.maintenance.Obj())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("want an error with %q, got %v", tc.want, err)
			}
		})
	}

	node := addNodes(t, namespace, 1)[0]
	m := maintain(t, ofNamespace(namespace, "-g").Drain().AnyWave(v1alpha1.MaintenanceWave{Name: "db", PodSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: tier, Operator: "Resembles", Values: []string{"db"}}},
	}}))
	waitMaintenance(t, m, "refused", func(m *v1alpha1.NodeMaintenance) bool {
		return slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == v1alpha1.ConditionNodesSelected && c.Reason == v1alpha1.ReasonInvalidSelector && strings.HasPrefix(c.Message, "spec.waves[0].podSelector cannot be read: ")
		})
	})
	waitNode(t, node, cordonIs{})
}

// The API server accepts the examples as they are.
func TestTheExamplesOfMaintenancesAreAccepted(t *testing.T) {
	t.Parallel()
	files := must(filepath.Glob("../../examples/maintenance/*.yaml"))(t)
	if len(files) == 0 {
		t.Fatal("there are none")
	}
	for _, file := range files {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(must(os.ReadFile(file))(t), &u.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if err := admin.Create(t.Context(), u, client.DryRunAll, client.FieldValidation("Strict")); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
