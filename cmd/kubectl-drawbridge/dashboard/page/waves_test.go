package page

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// ordered is a node with pods of these waves, of which one has begun last.
func ordered(begun string, change func(*v1alpha1.NodeMaintenance), waves ...string) *state.Snapshot {
	m := builder.NodeMaintenance("kernel").Nodes("a").Drain().Wave("db", "wave", "db").Wave("network", "wave", "network").Wave("storage", "wave", "storage").Obj()
	m.Status.Nodes = []v1alpha1.MaintenanceNodeStatus{{Name: "a", Stage: v1alpha1.StageDrain, Wave: begun}}
	if change != nil {
		change(m)
	}
	objects := []client.Object{builder.Node("a").Obj(), m, builder.Pod("shop", "agent").UID("agent").Node("a").DaemonSet("agent").Obj()}
	for i, wave := range waves {
		name := string(rune('p' + i))
		objects = append(objects, builder.Pod("shop", name).UID(types.UID(name)).Node("a").OwnedBy("ReplicaSet", "web").Label("wave", wave).Obj())
	}
	return state.NewSnapshot(noon, objects...)
}

func TestWhichWaveWaits(t *testing.T) {
	timeout := func(m *v1alpha1.NodeMaintenance) {
		m.Spec.Waves[0].Timeout = &metav1.Duration{Duration: 30 * time.Minute}
	}
	daemonSets := func(m *v1alpha1.NodeMaintenance) {
		m.Spec.Waves = append(m.Spec.Waves, v1alpha1.MaintenanceWave{Name: "daemons", DaemonSets: true})
	}
	cases := map[string]struct {
		s    *state.Snapshot
		want string
	}{
		"nothing is to go":                       {ordered("", nil), ""},
		"no wave selects any":                    {ordered("", nil, "none"), ""},
		"pods go before all":                     {ordered("", nil, "none", "none", "storage"), "wave 3 of 3 (storage): waits until 2 pods before all waves have left"},
		"one goes before all":                    {ordered("", nil, "none", "db"), "wave 1 of 3 (db): waits until 1 pod before all waves has left"},
		"the next waits for the one before":      {ordered("db", nil, "db", "db", "network"), "wave 2 of 3 (network): waits until 2 pods of wave 1 have left"},
		"a wave without pods is passed over":     {ordered("db", nil, "db", "storage"), "wave 3 of 3 (storage): waits until 1 pod of wave 1 has left"},
		"a pod came late":                        {ordered("network", nil, "db", "network", "storage"), "wave 3 of 3 (storage): waits until 2 pods of wave 2 and before have left"},
		"at most for a time":                     {ordered("db", timeout, "db", "network"), "wave 2 of 3 (network): waits until 1 pod of wave 1 has left, at most for the timeout of 30m"},
		"nobody waits for what has had its time": {ordered("network", timeout, "db", "network", "storage"), "wave 3 of 3 (storage): waits until 1 pod of wave 2 has left"},
		"the last one has begun":                 {ordered("storage", nil, "storage"), "wave 3 of 3 (storage) has begun"},
		"pods of DaemonSets go last":             {ordered("", daemonSets, "none"), "wave 4 of 4 (daemons): waits until 1 pod before all waves has left"},
		"all of it are gone":                     {ordered("db", nil, "network"), "wave 2 of 3 (network) begins"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, nodeOf(tc.s, "a", tc.s.NodeByName["a"], false).Wave); diff != "" {
				t.Errorf("says (-want +got):\n%s", diff)
			}
		})
	}
}

// Only a maintenance that drains the node by waves has an order.
func TestAnOrderThatCountsForNothing(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.NodeMaintenance){
		"it drains nothing": func(m *v1alpha1.NodeMaintenance) { m.Spec.Drain = false },
		"it is deleted":     func(m *v1alpha1.NodeMaintenance) { m.DeletionTimestamp = &metav1.Time{Time: noon} },
		"of another node":   func(m *v1alpha1.NodeMaintenance) { m.Status.Nodes[0].Name = "b" },
		"it has no waves":   func(m *v1alpha1.NodeMaintenance) { m.Spec.Waves = nil },
		"it cannot be read": func(m *v1alpha1.NodeMaintenance) {
			m.Spec.Waves[0].PodSelector.MatchLabels = map[string]string{"a b": ""}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := orderOf(ordered("db", change, "db", "storage"), "a"); got != nil {
				t.Errorf("the order is %+v", got)
			}
		})
	}
}

func TestThePodsOfANodeHaveTheirWaves(t *testing.T) {
	s := ordered("db", nil, "none", "db", "storage")
	content, err := render(t, "/nodes/{node}", Request{Snapshot: s, Values: map[string]string{"node": "a"}})
	if err != nil {
		t.Fatal(err)
	}
	wantWords(t, content, []string{
		"Order wave 3 of 3 (storage): waits until 2 pods of wave 1 and before have left", "Namespace Pod Wave State Message",
		"shop agent stays of a DaemonSet", "shop p before all running", "shop q 1 of 3 (db) running", "shop r 3 of 3 (storage) waiting waits for its wave",
	}, nil)
}
