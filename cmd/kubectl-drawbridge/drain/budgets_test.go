package drain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// zones lets any number of pods of one zone go.
func zones() *builder.EvictionBudgetWrapper {
	return builder.EvictionBudget("shop", "db", "app", "db").ByPodLabel("zone", 1).MaxUnavailable("100%").Observed().
		Group("a", 4, 0, 0).Group("b", 4, 0, 0)
}

func single() *builder.EvictionBudgetWrapper {
	return builder.EvictionBudget("shop", "db", "app", "db").Observed().Group("", 4, 0, 0)
}

func db(name, zone, node string) *builder.PodWrapper {
	return builder.Pod("shop", name).UID(types.UID("uid-"+name)).Node(node).Label("app", "db").Label("zone", zone).OwnedBy("StatefulSet", "db").Ready()
}

func TestWhenEvictionBudgetsLetPodsGo(t *testing.T) {
	none := time.Duration(0)
	const atOnce = "be evicted at once"
	tonight := now.Add(10 * time.Hour)
	waiting := builder.EvictionRequest("shop", "db-0", "uid-db-0").Requesters("r.example.com").Interceptors(v1alpha1.BudgetInterceptor).Active(v1alpha1.BudgetInterceptor, now)
	past := builder.EvictionRequest("shop", "db-0", "uid-db-0").Requesters("r.example.com").Interceptors(v1alpha1.BudgetInterceptor).Processed(v1alpha1.BudgetInterceptor).
		Active(v1alpha1.ImperativeEvictionInterceptor, now)
	cases := map[string]struct {
		budgets []*builder.EvictionBudgetWrapper
		pods    []*builder.PodWrapper
		request *builder.EvictionRequestWrapper // Of all pods.
		want    []string
	}{
		"no budget": {pods: []*builder.PodWrapper{db("db-0", "a", "node-1")}, want: []string{atOnce}},
		"one zone after the other": {
			budgets: []*builder.EvictionBudgetWrapper{zones()},
			pods:    []*builder.PodWrapper{db("db-2", "b", "node-2"), db("db-0", "a", "node-1"), db("db-1", "a", "node-1"), db("web", "a", "node-1").Label("app", "web")},
			want: []string{
				atOnce + `; EvictionBudget db: after group "a" is available again`, atOnce + "; EvictionBudget db: now", atOnce + "; EvictionBudget db: now", atOnce,
			},
		},
		"one pod after the other": {
			budgets: []*builder.EvictionBudgetWrapper{single()},
			pods:    []*builder.PodWrapper{db("db-0", "", "node-1"), db("db-1", "", "node-1"), db("db-2", "", "node-1").Unready()},
			want: []string{
				atOnce + "; EvictionBudget db: now", atOnce + "; EvictionBudget db: after other pods of it are available again", atOnce + "; EvictionBudget db: now",
			},
		},
		"one in an interval": {
			budgets: []*builder.EvictionBudgetWrapper{single().MaxUnavailable("100%").MinInterval(time.Minute)},
			pods:    []*builder.PodWrapper{db("db-0", "", "node-1"), db("db-1", "", "node-1")},
			want:    []string{atOnce + "; EvictionBudget db: now", atOnce + "; EvictionBudget db: in its turn, one every 1m0s"},
		},
		"the later of two budgets": {
			budgets: []*builder.EvictionBudgetWrapper{zones(), builder.EvictionBudget("shop", "night", "app", "db").Observed().Window("0 22 * * *", time.Hour).Opening(tonight, tonight.Add(time.Hour))},
			pods:    []*builder.PodWrapper{db("db-0", "a", "node-1"), db("db-1", "b", "node-1")},
			want: []string{
				atOnce + "; EvictionBudget night: not before 2026-11-22T22:00:00Z, when its next window opens",
				atOnce + "; EvictionBudget night: not before 2026-11-22T22:00:00Z, when its next window opens",
			},
		},
		"never": {
			budgets: []*builder.EvictionBudgetWrapper{single().MaxUnavailable("0")}, pods: []*builder.PodWrapper{db("db-0", "", "node-1")},
			want: []string{atOnce + "; EvictionBudget db: never: maxUnavailable is 0"},
		},
		"by zones of nodes": {
			budgets: []*builder.EvictionBudgetWrapper{zones().ByNodeLabel("zone", 1)},
			pods:    []*builder.PodWrapper{db("db-0", "", "node-1"), db("db-1", "", "node-2")},
			want:    []string{atOnce + "; EvictionBudget db: now", atOnce + `; EvictionBudget db: after group "a" is available again`},
		},
		"pods that stay, leave or block do not count": {
			budgets: []*builder.EvictionBudgetWrapper{zones()},
			pods: []*builder.PodWrapper{
				builder.Pod("shop", "agent").Node("node-1").Label("app", "db").Label("zone", "b").DaemonSet("agent").Ready(), db("db-0", "b", "node-1").Deleting(now),
				builder.Pod("shop", "alone").Node("node-1").Label("app", "db").Label("zone", "b").Ready(), db("db-1", "a", "node-1"),
			},
			want: []string{
				"stay: DaemonSet agent", "be waited for: it is being deleted", "be kept, and block the drain: no controller (see --force)", atOnce + "; EvictionBudget db: now",
			},
		},
		"it is requested already": {
			budgets: []*builder.EvictionBudgetWrapper{zones().Group("c", 4, 1, 0)}, pods: []*builder.PodWrapper{db("db-0", "a", "node-1")}, request: waiting,
			want: []string{`be evicted, as is requested already: waiting for budgets.drawbridge.dev (1 of 2); EvictionBudget db: after group "c" is available again`},
		},
		"it is granted": {
			budgets: []*builder.EvictionBudgetWrapper{zones().Grant("db-0", "uid-db-0", "a", now)}, pods: []*builder.PodWrapper{db("db-0", "a", "node-1")}, request: waiting,
			want: []string{"be evicted, as is requested already: waiting for budgets.drawbridge.dev (1 of 2); EvictionBudget db: granted already"},
		},
		"their turn is over": {
			budgets: []*builder.EvictionBudgetWrapper{zones()}, pods: []*builder.PodWrapper{db("db-0", "a", "node-1")}, request: past,
			want: []string{"be evicted, as is requested already"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, _ := testOptions()
			d := &options{Options: o}
			var inputs []fateInput
			for _, pod := range tc.pods {
				in := fateInput{pod: pod.Obj(), maintenance: builder.NodeMaintenance("m").Keeps().Obj(), wait: &none}
				if tc.request != nil {
					in.request = tc.request.Obj()
				}
				inputs = append(inputs, in)
			}
			var budgets []v1alpha1.EvictionBudget
			for _, b := range tc.budgets {
				budgets = append(budgets, *b.Obj())
			}
			nodes := map[string]*corev1.Node{"node-1": builder.Node("node-1").Label("zone", "a").Obj(), "node-2": builder.Node("node-2").Label("zone", "b").Obj()}
			d.foretellGrants(inputs, budgets, nodes)
			var got []string
			for _, in := range inputs {
				got = append(got, fateOf(in).would)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("fates (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEvictionBudgetsComeFirstInThePlanIfTheyAreOn(t *testing.T) {
	pod := db("db-0", "a", "node-1").Obj()
	manager := func(argument string) *appsv1.Deployment {
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: cli.DefaultNamespace, Name: "drawbridge", Labels: map[string]string{"app.kubernetes.io/name": "drawbridge"}},
			Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{
				{Name: "manager", Args: []string{argument, "--maintenance-evacuation-wait=0s"}},
			}}}},
		}
	}
	cases := map[string]struct{ argument, want string }{
		"they are on":           {"--budgets=true", "be evicted after budgets.drawbridge.dev; EvictionBudget db: now"},
		"they are switched off": {"--budgets=false", "be evicted at once"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects := fake.NewClientBuilder().WithScheme(cli.Scheme).WithObjects(pod, zones().Obj(), manager(tc.argument)).
				WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
			o, _ := testOptions()
			d := &options{Options: o}
			inputs, err := d.gatherFates(t.Context(), &cli.Connection{Client: objects}, builder.NodeMaintenance("m").Obj(), []string{"node-1"})
			if err != nil || len(inputs) != 1 {
				t.Fatalf("%d pods, error %v", len(inputs), err)
			}
			if got := fateOf(inputs[0]).would; got != tc.want {
				t.Errorf("would %q, want %q", got, tc.want)
			}
		})
	}
}

func TestNodesAreReadForGroupsByNodes(t *testing.T) {
	o, _ := testOptions()
	d := &options{Options: o}
	c := &cli.Connection{Client: fake.NewClientBuilder().WithScheme(cli.Scheme).WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}).Build()}
	cases := map[string]struct {
		budget  *builder.EvictionBudgetWrapper
		nodes   []string
		want    int
		wantErr bool
	}{
		"by a label of the pods":  {budget: zones(), nodes: []string{"node-1", "node-2"}},
		"by a label of the nodes": {budget: zones().ByNodeLabel("zone", 1), nodes: []string{"node-1"}, want: 1},
		"a node that is not read": {budget: zones().ByNodeLabel("zone", 1), nodes: []string{"node-2"}, wantErr: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := d.nodesByName(t.Context(), c, tc.nodes, []v1alpha1.EvictionBudget{*single().Obj(), *tc.budget.Obj()})
			if len(got) != tc.want || (err != nil) != tc.wantErr {
				t.Errorf("%d nodes, error %v, want %d, error %t", len(got), err, tc.want, tc.wantErr)
			}
		})
	}
}
