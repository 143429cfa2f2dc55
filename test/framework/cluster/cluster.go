package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// bootTimeout is how long each component may take to become ready. It takes a
	// second or two; a machine that builds something beside it takes longer.
	bootTimeout = 2 * time.Minute
	// bootAttempts is how often the boot begins again if another process took a port.
	bootAttempts = 3
	// killTimeout is how long a killed process may take to be gone.
	killTimeout = 30 * time.Second

	adminUser    = "admin"
	mastersGroup = "system:masters"
)

// Cluster is a running control plane. Its methods may be called from several
// goroutines.
type Cluster struct {
	options  Options
	binaries Binaries
	dir      string

	authority  *authority
	admin      *rest.Config
	client     kubernetes.Interface
	health     *http.Client
	reaper     *reaper
	requestLog *RequestLog
	components map[ComponentName]*Component

	etcd  string       // Where etcd serves its clients.
	nodes atomic.Int64 // Nodes named so far.
	// kubeletPort is where kwok serves as the kubelet of all nodes.
	kubeletPort int

	kubeconfigs   sync.Mutex // Serialises writing kubeconfig files.
	kubeconfigFor map[string]string

	stopOnce sync.Once
	stopErr  error
}

// Start builds the binaries if need be, boots a control plane and returns when every
// component is ready, the default ServiceAccount exists and the nodes are Ready.
// When ctx ends during the boot, the boot fails; afterwards ctx no longer matters.
// Call [Cluster.Stop] in the end.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	if options.Logf == nil {
		options.Logf = func(string, ...any) {}
	}
	binaries, err := EnsureBinaries(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		c, err := start(ctx, binaries, options)
		if err == nil {
			return c, nil
		}
		if attempt == bootAttempts || !errors.Is(err, errPortTaken) {
			return nil, err
		}
		options.Logf("cluster: %v; beginning again with other ports", err)
	}
}

func start(ctx context.Context, binaries Binaries, options Options) (c *Cluster, err error) {
	started := realClock.Now()
	dir, err := os.MkdirTemp(options.Dir, "drawbridge-cluster-")
	if err != nil {
		return nil, fmt.Errorf("create cluster folder: %w", err)
	}
	c = &Cluster{
		options:       options,
		binaries:      binaries,
		dir:           dir,
		components:    map[ComponentName]*Component{},
		kubeconfigFor: map[string]string{},
	}
	if c.reaper, err = startReaper(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer func() {
		if err == nil {
			return
		}
		// ctx may be what ended the boot; cleaning up needs time of its own.
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Patience)
		defer cancel()
		err = errors.Join(err, c.Stop(stopCtx))
		c = nil
	}()
	if err := c.prepare(); err != nil {
		return c, err
	}
	if err := c.boot(ctx); err != nil {
		return c, err
	}
	if err := c.restrainKubelet(ctx); err != nil {
		return c, err
	}
	if _, err := c.AddNodes(ctx, options.Nodes); err != nil {
		return c, err
	}
	options.Logf("cluster: Kubernetes %s with %d nodes on %s, ready after %s",
		c.binaries.release.version, options.Nodes, c.admin.Host, realClock.Since(started).Round(10*time.Millisecond))
	return c, nil
}

// boot starts the components in the order in which they need each other.
func (c *Cluster) boot(ctx context.Context) error {
	for _, name := range []ComponentName{Etcd, APIServer} {
		if err := c.components[name].Start(ctx); err != nil {
			return err
		}
	}
	rest := []ComponentName{ControllerManager, Scheduler, Kwok}
	failures := make([]error, len(rest))
	var group sync.WaitGroup
	for i, name := range rest {
		group.Go(func() { failures[i] = c.components[name].Start(ctx) })
	}
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	// kube-controller-manager reports healthy before its controllers work; this
	// is the work that every pod needs done first.
	return c.waitServiceAccount(ctx, "default", "default")
}

// Dir is the cluster's temporary folder: logs, certificates, kubeconfigs, data.
func (c *Cluster) Dir() string { return c.dir }

// Client is a client with all rights.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// RequestLog is the log of the requests that kube-apiserver answered. It is nil
// unless Options.RequestLog is set.
func (c *Cluster) RequestLog() *RequestLog { return c.requestLog }

// Component returns a part of the control plane, to be killed, paused and
// restarted.
func (c *Cluster) Component(name ComponentName) *Component { return c.components[name] }

// WaitReady waits until every component answers that it is healthy. Error: ctx
// ended, or a component has ended.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for _, name := range componentOrder {
		if err := c.components[name].WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends every process and removes the folder. It may be called more than once.
// Error: something could not be ended or removed, or a component had ended by
// itself; the error then has the end of its log.
func (c *Cluster) Stop(ctx context.Context) error {
	c.stopOnce.Do(func() { c.stopErr = c.stop(ctx) })
	return c.stopErr
}

func (c *Cluster) stop(ctx context.Context) error {
	var failures []error
	// From the last to the first: kube-apiserver without its etcd would take
	// long to end, and the others would fill their logs. There is nothing to
	// save, so nobody is asked politely.
	for _, name := range slices.Backward(componentOrder) {
		component, ok := c.components[name]
		if !ok {
			continue
		}
		if err := component.diedByItself(); err != nil {
			failures = append(failures, err)
		}
		if err := component.Kill(ctx); err != nil {
			failures = append(failures, err)
		}
	}
	if err := os.RemoveAll(c.dir); err != nil {
		failures = append(failures, fmt.Errorf("remove cluster folder: %w", err))
	}
	if err := c.reaper.dismiss(ctx); err != nil {
		failures = append(failures, err)
	}
	if c.health != nil {
		c.health.CloseIdleConnections()
	}
	return errors.Join(failures...)
}

// artifactsEnv names the folder that CI keeps.
const artifactsEnv = "DRAWBRIDGE_ARTIFACTS"

// KeepLogs copies the components' logs, and the request log if there is one, to
// $DRAWBRIDGE_ARTIFACTS, or to a new temporary folder, and returns where they are
// now. The name becomes part of the folder's. Call it before Stop.
func (c *Cluster) KeepLogs(name string) (string, error) {
	parent := os.Getenv(artifactsEnv)
	if parent != "" {
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return "", fmt.Errorf("create folder for logs: %w", err)
		}
	}
	kept, err := os.MkdirTemp(parent, "drawbridge-logs-"+dnsLabel(name, 40)+"-")
	if err != nil {
		return "", fmt.Errorf("create folder for logs: %w", err)
	}
	logs, err := filepath.Glob(filepath.Join(c.dir, "logs", "*"))
	if err != nil {
		return kept, fmt.Errorf("list logs: %w", err)
	}
	for _, log := range logs {
		if err := copyFile(log, filepath.Join(kept, filepath.Base(log))); err != nil {
			return kept, err
		}
	}
	return kept, nil
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("keep log: %w", err)
	}
	defer func() { _ = source.Close() }() // Only read.
	target, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("keep log: %w", err)
	}
	_, err = io.Copy(target, source)
	if err := errors.Join(err, target.Close()); err != nil {
		return fmt.Errorf("keep log: %w", err)
	}
	return nil
}

// dnsLabel makes a readable part of a Kubernetes name out of any text: lower-case
// letters, digits and single hyphens, at most limit characters.
func dnsLabel(text string, limit int) string {
	var label strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			label.WriteRune(r)
		case label.Len() > 0 && !strings.HasSuffix(label.String(), "-"):
			label.WriteByte('-')
		}
	}
	cut := label.String()
	return strings.Trim(cut[:min(len(cut), limit)], "-")
}
