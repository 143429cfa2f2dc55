package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is printed can be pasted into a shell, and afterwards nothing is left.
func TestClusterUpSaysHowToUseIt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"--nodes=1", "--request-log", "--feature-gates=EvictionRequestAPI=true", "--runtime-config=lifecycle.k8s.io/v1alpha1=true"}, writer)
		ended <- errors.Join(err, writer.Close())
	}()

	var exports []string
	for lines := bufio.NewScanner(reader); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "export ") {
			exports = append(exports, line)
		}
		if strings.HasPrefix(line, "Ctrl-C") {
			break
		}
	}
	if len(exports) != 2 {
		t.Fatalf("want KUBECONFIG and PATH to be exported, got %q", exports)
	}
	script := strings.Join(exports, "\n") + "\nkubectl get nodes -o name && kubectl get --raw /apis/lifecycle.k8s.io/v1alpha1 >/dev/null && dirname $(dirname $KUBECONFIG)"
	output, err := exec.Command("/bin/sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	nodes, dir, _ := bytes.Cut(bytes.TrimSpace(output), []byte("\n"))
	if diff := cmp.Diff("node/node-1", string(nodes)); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(string(dir), "logs", "audit.log")); err != nil {
		t.Errorf("the request log was asked for: %v", err)
	}

	cancel()
	if err := <-ended; err != nil {
		t.Errorf("interrupted as it should be, and: %v", err)
	}
	if _, err := os.Stat(string(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %s (%v)", dir, err)
	}
}

func TestArgumentsThatMakeNoSense(t *testing.T) {
	tests := map[string][]string{
		"an unknown flag":                       {"--no-such-flag"},
		"an argument":                           {"now"},
		"a gate that is neither true nor false": {"--feature-gates=A=perhaps"},
		"a gate without a value":                {"--feature-gates=A"},
		"a runtime configuration without one":   {"--runtime-config=v1"},
		"a scheduler configuration nobody has":  {"--scheduler-config=/no/such/file"},
	}
	for name, args := range tests {
		t.Run(name, func(t *testing.T) {
			if err := run(t.Context(), args, io.Discard); err == nil {
				t.Errorf("no error for %v", args)
			}
		})
	}
}
