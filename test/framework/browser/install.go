package browser

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// Install gets what is missing: Chromium from the packages of Debian and its kin, and
// axe-core from its npm package. Progress goes to out.
func Install(ctx context.Context, out io.Writer) error {
	if path, err := find(); err == nil {
		fmt.Fprintln(out, "browser:", path)
	} else if err := installPackages(ctx, out, "chromium"); err != nil {
		return err
	}
	if _, err := axeScript(); err == nil {
		return nil
	}
	return installAxe(ctx, out)
}

// installPackages installs Debian packages.
func installPackages(ctx context.Context, out io.Writer, names ...string) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("install %v with the packages of this system, or name a browser in %s: there is no apt-get here", names, Env)
	}
	for _, args := range [][]string{{"apt-get", "update"}, append([]string{"apt-get", "install", "-y", "--no-install-recommends"}, names...)} {
		if os.Getuid() != 0 {
			args = append([]string{"sudo"}, args...)
		}
		if err := run(ctx, out, "", args...); err != nil {
			return err
		}
	}
	return nil
}

// installAxe unpacks axe-core into bin.
func installAxe(ctx context.Context, out io.Writer) (err error) {
	if _, err := exec.LookPath("npm"); err != nil {
		if err := installPackages(ctx, out, "npm"); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "drawbridge-axe-")
	if err != nil {
		return fmt.Errorf("create a folder for axe-core: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := run(ctx, out, dir, "npm", "pack", "--silent", "axe-core@"+axeVersion); err != nil {
		return err
	}
	archive, err := os.ReadFile(filepath.Join(dir, "axe-core-"+axeVersion+".tgz"))
	if err != nil {
		return fmt.Errorf("read the package of axe-core: %w", err)
	}
	script, err := fileOf(archive, "package/axe.min.js")
	if err != nil {
		return err
	}
	if err := checkAxe(script); err != nil {
		return err
	}
	path, err := axePath()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("create the folder of axe-core: %w", err)
	}
	if err := os.WriteFile(path, script, 0o644); err != nil {
		return fmt.Errorf("write axe-core: %w", err)
	}
	fmt.Fprintln(out, "axe-core:", path)
	return nil
}

// fileOf is a file of a tar archive, compressed with gzip.
func fileOf(archive []byte, name string) ([]byte, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", name, err)
	}
	files := tar.NewReader(unzipped)
	for {
		header, err := files.Next()
		if err != nil {
			return nil, fmt.Errorf("find %s in the package: %w", name, err)
		}
		if header.Name != name {
			continue
		}
		content, err := io.ReadAll(files)
		if err != nil {
			return nil, fmt.Errorf("unpack %s: %w", name, err)
		}
		return content, nil
	}
}

func run(ctx context.Context, out io.Writer, dir string, args ...string) error {
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Dir = dir
	command.Stdout, command.Stderr = out, out
	if err := command.Run(); err != nil {
		return fmt.Errorf("run %v: %w", args, err)
	}
	return nil
}
