package why

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

const (
	interA = "a.example.com"
	interB = "b.example.com"
	last   = v1alpha1.ImperativeEvictionInterceptor
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

func pod() *builder.PodWrapper {
	return builder.Pod("shop", "db-0").UID("uid-1").Node("node-1").Label("app", "db").OwnedBy("StatefulSet", "db").Phase(corev1.PodRunning).Ready()
}

func evictionRequest() *builder.EvictionRequestWrapper {
	return builder.EvictionRequest("shop", "db-0", "uid-1").Created(ago(10 * time.Minute)).NodeName("node-1").
		Requesters("alice.users.drawbridge.dev")
}

// planned is a request whose interceptors are A and B.
func planned() *builder.EvictionRequestWrapper {
	return evictionRequest().Interceptors(interA, interB)
}

func budget(allowed int32) *builder.BudgetWrapper {
	return builder.Budget("shop", "db").Selects("app", "db").MinAvailable("2").Allows(allowed)
}

func guard() policyv1.PodDisruptionBudget {
	w := builder.Budget("shop", v1alpha1.GuardBudgetName).Selects("app", "db").Allows(0)
	w.Labels = map[string]string{v1alpha1.GuardBudgetLabel: "true"}
	return *w.Obj()
}

// accepted is the answer of a dry run that was let through, and refused of one that a
// budget refused.
var (
	accepted = &DryRun{Result: translate.ResultEvicted}
	warned   = foretold("429: Eviction triggered evacuation: accepted, the pod's interceptors come first")
	waits    = foretold(`429: Eviction triggered evacuation: waiting for interceptor "a.example.com" (1 of 3)`)
	refusal  = &DryRun{Result: translate.ResultBudget, Detail: "The disruption budget db needs 2 healthy pods and has 2 currently"}
)

// foretold is the answer of a dry run whose real call our webhook would answer.
func foretold(text string) *DryRun {
	return &DryRun{Result: translate.ResultEvicted, Warnings: []string{translate.DryRunWarning + "shop/db-0" + translate.DryRunAnswered + text}}
}

// underMaintenance puts the pod's node under the drain of these maintenances.
func underMaintenance(wait *time.Duration, all ...*builder.NodeMaintenanceWrapper) func(*Facts) {
	return func(f *Facts) {
		var stages []string
		for _, m := range all {
			f.Maintenances = append(f.Maintenances, *m.Obj())
			stages = append(stages, m.Name+"=Drain")
		}
		f.Wait = wait
		f.Node = builder.Node("node-1").Annotation(v1alpha1.MaintenancesAnnotation, strings.Join(stages, ",")).Obj()
	}
}

// daemons is a wave of DaemonSets, and ofDaemonSet a pod of one.
var daemons = v1alpha1.MaintenanceWave{Name: "daemons", DaemonSets: true}

func ofDaemonSet() *builder.PodWrapper {
	return builder.Pod("shop", "db-0").UID("uid-1").Node("node-1").Label("app", "db").DaemonSet("agent").Phase(corev1.PodRunning).Ready()
}

// begunWave is which waves have begun on the pod's node.
func begunWave(annotation string) func(*Facts) {
	return func(f *Facts) { f.Node.Annotations[v1alpha1.MaintenanceWavesAnnotation] = annotation }
}

// toldToGo is a pod that a maintenance has told a minute ago that it is to go.
func toldToGo(more ...corev1.PodCondition) *builder.PodWrapper {
	return pod().Change(func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: v1alpha1.PodEvacuationRequest, Status: corev1.ConditionTrue, Reason: v1alpha1.PodReasonNodeMaintenance, LastTransitionTime: metav1.NewTime(ago(time.Minute)),
		})
		p.Status.Conditions = append(p.Status.Conditions, more...)
	})
}

func asked(problem, unknown string) func(*Facts) {
	return func(f *Facts) { f.Webhook = &Webhook{Problem: problem, Unknown: unknown} }
}

func facts(p *builder.PodWrapper, change ...func(*Facts)) Facts {
	f := Facts{Now: now, System: "drawbridge-system", DryRun: accepted, Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, Node: builder.Node("node-1").Obj()}
	if p != nil {
		f.Pod = p.Obj()
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

func with(er *builder.EvictionRequestWrapper) func(*Facts) {
	return func(f *Facts) { f.Request = er.Obj() }
}

func withBudgets(all ...policyv1.PodDisruptionBudget) func(*Facts) {
	return func(f *Facts) { f.Budgets = all }
}

// withPeers are as many pods, and the pod itself, that the budget selects.
func withPeers(n int) func(*Facts) {
	return func(f *Facts) {
		f.Peers = []*corev1.Pod{f.Pod}
		for i := range n {
			f.Peers = append(f.Peers, pod().UID(types.UID(fmt.Sprint("peer-", i))).Obj())
		}
	}
}

func answering(d *DryRun) func(*Facts) { return func(f *Facts) { f.DryRun = d } }
