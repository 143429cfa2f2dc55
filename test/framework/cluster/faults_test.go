package cluster_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

func TestComponentsComeBackAfterAKill(t *testing.T) {
	for _, name := range []cluster.ComponentName{cluster.APIServer, cluster.Etcd, cluster.ControllerManager, cluster.Scheduler, cluster.Kwok} {
		t.Run(string(name), func(t *testing.T) {
			namespace := shared.Namespace(t)
			before := createReady(t, shared, builder.Pod(namespace, "before").Obj())
			component := shared.Component(name)
			pid := component.PID()
			if err := component.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := component.WaitReady(t.Context()); err == nil {
				t.Error("a killed component is not ready")
			}
			start := component.Start
			if name == cluster.Kwok {
				start = shared.RestartKwok // It does not always start well while there are pods.
			}
			if err := start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if component.PID() == pid {
				t.Error("the new process is the old one")
			}
			if err := shared.WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			cluster.Eventually(t, "what was there before is still there", func(ctx context.Context) error {
				pod, err := shared.Client().CoreV1().Pods(namespace).Get(ctx, "before", metav1.GetOptions{})
				if err == nil && pod.UID != before.UID {
					err = errors.New("another pod")
				}
				return err
			})
			deployment := builder.Deployment(namespace, "after").Obj()
			must(shared.Client().AppsV1().Deployments(namespace).Create(t.Context(), deployment, metav1.CreateOptions{}))(t)
			cluster.Eventually(t, "a Deployment gets its pod", func(ctx context.Context) error {
				deployment, err := shared.Client().AppsV1().Deployments(namespace).Get(ctx, "after", metav1.GetOptions{})
				if err == nil && deployment.Status.ReadyReplicas != 1 {
					err = fmt.Errorf("status %+v", deployment.Status)
				}
				return err
			})
		})
	}
}

func TestRequestLogGoesOnAfterAKill(t *testing.T) {
	client := clientFor(t, must(shared.ConfigFor("kill-witness", "system:masters"))(t))
	list := func() {
		t.Helper()
		cluster.Eventually(t, "the server answers", func(ctx context.Context) error {
			_, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			return err
		})
	}
	mark := shared.RequestLog().Mark()
	watch := must(client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{}))(t)
	defer watch.Stop()
	list()

	// A write that is under way when the server dies: without etcd none ends.
	if err := shared.Component(cluster.Etcd).Pause(); err != nil {
		t.Fatal(err)
	}
	created := make(chan error, 1)
	go func() {
		_, err := client.CoreV1().Pods("default").Create(t.Context(), builder.Pod("default", "lost").Obj(), metav1.CreateOptions{})
		created <- err
	}()
	cluster.Eventually(t, "the server works on the write", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, patience/400)
		defer cancel()
		if _, err := shared.RequestLog().Since(ctx, mark); err == nil || !strings.Contains(err.Error(), "kill-witness: create pods") {
			return fmt.Errorf("no open write: %v", err)
		}
		return nil
	})
	if err := shared.Component(cluster.APIServer).Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-created; err == nil {
		t.Error("a killed server has answered")
	}
	if err := shared.Component(cluster.Etcd).Resume(); err != nil {
		t.Fatal(err)
	}
	if err := shared.Component(cluster.APIServer).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	list()
	var verbs []string
	for _, request := range since(t, mark).By("kill-witness") {
		verbs = append(verbs, fmt.Sprintf("%s %d", request.Verb, request.Code))
	}
	if diff := cmp.Diff([]string{"watch 200", "list 200", "create 0", "list 200"}, verbs); diff != "" {
		t.Errorf("requests before and after the kill (-want +got):\n%s", diff)
	}
	if err := shared.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAPausedComponentDoesNothing(t *testing.T) {
	namespace := shared.Namespace(t)
	scheduler := shared.Component(cluster.Scheduler)
	if err := scheduler.Pause(); err != nil {
		t.Fatal(err)
	}
	resumed := false
	defer func() {
		if !resumed {
			if err := scheduler.Resume(); err != nil {
				t.Error(err)
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience/120)
	defer cancel()
	if err := scheduler.WaitReady(ctx); err == nil {
		t.Error("a paused component is not ready")
	}
	pods := shared.Client().CoreV1().Pods(namespace)
	must(pods.Create(t.Context(), builder.Pod(namespace, "web").Obj(), metav1.CreateOptions{}))(t)
	// A pod that needs no scheduler passes it by.
	createReady(t, shared, builder.Pod(namespace, "placed").Node("node-1").Obj())
	if pod := must(pods.Get(t.Context(), "web", metav1.GetOptions{}))(t); pod.Spec.NodeName != "" {
		t.Errorf("nobody schedules, yet the pod is on %s", pod.Spec.NodeName)
	}
	if err := scheduler.Resume(); err != nil {
		t.Fatal(err)
	}
	resumed = true
	waitReady(t, shared, namespace, "web", "")
}

// A cluster with every option, of which nothing is left.
func TestOptionsAndStop(t *testing.T) {
	c := must(cluster.Start(t.Context(), cluster.Options{
		Nodes: 1,
		Dir:   t.TempDir(),
		SchedulerConfig: `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: other-scheduler}]
`,
		APIServerArgs: []string{"--max-requests-inflight=321"},
		Logf:          t.Logf,
	}.WithNative()))(t)
	stopped := false
	defer func() {
		if !stopped {
			if err := c.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}()
	if c.RequestLog() != nil {
		t.Error("there is a request log nobody asked for")
	}
	resources := must(c.Client().Discovery().ServerResourcesForGroupVersion("lifecycle.k8s.io/v1alpha1"))(t)
	if len(resources.APIResources) == 0 {
		t.Error("the gate and the runtime configuration serve the native API; it is not served")
	}
	pod := builder.Pod("default", "web").Obj()
	pod.Spec.SchedulerName = "other-scheduler"
	createReady(t, c, pod)

	var pids []int
	for _, name := range []cluster.ComponentName{cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kwok} {
		pids = append(pids, c.Component(name).PID())
	}
	// A paused process must not survive either.
	if err := c.Component(cluster.Kwok).Pause(); err != nil {
		t.Fatal(err)
	}
	stopped = true
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d has survived Stop", pid)
		}
	}
	if _, err := os.Stat(c.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder has survived Stop: %v", err)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Errorf("stopping again is no error, got: %v", err)
	}
}

func TestABootThatFailsSaysWhyAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	_, err := cluster.Start(t.Context(), cluster.Options{Dir: dir, APIServerArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("the error has the end of the log, got: %v", err)
	}
	left := must(os.ReadDir(dir))(t)
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestADeathIsReported(t *testing.T) {
	c := must(cluster.Start(t.Context(), cluster.Options{Logf: t.Logf}))(t)
	kwok := c.Component(cluster.Kwok)
	if err := syscall.Kill(kwok.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, "the death is noticed", func(ctx context.Context) error {
		if err := kwok.WaitReady(ctx); err == nil || ctx.Err() != nil {
			return errors.New("still there")
		}
		return nil
	})
	if err := c.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "kwok ended by itself") {
		t.Errorf("a component that nobody here has killed is an error at the end, got: %v", err)
	}
}

// victimEnv makes this test binary a program that starts a cluster, says what belongs
// to it, and waits to be killed.
const victimEnv = "DRAWBRIDGE_TEST_VICTIM"

func beVictim() int {
	c, err := cluster.Start(context.Background(), cluster.Options{Dir: os.Getenv(victimEnv)})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	for _, name := range []cluster.ComponentName{cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kwok} {
		fmt.Println(c.Component(name).PID())
	}
	fmt.Println("ready")
	<-make(chan struct{})
	return 0
}

func TestNothingIsLeftOfAKilledTest(t *testing.T) {
	dir := t.TempDir()
	victim := exec.Command(os.Args[0])
	victim.Env = append(os.Environ(), victimEnv+"="+dir)
	victim.Stderr = os.Stderr
	output := must(victim.StdoutPipe())(t)
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = victim.Process.Kill() // Gone already unless the test has failed.
		_ = victim.Wait()         // Its error is that it was killed.
	}()
	var pids []int
	ready := false
	for lines := bufio.NewScanner(output); !ready && lines.Scan(); {
		if lines.Text() == "ready" {
			ready = true
			continue
		}
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatalf("the victim says %q", lines.Text())
		}
		pids = append(pids, pid)
	}
	if !ready || len(pids) == 0 {
		t.Fatal("the victim has no cluster")
	}
	for _, pid := range pids {
		if !alive(pid) {
			t.Errorf("process %d is gone too early", pid)
		}
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, "processes and folder are gone", func(context.Context) error {
		for _, pid := range pids {
			if alive(pid) {
				return fmt.Errorf("process %d is there", pid)
			}
		}
		left, err := os.ReadDir(dir)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("folder %s is there", left[0].Name())
		}
		return err
	})
}

// alive reports whether there is a process of this number that is no zombie: in a
// container nobody may collect the children of the dead.
func alive(pid int) bool {
	output, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(output)), "Z")
}
