package forecast

import (
	"context"
	"fmt"
	"math"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
)

// FromSnapshot is the input that a dashboard has. Owners of pods are not watched, so they are
// guessed from the pods.
func FromSnapshot(s *state.Snapshot, nodes []string) Input {
	in := Input{
		Now: s.Now, Drain: nodes, Seed: 1,
		Settings: Settings{KeepUnmanaged: true, KeepEmptyDir: true, Wait: s.Installed.Wait},
		Nodes:    s.Nodes, Pods: s.Pods, Namespaces: s.Namespaces, Requests: s.Requests,
		Interceptors: s.Interceptors, Hooks: s.Hooks, Budgets: s.Budgets, PDBs: s.PDBs,
		Native: s.Installed.Native, System: cli.DefaultNamespace,
		LeftOut: []string{"the replicas and maxSurge of workloads: as many pods as there are, and one at a time"},
	}
	if s.Installed.BudgetsOff {
		in.Budgets = nil
	}
	if s.Installed.Native {
		in.Evictions = s.Evictions
	}
	for _, gap := range s.Gaps {
		in.LeftOut = append(in.LeftOut, fmt.Sprintf("%s (%s)", gap.Resource, text.Clean(gap.Why)))
	}
	return in
}

// gather reads what may be read. Only nodes, pods and requests must be.
func gather(ctx context.Context, o *cli.Options, c *cli.Connection, nodes []string) (Input, error) {
	in := Input{Now: o.Clock.Now(), Drain: nodes, System: o.System, Workloads: map[types.UID]Workload{}}
	for _, name := range nodes {
		if _, err := c.Node(ctx, name); err != nil {
			return in, err
		}
	}
	var all corev1.NodeList
	if err := c.List(ctx, &all); err != nil {
		return in, fmt.Errorf("list nodes: %w", err)
	}
	in.Nodes = turns.Pointers(all.Items)
	var pods corev1.PodList
	if err := c.List(ctx, &pods); err != nil {
		return in, fmt.Errorf("list pods: %w", err)
	}
	in.Pods = turns.Pointers(pods.Items)
	var requests v1alpha1.EvictionRequestList
	if err := c.List(ctx, &requests); err != nil {
		return in, fmt.Errorf("list evictionrequests: %w", err)
	}
	in.Requests = turns.Pointers(requests.Items)

	read := func(what string, err error) bool {
		if err != nil {
			in.LeftOut = append(in.LeftOut, what+" ("+text.Clean(err.Error())+")")
		}
		return err == nil
	}
	var namespaces corev1.NamespaceList
	if read("namespaces", c.List(ctx, &namespaces)) {
		in.Namespaces = turns.Pointers(namespaces.Items)
	}
	var registrations v1alpha1.EvictionInterceptorList
	if read("evictioninterceptors", c.List(ctx, &registrations)) {
		in.Interceptors = turns.Pointers(registrations.Items)
	}
	if hooks, err := c.Hooks(ctx); read("evacuationhooks", err) {
		in.Hooks = turns.Pointers(hooks)
	}
	var pdbs policyv1.PodDisruptionBudgetList
	if read("poddisruptionbudgets", c.List(ctx, &pdbs)) {
		in.PDBs = turns.Pointers(pdbs.Items)
	}
	installed := o.Installed(ctx, c)
	in.Settings.Wait, in.Native = installed.Wait, installed.Native
	if budgets, err := c.EvictionBudgets(ctx); read("evictionbudgets", err) && !installed.BudgetsOff {
		in.Budgets = turns.Pointers(budgets)
	}
	if evictions, err := o.NativeEvictions(ctx, c); read("evictions.lifecycle.k8s.io", err) {
		in.Evictions = turns.Pointers(evictions)
	}
	if installed.Unread != "" {
		in.LeftOut = append(in.LeftOut, text.Clean(installed.Unread))
	}
	var deployments appsv1.DeploymentList
	var sets appsv1.ReplicaSetList
	if read("deployments, so that one pod at a time has a replacement first", c.List(ctx, &deployments)) && read("replicasets", c.List(ctx, &sets)) {
		addWorkloads(in.Workloads, deployments.Items, sets.Items)
	}
	return in, nil
}

// addWorkloads notes the replicas of ReplicaSets and what their Deployments allow.
func addWorkloads(known map[types.UID]Workload, deployments []appsv1.Deployment, sets []appsv1.ReplicaSet) {
	surge := map[types.UID]int{}
	for i := range deployments {
		d := &deployments[i]
		replicas := int(ptr.Deref(d.Spec.Replicas, 1))
		value := intstr.FromString("25%")
		if rolling := d.Spec.Strategy.RollingUpdate; rolling != nil && rolling.MaxSurge != nil {
			value = *rolling.MaxSurge
		}
		if n, err := intstr.GetScaledValueFromIntOrPercent(&value, replicas, true); err == nil {
			surge[d.UID] = min(n, math.MaxInt32)
		}
	}
	for i := range sets {
		load := Workload{Replicas: int(ptr.Deref(sets[i].Spec.Replicas, 1))}
		if c := metav1.GetControllerOfNoCopy(&sets[i]); c != nil {
			load.Deployment, load.MaxSurge = c.UID, surge[c.UID]
		}
		known[sets[i].UID] = load
	}
}
