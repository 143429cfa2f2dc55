package audit

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/drawbridge-dev/drawbridge/test/framework/clock"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// file of the list: go test ./test/e2e -args -writes=/tmp/writes.txt.
var file = flag.String("writes", "", "file for the list of all writes of the manager, by object and minute")

// leaderLease is renewed every few seconds by its holder.
const leaderLease = "drawbridge-leader"

// readTimeout is how long the last answers may take.
const readTimeout = time.Minute

// After audits, after the last test of a package, all that its cluster was asked by the
// service accounts of a namespace; the error has the loops. It says in a line on standard
// error how many writes there were, and writes the list of them to the file of the flag
// -writes.
func After(c *cluster.Cluster, namespace string, advances []clock.Advance) error {
	o := Options{
		Ours: func(user string) bool { return strings.HasPrefix(user, "system:serviceaccount:"+namespace+":") },
		Heartbeat: func(r cluster.Request) bool {
			return r.Resource == "leases" && r.Namespace == namespace && r.Name == leaderLease
		},
		Advances: advances,
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	log, err := c.RequestLog().Since(ctx, 0)
	if err != nil {
		return fmt.Errorf("read the log of requests: %w", err)
	}
	minutes := Minutes(log, o)
	if *file != "" {
		if err := save(*file, minutes); err != nil {
			return err
		}
	}
	writes, objects := 0, map[Object]bool{}
	for _, m := range minutes {
		writes += m.Writes
		objects[m.Object] = true
	}
	fmt.Fprintf(os.Stderr, "audit: the manager made %d writes to %d objects\n", writes, len(objects))
	if run := flag.Lookup("test.run"); writes == 0 && (run == nil || run.Value.String() == "") {
		return errors.New("the manager has written nothing: this audits the wrong account")
	}
	var problems []error
	for _, loop := range Loops(log, o) {
		problems = append(problems, fmt.Errorf("a loop: %s", loop))
	}
	return errors.Join(problems...)
}

// save writes the list to a file.
func save(file string, minutes []Minute) (err error) {
	to, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("write the list of writes: %w", err)
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	return Print(to, minutes)
}
