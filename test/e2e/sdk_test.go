//go:build unix

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// restartInterceptor starts a program of startInterceptor again, after its end.
func restartInterceptor(t *testing.T, namespace, name string, work time.Duration) *cluster.Program {
	t.Helper()
	kubeconfig := must(kube.KubeconfigFileForServiceAccount(t.Context(), namespace, name))(t)
	program := must(kube.StartProgram(t.Context(), cluster.ProgramOptions{}, must(manager.BuildInterceptor(t.Context()))(t),
		"--kubeconfig="+kubeconfig, "--name="+name, "--namespace="+namespace, "--work="+work.String()))(t)
	tellWhenFailed(t, "interceptor "+name+", started again,", program)
	waitLine(t, program, "is waiting for its turn")
	return program
}

// reportOf is an interceptor's report; an empty one if it has none.
func reportOf(er *v1alpha1.EvictionRequest, name string) v1alpha1.InterceptorStatus {
	for _, report := range er.Status.Interceptors {
		if report.Name == name {
			return report
		}
	}
	return v1alpha1.InterceptorStatus{}
}

// The program of an interceptor dies in the middle of its work, as does the one
// that follows it. They are started again and go on where they were; who drains the
// node notices nothing.
func TestInterceptorsSurviveTheirOwnKill(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	const first, second, work = "first.example.com", "second.example.com", 4 * time.Second
	programs := map[string]*cluster.Program{}
	for _, name := range []string{first, second} {
		programs[name] = startInterceptor(t, namespace, name, work)
	}
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors(first, second).Obj())
	drain := startDrain(t, "alice", node)
	started := map[string]v1alpha1.InterceptorStatus{}
	for _, name := range []string{first, second} {
		waitLine(t, programs[name], "db-0: started")
		killed(t, programs[name])
		er := must(getRequest(t.Context(), pod))(t)
		if !activeIs(name)(er) {
			t.Fatalf("active: %v, want %s", er.Status.ActiveInterceptors, name)
		}
		started[name] = reportOf(er, name)
		restarted := restartInterceptor(t, namespace, name, work)
		waitLine(t, restarted, "db-0: started")
	}
	gone(t, pod)
	saysAll(t, "standard output", finishWell(t, drain).Stdout, "node/"+node+" drained")
	er := waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	want := end{
		Conditions: []string{"Evicted=True PodDeleted"},
		Processed:  []string{first, second, v1alpha1.ImperativeEvictionInterceptor},
		Completed:  []string{first, second},
	}
	if diff := cmp.Diff(want, endOf(er)); diff != "" {
		t.Errorf("end (-want +got):\n%s", diff)
	}
	for _, name := range []string{first, second} {
		report := reportOf(er, name)
		if !report.StartTime.Equal(started[name].StartTime) || report.Message != "done" {
			t.Errorf("%s reports %+v at the end; it had started at %s", name, report, started[name].StartTime)
		}
		// Both times are cut to seconds.
		if worked := report.CompletionTime.Sub(report.StartTime.Time); worked < work-time.Second {
			t.Errorf("%s worked for %s, want %s", name, worked, work)
		}
	}
}

// The eviction is called off while an interceptor works, or while it is dead: it
// undoes what it began, and the pod stays.
func TestAnInterceptorUndoesWhatWasCalledOff(t *testing.T) {
	shareManager(t)
	const name, requester = "undo.example.com", "rebalancer.example.com"
	for title, dead := range map[string]bool{"while it works": false, "while it is dead": true} {
		t.Run(title, func(t *testing.T) {
			namespace := kube.Namespace(t)
			program := startInterceptor(t, namespace, name, time.Hour)
			pods := map[string]*corev1.Pod{}
			rebalancer := newNative(t, namespace, "rebalancer", requester)
			for _, pod := range []string{"canceled", "goes-on"} {
				pods[pod] = createPod(t, builder.Pod(namespace, pod).Interceptors(name).Obj())
				rebalancer.apply(t, pods[pod], true)
				waitLine(t, program, pod+": started")
			}
			if dead {
				killed(t, program)
			}
			rebalancer.apply(t, pods["canceled"], false)
			er := waitRequest(t, pods["canceled"], "Canceled", isTrue(v1alpha1.ConditionCanceled))
			if dead {
				program = restartInterceptor(t, namespace, name, time.Hour)
				waitLine(t, program, "goes-on: started")
			}
			waitLine(t, program, "canceled: stopping, because the request is Canceled (NoRequesters)")
			if report := reportOf(er, name); report.StartTime == nil || report.CompletionTime != nil {
				t.Errorf("report %+v, want a start and no completion", report)
			}
			eventually(t, "the other one to go on", func(ctx context.Context) error {
				er, err := getRequest(ctx, pods["goes-on"])
				if err == nil && !slices.Contains(er.Status.ActiveInterceptors, name) {
					err = fmt.Errorf("active: %v", er.Status.ActiveInterceptors)
				}
				return err
			})
			for _, pod := range pods {
				lives(t, pod)
			}
		})
	}
}
