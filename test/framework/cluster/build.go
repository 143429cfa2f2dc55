package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/drawbridge-dev/drawbridge/test/framework/gocommand"
)

const (
	modulePath = "github.com/drawbridge-dev/drawbridge"

	// kubeDirEnv names the folder in which builds are kept, instead of
	// drawbridge under the user's cache folder.
	kubeDirEnv = "DRAWBRIDGE_KUBE_DIR"

	// Builds that were not used for this long are removed after a new one.
	staleBuild = 14 * 24 * time.Hour
)

// Binaries are the paths of the multi-call binaries that a control plane is made of.
type Binaries struct {
	release release
	// newest has every part, chosen those of the release that was chosen. They are
	// one and the same unless the oldest release was.
	newest, chosen string
}

// of is the binary that has this part.
func (b Binaries) of(part string) string {
	if ofOldest[part] {
		return b.chosen
	}
	return b.newest
}

// Paths of the binaries, without duplicates.
func (b Binaries) Paths() []string { return slices.Compact([]string{b.newest, b.chosen}) }

// EnsureBinaries returns the multi-call binaries, building them first if this version
// of them is not there yet. Test packages that run at the same time build once: the
// others wait. Progress is written to progress, a line every 15 seconds.
//
// $DRAWBRIDGE_KUBERNETES chooses the release: "newest" (the default), or "oldest" for
// kube-apiserver, kube-controller-manager, kube-scheduler and kubectl of the oldest
// minor release that the chart allows.
//
// A binary is kept in drawbridge/kube-HASH under the user's cache folder, or in
// kube-HASH under $DRAWBRIDGE_KUBE_DIR. The hash covers the sources, the module's
// requirements, the Go version and the linker flags.
func EnsureBinaries(ctx context.Context, progress io.Writer) (Binaries, error) {
	chosen, err := chosenRelease()
	if err != nil {
		return Binaries{}, err
	}
	binaries := Binaries{release: chosen}
	if binaries.newest, err = newest.ensure(ctx, progress); err != nil {
		return Binaries{}, err
	}
	binaries.chosen, err = chosen.ensure(ctx, progress)
	return binaries, err
}

// ensure returns the path of the release's binary, and builds it if it is not there.
func (r release) ensure(ctx context.Context, progress io.Writer) (string, error) {
	source, err := r.source(ctx)
	if err != nil {
		return "", err
	}
	store, err := buildStore()
	if err != nil {
		return "", err
	}
	hash, err := r.buildHash(ctx, source)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(store, "kube-"+hash)
	binary := filepath.Join(dir, "kube")
	if use(binary) {
		return binary, nil
	}

	if err := os.MkdirAll(store, 0o755); err != nil {
		return "", fmt.Errorf("create build folder: %w", err)
	}
	started := realClock.Now()
	unlock, err := lockFile(ctx, dir+".lock", func() {
		fmt.Fprintf(progress, "cluster: another process builds the embedded Kubernetes %s, waiting for it (%s)\n", r.version, elapsed(started))
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if use(binary) { // Built by whoever held the lock before.
		return binary, nil
	}
	if err := r.build(ctx, source, dir, progress); err != nil {
		return "", err
	}
	return binary, removeStale(store, dir)
}

// use reports whether there is a binary, and notes that it is still wanted.
func use(binary string) bool {
	if _, err := os.Stat(binary); err != nil {
		return false
	}
	now := realClock.Now()
	// A cache of another owner cannot be touched, but is used.
	_ = os.Chtimes(filepath.Dir(binary), now, now)
	return true
}

// onlyHere are packages that nothing else in a checkout compiles, which other builds share. Their
// debug information is not written, because the linker drops it anyway. As this changes
// nothing in the result, the hash does not cover it.
var onlyHere = []string{"k8s.io/kubernetes/...", "go.etcd.io/etcd/server/...", "sigs.k8s.io/kwok/..."}

func (r release) build(ctx context.Context, source, dir string, progress io.Writer) error {
	temp, err := os.MkdirTemp(filepath.Dir(dir), "building-")
	if err != nil {
		return fmt.Errorf("create build folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }() // Gone already when the build has succeeded.

	started := realClock.Now()
	fmt.Fprintf(progress, "cluster: building the embedded Kubernetes %s; the first build takes about 6 minutes on two cores\n", r.version)
	args := []string{"build", "-mod=readonly", "-buildvcs=false", "-ldflags", r.linkerFlags(), "-o", filepath.Join(temp, "kube")}
	for _, pattern := range onlyHere {
		args = append(args, "-gcflags="+pattern+"=-dwarf=false")
	}
	command := exec.CommandContext(ctx, "go", append(args, ".")...)
	command.Dir = source
	command.Env = gocommand.Env()
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	stop := every(15*time.Second, func() {
		fmt.Fprintf(progress, "cluster: still building the embedded Kubernetes %s (%s)\n", r.version, elapsed(started))
	})
	err = command.Run()
	stop()
	if err != nil {
		return fmt.Errorf("build the embedded Kubernetes in %s: %w\n%s", source, errors.Join(err, ctx.Err()), output.String())
	}
	if err := os.Chmod(temp, 0o755); err != nil {
		return fmt.Errorf("open build folder to others: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil { // A folder whose binary somebody deleted.
		return fmt.Errorf("replace build: %w", err)
	}
	if err := os.Rename(temp, dir); err != nil {
		return fmt.Errorf("put build in place: %w", err)
	}
	fmt.Fprintf(progress, "cluster: built the embedded Kubernetes %s in %s\n", r.version, elapsed(started))
	return nil
}

// source finds the folder of the release's module: beside this file, or, when
// the paths of files were trimmed at compile time, below the root module.
func (r release) source(ctx context.Context) (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		dir := filepath.Join(filepath.Dir(file), r.folder)
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	root, err := gocommand.Output(ctx, "", "list", "-m", "-f", "{{.Dir}}", modulePath)
	if err != nil {
		return "", fmt.Errorf("find the module of the embedded Kubernetes: %w", err)
	}
	return filepath.Join(root, "test", "framework", "cluster", r.folder), nil
}

func buildStore() (string, error) {
	if dir := os.Getenv(kubeDirEnv); dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for the build (set %s): %w", kubeDirEnv, err)
	}
	return filepath.Join(cache, "drawbridge"), nil
}

func (r release) buildHash(ctx context.Context, source string) (string, error) {
	version, err := gocommand.Output(ctx, source, "env", "GOVERSION", "GOOS", "GOARCH", "CGO_ENABLED")
	if err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(source, "*.go")) // Sorted.
	if err != nil {
		return "", fmt.Errorf("list sources: %w", err)
	}
	files = append(files, filepath.Join(source, "go.mod"), filepath.Join(source, "go.sum"))
	hash := sha256.New()
	fmt.Fprintln(hash, version, r.linkerFlags())
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("hash sources: %w", err)
		}
		fmt.Fprintln(hash, filepath.Base(file), len(content))
		hash.Write(content)
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

// removeStale deletes builds that nobody has used for a while: each is about
// 200 MB, and every change of a version makes a new one.
func removeStale(store, keep string) error {
	dirs, err := filepath.Glob(filepath.Join(store, "kube-*"))
	if err != nil {
		return fmt.Errorf("list old builds: %w", err)
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() || dir == keep || realClock.Since(info.ModTime()) < staleBuild {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove old build: %w", err)
		}
	}
	return nil
}

func elapsed(since time.Time) time.Duration {
	return realClock.Since(since).Round(time.Second)
}
