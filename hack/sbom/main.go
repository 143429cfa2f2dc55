// Command sbom writes the bill of materials of Go programs, as CycloneDX 1.6 in JSON. It
// reads what the linker wrote into them, so it lists what is in the program and not
// what might be.
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

func main() {
	version := flag.String("version", "", "Version of the program; empty to take what the linker knows.")
	output := flag.String("output", "", "File of the bill; standard output when empty.")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "sbom: want one argument, the path of a Go program")
		os.Exit(2)
	}
	if err := write(flag.Arg(0), *version, *output); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// write writes the bill into a file, or to standard output.
func write(program, version, output string) error {
	if output == "" {
		return run(program, version, os.Stdout)
	}
	var bill bytes.Buffer
	if err := run(program, version, &bill); err != nil {
		return err
	}
	if err := os.WriteFile(output, bill.Bytes(), 0o644); err != nil { //nolint:gosec // Everybody may read it.
		return fmt.Errorf("write bill: %w", err)
	}
	return nil
}

// bill is a CycloneDX document. It has no time and no random serial number, so that
// the same program has the same bill.
type bill struct {
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

func run(program, version string, out io.Writer) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read what is in %s (is it a Go program?): %w", program, err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read program: %w", err)
	}
	b, err := newBill(filepath.Base(program), version, sha256.Sum256(content), info)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(b); err != nil {
		return fmt.Errorf("write bill: %w", err)
	}
	return nil
}

// newBill lists the modules of a program and the standard library.
func newBill(name, release string, sum [sha256.Size]byte, info *debug.BuildInfo) (bill, error) {
	if info.Main.Path == "" {
		return bill{}, errors.New("the program names no main module: build it with modules")
	}
	release = cmp.Or(release, version(info.Main.Version))
	main := component{
		Type: "application", Ref: info.Path, Name: name, Version: release, PURL: purl(info.Main.Path, release),
		Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}},
	}
	for _, setting := range info.Settings {
		main.Properties = append(main.Properties, property{"go:" + setting.Key, setting.Value})
	}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	std := component{Type: "library", Ref: purl("std", goVersion), Name: "std", Version: goVersion, PURL: purl("std", goVersion)}
	components := []component{std}
	for _, module := range info.Deps {
		for module.Replace != nil {
			module = module.Replace
		}
		c := component{
			Type: "library", Ref: purl(module.Path, module.Version), Name: module.Path, Version: module.Version,
			PURL: purl(module.Path, module.Version),
		}
		if module.Sum != "" {
			c.Properties = []property{{"go:sum", module.Sum}}
		}
		components = append(components, c)
	}
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.Ref
	}
	return bill{
		Format: "CycloneDX", SpecVersion: "1.6", Version: 1, Metadata: metadata{main}, Components: components,
		Dependencies: []dependency{{main.Ref, refs}},
	}, nil
}

// version leaves out what the linker says when it does not know.
func version(v string) string {
	if v == "(devel)" {
		return ""
	}
	return v
}

// purl is the package URL of a module.
func purl(path, version string) string {
	u := "pkg:golang/" + path
	if version != "" {
		u += "@" + strings.ReplaceAll(url.PathEscape(version), "+", "%2B")
	}
	return u
}
