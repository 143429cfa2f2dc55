//go:build unix

package install_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// commandsOf are the commands in a section of a page: its lines that are indented by four
// spaces and begin with this word, each with the lines that it goes on in.
func commandsOf(t *testing.T, page, section, word string) []string {
	t.Helper()
	_, text, found := strings.Cut(readPage(t, page), "\n"+section+"\n")
	if !found {
		t.Fatalf("docs/%s has no section %q", page, section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var commands []string
	goesOn := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case goesOn:
			commands[len(commands)-1] += "\n" + line
		case strings.HasPrefix(line, "    "+word+" "):
			commands = append(commands, strings.TrimPrefix(line, "    "))
		default:
			continue
		}
		goesOn = strings.HasSuffix(line, "\\")
	}
	if len(commands) == 0 {
		t.Fatalf("docs/%s has no command %s in %q", page, word, section)
	}
	return commands
}

func readPage(t *testing.T, page string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(chartFolder(t))), "docs", filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// shell runs commands as a reader of the page does, in the folder of the repository.
func shell(ctx context.Context, t *testing.T, commands ...string) error {
	t.Helper()
	return shellIn(ctx, t, filepath.Dir(filepath.Dir(chartFolder(t))), commands...)
}

// shellIn runs them in another folder.
func shellIn(ctx context.Context, t *testing.T, folder string, commands ...string) error {
	t.Helper()
	helm, err := install.Helm(ctx)
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(helm, filepath.Join(bin, "helm")); err != nil {
		t.Fatal(err)
	}
	script := "set -euo pipefail\ncd " + folder + "\n" + strings.Join(commands, "\n")
	list := string(filepath.ListSeparator)
	env := append(os.Environ(), "KUBECONFIG="+kubeconfig(t), "PATH="+bin+list+filepath.Join(kube.Dir(), "bin")+list+os.Getenv("PATH"))
	program, err := kube.StartProgram(ctx, cluster.ProgramOptions{Env: env}, "/bin/bash", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	result, err := program.Wait()
	return errors.Join(err, result.Err())
}

// The commands of docs/guides/guard.md, preemption.md and docs/operations/uninstall.md
// that are given to helm, word for word.
func TestThePagesGiveHelmWhatItNeeds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	ownDefinitions(t)
	first := install.Options{Kubeconfig: kubeconfig(t), NoHooks: true} // Nothing would run them.
	if err := install.Run(ctx, first); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { uninstallIfThere(t) })

	if err := shell(ctx, t, commandsOf(t, "guides/guard.md", "## Switch it off", "helm")...); err != nil {
		t.Fatal(err)
	}
	roles := kube.Client().RbacV1().ClusterRoles()
	if _, err := roles.Get(ctx, "drawbridge-guard", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the guard is not off: %v", err)
	}
	// The only thing that is not as on the page: the address is of this cluster's range.
	command := strings.ReplaceAll(commandsOf(t, "guides/preemption.md", "## Switch it on", "helm")[0], "10.96.0.44", freeAddress(ctx, t))
	if err := shell(ctx, t, command); err != nil {
		t.Fatal(err)
	}
	if _, err := kube.Client().CoreV1().Services(install.DefaultNamespace).Get(ctx, "drawbridge-preemption", metav1.GetOptions{}); err != nil {
		t.Errorf("preemption is not on: %v", err)
	}
	if err := install.Uninstall(ctx, first); err != nil {
		t.Fatal(err)
	}

	again := commandsOf(t, "operations/uninstall.md", "## Install again", "helm")[0]
	const flag = " --take-ownership"
	if err := shell(ctx, t, strings.Replace(again, flag, "", 1)); err == nil || !strings.Contains(err.Error(), "invalid ownership metadata; annotation validation error") {
		t.Fatalf("without%s: want the refusal that the page names, got %v", flag, err)
	}
	if err := shell(ctx, t, again); err != nil {
		t.Fatal(err)
	}
	second := install.Options{Kubeconfig: kubeconfig(t), Release: "bridge", Namespace: "bridge", NoHooks: true}
	t.Cleanup(func() {
		if err := install.Uninstall(context.WithoutCancel(ctx), second); err != nil {
			t.Error(err)
		}
	})
	if err := install.Run(ctx, second); err != nil {
		t.Errorf("a later upgrade: %v", err)
	}
}

// freeAddress is one that the API server would give to a Service.
func freeAddress(ctx context.Context, t *testing.T) string {
	t.Helper()
	service, err := kube.Client().CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	range24 := service.Spec.ClusterIP[:strings.LastIndex(service.Spec.ClusterIP, ".")]
	return fmt.Sprintf("%s.%d", range24, 44)
}
