package cluster_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

func TestKubectlRunsToItsEnd(t *testing.T) {
	namespace := shared.Namespace(t)
	manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n"
	tests := map[string]struct {
		options    cluster.KubectlOptions
		args       []string
		wantCode   int
		wantStdout string
		wantStderr string
	}{
		"as the admin": {
			args:       []string{"get", "namespace", namespace, "-o", "name"},
			wantStdout: "namespace/" + namespace + "\n",
		},
		"with standard input": {
			options:    cluster.KubectlOptions{Stdin: strings.NewReader(manifest)},
			args:       []string{"create", "-n", namespace, "-f", "-"},
			wantStdout: "configmap/settings created\n",
		},
		"as somebody without rights": {
			options:    cluster.KubectlOptions{User: "jane", Groups: []string{"dev"}},
			args:       []string{"get", "pods", "-n", namespace},
			wantCode:   1,
			wantStderr: `User "jane" cannot list resource "pods"`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := must(shared.Kubectl(t.Context(), tt.options, tt.args...))(t)
			if diff := cmp.Diff(tt.wantCode, got.ExitCode); diff != "" {
				t.Errorf("exit code (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.wantStdout, got.Stdout); diff != "" {
				t.Errorf("standard output (-want +got):\n%s", diff)
			}
			if !strings.Contains(got.Stderr, tt.wantStderr) {
				t.Errorf("standard error has no %q:\n%s", tt.wantStderr, got.Stderr)
			}
			if failed := got.Err() != nil; failed != (tt.wantCode != 0) {
				t.Errorf("exit code %d, and error: %v", got.ExitCode, got.Err())
			}
		})
	}
}

func TestDrainIsWatchedAndInterrupted(t *testing.T) {
	namespace := shared.Namespace(t)
	if err := shared.AddNode(t.Context(), "drained"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shared.Client().CoreV1().Nodes().Delete(context.Background(), "drained", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	createReady(t, shared, builder.Pod(namespace, "db").Node("drained").Label("app", "db").Obj())
	must(shared.Client().PolicyV1().PodDisruptionBudgets(namespace).Create(t.Context(),
		builder.Budget(namespace, "db").Selects("app", "db").MinAvailable("1").Obj(), metav1.CreateOptions{}))(t)
	waitBudget(t, namespace, "db", 0)

	var seen []string
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	drain := must(shared.StartKubectl(ctx, cluster.KubectlOptions{
		User: "operator", Groups: []string{"system:masters"},
		OnLine: func(line cluster.Line) { seen = append(seen, line.Text) },
	}, "drain", "drained", "--force"))(t)
	line := must(drain.WaitLine(ctx, "Cannot evict pod"))(t)
	if !line.Stderr || line.Time.IsZero() || time.Since(line.Time) > patience {
		t.Errorf("kubectl complains on standard error, just now; got %+v", line)
	}
	select {
	case <-drain.Done():
		t.Error("the budget still blocks, yet the drain has ended")
	default:
	}
	if err := drain.Interrupt(); err != nil {
		t.Fatal(err)
	}
	result := must(drain.Wait())(t) // An error if it is ended by ctx, since the interrupt did nothing.
	if result.Err() == nil {
		t.Error("an interrupted drain has not succeeded")
	}
	if diff := cmp.Diff(len(drain.Lines()), len(seen)); diff != "" {
		t.Errorf("lines told one by one (-want +got):\n%s", diff)
	}
	if _, err := drain.WaitLine(ctx, "never written"); err == nil || !strings.Contains(err.Error(), "Cannot evict pod") {
		t.Errorf("waiting for a line of a kubectl that has ended fails and shows what there was, got: %v", err)
	}
}

func TestKubectlEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	watch := must(shared.StartKubectl(ctx, cluster.KubectlOptions{}, "get", "nodes", "--watch"))(t)
	must(watch.WaitLine(t.Context(), "node-1"))(t)
	cancel()
	if _, err := watch.Wait(); err == nil {
		t.Error("a kubectl whose context ended has an error")
	}
}

func TestProgramsAreWatched(t *testing.T) {
	program := must(shared.StartProgram(t.Context(), cluster.ProgramOptions{Env: []string{"WHO=world"}, Stdin: strings.NewReader("in\n")},
		"/bin/sh", "-c", `read -r line; echo "$line $WHO"; echo bad >&2; printf rest; exit 3`))(t)
	result := must(program.Wait())(t)
	if result.Err() == nil || result.ExitCode != 3 {
		t.Errorf("want exit code 3 and an error, got %d, %v", result.ExitCode, result.Err())
	}
	if diff := cmp.Diff([]string{"in world\nrest", "bad\n"}, []string{result.Stdout, result.Stderr}); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
	if lines := program.Lines(); len(lines) != 2 {
		t.Errorf("want the two whole lines, got %v", lines)
	}
	if _, err := shared.StartProgram(t.Context(), cluster.ProgramOptions{}, "/no/such/program"); err == nil {
		t.Error("started a program that is not there")
	}
}
