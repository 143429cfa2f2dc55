package main

import (
	"os/exec"
	"strings"
	"testing"
)

// mostPackages is what this program may link: the limit is a little above what it needs.
const mostPackages = 830

// What somebody writes with the SDK shall not carry the API server with it, nor CEL:
// it takes longer to build, is larger, and every CVE of theirs is one of the program.
func TestAProgramOfTheSDKIsLight(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	packages := strings.Fields(string(out))
	if len(packages) > mostPackages {
		t.Errorf("it links %d packages, at most %d are wanted: look for a new import in evacuation/interceptor", len(packages), mostPackages)
	}
	for _, p := range packages {
		if strings.HasPrefix(p, "k8s.io/apiserver/") || strings.HasPrefix(p, "github.com/google/cel-go/") {
			t.Errorf("it links %s", p)
		}
	}
}
