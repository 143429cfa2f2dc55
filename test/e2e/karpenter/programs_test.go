//go:build unix

package karpenter

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

const (
	// systemNamespace is Karpenter's own, account its service account there.
	systemNamespace = "karpenter"
	account         = "karpenter"
	// karpenter is its user name.
	karpenter = "system:serviceaccount:" + systemNamespace + ":" + account
)

// ended is true when Karpenter runs no more.
var ended atomic.Bool

// startKarpenter installs the objects of Karpenter's chart, and starts its program in place
// of the chart's Deployment.
func startKarpenter(ctx context.Context, folder string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}}
	if err := admin.Create(ctx, namespace); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	objects, err := readObjects(folder)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := admin.Create(ctx, object); err != nil {
			return fmt.Errorf("create %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	if err := waitServed(ctx, objects); err != nil {
		return err
	}
	if err := admin.Create(ctx, newObject(nodeClass, className, nil)); err != nil {
		return fmt.Errorf("create the class of the nodes: %w", err)
	}
	return startProgram(ctx, folder)
}

// startProgram starts Karpenter for as long as the cluster lives. What it says is beside the
// logs of the cluster.
func startProgram(ctx context.Context, folder string) error {
	binary, err := path(folder, "karpenter")
	if err != nil {
		return err
	}
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
	log, err := os.Create(filepath.Join(kube.Dir(), "logs", "karpenter.log"))
	if err != nil {
		return fmt.Errorf("create log: %w", err)
	}
	started, err := kube.StartProgram(context.WithoutCancel(ctx), cluster.ProgramOptions{
		Env: environment, OnLine: func(line cluster.Line) { _, _ = fmt.Fprintln(log, line.Text) },
	}, binary)
	if err != nil {
		return err
	}
	go func() {
		<-started.Done()
		ended.Store(true)
	}()
	version, err := os.ReadFile(filepath.Join(folder, "version"))
	if err != nil {
		return fmt.Errorf("read the version: %w", err)
	}
	fmt.Fprintf(os.Stderr, "Karpenter is %s", version)
	return nil
}

// path of a file of the folder.
func path(folder, name string) (string, error) {
	file := filepath.Join(folder, name)
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("%s is to have karpenter and objects.yaml: %w", folderVariable, err)
	}
	return file, nil
}

// readObjects reads those objects of the chart that a program beside the cluster needs.
func readObjects(folder string) ([]*unstructured.Unstructured, error) {
	file, err := path(folder, "objects.yaml")
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq("\n"+string(content), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return nil, fmt.Errorf("read objects: %w", err)
		}
		switch object.GetKind() {
		case "", "Deployment", "Service", "PodDisruptionBudget":
		default:
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// waitServed waits until every definition is served.
func waitServed(ctx context.Context, objects []*unstructured.Unstructured) error {
	return cluster.Wait(ctx, "Karpenter's kinds", func(ctx context.Context) error {
		for _, object := range objects {
			if object.GetKind() != "CustomResourceDefinition" {
				continue
			}
			now := object.DeepCopy()
			if err := admin.Get(ctx, keyOf(object), now); err != nil {
				return err
			}
			if !conditionTrue(now, "Established") {
				return fmt.Errorf("%s is not", object.GetName())
			}
		}
		return nil
	})
}
