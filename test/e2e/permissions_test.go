//go:build unix

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/permissions"
)

// rare are the permissions that these tests do not need, and why the manager has
// them all the same. The keys are parts of what permissions.Permission prints.
var rare = map[string]string{
	": create tokenreviews.authentication.k8s.io":        "Nobody reads the metrics of these tests' managers; in test/e2e/ha somebody does.",
	": create subjectaccessreviews.authorization.k8s.io": "As above.",
	": list ": "Before 1.35 an API server may not stream a first list, and client-go lists then.",
	": create evictionrequests.drawbridge.dev":                    "An apply is a patch in the log, but needs this for a new object.",
	": create evictioninterceptors.drawbridge.dev":                "As above.",
	": create evacuationpolicies.drawbridge.dev":                  "As above.",
	": get persistentvolumeclaims":                                "The surge asks for the claims of a pod; the conformance tests have pods with some.",
	": get jobs.batch":                                            "The guard asks for the controller of a pod; a Job has none of the pods that these tests guard.",
	": create pods/exec":                                          "The API server asks for it as well since 1.35, of what the log has as a get.",
	"-log: watch configmaps":                                      "The managers of these tests take their log level from a flag; in test/e2e/ha one follows it.",
	"-native: ":                                                   "Only Kubernetes 1.37 with a feature gate serves lifecycle.k8s.io; test/e2e/native uses all of it.",
	": patch events in":                                           "Leader election repeats an event only when the leadership moves to and fro.",
	"-kubevirt: get virtualmachineinstancemigrations.kubevirt.io": "A policy says that it lacks something unless all of get, list and watch are granted.",
	"-kubevirt: get kubevirts.kubevirt.io":                        "As above.",
	"/evacuate/cancel.subresources.kubevirt.io":                   "The API server asks for virtualmachineinstances/evacuate; the real virt-api asks for this one.",
}

// auditPermissions compares, after all tests, what the manager may do with what it has
// done: no permission is unused, and no call was refused for want of one.
func auditPermissions(c *cluster.Cluster) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	calls, err := c.RequestLog().Since(ctx, 0)
	if err != nil {
		return fmt.Errorf("read the log of requests: %w", err)
	}
	calls = calls.By(drawbridge())
	granted, err := permissions.Granted(ctx, c.Client(), inst.Namespace, inst.ServiceAccount)
	if err != nil {
		return err
	}
	var problems []error
	for _, missing := range permissions.Missing(granted, calls) {
		problems = append(problems, fmt.Errorf("the manager was refused: %s", missing))
	}
	if f := flag.Lookup("test.run"); f != nil && f.Value.String() != "" {
		return errors.Join(problems...) // Only some of the tests ran, so much was not needed.
	}
	excused := func(p permissions.Permission) bool {
		for part := range rare {
			if strings.Contains(p.String(), part) {
				return true
			}
		}
		return false
	}
	for _, unused := range permissions.Unused(granted, calls) {
		if !excused(unused) {
			problems = append(problems, fmt.Errorf("a permission is never used: %s", unused))
		}
	}
	for part := range rare {
		if !slices.ContainsFunc(granted, func(p permissions.Permission) bool { return strings.Contains(p.String(), part) }) {
			problems = append(problems, fmt.Errorf("a permission is excused that is not granted any more: %s", part))
		}
	}
	return errors.Join(problems...)
}
