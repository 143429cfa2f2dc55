package forecast

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

// maintain makes the forecast one of a NodeMaintenance: of its nodes, with its settings. It is an
// error if it selects no node.
func (in *Input) maintain(ctx context.Context, c *cli.Connection, name string) error {
	m := &v1alpha1.NodeMaintenance{}
	switch err := c.Get(ctx, client.ObjectKey{Name: name}, m); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no NodeMaintenance %q: kubectl get nodemaintenances lists them", name)
	case err != nil:
		return fmt.Errorf("get NodeMaintenance %s: %w", name, err)
	}
	selector, err := nodeaffinity.NewNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: m.Spec.NodeSelector.NodeSelectorTerms})
	if err != nil {
		return fmt.Errorf("read spec.nodeSelector of NodeMaintenance %s: %w", name, err)
	}
	in.Drain = nil
	for _, node := range in.Nodes {
		if selector.Match(node) {
			in.Drain = append(in.Drain, node.Name)
		}
	}
	if len(in.Drain) == 0 {
		return fmt.Errorf("NodeMaintenance %s selects no node", name)
	}
	in.Settings = Settings{
		KeepUnmanaged: m.Spec.UnmanagedPods == v1alpha1.PodsKeep, KeepEmptyDir: m.Spec.EmptyDirPods == v1alpha1.PodsKeep,
		MaxParallel: int(ptr.Deref(m.Spec.MaxParallelNodes, 0)), Wait: in.Settings.Wait, Waves: m.Spec.Waves, Maintenance: m.Name,
	}
	return nil
}
