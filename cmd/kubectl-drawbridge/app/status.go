package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// statusCommand are the flags of status.
type statusCommand struct {
	commands
	// tree prints a tree; with all, it is the whole one.
	tree, all bool
}

func newStatus(c commands) *cobra.Command {
	o := &statusCommand{commands: c}
	watch := false
	cmd := &cobra.Command{
		Use:   "status [NODE]",
		Short: "Show maintenances and evictions of the cluster, or of one node",
		Long: `Show the maintenances, and a tree of the nodes with evictions that are not finished,
their pods and the interceptors of each: what is blocked first, since when, and with the
message of the interceptor. Finished pods are a number. With --namespace: only the
evictions of that namespace. With a node: only what concerns it, and whether it is
cordoned and why.

On a terminal, lines are cut to its width. With -o wide they are not, and have the
expected end, the deadline and the requesters, too. For programs there are -o json and
yaml, and --tree=false, which prints one line for each eviction.

Where Kubernetes' own API is served (lifecycle.k8s.io), its responders are named as
interceptors are, and evictions that only that API knows are listed, too.
That needs list on evictions.lifecycle.k8s.io; without it there is a warning.`,
		Example: `  kubectl drawbridge status
  kubectl drawbridge status node-1 -o wide
  kubectl drawbridge status --watch`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: o.CompleteNodes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.Connect()
			if err != nil {
				return err
			}
			nodes, err := cli.NodeArguments(args)
			if err != nil {
				return err
			}
			node := ""
			if len(nodes) == 1 {
				node = nodes[0]
			}
			if watch {
				return o.watchStatus(cmd.Context(), c, node)
			}
			return o.status(cmd.Context(), c, node)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print again whenever something has changed, until ^C")
	cmd.Flags().BoolP("all-namespaces", "A", true, "the evictions of all namespaces, unless --namespace is given")
	cmd.Flags().BoolVar(&o.tree, "tree", true, "print a tree of nodes, pods and interceptors; if false, one line for each eviction")
	cmd.Flags().BoolVar(&o.all, "all", false, "also show finished pods in the tree, and nodes without evictions in progress")
	o.AddOutput(cmd, cli.FormatWide, cli.FormatJSON, cli.FormatYAML, cli.FormatName)
	return cmd
}

// Status is the output of the command status.
type Status struct {
	// Node is the requested node, if any.
	Node *NodeState `json:"node,omitempty"`
	// Maintenances, by name.
	Maintenances []MaintenanceState `json:"maintenances"`
	// Evictions that are not finished, by namespace and pod.
	Evictions []EvictionState `json:"evictions"`
	// Finished is how many requests have ended and are still kept.
	Finished int `json:"finished"`
}

// NodeState is a node as a drain sees it.
type NodeState struct {
	Name string `json:"name"`
	// Schedulable: it takes new pods.
	Schedulable bool `json:"schedulable"`
	// Phase of the maintenances that it is under; empty if there is none.
	Phase string `json:"phase,omitempty"`
	// Markers are the signs of drains on it.
	Markers []string `json:"markers,omitempty"`
	// CordonedBefore: it was unschedulable before any maintenance.
	CordonedBefore bool `json:"cordonedBefore,omitempty"`
}

// MaintenanceState is a maintenance in one line.
type MaintenanceState struct {
	Name     string                       `json:"name"`
	Stage    string                       `json:"stage"`
	Reason   string                       `json:"reason,omitempty"`
	Created  time.Time                    `json:"created"`
	Progress v1alpha1.MaintenanceProgress `json:"progress"`
	// Wave is the last one that has begun on the node, if the status is that of a node.
	Wave string `json:"wave,omitempty"`
	// PodsInLaterWaves is how many pods wait, because their wave has not begun.
	PodsInLaterWaves int32 `json:"podsInLaterWaves,omitempty"`
	// Blocking are some of the stuck pods.
	Blocking []v1alpha1.BlockingPod `json:"blocking,omitempty"`
	// Trouble is what is wrong with the maintenance itself.
	Trouble string `json:"trouble,omitempty"`
}

// EvictionState is the eviction of one pod in one line.
type EvictionState struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// Request is the name of the EvictionRequest, empty if there is only an Eviction of
	// Kubernetes' own API; Eviction is that of the Eviction.
	Request  string `json:"request,omitempty"`
	Eviction string `json:"eviction,omitempty"`
	Node     string `json:"node,omitempty"`
	State    string `json:"state"`
	// Interceptor, or native responder, that has its turn, the Position-th of Total.
	Interceptor string     `json:"interceptor,omitempty"`
	Position    int        `json:"position,omitempty"`
	Total       int        `json:"total,omitempty"`
	Expected    *time.Time `json:"expected,omitempty"`
	Deadline    *time.Time `json:"deadline,omitempty"`
	Message     string     `json:"message,omitempty"`
	Requesters  []string   `json:"requesters"`
	Created     time.Time  `json:"created"`
	// Turns are all of the pod, if there is an Eviction.
	Turns []turns.Turn `json:"turns,omitempty"`
}

func (o *statusCommand) status(ctx context.Context, c *cli.Connection, node string) error {
	f, err := o.gatherStatus(ctx, c, node)
	if err != nil {
		return err
	}
	switch o.Output {
	case cli.FormatJSON, cli.FormatYAML:
		return o.PrintValue(f.status())
	case cli.FormatName:
		s := f.status()
		for _, m := range s.Maintenances {
			fmt.Fprintf(o.Out, "nodemaintenance.drawbridge.dev/%s\n", m.Name)
		}
		for _, e := range s.Evictions {
			if e.Request == "" {
				fmt.Fprintf(o.Out, "eviction.lifecycle.k8s.io/%s\n", e.Eviction)
				continue
			}
			fmt.Fprintf(o.Out, "evictionrequest.drawbridge.dev/%s\n", e.Request)
		}
		return nil
	default:
		return o.print(f, o.Clock.Now())
	}
}

// print prints the status for people.
func (o *statusCommand) print(f statusFacts, now time.Time) error {
	if o.tree {
		return o.printTree(f, now)
	}
	return o.printStatus(f.status(), now)
}

// statusFacts is what a status is made of.
type statusFacts struct {
	// node is the requested one; nil for all. namespace is the requested one of the
	// evictions; empty for all.
	node         *corev1.Node
	namespace    string
	maintenances []v1alpha1.NodeMaintenance
	evictions    evictions
}

// gatherStatus reads the cluster.
func (o *statusCommand) gatherStatus(ctx context.Context, c *cli.Connection, node string) (statusFacts, error) {
	f := statusFacts{namespace: ptr.Deref(o.Config.Namespace, "")}
	var err error
	if node != "" {
		if f.node, err = c.Node(ctx, node); err != nil {
			return statusFacts{}, err
		}
	}
	var maintenances v1alpha1.NodeMaintenanceList
	if err := c.List(ctx, &maintenances); err != nil {
		return statusFacts{}, fmt.Errorf("list nodemaintenances: %w", err)
	}
	f.maintenances = maintenances.Items
	if f.evictions, err = o.readEvictions(ctx, c); err != nil {
		return statusFacts{}, err
	}
	return f, nil
}

// status is the one in lines.
func (f statusFacts) status() Status { return statusOf(f.node, f.maintenances, f.evictions) }

// statusOf returns the status of everything, or of the given node.
func statusOf(node *corev1.Node, maintenances []v1alpha1.NodeMaintenance, all evictions) Status {
	s := Status{Maintenances: []MaintenanceState{}, Evictions: []EvictionState{}}
	if node != nil {
		s.Node = &NodeState{
			Name: node.Name, Schedulable: !node.Spec.Unschedulable, Phase: node.Annotations[v1alpha1.MaintenancePhaseAnnotation],
			Markers: translate.NodeMarkers(node), CordonedBefore: node.Annotations[v1alpha1.CordonAnnotation] == v1alpha1.CordonOther,
		}
		maintenances = covering(node, maintenances)
	}
	for i := range maintenances {
		s.Maintenances = append(s.Maintenances, maintenanceState(&maintenances[i], s.Node))
	}
	for _, p := range all.processes {
		state := all.state(p)
		if node != nil && state.Node != node.Name {
			continue
		}
		if state.State == string(v1alpha1.StateEvicted) || state.State == string(v1alpha1.StateCanceled) {
			s.Finished++
			continue
		}
		s.Evictions = append(s.Evictions, state)
	}
	slices.SortFunc(s.Maintenances, func(a, b MaintenanceState) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Evictions, func(a, b EvictionState) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod), strings.Compare(a.Request, b.Request), strings.Compare(a.Eviction, b.Eviction))
	})
	return s
}

// maintenanceState is a maintenance in one line. With a node, only the blocking pods and the
// waves of that node are listed.
func maintenanceState(m *v1alpha1.NodeMaintenance, on *NodeState) MaintenanceState {
	state := MaintenanceState{
		Name: m.Name, Stage: cmp.Or(string(m.Status.Stage), string(v1alpha1.StagePlanning)), Reason: m.Spec.Reason,
		Created: m.CreationTimestamp.Time, Progress: m.Status.Progress,
	}
	if m.DeletionTimestamp != nil {
		state.Stage = "Releasing"
	}
	for _, node := range m.Status.Nodes {
		if on == nil || node.Name == on.Name {
			state.Blocking = append(state.Blocking, node.BlockingPods...)
			state.PodsInLaterWaves += node.PodsInLaterWaves
		}
		if on != nil && node.Name == on.Name {
			state.Wave = node.Wave
		}
	}
	if condition := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionNodesSelected); condition != nil && condition.Status == "False" {
		state.Trouble = condition.Message
	}
	return state
}
