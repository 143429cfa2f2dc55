//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// Namespaces of the sides. Which webhook is asked goes by the namespace, so nothing
// has to be switched between two measurements but the manager.
const (
	plainNamespace   = "bench-plain"
	trivialNamespace = "bench-trivial"
	bareNamespace    = "bench-bare"
	ourNamespace     = "bench-drawbridge"
)

// patience bounds every wait for something that must happen.
const patience = 3 * time.Minute

var scheme = cluster.Scheme()

// env is a control plane with the chart, the trivial webhook, and the callers.
type env struct {
	settings
	cluster *cluster.Cluster
	inst    *manager.Installation
	table   *table
	// kube and crs are without a limit of their own.
	kube kubernetes.Interface
	crs  client.WithWatch
	// trivialURL and bareURL are the addresses of the webhooks that the manager is compared with.
	trivialURL, bareURL string
	// certFile and keyFile are their certificate for localhost, of the authority caBundle.
	certFile, keyFile string
	caBundle          []byte

	manager *manager.Process
	// pprofAddr is where the running manager tells about itself.
	pprofAddr string
	// row is what is measured now, for the names of profiles.
	row string
	// extraArgs are further arguments of the manager.
	extraArgs []string
	written   int
}

// unlimited is a configuration without a limit of the client's.
func unlimited(config *rest.Config) *rest.Config {
	config.QPS = -1
	return config
}

// scaleLimits let a control plane of 150,000 pods fit into 24 GiB.
var scaleLimits = map[cluster.ComponentName]string{cluster.APIServer: "12GiB", cluster.ControllerManager: "5GiB"}

// newEnv starts everything for a kind of row; stop ends it.
func newEnv(ctx context.Context, s settings, t *table, plane row) (_ *env, _ func() error, err error) {
	options := cluster.Options{Nodes: 2, RequestLog: plane.logs, APIServerArgs: []string{"--profiling=" + strconv.FormatBool(s.pprof != "")}}
	if plane.alone {
		options.MemoryLimits = scaleLimits
	}
	c, err := cluster.Start(ctx, options)
	if err != nil {
		return nil, nil, err
	}
	e := &env{settings: s, cluster: c, table: t}
	stopTrivial := func() {}
	stop := func() error {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err := e.stopManager(ending)
		stopTrivial()
		return errors.Join(err, c.Stop(ending))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, stop())
		}
	}()
	config := unlimited(c.Config())
	if e.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, nil, fmt.Errorf("make client: %w", err)
	}
	if e.crs, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return nil, nil, fmt.Errorf("make client: %w", err)
	}
	for _, name := range []string{plainNamespace, trivialNamespace, bareNamespace, ourNamespace} {
		if err := e.crs.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return nil, nil, fmt.Errorf("create namespace: %w", err)
		}
	}
	excluded := []string{metav1.NamespaceSystem, plainNamespace, trivialNamespace, bareNamespace}
	e.inst, err = manager.Install(ctx, c, manager.InstallOptions{Values: map[string]any{"webhook": map[string]any{"excludedNamespaces": excluded}}})
	if err != nil {
		return nil, nil, err
	}
	if err := e.makeCertificate(); err != nil {
		return nil, nil, err
	}
	if e.trivialURL, err = e.callFor(ctx, trivialNamespace, trivialWebhook); err != nil {
		return nil, nil, err
	}
	if e.bareURL, err = e.callFor(ctx, bareNamespace, bareWebhook); err != nil {
		return nil, nil, err
	}
	if _, stopTrivial, err = e.serve(ctx, trivialRole, e.trivialURL); err != nil {
		return nil, nil, err
	}
	return e, stop, nil
}

// startManager runs the manager, if it does not run.
func (e *env) startManager(ctx context.Context) error { return e.startManagerAs(ctx, "") }

// startManagerAs runs this program as the manager; that of --manager, or the built one, if empty.
func (e *env) startManagerAs(ctx context.Context, program string) (err error) {
	if e.manager != nil {
		return nil
	}
	if program == "" {
		program = e.settings.manager
	}
	if program == "" && managerRole != "" {
		if program, err = e.as(managerRole); err != nil {
			return err
		}
	}
	port, err := manager.FreePort(ctx)
	if err != nil {
		return err
	}
	e.pprofAddr = "127.0.0.1:" + strconv.Itoa(port)
	e.manager, err = e.inst.StartProcess(ctx, manager.ProcessOptions{Binary: program, Patience: scalePatience, Args: append([]string{
		// As the chart runs it, but for the grace after the start, which would be over in
		// a cluster, for the minutes in which a pod's owner may act before a
		// NodeMaintenance does, which are no cost of ours, and for what the profiles need.
		"--log-level=info", "--log-format=json", "--startup-grace=0s", "--maintenance-evacuation-wait=0s", "--pprof-addr=" + e.pprofAddr,
	}, e.extraArgs...)})
	return err
}

func (e *env) stopManager(ctx context.Context) error {
	if e.manager == nil {
		return nil
	}
	m := e.manager
	e.manager = nil
	return m.Stop(ctx)
}

// profiled runs work, with profiles of the manager and of the API server if they are wanted.
func (e *env) profiled(ctx context.Context, seconds int, work func() error) error {
	if e.pprof == "" || e.manager == nil {
		return work()
	}
	e.written++
	name := filepath.Join(e.pprof, fmt.Sprintf("%s-%d", e.row, e.written))
	done := make(chan error, 2)
	go func() { done <- e.fetch(ctx, "/debug/pprof/profile?seconds="+strconv.Itoa(seconds), name+".cpu.pprof") }()
	go func() { done <- e.profileAPIServer(ctx, seconds, name+".apiserver.pprof") }()
	err := work()
	return errors.Join(err, <-done, <-done, e.fetch(ctx, "/debug/pprof/heap", name+".heap.pprof"))
}

// profileAPIServer writes what kube-apiserver's CPU does.
func (e *env) profileAPIServer(ctx context.Context, seconds int, file string) error {
	content, err := e.kube.Discovery().RESTClient().Get().AbsPath("/debug/pprof/profile").Param("seconds", strconv.Itoa(seconds)).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("profile kube-apiserver: %w", err)
	}
	return os.WriteFile(file, content, 0o600)
}

// fetch reads a page of the manager's pprof into a file; nowhere if it is empty.
func (e *env) fetch(ctx context.Context, path, file string) error {
	content, err := get(ctx, "http://"+e.pprofAddr+path)
	if err != nil || file == "" {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}

func get(ctx context.Context, url string) (content []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", url, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// metric is the value of a metric of the manager without labels.
func (e *env) metric(ctx context.Context, name string) (float64, error) {
	content, err := get(ctx, e.manager.MetricsURL)
	if err != nil {
		return 0, err
	}
	for l := range strings.Lines(string(content)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(l), " "); ok && key == name {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("the manager has no metric %s", name)
}

// metricSum adds up all series of a metric of the manager.
func (e *env) metricSum(ctx context.Context, name string) (total float64, err error) {
	content, err := get(ctx, e.manager.MetricsURL)
	if err != nil {
		return 0, err
	}
	for l := range strings.Lines(string(content)) {
		series, value, ok := strings.Cut(strings.TrimSpace(l), "} ")
		if !ok || !strings.HasPrefix(series, name+"{") {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("read metric %s: %w", name, err)
		}
		total += n
	}
	return total, nil
}

// eventually waits until a condition holds; what says what for.
func eventually(ctx context.Context, what string, condition func(context.Context) (bool, error)) error {
	return within(ctx, patience, what, condition)
}

// within is eventually for what takes another time.
func within(ctx context.Context, limit time.Duration, what string, condition func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, condition); err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}
