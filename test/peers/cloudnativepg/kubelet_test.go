//go:build unix

package cloudnativepg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// scripts runs the commands of the pods of a hook's Jobs on this machine, as their kubelet would: with
// the real kubectl, their environment, and the permissions of their ServiceAccount. The fake kubelet
// leaves such a pod alone if it is told that it takes long.
type scripts struct {
	namespace, container string

	mu  sync.Mutex
	ran map[types.UID]*script
}

// script is the command of one pod.
type script struct {
	began, ended time.Time
	// said is its termination message.
	said string
	err  error
	// lines are all that it has written.
	lines []cluster.Line
}

// runScripts runs them until the test ends.
func runScripts(t *testing.T, namespace, container string) *scripts {
	t.Helper()
	s := &scripts{namespace: namespace, container: container, ran: map[types.UID]*script{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	all.Go(func() {
		steadily(ctx, func() {
			pods := &corev1.PodList{}
			if world.Client.List(ctx, pods, client.InNamespace(namespace), client.HasLabels{batchv1.JobNameLabel}) != nil {
				return // The next one will do.
			}
			for i := range pods.Items {
				if pod := &pods.Items[i]; pod.Status.Phase == corev1.PodRunning && pod.Spec.Containers[0].Name == container && s.take(pod.UID) {
					all.Go(func() { s.run(ctx, pod) })
				}
			}
		})
	})
	t.Cleanup(func() {
		cancel()
		all.Wait()
		for _, one := range s.ran {
			if one.err != nil {
				t.Errorf("a script: %v", one.err)
			}
			if t.Failed() {
				t.Logf("a script that began at %s and ended at %s: %v", one.began, one.ended, one.lines)
			}
		}
	})
	return s
}

// take says that nobody runs the pod's script yet.
func (s *scripts) take(pod types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ran[pod] != nil {
		return false
	}
	s.ran[pod] = &script{began: time.Now()}
	return true
}

// run runs the script of a pod, and says in its status how it ended.
func (s *scripts) run(ctx context.Context, pod *corev1.Pod) {
	s.mu.Lock()
	one := s.ran[pod.UID]
	s.mu.Unlock()
	said, err := s.execute(ctx, pod, func(line cluster.Line) {
		s.mu.Lock()
		defer s.mu.Unlock()
		one.lines = append(one.lines, line)
	})
	s.mu.Lock()
	one.ended, one.said = time.Now(), said
	if ctx.Err() == nil {
		one.err = err
	}
	s.mu.Unlock()
	phase, code := corev1.PodSucceeded, int32(0)
	if err != nil {
		phase, code = corev1.PodFailed, 1
	}
	err = cluster.Wait(ctx, "the status of "+pod.Name, func(ctx context.Context) error {
		if err := world.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return client.IgnoreNotFound(err)
		}
		pod.Status.Phase = phase
		for i := range pod.Status.ContainerStatuses {
			c := &pod.Status.ContainerStatuses[i]
			c.Ready, c.Started = false, new(bool)
			c.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: said, Reason: "Completed"}}
		}
		return world.Client.Status().Update(ctx, pod)
	})
	if err != nil && ctx.Err() == nil {
		s.mu.Lock()
		one.err = errors.Join(one.err, err)
		s.mu.Unlock()
	}
}

func (s *scripts) execute(ctx context.Context, pod *corev1.Pod, each func(cluster.Line)) (said string, err error) {
	kubeconfig, err := world.Kube.KubeconfigFileForServiceAccount(ctx, s.namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return "", err
	}
	container := pod.Spec.Containers[0]
	log := filepath.Join(world.Kube.Dir(), "termination-log-"+string(pod.UID))
	argv := slices.Concat(container.Command, container.Args)
	for i := range argv {
		argv[i] = strings.ReplaceAll(argv[i], "/dev/termination-log", log)
	}
	shell, err := exec.LookPath(argv[0])
	if err != nil {
		return "", fmt.Errorf("find the shell: %w", err)
	}
	path := filepath.Join(world.Kube.Dir(), "bin") + string(os.PathListSeparator) + os.Getenv("PATH")
	env := []string{"KUBECONFIG=" + kubeconfig, "PATH=" + path, "HOME=" + world.Kube.Dir()}
	for _, v := range container.Env {
		env = append(env, v.Name+"="+v.Value)
	}
	program, err := world.Kube.StartProgram(ctx, cluster.ProgramOptions{Env: env, OnLine: each}, shell, argv[1:]...)
	if err != nil {
		return "", err
	}
	result, err := program.Wait()
	if err := errors.Join(err, result.Err()); err != nil {
		return "", err
	}
	content, err := os.ReadFile(log)
	if err != nil {
		return "", fmt.Errorf("read the termination message: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// last is the script that began last, once it has ended.
func (s *scripts) last() (script, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var last script
	for _, one := range s.ran {
		if one.began.After(last.began) {
			last = *one
		}
	}
	return last, !last.ended.IsZero()
}
