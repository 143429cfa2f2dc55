//go:build unix

package certmanager

import (
	"context"
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/audit"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
)

// peerName is the name that `make test-peers` has for it.
const peerName = "cert-manager"

const (
	// patience is how long a test waits for what must happen.
	patience = 3 * time.Minute
	// settle is what the replicas are told, so that a rotation takes seconds.
	settle = 2 * time.Second
)

var (
	kube *cluster.Cluster
	// programs of cert-manager.
	programs *peer.Programs
	// admin may do everything.
	admin  client.Client
	scheme = cluster.Scheme(certmanagerv1.AddToScheme)

	rotations = flag.Int("rotations", 6, "how often each test rotates the certificate")
)

type values = map[string]any

func TestMain(m *testing.M) {
	flag.Parse()
	folder := peer.Folder(peerName)
	if folder == "" {
		os.Exit(m.Run()) // Every test is skipped.
	}
	os.Exit(cluster.MainThen(m, cluster.Options{Nodes: 1, RequestLog: true}, func(c *cluster.Cluster) (err error) {
		kube, programs = c, &peer.Programs{Cluster: c, Folder: folder}
		if admin, err = client.New(c.Config(), client.Options{Scheme: scheme}); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		return startCertManager(ctx, folder)
	}, func(c *cluster.Cluster) error {
		return errors.Join(programs.StillRun(), audit.After(c, install.DefaultNamespace, nil))
	}))
}

// needCertManager skips a test for which there is no cert-manager.
func needCertManager(t *testing.T) {
	t.Helper()
	if kube == nil {
		peer.Skip(t, peerName)
	}
}

// byCertManager are the values of the chart with which cert-manager issues the certificate.
func byCertManager(others ...values) values {
	all := values{"certificates": values{"mode": "cert-manager", "settle": settle.String()}}
	for _, more := range others {
		for key, value := range more {
			all[key] = value
		}
	}
	return all
}

// installed installs the chart for the test, and uninstalls it at its end.
func installed(t *testing.T, v values) *manager.Installation {
	t.Helper()
	inst := must(manager.Install(t.Context(), kube, manager.InstallOptions{Values: v}))(t)
	t.Cleanup(func() { uninstall(t) })
	return inst
}

// uninstall removes the release, if it is there.
func uninstall(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	account := &corev1.ServiceAccount{}
	if err := admin.Get(ctx, client.ObjectKey{Namespace: install.DefaultNamespace, Name: install.DefaultRelease}, account); apierrors.IsNotFound(err) {
		return
	}
	if err := install.Uninstall(ctx, install.Options{Kubeconfig: kubeconfig(t), NoHooks: true}); err != nil {
		t.Error(err)
	}
}

func kubeconfig(t *testing.T) string {
	t.Helper()
	return must(kube.KubeconfigFile("drawbridge-installer", "system:masters"))(t)
}

// pair is two replicas behind a Service.
type pair struct {
	*manager.Service
	replicas []*manager.Process
}

func startPair(t *testing.T, inst *manager.Installation, args ...string) *pair {
	t.Helper()
	p := &pair{Service: inst.NewService(t)}
	args = append([]string{"--cert-manager-certificate=" + leaf, "--certificate-settle=" + settle.String()}, args...)
	for range 2 {
		p.replicas = append(p.replicas, p.Replica(t, args...))
	}
	return p
}

// asked is how many evictions the replicas were asked about.
func (p *pair) asked(t *testing.T) int {
	t.Helper()
	all := 0
	for _, replica := range p.replicas {
		all += int(must(replica.Metric(t.Context(), "drawbridge_eviction_handler_duration_seconds_count"))(t))
	}
	return all
}

func must[T any](value T, err error) func(testing.TB) T { return cluster.Must(value, err) }

var eventually = cluster.Eventually
