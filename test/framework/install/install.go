// Package install puts Drawbridge into a cluster the way a user does: with helm and the
// chart of this repository. Tests and the demo have no other way, so they test what users
// get.
package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/test/framework/gocommand"
)

const modulePath = "github.com/drawbridge-dev/drawbridge"

// Where a release is installed unless Options say otherwise.
const (
	DefaultRelease   = "drawbridge"
	DefaultNamespace = "drawbridge-system"
)

// Options of an installation. Only Kubeconfig is required, and only to install.
type Options struct {
	// Kubeconfig is the path of the file that says which cluster to install into,
	// as a user who may create cluster-scoped objects.
	Kubeconfig string
	// Release is the name of the release. Default: DefaultRelease.
	Release string
	// Namespace is created if it is not there. Default: DefaultNamespace.
	Namespace string
	// Values override those of the chart's values.yaml.
	Values map[string]any
	// APIVersions are API versions, with or without a kind, that [Render] takes the
	// cluster to have, besides those of helm's default. [Run] asks the cluster.
	APIVersions []string
	// KubeVersion is the version, such as 1.38.0, that [Render] takes the cluster to have. Default:
	// that of helm.
	KubeVersion string
	// Chart is the folder of the chart. Default: this repository's, see [Chart].
	Chart string
	// TakeOwnership makes [Run] take over objects that belong to another release, such as
	// the CustomResourceDefinitions that one has left.
	TakeOwnership bool
	// NoHooks makes [Uninstall] leave out what runs in the cluster before, for clusters
	// in which nothing runs.
	NoHooks bool
}

func (o Options) chart(ctx context.Context) (string, error) {
	if o.Chart != "" {
		return o.Chart, nil
	}
	return Chart(ctx)
}

// Args are the arguments helm is run with by [Run], the values left out: they are
// given on standard input.
func (o Options) Args(chart string) []string {
	o = o.withDefaults()
	args := []string{"upgrade", "--install", o.Release, chart, "--namespace", o.Namespace, "--create-namespace"}
	if len(o.Values) > 0 {
		args = append(args, "--values", "-")
	}
	if o.TakeOwnership {
		args = append(args, "--take-ownership")
	}
	return args
}

func (o Options) withDefaults() Options {
	if o.Release == "" {
		o.Release = DefaultRelease
	}
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	return o
}

// Run installs the chart, or upgrades the release if it is there already. It does
// not wait for anything; see [WaitReady]. Error: what helm said on standard error.
func Run(ctx context.Context, o Options) error {
	if o.Kubeconfig == "" {
		return errors.New("install chart: no kubeconfig")
	}
	chart, err := o.chart(ctx)
	if err != nil {
		return err
	}
	_, err = runHelm(ctx, o, append(o.Args(chart), "--kubeconfig", o.Kubeconfig)...)
	return err
}

// Uninstall removes the release. What the chart keeps (the CRDs) stays.
func Uninstall(ctx context.Context, o Options) error {
	if o.Kubeconfig == "" {
		return errors.New("uninstall chart: no kubeconfig")
	}
	o = o.withDefaults()
	o.Values = nil
	args := []string{"uninstall", o.Release, "--namespace", o.Namespace, "--kubeconfig", o.Kubeconfig}
	if o.NoHooks {
		args = append(args, "--no-hooks")
	}
	_, err := runHelm(ctx, o, args...)
	return err
}

// Render returns the objects of the chart without a cluster.
func Render(ctx context.Context, o Options) ([]*unstructured.Unstructured, error) {
	chart, err := o.chart(ctx)
	if err != nil {
		return nil, err
	}
	o = o.withDefaults()
	args := []string{"template", o.Release, chart, "--namespace", o.Namespace}
	if len(o.Values) > 0 {
		args = append(args, "--values", "-")
	}
	for _, version := range o.APIVersions {
		args = append(args, "--api-versions", version)
	}
	if o.KubeVersion != "" {
		args = append(args, "--kube-version", o.KubeVersion)
	}
	rendered, err := runHelm(ctx, o, args...)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLToJSONDecoder(bytes.NewReader(rendered))
	for {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("decode rendered chart: %w", err)
		case len(object.Object) > 0: // Not a document of comments only.
			objects = append(objects, object)
		}
	}
}

func runHelm(ctx context.Context, o Options, args ...string) ([]byte, error) {
	helm, err := Helm(ctx)
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, helm, args...)
	if len(o.Values) > 0 {
		values, err := yaml.Marshal(o.Values)
		if err != nil {
			return nil, fmt.Errorf("encode chart values: %w", err)
		}
		command.Stdin = bytes.NewReader(values)
	}
	home, err := helmHome()
	if err != nil {
		return nil, err
	}
	command.Env = append(os.Environ(), home...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("helm %s: %w: %s", args[0], errors.Join(err, ctx.Err()), strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// helmHome keeps helm away from the user's plugins and settings.
func helmHome() ([]string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find cache folder: %w", err)
	}
	home := filepath.Join(cache, "drawbridge", "helm")
	return []string{
		"HELM_CACHE_HOME=" + filepath.Join(home, "cache"),
		"HELM_CONFIG_HOME=" + filepath.Join(home, "config"),
		"HELM_DATA_HOME=" + filepath.Join(home, "data"),
	}, nil
}

// Chart returns the folder of the chart. It looks at each file of it, or the go
// command would not know that a test, whose files helm reads, depends on them, and
// repeat an old result.
func Chart(ctx context.Context) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	chart := filepath.Join(root, "charts", "drawbridge")
	err = filepath.WalkDir(chart, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read chart: %w", err)
	}
	return chart, nil
}

// Helm returns the path of the pinned helm, which the go command builds if it is
// not in its cache (about two minutes on two cores).
func Helm(ctx context.Context) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	return known(&helmOnce, "build helm", func() (string, error) {
		// -n builds the tool and prints where it is instead of running it.
		return gocommand.Output(ctx, root, "tool", "-modfile=go.tools.helm.mod", "-n", "helm")
	})
}

// moduleRoot is the folder of this module, from wherever in it the caller runs. The go command
// is asked once: it takes a tenth of a second.
func moduleRoot(ctx context.Context) (string, error) {
	return known(&rootOnce, "find module", func() (string, error) {
		return gocommand.Output(ctx, "", "list", "-m", "-f", "{{.Dir}}", modulePath)
	})
}

var rootOnce, helmOnce path

// path is one that is found out once; an error is not kept.
type path struct {
	sync.Mutex
	is string
}

func known(p *path, what string, find func() (string, error)) (string, error) {
	p.Lock()
	defer p.Unlock()
	if p.is == "" {
		found, err := find()
		if err != nil {
			return "", fmt.Errorf("%s: %w", what, err)
		}
		p.is = found
	}
	return p.is, nil
}
