package forecast

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// deployed is a Deployment of that many replicas, its ReplicaSet "web", and the manager's own.
func deployed(replicas int32, surge *intstr.IntOrString) []client.Object {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "deployment"}, Spec: appsv1.DeploymentSpec{Replicas: &replicas}}
	if surge != nil {
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: surge}
	}
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", UID: "uid-of-replicaset-web",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "deployment", Controller: new(true)}},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas},
	}
	own := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: cli.DefaultNamespace, Name: "drawbridge", Labels: map[string]string{"app.kubernetes.io/name": "drawbridge"}},
		Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "manager", Args: []string{"--maintenance-evacuation-wait=2m"},
		}}}}},
	}
	return []client.Object{d, set, own}
}

// clusterObjects are a cluster with a node to drain, and all that a forecast reads.
func clusterObjects() []client.Object {
	return append(deployed(3, nil), node("a", "1", 8), node("b", "2", 8), pod("x", "a"), past("p1", 10*time.Second),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, builder.EvictionInterceptor(saver).Obj(), disruptions("web", 1, 3),
		builder.EvacuationHook("shop", "flush").Obj(), builder.EvictionBudget("shop", "pace", "app", "db").Obj())
}

// connect is a connection to objects; what refuse names may not be read.
func connect(refuse ...string) *cli.Connection {
	objects := clusterObjects()
	c := fake.NewClientBuilder().WithScheme(cli.Scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.EvictionRequest{}).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			kind := strings.ToLower(strings.TrimSuffix(fmt.Sprintf("%T", list), "List"))
			kind = kind[strings.LastIndex(kind, ".")+1:] + "s"
			if slices.Contains(refuse, kind) {
				return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", errors.New("no \x1b[31mright"))
			}
			return c.List(ctx, list, options...)
		},
	}).Build()
	return &cli.Connection{Client: c}
}

func commandOptions(output string) (*options, *bytes.Buffer) {
	o := cli.DefaultOptions()
	out := &bytes.Buffer{}
	o.Clock, o.Out, o.ErrOut, o.Output = clocktesting.NewFakeClock(now), out, io.Discard, output
	return &options{Options: o, seed: 3}, out
}

func TestGather(t *testing.T) {
	o, _ := commandOptions("")
	in, err := gather(t.Context(), o.Options, connect(), []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{
		"nodes": len(in.Nodes), "pods": len(in.Pods), "requests": len(in.Requests), "namespaces": len(in.Namespaces), "interceptors": len(in.Interceptors),
		"hooks": len(in.Hooks), "budgets": len(in.Budgets), "pdbs": len(in.PDBs),
	}
	want := map[string]int{"nodes": 2, "pods": 1, "requests": 1, "namespaces": 1, "interceptors": 1, "hooks": 1, "budgets": 1, "pdbs": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	loads := map[types.UID]Workload{"uid-of-replicaset-web": {Replicas: 3, Deployment: "deployment", MaxSurge: 1}}
	if diff := cmp.Diff(loads, in.Workloads); diff != "" {
		t.Errorf("workloads (-want +got):\n%s", diff)
	}
	if in.Settings.Wait == nil || *in.Settings.Wait != 2*time.Minute || !in.Now.Equal(now) || len(in.LeftOut) > 0 {
		t.Errorf("wait %v, now %v, left out %q", in.Settings.Wait, in.Now, in.LeftOut)
	}
}

func TestGatherWithFewerRights(t *testing.T) {
	for name, test := range map[string]struct {
		refuse []string
		node   string
		// left out, or the error.
		says, wrong string
	}{
		"namespaces":     {refuse: []string{"namespaces"}, says: "namespaces ("},
		"registrations":  {refuse: []string{"evictioninterceptors"}, says: "evictioninterceptors ("},
		"budgets":        {refuse: []string{"poddisruptionbudgets"}, says: "poddisruptionbudgets ("},
		"our budgets":    {refuse: []string{"evictionbudgets"}, says: "evictionbudgets ("},
		"hooks":          {refuse: []string{"evacuationhooks"}, says: "evacuationhooks ("},
		"Deployments":    {refuse: []string{"deployments"}, says: "deployments, so that one pod at a time has a replacement first ("},
		"ReplicaSets":    {refuse: []string{"replicasets"}, says: "replicasets ("},
		"pods":           {refuse: []string{"pods"}, wrong: "list pods: "},
		"nodes":          {refuse: []string{"nodes"}, wrong: "list nodes: "},
		"requests":       {refuse: []string{"evictionrequests"}, wrong: "list evictionrequests: "},
		"a strange node": {node: "c", wrong: `no node "c"`},
	} {
		t.Run(name, func(t *testing.T) {
			o, _ := commandOptions("")
			node := "a"
			if test.node != "" {
				node = test.node
			}
			in, err := gather(t.Context(), o.Options, connect(test.refuse...), []string{node})
			if test.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), test.wrong) {
					t.Errorf("error %v, want %q", err, test.wrong)
				}
				return
			}
			said := strings.Join(in.LeftOut, "\n")
			if err != nil || !strings.Contains(said, test.says) || strings.Contains(said, "\x1b") {
				t.Errorf("left out %q and error %v, want %q", said, err, test.says)
			}
		})
	}
}

func TestWorkloadsAreRead(t *testing.T) {
	for name, test := range map[string]struct {
		replicas int32
		surge    *intstr.IntOrString
		want     int
	}{
		"a quarter, rounded up": {5, nil, 2},
		"a number":              {5, new(intstr.FromInt32(3)), 3},
		"percent":               {10, new(intstr.FromString("50%")), 5},
		"nonsense":              {10, new(intstr.FromString("x")), 0},
	} {
		t.Run(name, func(t *testing.T) {
			objects := deployed(test.replicas, test.surge)
			known := map[types.UID]Workload{}
			addWorkloads(known, []appsv1.Deployment{*objects[0].(*appsv1.Deployment)}, []appsv1.ReplicaSet{*objects[1].(*appsv1.ReplicaSet)}) //nolint:forcetypeassert // Made above.
			if got := known["uid-of-replicaset-web"].MaxSurge; got != test.want {
				t.Errorf("maxSurge is %d, want %d", got, test.want)
			}
		})
	}
}

func TestTheCommandPrints(t *testing.T) {
	o, out := commandOptions("")
	if err := o.run(t.Context(), connect("evacuationhooks"), []string{"a"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"The drain of 1 node is done in about ", "NODE   NAMESPACE   POD", "Measured on this cluster:", "Left out (200 runs):"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}

	o, out = commandOptions(cli.FormatJSON)
	if err := o.run(t.Context(), connect("poddisruptionbudgets", "evacuationhooks"), []string{"a"}); err != nil {
		t.Fatal(err)
	}
	var told Forecast
	if err := json.Unmarshal(out.Bytes(), &told); err != nil {
		t.Fatalf("%v in:\n%s", err, out)
	}
	if told.Verdict != Done || len(told.Pods) != 1 || told.Pods[0].Name != "x" || !slices.ContainsFunc(told.LeftOut, func(s string) bool { return strings.HasPrefix(s, "poddisruptionbudgets (") }) {
		t.Errorf("told %+v", told)
	}
}

func TestArgumentsOfTheCommand(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no node":                 {nil, "requires at least 1 arg"},
		"a negative limit":        {[]string{"a", "--max-parallel=-1"}, "--max-parallel must not be negative, but is -1"},
		"a pod":                   {[]string{"pod/web"}, "pod/web"},
		"nodes and a maintenance": {[]string{"a", "--maintenance=kernel"}, "nodes or --maintenance, not both"},
		"whose settings count":    {[]string{"--maintenance=kernel", "--force"}, "none of the others can be"},
		"an output that is not":   {[]string{"a", "-o", "xml"}, "xml"},
		"a seed that is negative": {[]string{"a", "--seed=-1"}, "invalid argument"},
	} {
		t.Run(name, func(t *testing.T) {
			o := cli.DefaultOptions()
			o.Out, o.ErrOut = io.Discard, io.Discard
			cmd := NewCommand(o)
			cmd.SetArgs(test.args)
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestWhatADashboardKnows(t *testing.T) {
	s := &state.Snapshot{
		Now: now, Nodes: []*corev1.Node{node("a", "1", 8)}, Pods: []*corev1.Pod{pod("x", "a")}, Budgets: []*v1alpha1.EvictionBudget{builder.EvictionBudget("shop", "pace", "app", "web").Obj()},
		Gaps: []state.Gap{{Resource: "evacuationhooks", Why: "no \x1b[31mright"}},
	}
	s.Installed.Wait = new(time.Minute)
	in := FromSnapshot(s, []string{"a"})
	if !in.Now.Equal(now) || len(in.Budgets) != 1 || *in.Settings.Wait != time.Minute || !in.Settings.KeepUnmanaged || !in.Settings.KeepEmptyDir {
		t.Errorf("input %+v", in)
	}
	if said := strings.Join(in.LeftOut, "\n"); !strings.Contains(said, "evacuationhooks (no ") || strings.Contains(said, "\x1b") || !strings.Contains(said, "maxSurge") {
		t.Errorf("left out %q", said)
	}
	s.Installed.BudgetsOff = true
	if in := FromSnapshot(s, []string{"a"}); len(in.Budgets) > 0 {
		t.Error("budgets that are off are simulated")
	}
}
