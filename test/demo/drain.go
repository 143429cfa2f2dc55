package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// drainer is who empties the nodes: a person with kubectl, not Drawbridge and not
// its administrator.
var drainer = cluster.KubectlOptions{User: "alice", Groups: []string{"operators"}}

// kubectl runs a command as the drainer and fails if it fails.
func (d *demo) kubectl(ctx context.Context, args ...string) (string, error) {
	result, err := d.cluster.Kubectl(ctx, drainer, args...)
	if err != nil {
		return "", err
	}
	return result.Stdout, result.Err()
}

// drain starts the real kubectl drain and prints its output as it comes, each
// line once: kubectl says the same every 5 seconds.
func (d *demo) drain(ctx context.Context, node string) (*cluster.Program, error) {
	args := []string{"drain", node, "--ignore-daemonsets", "--delete-emptydir-data"}
	d.out.linef("  $ kubectl %s", strings.Join(args, " "))
	options := drainer
	seen := map[string]bool{}
	options.OnLine = func(line cluster.Line) {
		if !seen[line.Text] {
			seen[line.Text] = true
			d.out.linef("  | %s", wrap(line.Text, 112, "  |     "))
		}
	}
	return d.cluster.StartKubectl(ctx, options, args...)
}

// sweep drains the first node and judges what happened to each pod.
func (d *demo) sweep(ctx context.Context) error {
	d.timeline.restart()
	d.storefront.restart()
	drain, err := d.drain(ctx, "node-1")
	if err != nil {
		return err
	}
	// Somebody relaxes the budget once the evictor has met it.
	if err := d.timeline.wait(ctx, "queue-", "number of retries: 1"); err != nil {
		return err
	}
	d.timeline.note("queue", "somebody sets maxUnavailable of its budget from 0 to 1")
	if _, err := d.kubectl(ctx, "patch", "pdb", "queue", "-n", "shop", "--type=merge", "-p", `{"spec":{"maxUnavailable":1}}`); err != nil {
		return err
	}
	if err := d.timeline.wait(ctx, "ledger-", "handover.example.com: working"); err != nil {
		return err
	}
	table, err := d.kubectl(ctx, "get", "er", "-n", "shop")
	if err != nil {
		return err
	}
	d.out.linef("  $ kubectl get er -n shop     (in the middle of it)\n  | %s", strings.ReplaceAll(strings.TrimSpace(table), "\n", "\n  | "))
	result, err := drain.Wait()
	if err != nil {
		return err
	}
	if err := result.Err(); err != nil {
		return fmt.Errorf("the drain failed: %w", err)
	}
	for _, name := range []string{"storefront-", "ledger-", "db-", "queue-", "archive-"} {
		if err := d.timeline.wait(ctx, name, "request ends: Evicted"); err != nil {
			return err
		}
	}
	return nil
}

// judgeStorefront tells how many endpoints the single replica had while it moved.
func (d *demo) judgeStorefront(ctx context.Context) error {
	if err := d.storefront.moved(ctx); err != nil {
		return err
	}
	all, smallest := d.storefront.seen()
	d.out.linef("\n  Ready endpoints of the service storefront while its only pod was moved: %s. The smallest number seen: %d", all, smallest)
	if smallest < 1 {
		return errors.New("the service storefront was without a ready endpoint")
	}
	return nil
}

// judgeSweep checks the claims of the first drain.
func (d *demo) judgeSweep(ctx context.Context) error {
	if d.timeline.indexOf("web-", "eviction requested") >= 0 {
		return errors.New("a pod that nobody intercepts got an EvictionRequest")
	}
	for _, order := range [][3]string{
		{"ledger-", "turn of checkpoint.example.com", "turn of handover.example.com"},
		{"ledger-", "turn of handover.example.com", "turn of imperative-eviction.k8s.io"},
		{"ledger-", "turn of imperative-eviction.k8s.io", "evicted from node-1"},
		{"db-", "turn of checkpoint.example.com", "evicted from node-1"},
		{"queue-", "number of retries: 1", "evicted from node-1"},
		{"archive-", "turn of dump.shop.hooks.drawbridge.dev", ": dumped archive-"},
		{"archive-", ": dumped archive-", "evicted from node-1"},
		{"storefront-", "turn of surge.drawbridge.dev", "evicted from node-1"},
	} {
		first, second := d.timeline.indexOf(order[0], order[1]), d.timeline.indexOf(order[0], order[2])
		if first < 0 || second < 0 || first > second {
			return fmt.Errorf("%s*: want %q before %q", order[0], order[1], order[2])
		}
	}
	left, err := d.kubectl(ctx, "get", "pods", "-n", "shop", "--field-selector", "spec.nodeName=node-1", "-o", "name")
	if err != nil {
		return err
	}
	if left != "" {
		return fmt.Errorf("still on node-1: %s", left)
	}
	if d.timeline.indexOf("db-0", "evicted from node-2") >= 0 || d.timeline.indexOf("db-0", "evicted from node-3") >= 0 {
		return errors.New("the replacement of db-0 was evicted as well")
	}
	return nil
}

// callOff begins to drain the second node, stops, and uncordons.
func (d *demo) callOff(ctx context.Context) error {
	d.timeline.restart()
	drain, err := d.drain(ctx, "node-2")
	if err != nil {
		return err
	}
	if err := d.timeline.wait(ctx, "render-", slowInterceptor+": working"); err != nil {
		return err
	}
	if err := drain.Interrupt(); err != nil {
		return err
	}
	if _, err := drain.Wait(); err != nil {
		return err
	}
	d.out.linef("  ^C")
	d.timeline.note("render", "kubectl is interrupted; the node stays cordoned, the request stays")
	d.out.linef("  $ kubectl uncordon node-2")
	if _, err := d.kubectl(ctx, "uncordon", "node-2"); err != nil {
		return err
	}
	d.timeline.note("render", "node-2 is uncordoned")
	for _, end := range []string{"request ends: Canceled", slowInterceptor + " prints: stopping"} {
		if err := d.timeline.wait(ctx, "render-", end); err != nil {
			return err
		}
	}
	if d.timeline.indexOf("render-", "evicted") >= 0 {
		return errors.New("render was evicted although the drain was canceled")
	}
	return nil
}

// wrap breaks a line at spaces.
func wrap(text string, width int, indent string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Split(text, " ") {
		switch {
		case i == 0:
		case column+1+len(word) > width:
			b.WriteString("\n" + indent)
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
