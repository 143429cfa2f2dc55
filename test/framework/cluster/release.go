package cluster

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// releaseEnv chooses the release of the control plane: "newest", which is also what
// it is when not set, or "oldest".
const releaseEnv = "DRAWBRIDGE_KUBERNETES"

// release is a Kubernetes that can be built from a module beside this file.
type release struct {
	// folder of the module, and the name of its binary.
	folder string
	// version that the components report. It must be the one of k8s.io/kubernetes in
	// the module's go.mod: clients refuse the unset one, and kubectl compares.
	version string
}

var (
	// newest has every part: etcd and kwok as well.
	newest = release{folder: "kube", version: "v1.37.2"}
	// oldest is the last patch of the oldest minor that the chart allows. It has the
	// parts of Kubernetes itself; etcd and kwok, whose libraries are newer than its
	// own, are those of newest.
	oldest = release{folder: "kube-oldest", version: "v1.30.14"}
)

// ofOldest are the parts that oldest has.
var ofOldest = map[string]bool{
	string(APIServer):         true,
	string(ControllerManager): true,
	string(Scheduler):         true,
	kubectlPart:               true,
}

// chosenRelease is the one that the environment names.
func chosenRelease() (release, error) {
	switch name := os.Getenv(releaseEnv); name {
	case "", "newest":
		return newest, nil
	case "oldest":
		return oldest, nil
	default:
		return release{}, fmt.Errorf(`%s=%q is unknown: set it to "newest" (%s) or "oldest" (%s), or not at all`,
			releaseEnv, name, newest.version, oldest.version)
	}
}

// Version is the release of Kubernetes that the environment chooses, such as v1.37.2.
func Version() (string, error) {
	r, err := chosenRelease()
	return r.version, err
}

// Versions are the releases that there are, the oldest first.
func Versions() []string { return []string{oldest.version, newest.version} }

// minor is 37 of v1.37.2.
func (r release) minor() int { return int(version.MustParseGeneric(r.version).Minor()) }

// linkerFlags stamp the version into both places that report one, and leave out
// debugging data, which would be a third of the file. The commit is a stand-in,
// because a module does not carry its own; the date is fixed, so that the same
// sources give the same binary.
func (r release) linkerFlags() string {
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, field := range [][2]string{
			{"gitVersion", r.version}, {"gitMajor", "1"}, {"gitMinor", strconv.Itoa(r.minor())},
			{"gitCommit", "0000000000000000000000000000000000000000"}, {"gitTreeState", "clean"},
			{"buildDate", "2026-01-01T00:00:00Z"},
		} {
			flags = append(flags, "-X", pkg+"."+field[0]+"="+field[1])
		}
	}
	return strings.Join(flags, " ")
}
