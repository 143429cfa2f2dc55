//go:build unix

package manager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

const modulePath = "github.com/drawbridge-dev/drawbridge"

// programs built by this process, by name.
var programs = struct {
	sync.Mutex
	path map[string]string
}{path: map[string]string{}}

// Build builds cmd/drawbridge once per process and returns the program's path.
func Build(ctx context.Context) (string, error) {
	return buildOnce(ctx, "drawbridge", filepath.Join("cmd", "drawbridge"))
}

// BuildPlugin builds cmd/kubectl-drawbridge as Build does.
func BuildPlugin(ctx context.Context) (string, error) {
	return buildOnce(ctx, "kubectl-drawbridge", filepath.Join("cmd", "kubectl-drawbridge"))
}

// BuildInterceptor builds examples/interceptor, a module of its own, once per
// process and returns the program's path.
func BuildInterceptor(ctx context.Context) (string, error) {
	return buildOnce(ctx, "interceptor", filepath.Join("examples", "interceptor"))
}

// BuildClientGoInterceptor builds examples/interceptor-client-go, the same in plain
// client-go, as BuildInterceptor does.
func BuildClientGoInterceptor(ctx context.Context) (string, error) {
	return buildOnce(ctx, "interceptor-client-go", filepath.Join("examples", "interceptor-client-go"))
}

// buildOnce builds the package in a folder of the checkout.
func buildOnce(ctx context.Context, name, folder string) (string, error) {
	programs.Lock()
	defer programs.Unlock()
	if path := programs.path[name]; path != "" {
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache folder: %w", err)
	}
	root, err := goCommand(ctx, "", "list", "-m", "-f", "{{.Dir}}", modulePath)
	if err != nil {
		return "", err
	}
	// One file per checkout, so that no run leaves something behind, and put in its
	// place whole, as another test may be running it.
	path := filepath.Join(cache, "drawbridge", "programs", strings.ReplaceAll(strings.Trim(root, "/"), "/", "-"), name)
	fresh := path + "." + strconv.Itoa(os.Getpid())
	if _, err := goCommand(ctx, filepath.Join(root, folder), "build", "-o", fresh, "."); err != nil {
		return "", err
	}
	if err := os.Rename(fresh, path); err != nil {
		return "", fmt.Errorf("build %s: %w", name, err)
	}
	programs.path[name] = path
	return path, nil
}

// goCommand runs the go command in a folder and returns what it prints.
func goCommand(ctx context.Context, folder string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = folder
	out, err := command.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("go %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
