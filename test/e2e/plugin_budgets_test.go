//go:build unix

package e2e

import (
	"strings"
	"testing"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// The plugin says what an EvictionBudget keeps and which group is in the way, before and
// while evictions wait; and skips it.
func TestThePluginKnowsEvictionBudgets(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 3)
	zoned := func(name, zone, node string) *builder.PodWrapper {
		return builder.Pod(namespace, name).Node(node).Label("app", "db").Label("zone", zone)
	}
	a, b, c := createPod(t, zoned("db-a", "a", nodes[0]).Obj()), createPod(t, zoned("db-b", "b", nodes[1]).Obj()), createPod(t, zoned("db-c", "c", nodes[2]).Obj())
	budget := createEvictionBudget(t, builder.EvictionBudget(namespace, "db", "app", "db").ByPodLabel("zone", 1), 3)
	// It keeps db-a, which the EvictionBudget lets go.
	create(t, builder.Budget(namespace, "a").Selects("zone", "a").MinAvailable("1").Obj())
	says := func(command string, texts ...string) {
		t.Helper()
		printed := plugin(t, append(strings.Fields(command), "-n", namespace)...)
		for _, text := range texts {
			if !strings.Contains(printed, text) {
				t.Errorf("%s does not say %q:\n%s", command, text, printed)
			}
		}
	}
	says("why db-b -o json", `"verdict": "WouldIntercept"`, `"when": "now"`)
	says("drain "+nodes[0]+" "+nodes[1]+" --force --dry-run=client", "be evicted after budgets.drawbridge.dev", "EvictionBudget db: now", `EvictionBudget db: after group "a" is available again`)

	create(t, builder.EvictionRequest(namespace, a.Name, a.UID).Requesters("rebalancer.example.com").Obj())
	waitRequest(t, a, "past the budget", activeIs(v1alpha1.ImperativeEvictionInterceptor))
	create(t, builder.EvictionRequest(namespace, b.Name, b.UID).Requesters("rebalancer.example.com").Obj())
	waitBudget(t, budget, "let db-b wait", lets(v1alpha1.ReasonGroupsDisrupted))
	waitRequest(t, b, "told why", func(er *v1alpha1.EvictionRequest) bool {
		return v1alpha1.ReportOf(er, v1alpha1.BudgetInterceptor).Message != ""
	})
	says("why db-b", `The eviction waits for EvictionBudget db (1 of 2). EvictionBudget db: group "a" is disrupted, and at most 1 may be at a time.`,
		`1 of 1 pods of group "a" (db-a is about to be evicted)`, "EvictionBudget db, priority 500")
	says("why db-b -o json", `"verdict": "WaitsForBudget"`)
	says("drain "+nodes[2]+" --force --dry-run=client", `be evicted after budgets.drawbridge.dev; EvictionBudget db: after group "a" is available again`)
	says("budgets", "db", "GroupsDisrupted")
	says("budgets db", `"a"`, `"b"`, "GRANTED", "db-a")
	says("interceptors", v1alpha1.BudgetInterceptor)

	plugin(t, "skip", b.Name, v1alpha1.BudgetInterceptor, "-n", namespace, "--reason=it may go")
	gone(t, b)
	lives(t, a)
	lives(t, c)
}
