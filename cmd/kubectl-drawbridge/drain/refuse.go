package drain

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	kubectldrain "k8s.io/kubectl/pkg/drain"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// refusedError is a drain that is not started, because kubectl drain would refuse it
// without further flags.
type refusedError struct {
	// reasons by node, in kubectl's words.
	reasons []string
}

func (e *refusedError) Error() string {
	return "this drain is refused, and nothing was changed:\n  " + strings.Join(e.reasons, "\n  ")
}

// refusal applies kubectl's own filters to the pods of the nodes. Warnings are printed;
// refusals are returned as a *refusedError.
func (d *options) refusal(ctx context.Context, c *cli.Connection, nodes []string) error {
	clients, err := kubernetes.NewForConfig(c.REST)
	if err != nil {
		return fmt.Errorf("make a client of the cluster: %w", err)
	}
	helper := &kubectldrain.Helper{
		Ctx: ctx, Client: clients, GracePeriodSeconds: -1, ChunkSize: d.chunkSize, Out: io.Discard, ErrOut: io.Discard,
		Force: d.force, IgnoreAllDaemonSets: d.ignoreDaemonSets, DeleteEmptyDirData: d.deleteEmptyDirData,
	}
	refused := &refusedError{}
	for _, node := range nodes {
		list, errs := helper.GetPodsForDeletion(node)
		if list == nil {
			return fmt.Errorf("look at the pods of node %s: %w", node, errs[0])
		}
		var reasons []string
		for _, err := range errs {
			reasons = append(reasons, fmt.Sprintf("node %s: %s", node, err))
		}
		slices.Sort(reasons) // The library keeps them in a map.
		refused.reasons = append(refused.reasons, reasons...)
		if warnings := list.Warnings(); warnings != "" && len(errs) == 0 {
			fmt.Fprintln(d.ErrOut, "Warning:", warnings)
		}
		for _, pod := range list.Pods() {
			if orphanOfDaemonSet(&pod) {
				fmt.Fprintf(d.ErrOut, "Warning: pod %s/%s stays, although its DaemonSet is gone: a maintenance leaves pods of DaemonSets alone. Delete it if it should leave: kubectl delete pod -n %s %s\n", pod.Namespace, pod.Name, pod.Namespace, pod.Name)
			}
		}
	}
	if len(refused.reasons) > 0 {
		return refused
	}
	return nil
}

// orphanOfDaemonSet reports whether kubectl would evict the pod only because its
// DaemonSet is gone. kubectl skips pods of existing DaemonSets.
func orphanOfDaemonSet(pod *corev1.Pod) bool {
	return pods.IsOfDaemonSet(pod) && !pods.HasEnded(pod)
}
