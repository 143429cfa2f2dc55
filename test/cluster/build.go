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
	"strings"
	"time"
)

const (
	modulePath = "github.com/drawbridge-dev/drawbridge"

	// kubeDirEnv names the folder in which builds are kept, instead of
	// drawbridge under the user's cache folder.
	kubeDirEnv = "DRAWBRIDGE_KUBE_DIR"

	// The version the components report. It must be the one of k8s.io/kubernetes
	// in kube/go.mod: clients refuse the unset one, and kubectl compares. The
	// commit is a stand-in, because a module does not carry its own; the date is
	// fixed, so that the same sources give the same binary.
	kubeVersion   = "v1.37.1"
	kubeMajor     = "1"
	kubeMinor     = "37"
	kubeCommit    = "0000000000000000000000000000000000000000"
	kubeBuildDate = "2026-01-01T00:00:00Z"

	// Builds nobody has used for this long are removed after a new one.
	staleBuild = 14 * 24 * time.Hour
)

// EnsureBinary returns the path of the multi-call binary, building it first if
// this version of it is not there yet. Test packages that run at the same time
// build once: the others wait. Progress is written to progress, a line every
// 15 seconds.
//
// The binary is kept in drawbridge/kube-HASH under the user's cache folder, or
// in kube-HASH under $DRAWBRIDGE_KUBE_DIR. The hash covers the sources, the
// module's requirements, the Go version and the linker flags.
func EnsureBinary(ctx context.Context, progress io.Writer) (string, error) {
	source, err := kubeSource(ctx)
	if err != nil {
		return "", err
	}
	store, err := buildStore()
	if err != nil {
		return "", err
	}
	hash, err := buildHash(ctx, source)
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
		fmt.Fprintf(progress, "cluster: another process builds the embedded Kubernetes, waiting for it (%s)\n", elapsed(started))
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if use(binary) { // Built by whoever held the lock before.
		return binary, nil
	}
	if err := build(ctx, source, dir, progress); err != nil {
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
	// A cache somebody else owns cannot be touched, and is used all the same.
	_ = os.Chtimes(filepath.Dir(binary), now, now)
	return true
}

func build(ctx context.Context, source, dir string, progress io.Writer) error {
	temp, err := os.MkdirTemp(filepath.Dir(dir), "building-")
	if err != nil {
		return fmt.Errorf("create build folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }() // Gone already when the build has succeeded.

	started := realClock.Now()
	fmt.Fprintf(progress, "cluster: building the embedded Kubernetes %s; the first build takes about 6 minutes on two cores\n", kubeVersion)
	command := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-buildvcs=false",
		"-ldflags", linkerFlags(), "-o", filepath.Join(temp, "kube"), ".")
	command.Dir = source
	command.Env = append(os.Environ(), "GOWORK=off")
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	stop := every(15*time.Second, func() {
		fmt.Fprintf(progress, "cluster: still building the embedded Kubernetes (%s)\n", elapsed(started))
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
	fmt.Fprintf(progress, "cluster: built the embedded Kubernetes in %s\n", elapsed(started))
	return nil
}

// linkerFlags stamp the version into both places that report one, and leave
// out debugging data, which would be a third of the file.
func linkerFlags() string {
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, field := range [][2]string{
			{"gitVersion", kubeVersion}, {"gitMajor", kubeMajor}, {"gitMinor", kubeMinor},
			{"gitCommit", kubeCommit}, {"gitTreeState", "clean"}, {"buildDate", kubeBuildDate},
		} {
			flags = append(flags, "-X", pkg+"."+field[0]+"="+field[1])
		}
	}
	return strings.Join(flags, " ")
}

// kubeSource finds the folder of the kube module: beside this file, or, when
// the paths of files were trimmed at compile time, below the root module.
func kubeSource(ctx context.Context) (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		dir := filepath.Join(filepath.Dir(file), "kube")
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	root, err := goOutput(ctx, "", "list", "-m", "-f", "{{.Dir}}", modulePath)
	if err != nil {
		return "", fmt.Errorf("find the kube module: %w", err)
	}
	return filepath.Join(root, "test", "cluster", "kube"), nil
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

func buildHash(ctx context.Context, source string) (string, error) {
	version, err := goOutput(ctx, source, "env", "GOVERSION", "GOOS", "GOARCH", "CGO_ENABLED")
	if err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(source, "*.go")) // Sorted.
	if err != nil {
		return "", fmt.Errorf("list sources: %w", err)
	}
	files = append(files, filepath.Join(source, "go.mod"), filepath.Join(source, "go.sum"))
	hash := sha256.New()
	fmt.Fprintln(hash, version, linkerFlags())
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

func goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GOWORK=off")
	output, err := command.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(output)), nil
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
