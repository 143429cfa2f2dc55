package drain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/refusals"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
)

// plan prints what a drain would do. With --dry-run=server it also asks the API server
// whether it would accept the maintenance, and how it would answer each eviction.
func (d *options) plan(ctx context.Context, c *cli.Connection, m *v1alpha1.NodeMaintenance, nodes []string) error {
	if d.dryRun == cmdutil.DryRunServer {
		// A drain of the same nodes may run already; that is no error of a dry run.
		if err := c.Create(ctx, m, client.DryRunAll, client.FieldOwner(cli.FieldOwner)); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("create nodemaintenance %s: %w", m.Name, err)
		}
		d.PrintWarnings(c)
	}
	if d.Output != "" {
		return d.PrintObject(m)
	}
	p, err := d.foresee(ctx, c, m, nodes)
	if err != nil {
		return err
	}
	return p.print(d.Options)
}

// foresee says what would happen.
func (d *options) foresee(ctx context.Context, c *cli.Connection, m *v1alpha1.NodeMaintenance, nodes []string) (Plan, error) {
	inputs, err := d.gatherFates(ctx, c, m, nodes)
	if err != nil {
		return Plan{}, err
	}
	fates := make([]fate, 0, len(inputs))
	for _, in := range inputs {
		fates = append(fates, fateOf(in))
	}
	return planOf(nodes, fates), nil
}

// planOf sorts by node, namespace and pod.
func planOf(nodes []string, fates []fate) Plan {
	slices.SortFunc(fates, byPlace)
	p := Plan{Rows: [][]string{{"NODE", "NAMESPACE", "POD", "WOULD"}}}
	going := 0
	for _, f := range fates {
		if !f.stays {
			going++
		}
		p.Rows = append(p.Rows, []string{f.node, f.namespace, f.pod, f.would})
	}
	p.Summary = fmt.Sprintf("%s would be cordoned, %s would have to go, %d would stay", text.Counted(len(nodes), "node"), text.Counted(going, "pod"), len(fates)-going)
	return p
}

// print prints it. On a terminal long names are cut, but never what would happen.
func (p Plan) print(o *cli.Options) error {
	shares := []int{15, 15, 30, 30}
	grid := text.Grid{Gap: 3, Width: o.Width(), Wrap: true}
	for i, heading := range p.Rows[0] {
		grid.Columns = append(grid.Columns, text.Column{Heading: heading, Share: shares[i], Prose: i == len(shares)-1})
	}
	rows := make([]text.Row, 0, len(p.Rows))
	for _, cells := range p.Rows[1:] {
		rows = append(rows, text.Row{Cells: cells})
	}
	lines := append(grid.Lines(rows), text.Line{})
	summary := []string{p.Summary + " (dry run: nothing was changed)"}
	if grid.Width > 0 {
		summary = text.Wrap(summary[0], grid.Width)
	}
	for _, line := range summary {
		lines = append(lines, text.Line{Text: line})
	}
	return o.PrintLines(lines)
}

// gatherFates reads what determines the fates of the nodes' pods.
func (d *options) gatherFates(ctx context.Context, c *cli.Connection, m *v1alpha1.NodeMaintenance, nodes []string) ([]fateInput, error) {
	var registrations v1alpha1.EvictionInterceptorList
	if err := c.List(ctx, &registrations); err != nil {
		return nil, fmt.Errorf("list evictioninterceptors: %w", err)
	}
	var namespaces corev1.NamespaceList
	if err := c.List(ctx, &namespaces); err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	var requests v1alpha1.EvictionRequestList
	if err := c.List(ctx, &requests); err != nil {
		return nil, fmt.Errorf("list evictionrequests: %w", err)
	}
	var budgets policyv1.PodDisruptionBudgetList
	if err := c.List(ctx, &budgets); err != nil {
		return nil, fmt.Errorf("list poddisruptionbudgets: %w", err)
	}
	installed := d.Installed(ctx, c)
	if installed.Unread == "" && (installed.MaintenanceOff || installed.Ready == 0) {
		fmt.Fprintf(d.ErrOut, "Warning: nothing would happen now: %s\n", installed.NobodyWorks(d.System))
	}
	byUID := map[string]*v1alpha1.EvictionRequest{}
	for i := range requests.Items {
		byUID[requests.Items[i].Namespace+"/"+requests.Items[i].Name] = &requests.Items[i]
	}
	hooks, err := d.HooksIfAllowed(ctx, c)
	if err != nil {
		return nil, err
	}
	evictionBudgets, err := d.EvictionBudgetsIfAllowed(ctx, c)
	if err != nil {
		return nil, err
	}
	if installed.BudgetsOff {
		evictionBudgets = nil
	}
	native, err := d.NativeEvictionsIfAllowed(ctx, c)
	if err != nil {
		return nil, err
	}
	evictions := turns.ByPod(turns.Pointers(native))
	byName, err := d.nodesByName(ctx, c, nodes, evictionBudgets)
	if err != nil {
		return nil, err
	}
	peers := peersOf(c)
	registry := registration.Static(registration.Options{
		Namespace: d.System, AllowedReserved: why.AllowedReserved(registrations.Items), Native: func() bool { return installed.Native },
	}, registration.Known{Registrations: registrations.Items, Hooks: hooks, Budgets: evictionBudgets, Namespaces: namespaces.Items})
	var inputs []fateInput
	for _, node := range nodes {
		var pods corev1.PodList
		if err := c.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
			return nil, fmt.Errorf("list pods of node %s: %w", node, err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			in := fateInput{
				pod: pod, maintenance: m, request: byUID[pod.Namespace+"/"+string(pod.UID)], eviction: evictions[pod.UID],
				budgets: why.BudgetsOf(pod, budgets.Items, nil), wait: installed.Wait,
			}
			if in.refused() {
				others, err := peers(ctx, pod.Namespace)
				if err != nil {
					return nil, err
				}
				in.budgets = why.BudgetsOf(pod, budgets.Items, others)
			}
			in.interceptors, in.unsure = registry.Resolve(pod)
			if d.dryRun == cmdutil.DryRunServer && !fateOf(in).stays {
				in.dryRun = why.TryEviction(ctx, c, pod, len(in.budgets))
				if in.request == nil {
					in.unwritten, _ = refusals.TryRequest(ctx, c, pod) // What you may not do is unknown.
				}
			}
			inputs = append(inputs, in)
		}
	}
	d.foretellGrants(inputs, evictionBudgets, byName)
	return inputs, nil
}

// peersOf reads all pods of a namespace, once. Whether a budget that refuses can ever allow
// depends on them; nobody has to have the right to read them.
func peersOf(c *cli.Connection) func(ctx context.Context, namespace string) ([]*corev1.Pod, error) {
	known := map[string][]*corev1.Pod{}
	return func(ctx context.Context, namespace string) ([]*corev1.Pod, error) {
		if all, ok := known[namespace]; ok {
			return all, nil
		}
		var list corev1.PodList
		if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("list pods of namespace %s: %w", namespace, err)
		}
		all := make([]*corev1.Pod, 0, len(list.Items))
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
		known[namespace] = all
		return all, nil
	}
}

// byPlace sorts by node, namespace and pod.
func byPlace(a, b fate) int {
	return cmp.Or(strings.Compare(a.node, b.node), strings.Compare(a.namespace, b.namespace), strings.Compare(a.pod, b.pod))
}
