package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// Annotations by which a pod or a node steers the fake kubelet. Durations are as
// time.ParseDuration reads them.
const (
	// ReadyAnnotation with "false" makes a pod run without being Ready; taken away,
	// the pod turns Ready, and back. On a node it stops the fake kubelet from
	// setting the node Ready, so that a test can write the node's conditions.
	ReadyAnnotation = "test.drawbridge.dev/ready"
	// StartDelayAnnotation is how long a scheduled pod stays Pending. Default: 0.
	StartDelayAnnotation = "test.drawbridge.dev/start-delay"
	// CompleteAfterAnnotation is how long a pod runs before it is Succeeded. Default: 0
	// for pods of Jobs; others run until they are deleted.
	CompleteAfterAnnotation = "test.drawbridge.dev/complete-after"
	// ExitCodeAnnotation is the exit code of the containers of a Job's pod, which fails if
	// it is not 0. Default: 0.
	ExitCodeAnnotation = "test.drawbridge.dev/exit-code"
	// SaysAnnotation is the termination message of the containers of a Job's pod. Default:
	// none.
	SaysAnnotation = "test.drawbridge.dev/says"
	// StopDelayAnnotation is how long a deleted pod stays Terminating, whatever its
	// grace period. Default: 0.
	StopDelayAnnotation = "test.drawbridge.dev/stop-delay"
)

// AddNodes adds n fake nodes, named node-1, node-2, ... from where the cluster's
// last one ended, and returns their names when pods can run on them. Each change is
// applied to each node before it is created. A node has 1000 CPUs, 1 TiB of memory
// and room for 10000 pods.
func (c *Cluster) AddNodes(ctx context.Context, n int, change ...func(*corev1.Node)) ([]string, error) {
	var names []string
	for range n {
		name := "node-" + strconv.FormatInt(c.nodes.Add(1), 10)
		if err := c.createNode(ctx, name, change); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	for _, name := range names {
		if err := c.waitNode(ctx, name); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// AddNode adds a fake node of this name, as AddNodes does.
func (c *Cluster) AddNode(ctx context.Context, name string, change ...func(*corev1.Node)) error {
	if err := c.createNode(ctx, name, change); err != nil {
		return err
	}
	return c.waitNode(ctx, name)
}

func (c *Cluster) createNode(ctx context.Context, name string, change []func(*corev1.Node)) error {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("1000"),
		corev1.ResourceMemory: resource.MustParse("1Ti"),
		corev1.ResourcePods:   resource.MustParse("10000"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname:   name,
				corev1.LabelOSStable:   "linux",
				corev1.LabelArchStable: "amd64",
			},
		},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity.DeepCopy(),
			NodeInfo:    corev1.NodeSystemInfo{KubeletVersion: c.binaries.release.version, OperatingSystem: "linux", Architecture: "amd64"},
		},
	}
	if c.options.LocalExec {
		node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(c.kubeletPort)
	}
	for _, f := range change {
		f(node)
	}
	if _, err := c.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create node %s: %w", name, err)
	}
	return nil
}

// waitNode waits until the node is Ready and the taint is gone by which a new node
// keeps pods away.
func (c *Cluster) waitNode(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, fmt.Errorf("not ready within %s", bootTimeout))
	defer cancel()
	return waiting.For(ctx, "node "+name, func(ctx context.Context) error {
		node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && !nodeUsable(node) {
			err = fmt.Errorf("conditions %v, taints %v", node.Status.Conditions, node.Spec.Taints)
		}
		return err // Anything may fail while components are killed.
	})
}

func nodeUsable(node *corev1.Node) bool {
	if node.Annotations[ReadyAnnotation] == "false" {
		return true // Asked for as it is.
	}
	ready := slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
	tainted := slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Key == corev1.TaintNodeNotReady
	})
	return ready && !tainted
}
