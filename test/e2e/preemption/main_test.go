//go:build unix

// Package preemption lets the real kube-scheduler preempt on a real control plane
// with Drawbridge's extender in its configuration. The chart is installed as users
// install it, and the scheduler comes with the very client certificate that it has
// for the API server.
//
// There is one scheduler and one manager for all tests. Those that stop the manager
// are not parallel; the rest is, each on nodes of its own.
package preemption

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

const (
	// patience is how long a test waits for what must happen.
	patience = 3 * time.Minute
	// schedulerUser is the user name of the scheduler.
	schedulerUser = "system:kube-scheduler"
	// token is what it may send instead of a certificate.
	token = "0123456789abcdef0123456789abcdef"
	// answerTimeout is how long the extender may take to answer, and the scheduler waits a little
	// longer. The defaults are 4 and 5 seconds, for which a busy machine may stand still; the
	// scheduler then preempts as if there were no extender.
	answerTimeout = time.Minute
	httpTimeout   = 90 * time.Second
)

var (
	// kube is the control plane of this package.
	kube *cluster.Cluster
	// inst is the chart in it.
	inst *manager.Installation
	// admin may do everything.
	admin client.Client
	// running is the one that all tests share.
	running *manager.Manager
	// extenderPort is where it serves the scheduler.
	extenderPort int
	// authority is that of its certificate.
	authority []byte
	// tokenFile has the token that the scheduler may send instead of a certificate.
	tokenFile string

	scheme = cluster.Scheme()
)

func TestMain(m *testing.M) {
	options := cluster.Options{
		RequestLog: true,
		// No event of a budget makes the scheduler look at a pending pod again; the
		// default is to do that every 5 minutes.
		SchedulerArgs: []string{"--pod-max-in-unschedulable-pods-duration=5s"},
	}
	os.Exit(cluster.Main(m, options, setup))
}

// setup installs the chart, starts the manager, and tells the scheduler of it.
func setup(c *cluster.Cluster) (err error) {
	kube = c
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if admin, err = client.New(c.Config(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	values := map[string]any{
		"preemption": map[string]any{"enabled": true, "guardDeletes": true},
		"surge":      map[string]any{"enabled": false},
	}
	if inst, err = manager.Install(ctx, c, manager.InstallOptions{Values: values}); err != nil {
		return err
	}
	if extenderPort, err = manager.FreePort(ctx); err != nil {
		return err
	}
	tokenFile = filepath.Join(c.Dir(), "preemption-token")
	if err := os.WriteFile(tokenFile, []byte(token+"\n"), 0o600); err != nil {
		return err
	}
	if err := startManager(ctx, true); err != nil {
		return err
	}
	secret := &corev1.Secret{}
	if err := admin.Get(ctx, client.ObjectKey{Namespace: inst.Namespace, Name: inst.Release + "-webhook-cert"}, secret); err != nil {
		return err
	}
	authority = secret.Data["ca.crt"]
	config, err := schedulerConfig()
	if err != nil {
		return err
	}
	return c.ConfigureScheduler(ctx, config)
}

// startManager starts the manager that all tests share. Stamped is what the chart says
// for this API server.
func startManager(ctx context.Context, stamped bool) (err error) {
	running, err = inst.Start(ctx, manager.Options{Change: func(o *app.Options) {
		o.Surge = false
		o.Guard.Enabled = false // It would take off the labels that tests put on.
		o.Preemption.Enabled = true
		o.Preemption.Port = extenderPort
		o.Preemption.Stamped = stamped
		o.Preemption.Timeout = answerTimeout
		o.Preemption.GuardDeletes = true
		o.Preemption.TokenFile = tokenFile
	}})
	return err
}

// tokenSchedulerConfig is the same with a token, and with whole pods.
func tokenSchedulerConfig() string {
	return fmt.Sprintf(`
extenders:
  - urlPrefix: https://scheduler:%s@127.0.0.1:%d
    preemptVerb: preempt
    nodeCacheCapable: false
    ignorable: true
    httpTimeout: %s
    enableHTTPS: true
    tlsConfig:
      serverName: localhost
      caData: %s
`, token, extenderPort, httpTimeout, base64.StdEncoding.EncodeToString(authority))
}

// schedulerConfig is what docs/guides/preemption.md tells administrators to write, but for the timeout.
func schedulerConfig() (string, error) {
	scheduler, err := kube.ConfigFor(schedulerUser)
	if err != nil {
		return "", err
	}
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf(`
extenders:
  - urlPrefix: https://127.0.0.1:%d
    preemptVerb: preempt
    nodeCacheCapable: true
    ignorable: true
    httpTimeout: %s
    enableHTTPS: true
    tlsConfig:
      serverName: localhost
      caData: %s
      certData: %s
      keyData: %s
`, extenderPort, httpTimeout, encode(authority), encode(scheduler.CertData), encode(scheduler.KeyData)), nil
}

func extenderURL() string { return "https://127.0.0.1:" + strconv.Itoa(extenderPort) + "/preempt" }
