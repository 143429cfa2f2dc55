//go:build unix

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/drawbridge-dev/drawbridge/test/cluster"
	"github.com/drawbridge-dev/drawbridge/test/permissions"
)

// rare are the permissions that these tests do not need, and why the manager has
// them all the same. The keys are parts of what permissions.Permission prints.
var rare = map[string]string{}

// auditPermissions compares, after all tests, what the manager may do with what it has
// done: no permission is unused, and no call was refused for want of one.
func auditPermissions(c *cluster.Cluster) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	calls, err := c.RequestLog().Since(ctx, 0)
	if err != nil {
		return fmt.Errorf("read the log of requests: %w", err)
	}
	calls = calls.By(drawbridge())
	var problems []error
	for _, missing := range permissions.Missing(calls) {
		problems = append(problems, fmt.Errorf("the manager was refused: %s", missing))
	}
	if f := flag.Lookup("test.run"); f != nil && f.Value.String() != "" {
		return errors.Join(problems...) // Only some of the tests ran, so much was not needed.
	}
	granted, err := permissions.Granted(ctx, c.Client(), inst.Namespace, inst.ServiceAccount)
	if err != nil {
		return err
	}
	excused := map[string]bool{}
	for _, unused := range permissions.Unused(granted, calls) {
		excuse := ""
		for part := range rare {
			if strings.Contains(unused.String(), part) {
				excuse = part
			}
		}
		if excuse == "" {
			problems = append(problems, fmt.Errorf("a permission is never used: %s", unused))
		}
		excused[excuse] = true
	}
	for part := range rare {
		if !excused[part] {
			problems = append(problems, fmt.Errorf("a permission is excused and used, or not granted any more: %s", part))
		}
	}
	return errors.Join(problems...)
}
