//go:build unix

package manager

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/drawbridge-dev/drawbridge/test/framework/gocommand"
)

const modulePath = "github.com/drawbridge-dev/drawbridge"

// programs built by this process, by name, and what they were built from.
var programs = struct {
	sync.Mutex
	path    map[string]string
	sources map[string][]string
}{path: map[string]string{}, sources: map[string][]string{}}

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

// BuildNativeResponder builds test/e2e/native/responder, which responds to Evictions of lifecycle.k8s.io
// and knows nothing of us, as BuildInterceptor does.
func BuildNativeResponder(ctx context.Context) (string, error) {
	return buildOnce(ctx, "native-responder", filepath.Join("test", "e2e", "native", "responder"))
}

// buildOnce builds the package in a folder of the checkout.
func buildOnce(ctx context.Context, name, folder string) (string, error) {
	programs.Lock()
	defer programs.Unlock()
	if path := programs.path[name]; path != "" {
		return path, lookAt(programs.sources[name])
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache folder: %w", err)
	}
	root, err := gocommand.Output(ctx, "", "list", "-m", "-f", "{{.Dir}}", modulePath)
	if err != nil {
		return "", err
	}
	if programs.sources[name], err = sourcesOf(ctx, root, folder); err != nil {
		return "", err
	}
	// One file per checkout, so that no run leaves something behind, and put in its
	// place whole, as another test may be running it.
	path := filepath.Join(cache, "drawbridge", "programs", strings.ReplaceAll(strings.Trim(root, "/"), "/", "-"), name)
	fresh := path + "." + strconv.Itoa(os.Getpid())
	if _, err := gocommand.Output(ctx, filepath.Join(root, folder), "build", "-o", fresh, "."); err != nil {
		return "", err
	}
	if err := os.Rename(fresh, path); err != nil {
		return "", fmt.Errorf("build %s: %w", name, err)
	}
	programs.path[name] = path
	return path, lookAt(programs.sources[name])
}

// sourcesOf are the files of the checkout that a program is built from, and the chart
// that it is installed with.
func sourcesOf(ctx context.Context, root, folder string) ([]string, error) {
	listed, err := gocommand.Output(ctx, filepath.Join(root, folder), "list", "-deps", "-f",
		`{{if not .Standard}}{{range .GoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .EmbedFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}{{end}}`, ".")
	if err != nil {
		return nil, err
	}
	sources := []string{filepath.Join(root, "go.mod")}
	for file := range strings.SplitSeq(listed, "\n") {
		if strings.HasPrefix(file, root+string(filepath.Separator)) {
			sources = append(sources, file)
		}
	}
	err = filepath.WalkDir(filepath.Join(root, "charts"), func(path string, _ fs.DirEntry, err error) error {
		sources = append(sources, path)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the chart: %w", err)
	}
	return sources, nil
}

// lookAt looks at each file, or the go command would not know that a test depends on
// them, and repeat an old result. It notices what is done in a test only, and not what
// TestMain does before, so each test that starts a program looks again.
func lookAt(files []string) error {
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("look at the sources: %w", err)
		}
	}
	return nil
}
