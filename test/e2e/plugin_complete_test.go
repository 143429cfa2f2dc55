//go:build unix

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// completes runs the plugin as the completion of a shell does, and returns what it offers.
func completes(ctx context.Context, t *testing.T, group string, args ...string) ([]string, error) {
	t.Helper()
	p := &pluginCall{user: "olga-of-" + group, group: group}
	code, said := p.run(ctx, t, append([]string{"__complete"}, args...)...)
	// Cobra's own line, which shells leave out, and nothing else.
	if want := "Completion ended with directive: ShellCompDirectiveNoFileComp\n"; code != 0 || said != want {
		return nil, fmt.Errorf("%q: exit code %d, said %q, want %q", args, code, said, want)
	}
	offered, ended := strings.CutSuffix(p.printed(), ":4\n")
	if !ended {
		return nil, fmt.Errorf("%q: printed %q", args, p.printed())
	}
	return strings.Fields(offered), nil
}

func TestNamesOfTheClusterAreCompleted(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	silent := nameIn(namespace, "silent")
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors(silent).Obj())
	create(t, hookOf(t, namespace, "dump", `{"job":`+jobThat("0")+`,"podSelector":{"matchLabels":{"app":"none"}}}`))
	createEvictionBudget(t, builder.EvictionBudget(namespace, "ingester", "app", "none"), 0)
	create(t, builder.EvictionRequest(namespace, pod.Name, pod.UID).Requesters("rebalancer.example.com").Obj())
	waitRequest(t, pod, "in the hands of the interceptor", activeIs(silent))
	cases := map[string]struct {
		args []string
		want string
	}{
		"a node":             {[]string{"status", node[:len(node)-1]}, node},
		"a node with a kind": {[]string{"cancel", "node/" + node[:len(node)-1]}, "node/" + node},
		"a pod":              {[]string{"why", "-n", namespace, "db"}, "db-0"},
		"an interceptor":     {[]string{"skip", "-n", namespace, "db-0", "sil"}, silent},
		"a hook":             {[]string{"hooks", "-n", namespace, "du"}, "dump"},
		"a budget":           {[]string{"budgets", "-n", namespace, "in"}, "ingester"},
		"a namespace":        {[]string{"why", "-n", namespace[:len(namespace)-1]}, namespace},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			// On a busy machine the cluster may not answer in the time that a completion has.
			eventually(t, tc.want+" to be offered", func(ctx context.Context) error {
				offered, err := completes(ctx, t, operators, tc.args...)
				if err == nil && !slices.Contains(offered, tc.want) {
					err = fmt.Errorf("offered %q", offered)
				}
				return err
			})
		})
	}
	t.Run("nothing without the right to list", func(t *testing.T) {
		if offered, err := completes(t.Context(), t, "visitors", "status", ""); err != nil || len(offered) > 0 {
			t.Errorf("offered %q, error %v", offered, err)
		}
	})
	plugin(t, "cancel", "pod/"+pod.Name, "-n", namespace)
}

// kubectl itself completes the plugin, by the program that the plugin prints.
func TestKubectlCompletesThePlugin(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	bin := t.TempDir()
	if err := os.Symlink(must(manager.BuildPlugin(t.Context()))(t), filepath.Join(bin, "kubectl-drawbridge")); err != nil {
		t.Fatal(err)
	}
	program := plugin(t, "completion", "kubectl")
	if err := os.WriteFile(filepath.Join(bin, "kubectl_complete-drawbridge"), []byte(program), 0o700); err != nil {
		t.Fatal(err)
	}
	path := strings.Join([]string{bin, "/usr/bin", "/bin"}, string(filepath.ListSeparator))
	env := []string{"KUBECONFIG=" + must(kube.KubeconfigFile("olga", operators))(t), "PATH=" + path, "HOME=" + t.TempDir()}
	for typed, want := range map[string]string{"sta": "status", "status " + node[:len(node)-1]: node} {
		args := append([]string{"__complete", "drawbridge"}, strings.Split(typed, " ")...)
		eventually(t, "kubectl to offer "+want, func(ctx context.Context) error {
			running, err := kube.StartProgram(ctx, cluster.ProgramOptions{Env: env}, filepath.Join(kube.Dir(), "bin", "kubectl"), args...)
			if err != nil {
				return err
			}
			result, err := running.Wait()
			if err != nil {
				return err
			}
			offered := slices.ContainsFunc(strings.Split(result.Stdout, "\n"), func(line string) bool {
				name, _, _ := strings.Cut(line, "\t") // A description follows.
				return name == want
			})
			if result.ExitCode != 0 || !offered || !strings.HasSuffix(result.Stdout, ":4\n") {
				return fmt.Errorf("exit code %d, offered\n%s%s", result.ExitCode, result.Stdout, result.Stderr)
			}
			return nil
		})
	}
}
