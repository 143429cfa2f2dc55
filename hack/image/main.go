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

type options struct {
	root, output, version, archives string
	// platforms are compiled, unless programs are given: OS/ARCH=FILE.
	platforms, programs []string
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", "../..", "Folder of the checkout.")
	flag.StringVar(&o.output, "output", "../../dist/image", "Folder of the OCI image layout; what is in it is replaced.")
	flag.StringVar(&o.version, "version", "", "Version of the release, such as v1.2.3; empty for the chart's appVersion and a program without a version.")
	flag.StringVar(&o.archives, "archives", "", "Folder for the image as files: one OCI archive, and for each platform one for `docker load`. None when empty.")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64", "Platforms to compile for, separated by commas.")
	programs := flag.String("programs", "", "Programs to take instead of compiling them, OS/ARCH=FILE, separated by commas.")
	flag.Parse()
	o.platforms = strings.Split(*platforms, ",")
	if *programs != "" {
		o.programs = strings.Split(*programs, ",")
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(o options) (err error) {
	tag := strings.TrimPrefix(o.version, "v")
	if tag == "" {
		if tag, err = chartVersion(filepath.Join(o.root, "charts", "drawbridge", "Chart.yaml")); err != nil {
			return err
		}
	}
	licence, err := os.ReadFile(filepath.Join(o.root, "LICENSE"))
	if err != nil {
		return fmt.Errorf("read the licence: %w", err)
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
	programs := o.programs
	if len(programs) == 0 {
		for _, name := range o.platforms {
			platform, err := parsePlatform(name)
			if err != nil {
				return err
			}
			program := filepath.Join(scratch, strings.ReplaceAll(name, "/", "-"))
			if err := compile(o.root, program, o.version, platform); err != nil {
				return err
			}
			programs = append(programs, name+"="+program)
		}
	}
	builds, err := read(programs)
	if err != nil {
		return err
	}
	digest, err := write(o.output, tag, licence, builds)
	if err != nil {
		return err
	}
	if o.archives != "" {
		if err := writeArchives(o.archives, o.output, tag, licence, builds); err != nil {
			return err
		}
	}
	fmt.Printf("%s: version %s, %s\n", o.output, tag, digest)
	return nil
}

// read reads the programs OS/ARCH=FILE.
func read(programs []string) ([]build, error) {
	var builds []build
	for _, program := range programs {
		name, file, found := strings.Cut(program, "=")
		if !found {
			return nil, fmt.Errorf("program %q: want OS/ARCH=FILE, for example linux/amd64=bin/drawbridge", program)
		}
		platform, err := parsePlatform(name)
		if err != nil {
			return nil, err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the program: %w", err)
		}
		builds = append(builds, build{platform: platform, program: content})
	}
	return builds, nil
}
