//go:build unix

package install_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// quickStartTimeout bounds all steps together.
const quickStartTimeout = 4 * time.Minute

// The steps of docs/quick-start.md for a cluster, word for word, by a shell. Only two
// things are not as in a cluster: the manager's pods are kwok's, so a manager under the
// chart's account runs beside them, and helm keeps the value that says where that is.
func TestQuickStart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), quickStartTimeout)
	defer cancel()
	nodes, err := kube.AddNodes(ctx, 3, func(*corev1.Node) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, node := range nodes {
			if err := kube.Client().CoreV1().Nodes().Delete(context.WithoutCancel(ctx), node, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	inst, err := manager.Install(ctx, kube, manager.InstallOptions{Values: values{"deployment": values{"enabled": true}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		o := install.Options{Kubeconfig: kubeconfig(t), NoHooks: true} // Nothing would run them.
		if err := install.Uninstall(context.WithoutCancel(ctx), o); err != nil {
			t.Error(err)
		}
	})
	manager, err := inst.Start(ctx, manager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if err := manager.Stop(stopping); err != nil {
			t.Errorf("stop the manager: %v", err)
		}
	})
	out := quickStart(ctx, t)
	for _, want := range []string{
		`(?m)^Release "drawbridge" has been upgraded`,
		`(?m)^deployment "drawbridge" successfully rolled out$`,
		`(?m)^deployment "web" successfully rolled out$`,
		`error when evicting pods/"web-\S+" .*denied the request: Eviction triggered evacuation: `,
		`(?m)^node/\S+ drained$`,
		`(?m)^[0-9a-f-]{36} .*surge\.drawbridge\.dev`, // From the other window.
		`(?m)^node/\S+ uncordoned$`,
		`(?m)^namespace "shop" deleted`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("nothing in the output matches %s", want)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

// quickStart runs the steps and returns what they print.
func quickStart(ctx context.Context, t *testing.T) string {
	t.Helper()
	helm, err := install.Helm(ctx)
	if err != nil {
		t.Fatal(err)
	}
	chart, err := install.Chart(ctx)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Dir(filepath.Dir(chart))
	bin := t.TempDir()
	wrapper := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\" --reuse-values\n", helm)
	if err := os.WriteFile(filepath.Join(bin, "helm"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	watched := filepath.Join(t.TempDir(), "watched") // Into one file with the rest, lines could be torn.
	watching := filepath.Join(t.TempDir(), "watching")
	script := "set -euo pipefail\ncd " + root + "\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
	for _, command := range quickStartCommands(t, root) {
		if strings.Contains(command, "--watch") {
			continue
		}
		if strings.HasPrefix(command, "kubectl drain ") { // The other window comes first.
			// It shows a turn that is over in a second only if it has begun before the drain.
			script += watchCommand(t, root) + " -v=6 >" + watched + " 2>" + watching + " &\n" +
				"for i in $(seq 300); do grep -q watch=true " + watching + " && break; sleep 0.2; done\n"
		}
		script += command + "\n"
	}
	env := append(os.Environ(),
		"KUBECONFIG="+kubeconfig(t), "PATH="+bin+string(filepath.ListSeparator)+filepath.Join(kube.Dir(), "bin")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	shell, err := kube.StartProgram(ctx, cluster.ProgramOptions{Env: env}, "/bin/bash", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	result, err := shell.Wait()
	if err := errors.Join(err, result.Err()); err != nil {
		t.Fatalf("the steps failed: %v\n%s\n%s\n%s", err, script, result.Stdout, result.Stderr)
	}
	seen, err := os.ReadFile(watched)
	if err != nil {
		t.Fatal(err)
	}
	return result.Stdout + result.Stderr + string(seen)
}

// quickStartCommands are the commands for a cluster in docs/quick-start.md: the
// indented lines of its section.
func quickStartCommands(t *testing.T, root string) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "quick-start.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## On your cluster")
	section, _, found := strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("docs/quick-start.md has no section about a cluster with another one after it")
	}
	var commands []string
	for line := range strings.Lines(section) {
		if command, ok := strings.CutPrefix(line, "       "); ok {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	return commands
}

// watchCommand is the one for another window.
func watchCommand(t *testing.T, root string) string {
	t.Helper()
	for _, command := range quickStartCommands(t, root) {
		if strings.Contains(command, "--watch") {
			return command
		}
	}
	t.Fatal("docs/quick-start.md shows nothing to watch")
	return ""
}
