package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

var (
	//go:embed workload.yaml
	workload string
	//go:embed render.yaml
	render string
	//go:embed interceptors.yaml
	interceptors string

	scheme = cluster.Scheme()
)

func init() {
	log.SetLogger(logr.Discard()) // The timeline's cache has nothing to say to a reader.
}

// slowInterceptor works for so long that its drain can be canceled.
const slowInterceptor = "migrate.example.com"

type demo struct {
	out      *printer
	cluster  *cluster.Cluster
	timeline *timeline
	// storefront are the endpoints of the application that must never be without one.
	storefront *endpoints
	// interceptor is the path of the built example, plugin that of kubectl-drawbridge.
	interceptor, plugin string
}

// run is the demo from the first build to the verdict. Everything it starts has
// ended when it returns.
func run(ctx context.Context, p *printer) (err error) {
	p.linef("Drawbridge: a kubectl drain that was never taught about interceptors waits for them.")
	interceptor, plugin, err := build(ctx, p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	p.heading("A control plane, with three nodes")
	booting := time.Now()
	c, err := cluster.Start(ctx, cluster.Options{Nodes: 3})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
	d := &demo{out: p, cluster: c, interceptor: interceptor, plugin: plugin}
	version, err := c.Client().Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask for the version: %w", err)
	}
	p.linef("  Kubernetes %s is up after %.1f s: etcd, kube-apiserver, kube-controller-manager, kube-scheduler", version.GitVersion, time.Since(booting).Seconds())

	p.heading("Drawbridge, installed from its chart")
	stop, err := d.install(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	p.heading("Applications on node-1, three interceptors, and a hook")
	if err := d.populate(ctx); err != nil {
		return err
	}
	defer d.storefront.stop() // Before the API server goes, which would be an error in its log.

	p.heading("alice drains node-1")
	if err := d.sweep(ctx); err != nil {
		return err
	}
	p.linef("\n  What happened to each pod, in seconds since the drain began:")
	d.timeline.print(p)
	if err := d.judgeStorefront(ctx); err != nil {
		return err
	}
	if err := d.judgeSweep(ctx); err != nil {
		return err
	}

	p.heading("alice begins to drain node-2, and thinks better of it")
	if err := d.callOff(ctx); err != nil {
		return err
	}
	d.timeline.print(p)

	p.heading("alice drains node-2 with the plugin, and asks why it is not finished")
	if err := d.follow(ctx); err != nil {
		return err
	}
	p.linef("\nPASS: plain pods left at once; storefront never lacked a ready endpoint; interceptors ran in order, one at a time;\n"+
		"the Job of a hook was done before its pod left; the budget's release woke the eviction; the replacement of db-0 was spared;\nan uncordon canceled a drain;\nthe plugin named the interceptor that held a drain up, and went on without it when it was told to.\nIt took %.0f s. Nothing is left running.", time.Since(p.started).Seconds())
	return nil
}

// build builds what the demo runs. All of it is kept for the next time. It returns
// the paths of the example interceptor and of the plugin.
func build(ctx context.Context, p *printer) (interceptor, plugin string, err error) {
	if _, err := cluster.EnsureBinaries(ctx, p.to); err != nil { // Says itself how far it is.
		return "", "", err
	}
	for _, part := range []struct {
		name  string // And how long it takes the first time, on two cores.
		build func(context.Context) error
	}{
		{"helm, about a minute", func(ctx context.Context) error {
			_, err := install.Helm(ctx)
			return err
		}},
		{"the manager, about half a minute", func(ctx context.Context) error {
			_, err := manager.Build(ctx)
			return err
		}},
		{"the example interceptor, some seconds", func(ctx context.Context) (err error) {
			interceptor, err = manager.BuildInterceptor(ctx)
			return err
		}},
		{"the plugin, some seconds", func(ctx context.Context) (err error) {
			plugin, err = manager.BuildPlugin(ctx)
			return err
		}},
	} {
		if err := p.during("building "+part.name, func() error { return part.build(ctx) }); err != nil {
			return "", "", err
		}
	}
	return interceptor, plugin, nil
}

// install installs the chart and starts the manager under the chart's service
// account. What is short in it are the times, so that the demo is.
func (d *demo) install(ctx context.Context) (stop func() error, err error) {
	d.out.linef("  $ helm upgrade --install drawbridge charts/drawbridge -n drawbridge-system --create-namespace \\")
	d.out.linef("      --set deployment.enabled=false --set webhook.url=https://localhost:PORT --set webhook.failurePolicy=Fail")
	installation, err := manager.Install(ctx, d.cluster, manager.InstallOptions{})
	if err != nil {
		return nil, err
	}
	args := []string{"--marker-debounce=3s", "--maintenance-evacuation-wait=1s"}
	d.out.linef("  $ drawbridge %s     (as system:serviceaccount:%s:%s)", strings.Join(args, " "), installation.Namespace, installation.ServiceAccount)
	manager, err := installation.StartProcess(ctx, manager.ProcessOptions{Args: args})
	if err != nil {
		return nil, err
	}
	return func() error {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		return manager.Stop(ending)
	}, nil
}

// populate fills node-1 and starts the interceptors.
func (d *demo) populate(ctx context.Context) error {
	if err := d.allow(ctx); err != nil {
		return err
	}
	if _, err := d.kubectl(ctx, "cordon", "node-2", "node-3"); err != nil {
		return err
	}
	if err := d.apply(ctx, workload); err != nil {
		return err
	}
	for _, rollout := range []string{"deployment/web", "deployment/storefront", "deployment/ledger", "deployment/queue", "deployment/archive", "statefulset/db"} {
		if _, err := d.kubectl(ctx, "rollout", "status", rollout, "-n", "shop", "--timeout=60s"); err != nil {
			return err
		}
	}
	if _, err := d.kubectl(ctx, "uncordon", "node-2", "node-3"); err != nil {
		return err
	}
	if err := d.apply(ctx, render+"---\n"+interceptors); err != nil {
		return err
	}
	if _, err := d.kubectl(ctx, "rollout", "status", "deployment/render", "-n", "shop", "--timeout=60s"); err != nil {
		return err
	}
	table, err := d.kubectl(ctx, "get", "pods", "-n", "shop",
		"-o", `custom-columns=POD:.metadata.name,NODE:.spec.nodeName,SURGE:.metadata.labels.drawbridge\.dev/surge,INTERCEPTORS:.metadata.annotations.drawbridge\.dev/interceptors`)
	if err != nil {
		return err
	}
	for line := range strings.Lines(table) {
		d.out.linef("  %s", strings.TrimRight(line, "\n"))
	}
	if d.timeline, err = newTimeline(ctx, d.cluster.Config(), "shop"); err != nil {
		return err
	}
	if d.storefront, err = watchEndpoints(ctx, d.cluster.Client(), "shop", "storefront"); err != nil {
		return err
	}
	return d.startInterceptors(ctx)
}

// allow makes alice an operator.
func (d *demo) allow(ctx context.Context) error {
	result, err := d.cluster.Kubectl(ctx, cluster.KubectlOptions{}, "create", "clusterrolebinding", "operators", "--clusterrole=cluster-admin", "--group=operators")
	if err != nil {
		return err
	}
	return result.Err()
}

func (d *demo) apply(ctx context.Context, manifests string) error {
	options := drainer
	options.Stdin = strings.NewReader(manifests)
	result, err := d.cluster.Kubectl(ctx, options, "apply", "-f", "-")
	if err != nil {
		return err
	}
	return result.Err()
}

// startInterceptors runs the example program three times, as three third parties
// would, each under a service account of its own.
func (d *demo) startInterceptors(ctx context.Context) error {
	for _, i := range []struct{ account, name, work string }{
		{"checkpoint", "checkpoint.example.com", "4s"},
		{"handover", "handover.example.com", "3s"},
		{"migrate", slowInterceptor, "10m"},
	} {
		kubeconfig, err := d.cluster.KubeconfigFileForServiceAccount(ctx, "interceptors", i.account)
		if err != nil {
			return err
		}
		notice := cluster.ProgramOptions{OnLine: func(line cluster.Line) {
			// "NAMESPACE/POD: what it does"; what it reports shows in the request anyway.
			if pod, text, ok := strings.Cut(strings.TrimPrefix(line.Text, "shop/"), ": "); ok && strings.HasPrefix(text, "stopping") {
				d.timeline.note(pod, i.name+" prints: "+text)
			}
		}}
		program, err := d.cluster.StartProgram(ctx, notice, d.interceptor, "--kubeconfig="+kubeconfig, "--name="+i.name, "--work="+i.work)
		if err != nil {
			return err
		}
		go func() {
			<-program.Done()
			if ctx.Err() == nil {
				d.timeline.note("interceptors", i.name+" has ended by itself")
			}
		}()
		d.out.linef("  $ interceptor --name=%s --work=%s", i.name, i.work)
	}
	return nil
}
