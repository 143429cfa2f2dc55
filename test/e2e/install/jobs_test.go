//go:build unix

package install_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// noNode keeps the pods of the release off every node, so that nobody but [runJob] runs
// them: kwok would say that the Job is done, and do nothing.
var noNode = values{"test.drawbridge.dev/nowhere": "true"}

// uninstallForReal runs helm uninstall, and plays the kubelet for its Job. It returns
// when the Job waits for the manager to end; done gets the error of helm.
func uninstallForReal(ctx context.Context, t *testing.T, inst *manager.Installation) (job *cluster.Program, done <-chan error) {
	t.Helper()
	o := install.Options{Kubeconfig: kubeconfig(t), Namespace: inst.Namespace, Release: inst.Release}
	begun, ended := make(chan *cluster.Program, 1), make(chan error, 1)
	running, cancel := context.WithCancel(ctx)
	jobs := make(chan error, 1)
	go func() { jobs <- runJob(running, o.Namespace, begun) }()
	go func() {
		err := install.Uninstall(running, o)
		cancel()
		if jobErr := <-jobs; !errors.Is(jobErr, context.Canceled) {
			err = errors.Join(err, jobErr)
		}
		ended <- err
	}()
	select {
	case job = <-begun:
	case err := <-ended:
		t.Fatalf("helm ended without a Job: %v", err)
	}
	if _, err := job.WaitLine(ctx, "waiting for the manager to end: "); err != nil {
		t.Fatal(err)
	}
	return job, ended
}

// runJob runs the pods of Jobs in a namespace, one after the other, until ctx ends: the
// program under the account and with the arguments of the pod. It then says how it ended.
func runJob(ctx context.Context, namespace string, first chan<- *cluster.Program) error {
	pods := kube.Client().CoreV1().Pods(namespace)
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Pending,spec.nodeName="})
		if err != nil {
			return false, err
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if !slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Job" }) {
				continue
			}
			program, err := startPod(ctx, pod)
			if err != nil {
				return false, err
			}
			select {
			case first <- program:
			default:
			}
			result, err := program.Wait()
			if err != nil {
				return false, err
			}
			phase := corev1.PodSucceeded
			if result.ExitCode != 0 {
				phase = corev1.PodFailed
			}
			// The scheduler writes the status meanwhile, too.
			patch := fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase)
			if _, err := pods.Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
				return false, fmt.Errorf("say how pod %s ended: %w", pod.Name, err)
			}
		}
		return false, nil
	})
}

// startPod runs the program of a pod's container.
func startPod(ctx context.Context, pod *corev1.Pod) (*cluster.Program, error) {
	binary, err := manager.Build(ctx)
	if err != nil {
		return nil, err
	}
	config, err := kube.KubeconfigFileForServiceAccount(ctx, pod.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return nil, err
	}
	args := append(slices.Clone(pod.Spec.Containers[0].Args), "--kubeconfig="+config)
	return kube.StartProgram(ctx, cluster.ProgramOptions{}, binary, args...)
}

// said are the lines of a program.
func said(program *cluster.Program) string {
	var lines []string
	for _, line := range program.Lines() {
		lines = append(lines, line.Text)
	}
	return strings.Join(lines, "\n")
}
