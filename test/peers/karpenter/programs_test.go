//go:build unix

package karpenter

import (
	"context"
	"fmt"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
)

const (
	// systemNamespace is Karpenter's own, account its service account there.
	systemNamespace = "karpenter"
	account         = "karpenter"
	// karpenter is its user name.
	karpenter = "system:serviceaccount:" + systemNamespace + ":" + account
)

// running is Karpenter's program, the last that was started.
var running *peer.Running

// startKarpenter installs the objects of Karpenter's chart, and starts its program in place
// of the chart's Deployment.
func startKarpenter(ctx context.Context, folder string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}}
	if err := admin.Create(ctx, namespace); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	objects, err := peer.Objects(folder)
	if err != nil {
		return err
	}
	if err := peer.Apply(ctx, admin, objects, peer.NotWorkload); err != nil {
		return err
	}
	if err := peer.WaitServed(ctx, admin); err != nil {
		return err
	}
	if err := admin.Create(ctx, newObject(nodeClass, className, nil)); err != nil {
		return fmt.Errorf("create the class of the nodes: %w", err)
	}
	if err := startProgram(ctx); err != nil {
		return err
	}
	version, err := peer.Version(folder)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "Karpenter is %s\n", version)
	return nil
}

// startProgram starts Karpenter for as long as the cluster lives. What it says is beside the
// logs of the cluster.
func startProgram(ctx context.Context) error {
	kubeconfig, err := kube.KubeconfigFileForServiceAccount(ctx, systemNamespace, account)
	if err != nil {
		return err
	}
	environment := []string{
		"KUBECONFIG=" + kubeconfig, "SYSTEM_NAMESPACE=" + systemNamespace, "LEADER_ELECTION_NAMESPACE=" + systemNamespace,
		"KARPENTER_SERVICE=karpenter", "DISABLE_LEADER_ELECTION=true", "LOG_LEVEL=debug",
	}
	for _, port := range []string{"METRICS_PORT", "HEALTH_PROBE_PORT"} {
		free, err := manager.FreePort(ctx)
		if err != nil {
			return err
		}
		environment = append(environment, port+"="+strconv.Itoa(free))
	}
	running, err = programs.Start(ctx, "karpenter", peer.Options{Env: environment})
	return err
}
