// Command manifests writes the manifests for those who install without helm: what the chart
// renders with its default values, as files for `kubectl apply --server-side`.
//
//	install.yaml       everything, in the order in which kubectl applies it
//	install-crds.yaml  the CustomResourceDefinitions alone
//	cleanup.yaml       the Job that helm runs before it uninstalls, and its permissions
//
// It needs no cluster and no network beyond what the go command needs to build helm. The
// same sources give the same bytes.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	var o options
	flag.StringVar(&o.version, "version", "", "release that the manifests are of, such as v0.1.0")
	flag.StringVar(&o.out, "out", "dist", "folder to write to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := o.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

type options struct {
	version, out string
}

// release is a version as Semantic Versioning has it, with a leading v.
var release = regexp.MustCompile(`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$`)

func (o options) run(ctx context.Context) error {
	if !release.MatchString(o.version) {
		return fmt.Errorf("VERSION is %q: set it to a release, such as v0.1.0", o.version)
	}
	rendered, err := render(ctx, strings.TrimPrefix(o.version, "v"))
	if err != nil {
		return err
	}
	files, err := manifests(rendered, o.version)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil { //nolint:gosec // What is released is for everybody.
		return fmt.Errorf("make the folder: %w", err)
	}
	for name, content := range files {
		path := filepath.Join(o.out, name)
		if err := os.WriteFile(path, content, 0o644); err != nil { //nolint:gosec // What is released is for everybody.
			return fmt.Errorf("write a manifest: %w", err)
		}
	}
	return nil
}

const (
	releaseName = "drawbridge"
	namespace   = "drawbridge-system"
)

// render returns what helm makes of the chart of this version.
func render(ctx context.Context, version string) ([]byte, error) {
	root, err := output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", "github.com/drawbridge-dev/drawbridge")
	if err != nil {
		return nil, err
	}
	folder := strings.TrimSpace(string(root))
	// -n builds the tool and prints where it is instead of running it.
	helm, err := output(ctx, folder, "go", "tool", "-modfile=go.tools.helm.mod", "-n", "helm")
	if err != nil {
		return nil, err
	}
	temporary, err := os.MkdirTemp("", "drawbridge-manifests-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	rendered, err := renderIn(ctx, temporary, strings.TrimSpace(string(helm)), filepath.Join(folder, "charts", "drawbridge"), version)
	return rendered, errors.Join(err, os.RemoveAll(temporary))
}

// renderIn packages the chart into the folder, which is how it gets another version.
func renderIn(ctx context.Context, folder, helm, chart, version string) ([]byte, error) {
	if _, err := output(ctx, folder, helm, "package", chart, "--version", version, "--app-version", version, "--destination", folder); err != nil {
		return nil, err
	}
	packed := filepath.Join(folder, fmt.Sprintf("drawbridge-%s.tgz", version))
	// Without helm nobody looks at what is in the cluster, and nobody keeps the definitions.
	return output(ctx, folder, helm, "template", releaseName, packed, "--namespace", namespace, "--set", "gitops.enabled=true,crds.keep=false")
}

// output runs a program in a folder. Helm finds no plugins and settings of the person who
// runs this.
func output(ctx context.Context, folder, program string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, program, args...)
	command.Dir = folder
	command.Env = append(os.Environ(), "GOWORK=off", "HELM_CACHE_HOME="+folder, "HELM_CONFIG_HOME="+folder, "HELM_DATA_HOME="+folder)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", filepath.Base(program), args[0], errors.Join(err, ctx.Err()), strings.TrimSpace(stderr.String()))
	}
	return out, nil
}
