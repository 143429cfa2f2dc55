// Command release writes what a release consists of into a folder: the plugin's archives
// and bills of materials (by GoReleaser), the manager's image, the chart, the manifest for
// krew and the notes. `make release` runs it, adds install.yaml, and then lets it write
// the checksums.
//
// The same commit gives the same bytes, in whatever folder and whenever.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// repository is where a release is published.
const repository = "https://github.com/drawbridge-dev/drawbridge"

// release is what is to be made.
type release struct {
	// root of the checkout.
	root string
	// output is the folder of the result.
	output string
	// version with its v, such as v1.2.3.
	version string
	// time of the commit.
	time time.Time
	// platforms OS/ARCH to build for; all of .goreleaser.yaml when empty.
	platforms []string
	// compiler is the go command of GoReleaser; go when empty.
	compiler string
}

// number is the version without its v, as charts and tags of images have it.
func (r release) number() string { return strings.TrimPrefix(r.version, "v") }

// prerelease: the version has a part behind a hyphen, such as v1.2.3-rc.1.
func (r release) prerelease() bool { return strings.Contains(r.version, "-") }

func main() {
	root := flag.String("root", ".", "Folder of the checkout.")
	output := flag.String("output", "dist", "Folder to write to; `make release` empties it before.")
	version := flag.String("version", "", "Version of the release, such as v1.2.3 or v1.2.3-rc.1.")
	platforms := flag.String("platforms", "", "Platforms to build for, OS/ARCH, separated by commas; all when empty.")
	sums := flag.Bool("checksums", false, "Only write the checksums of all files in the output folder.")
	rehearsal := flag.Bool("rehearse", false, "Only check archives and krew's manifest, with stand-ins for the programs; leaves nothing.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := errors.New("there are no arguments: see --help")
	switch {
	case *sums:
		err = writeChecksums(*output)
	case *rehearsal:
		err = rehearse(ctx, *root)
	case flag.NArg() == 0:
		err = run(ctx, *root, *output, *version, *platforms)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1) //nolint:gocritic // Nothing is left to be undone by stop.
	}
}

func run(ctx context.Context, root, output, version, platforms string) error {
	r := release{version: version}
	if err := checkVersion(version); err != nil {
		return err
	}
	if platforms != "" {
		r.platforms = strings.Split(platforms, ",")
	}
	var err, err2 error
	r.root, err = filepath.Abs(root)
	r.output, err2 = filepath.Abs(output)
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("find the folders: %w", err)
	}
	if r.time, err = commitTime(ctx, r.root); err != nil {
		return err
	}
	if err := tellUnclean(ctx, r.root); err != nil {
		return err
	}
	if err := os.MkdirAll(r.output, 0o755); err != nil { //nolint:gosec // Everybody may read a release.
		return fmt.Errorf("make the output folder: %w", err)
	}
	log, err := readChangelog(filepath.Join(r.root, "CHANGELOG.md"), r.version)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "drawbridge-release-")
	if err != nil {
		return fmt.Errorf("make a folder for what is in between: %w", err)
	}
	return errors.Join(r.write(ctx, scratch, log), os.RemoveAll(scratch))
}

// write writes all of the release but the manifests and the checksums.
func (r release) write(ctx context.Context, scratch string, log changelog) error {
	programs, err := r.goreleaser(ctx, scratch)
	if err != nil {
		return err
	}
	if err := r.validateKrew(ctx, scratch); err != nil {
		return err
	}
	if err := r.image(ctx, programs); err != nil {
		return err
	}
	if err := r.chart(ctx, scratch, platformsOf(programs), log); err != nil {
		return err
	}
	notes := filepath.Join(r.output, notesFile)
	if err := os.WriteFile(notes, []byte(r.notes(log)), 0o644); err != nil { //nolint:gosec // Everybody may read it.
		return fmt.Errorf("write the notes: %w", err)
	}
	return nil
}

// image writes the image with the programs of the manager, by OS/ARCH.
func (r release) image(ctx context.Context, programs map[string]string) error {
	var list []string
	for _, platform := range platformsOf(programs) {
		list = append(list, platform+"="+programs[platform])
	}
	// A module of its own.
	return r.command(ctx, filepath.Join(r.root, "hack", "image"), nil, "go", "run", ".", "-root="+r.root, "-version="+r.version,
		"-output="+filepath.Join(r.output, "image"), "-archives="+r.output, "-programs="+strings.Join(list, ","))
}

// command runs a program in a folder, with more in its environment.
func (r release) command(ctx context.Context, folder string, env []string, name string, args ...string) error {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = folder
	command.Env = append(os.Environ(), env...)
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", filepath.Base(name), args[0], err)
	}
	return nil
}

// semantic is a version of https://semver.org with a v before it, and without build
// metadata, which no tag of an image can have.
var semantic = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

func checkVersion(version string) error {
	if !semantic.MatchString(version) {
		return fmt.Errorf("version %q: want vMAJOR.MINOR.PATCH, and -PRERELEASE if it is one, for example: make release VERSION=v1.2.3", version)
	}
	return nil
}

// commitTime is the only thing of git that gets into a release. SOURCE_DATE_EPOCH wins, for
// sources without their history.
func commitTime(ctx context.Context, root string) (time.Time, error) {
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		out, err := exec.CommandContext(ctx, "git", "-C", root, "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("find the time of the commit (outside of a checkout, set SOURCE_DATE_EPOCH): %w", err)
		}
		seconds = strings.TrimSpace(string(out))
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("time of the commit %q: want seconds since 1970: %w", seconds, err)
	}
	return time.Unix(unix, 0).UTC(), nil
}

// tellUnclean says when what is released is in no commit: nobody could build it again.
func tellUnclean(ctx context.Context, root string) error {
	if _, err := os.Stat(filepath.Join(root, ".git")); errors.Is(err, os.ErrNotExist) {
		return nil // Sources without their history.
	}
	out, err := exec.CommandContext(ctx, "git", "-C", root, "status", "--porcelain").Output()
	if err != nil {
		return fmt.Errorf("look for changes that are in no commit: %w", err)
	}
	if changes := strings.TrimSpace(string(out)); changes != "" {
		fmt.Fprintf(os.Stderr, "release: these changes are in no commit, so nobody else can build this release again:\n%s\n", changes)
	}
	return nil
}
