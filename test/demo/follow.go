package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// drawbridge starts the plugin as the drainer, and prints what it prints.
func (d *demo) drawbridge(ctx context.Context, args ...string) (*cluster.Program, error) {
	kubeconfig, err := d.cluster.KubeconfigFile(drainer.User, drainer.Groups...)
	if err != nil {
		return nil, err
	}
	d.out.linef("  $ kubectl drawbridge %s", strings.Join(args, " "))
	options := cluster.ProgramOptions{OnLine: func(line cluster.Line) { d.out.linef("  | %s", wrap(line.Text, 112, "  |     ")) }}
	return d.cluster.StartProgram(ctx, options, d.plugin, append([]string{"--kubeconfig=" + kubeconfig}, args...)...)
}

// follow drains the second node with the plugin, asks it about the pod that holds the
// drain up, and goes on without that pod's interceptor.
func (d *demo) follow(ctx context.Context) error {
	d.timeline.restart()
	drain, err := d.drawbridge(ctx, "drain", "node-2", "--reason=kernel update")
	if err != nil {
		return err
	}
	if err := d.timeline.wait(ctx, "render-", slowInterceptor+": working"); err != nil {
		return err
	}
	name, err := d.kubectl(ctx, "get", "pods", "-n", "shop", "-l", "app=render", "--field-selector=spec.nodeName=node-2", "-o", "jsonpath={.items[0].metadata.name}")
	if err != nil {
		return err
	}
	why, err := d.ask(ctx, "why", name, "-n", "shop")
	if err != nil {
		return err
	}
	if !strings.Contains(why, "Interceptor "+slowInterceptor+" (1 of 2) has its turn") {
		return fmt.Errorf("the plugin does not know what pod %s waits for", name)
	}
	if _, err := d.ask(ctx, "skip", name, slowInterceptor, "-n", "shop", "--reason=nobody needs this frame"); err != nil {
		return err
	}
	result, err := drain.Wait()
	if err != nil {
		return err
	}
	if err := result.Err(); err != nil {
		return fmt.Errorf("the drain failed: %w", err)
	}
	left, err := d.kubectl(ctx, "get", "pods", "-n", "shop", "--field-selector", "spec.nodeName=node-2", "-o", "name")
	if err != nil {
		return err
	}
	if left != "" {
		return fmt.Errorf("still on node-2: %s", left)
	}
	if d.timeline.indexOf("render-", "Skipped by alice: nobody needs this frame") < 0 {
		return errors.New("nobody can see who skipped the interceptor")
	}
	_, err = d.ask(ctx, "uncordon", "node-2")
	return err
}

// ask runs the plugin to its end, which must be a success.
func (d *demo) ask(ctx context.Context, args ...string) (string, error) {
	program, err := d.drawbridge(ctx, args...)
	if err != nil {
		return "", err
	}
	result, err := program.Wait()
	if err != nil {
		return "", err
	}
	return result.Stdout, result.Err()
}
