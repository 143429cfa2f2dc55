// Command image builds the manager's image without a container engine: an OCI image
// layout with one layer, which holds the static program and the licence. The same sources
// and the same Go version give the same bytes, so that anybody can check an image.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	root := flag.String("root", "../..", "Folder of the checkout.")
	output := flag.String("output", "../../dist/image", "Folder of the OCI image layout; what is in it is replaced.")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64", "Platforms, separated by commas.")
	flag.Parse()
	if err := run(*root, *output, strings.Split(*platforms, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(root, output string, platforms []string) (err error) {
	version, err := chartVersion(filepath.Join(root, "charts", "drawbridge", "Chart.yaml"))
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "drawbridge-image-")
	if err != nil {
		return fmt.Errorf("make a folder for the programs: %w", err)
	}
	defer func() {
		if removed := os.RemoveAll(scratch); err == nil {
			err = removed
		}
	}()
	licence, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		return fmt.Errorf("read the licence: %w", err)
	}
	var builds []build
	for _, name := range platforms {
		platform, err := parsePlatform(name)
		if err != nil {
			return err
		}
		program := filepath.Join(scratch, strings.ReplaceAll(name, "/", "-"))
		if err := compile(root, program, platform); err != nil {
			return err
		}
		content, err := os.ReadFile(program)
		if err != nil {
			return fmt.Errorf("read the program: %w", err)
		}
		builds = append(builds, build{platform: platform, program: content})
	}
	digest, err := write(output, version, licence, builds)
	if err != nil {
		return err
	}
	fmt.Printf("%s: version %s, %s\n", output, version, digest)
	return nil
}
