// Command cluster-up starts the embedded Kubernetes for a person: it says how to use
// it and stays until it is interrupted. Then everything is gone.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

const stopTimeout = 30 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "cluster-up: %v\n", err)
		stop()
		os.Exit(1) //nolint:gocritic // What is deferred was done the line before.
	}
}

func run(ctx context.Context, args []string, output io.Writer) (err error) {
	flags := flag.NewFlagSet("cluster-up", flag.ContinueOnError)
	nodes := flags.Int("nodes", 3, "number of fake nodes")
	gates := flags.String("feature-gates", "", "feature gates, such as A=true,B=false")
	runtimeConfig := flags.String("runtime-config", "", "API versions to switch, such as lifecycle.k8s.io/v1alpha1=true")
	schedulerConfig := flags.String("scheduler-config", "", "file with a KubeSchedulerConfiguration")
	requestLog := flags.Bool("request-log", false, "log every request to the API server, as audit.log among the logs")
	buildOnly := flags.Bool("build-only", false, "only build the binaries, and print their paths")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) { // Printed already.
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	if *buildOnly {
		binaries, err := cluster.EnsureBinaries(ctx, os.Stderr)
		if err != nil {
			return err
		}
		for _, path := range binaries.Paths() {
			fmt.Fprintln(output, path)
		}
		return nil
	}

	options := cluster.Options{
		Nodes:      *nodes,
		RequestLog: *requestLog,
		Logf:       func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) },
	}
	if options.RuntimeConfig, err = parsePairs(*runtimeConfig); err != nil {
		return fmt.Errorf("--runtime-config: %w", err)
	}
	if options.FeatureGates, err = parseGates(*gates); err != nil {
		return fmt.Errorf("--feature-gates: %w", err)
	}
	if *schedulerConfig != "" {
		content, err := os.ReadFile(*schedulerConfig)
		if err != nil {
			return fmt.Errorf("--scheduler-config: %w", err)
		}
		options.SchedulerConfig = string(content)
	}
	return serve(ctx, options, output)
}

func serve(ctx context.Context, options cluster.Options, output io.Writer) (err error) {
	c, err := cluster.Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if stopErr := c.Stop(stopCtx); err == nil {
			err = stopErr
		}
	}()
	kubeconfig, err := c.KubeconfigFile("admin", "system:masters")
	if err != nil {
		return err
	}
	fmt.Fprintf(output, "\nTo use it:\n\n  export KUBECONFIG=%s\n  export PATH=%s:$PATH\n  kubectl get nodes\n\nLogs: %s\nCtrl-C ends it and removes everything.\n",
		kubeconfig, filepath.Join(c.Dir(), "bin"), filepath.Join(c.Dir(), "logs"))
	<-ctx.Done()
	fmt.Fprintln(os.Stderr, "cluster-up: stopping")
	return nil
}

func parsePairs(text string) (map[string]string, error) {
	pairs := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if pair == "" {
			continue
		}
		name, value, found := strings.Cut(pair, "=")
		if !found || name == "" {
			return nil, fmt.Errorf("%q is not NAME=VALUE", pair)
		}
		pairs[name] = value
	}
	return pairs, nil
}

func parseGates(text string) (map[string]bool, error) {
	pairs, err := parsePairs(text)
	if err != nil {
		return nil, err
	}
	gates := map[string]bool{}
	for name, value := range pairs {
		if gates[name], err = strconv.ParseBool(value); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return gates, nil
}
