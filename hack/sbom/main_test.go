package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheBillListsWhatIsInTheProgram(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8", Path: "example.com/x/cmd/x",
		Main: debug.Module{Path: "example.com/x", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "example.com/a", Version: "v1.0.0", Sum: "h1:a="},
			{Path: "example.com/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v2.0.0+incompatible", Sum: "h1:f="}},
		},
		Settings: []debug.BuildSetting{{Key: "CGO_ENABLED", Value: "0"}},
	}
	got, err := newBill("x", "v1.2.3", [sha256.Size]byte{}, info)
	if err != nil {
		t.Fatal(err)
	}
	want := bill{
		Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata: metadata{component{
			Type: "application", Ref: "example.com/x/cmd/x", Name: "x", Version: "v1.2.3", PURL: "pkg:golang/example.com/x@v1.2.3",
			Hashes:     []hash{{"SHA-256", "0000000000000000000000000000000000000000000000000000000000000000"}},
			Properties: []property{{"go:CGO_ENABLED", "0"}},
		}},
		Components: []component{
			{Type: "library", Ref: "pkg:golang/std@1.26.8", Name: "std", Version: "1.26.8", PURL: "pkg:golang/std@1.26.8"},
			{
				Type: "library", Ref: "pkg:golang/example.com/a@v1.0.0", Name: "example.com/a", Version: "v1.0.0",
				PURL: "pkg:golang/example.com/a@v1.0.0", Properties: []property{{"go:sum", "h1:a="}},
			},
			{
				Type: "library", Ref: "pkg:golang/example.com/fork@v2.0.0%2Bincompatible", Name: "example.com/fork", Version: "v2.0.0+incompatible",
				PURL: "pkg:golang/example.com/fork@v2.0.0%2Bincompatible", Properties: []property{{"go:sum", "h1:f="}},
			},
		},
		Dependencies: []dependency{{"example.com/x/cmd/x", []string{
			"pkg:golang/std@1.26.8", "pkg:golang/example.com/a@v1.0.0", "pkg:golang/example.com/fork@v2.0.0%2Bincompatible",
		}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bill (-want +got):\n%s", diff)
	}
}

// The test is a Go program itself.
func TestAProgramHasABill(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	if err := run(program, "", &first); err != nil {
		t.Fatal(err)
	}
	if err := run(program, "", &second); err != nil {
		t.Fatal(err)
	}
	if first.String() != second.String() {
		t.Error("the same program has two bills")
	}
	var b bill
	if err := json.Unmarshal(first.Bytes(), &b); err != nil {
		t.Fatal(err)
	}
	if len(b.Components) == 0 || b.Components[0].Name != "std" {
		t.Errorf("the standard library is not among the components: %v", b.Components)
	}
}

func TestWhatIsNoProgramIsRefused(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(text, "", &bytes.Buffer{}); err == nil {
		t.Error("a text has a bill")
	}
}
