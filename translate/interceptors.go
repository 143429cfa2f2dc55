package translate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// maxQuoted is how much of a bad name a problem repeats.
const maxQuoted = 60

// ParseInterceptors reads the annotation drawbridge.dev/interceptors. The names that
// can be read are returned in their order, at most 15 (ruling R1); each invalid entry
// is reported in problems and ignored, because a typo must not block an eviction
// forever. Reserved names (ruling R14) are refused unless they are in allowReserved;
// imperative-eviction.k8s.io is always refused, because it is appended automatically.
//
// An empty annotation is no problem.
func ParseInterceptors(annotation string, allowReserved ...string) (names []string, problems []string) {
	if strings.TrimSpace(annotation) == "" {
		return nil, nil
	}
	for entry := range strings.SplitSeq(annotation, ",") {
		name := strings.TrimSpace(entry)
		quoted := fmt.Sprintf("%q", shorten(name, maxQuoted))
		switch {
		case name == "":
			problems = append(problems, "an entry is empty")
		case !IsFQDN(name):
			problem := quoted + " is not a fully qualified domain name"
			if strings.HasSuffix(name, ".") {
				problem += ", leave out the period at the end"
			}
			problems = append(problems, problem)
		case name == v1alpha1.ImperativeEvictionInterceptor:
			problems = append(problems, quoted+" cannot be registered, it always comes last")
		case isReserved(name) && !slices.Contains(allowReserved, name):
			problems = append(problems, quoted+" is reserved for Kubernetes")
		case slices.Contains(names, name):
			problems = append(problems, quoted+" is there twice")
		case len(names) == v1alpha1.MaxPodInterceptors:
			problems = append(problems, fmt.Sprintf("more than %d names", v1alpha1.MaxPodInterceptors))
			return names, problems
		default:
			names = append(names, name)
		}
	}
	return names, problems
}

// isReserved reports whether a name belongs to Kubernetes (ruling R14).
func isReserved(name string) bool {
	for _, domain := range []string{"k8s.io", "kubernetes.io"} {
		if name == domain || strings.HasSuffix(name, "."+domain) {
			return true
		}
	}
	return false
}
