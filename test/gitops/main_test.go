//go:build unix

// Package gitops applies the examples for Argo CD, Flux, kustomize and Terraform to an
// embedded control plane, in the way in which these tools apply them, while a manager runs.
// It is a module of its own: Flux's types and the parser of HCL are no dependencies of
// Drawbridge.
package gitops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// patience is how long a test waits for what must happen.
const patience = 3 * time.Minute

var (
	kube *cluster.Cluster
	way  *egress
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	log.SetLogger(logr.Discard())
	var err error
	if way, err = newEgress(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := way.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}()
	return cluster.Main(m, cluster.Options{Nodes: 3, APIServerArgs: []string{"--egress-selector-config-file=" + way.Config}}, func(c *cluster.Cluster) error {
		kube = c
		_, err := manager.Build(context.Background()) // No bound of a test is for the compiler.
		return err
	})
}

// example is the path of a file or folder of the examples.
func example(t *testing.T, elements ...string) string {
	t.Helper()
	examples, err := filepath.Abs(filepath.Join("..", "..", "examples"))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(append([]string{examples}, elements...)...)
}

// kubectl runs kubectl and returns its standard output.
func kubectl(ctx context.Context, o cluster.KubectlOptions, args ...string) (string, error) {
	result, err := kube.Kubectl(ctx, o, args...)
	if err := errors.Join(err, result.Err()); err != nil {
		return "", err
	}
	return result.Stdout, nil
}
