//go:build unix

// Package kured puts kured into the situations of test/peers/situations.
package kured

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
	"github.com/drawbridge-dev/drawbridge/test/peers/records"
	"github.com/drawbridge-dev/drawbridge/test/peers/situations"
)

const (
	// peerName is the name that `make test-peers` has for it, that of its program, its account and its DaemonSet.
	peerName = "kured"
	// namespace is the one of its manifests.
	namespace = "kube-system"
)

// kured is the one of the cluster; nil if it is not tested.
var kured *drainer

func TestMain(m *testing.M) {
	os.Exit(situations.Main(m, peerName, func(ctx context.Context, w *situations.World) error {
		if err := w.Install(ctx); err != nil {
			return err
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: peerName}}
		if err := w.Client.Create(ctx, account); err != nil {
			return err
		}
		// It keeps its lock in the DaemonSet, whose pods would run nowhere here.
		labels := map[string]string{"name": peerName}
		if err := w.Client.Create(ctx, &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: peerName},
			Spec: appsv1.DaemonSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{
						NodeSelector: map[string]string{"situations.example.com/none": ""},
						Containers:   []corev1.Container{{Name: peerName, Image: peerName}},
					},
				},
			},
		}); err != nil {
			return err
		}
		d := &drainer{World: w, sentinel: filepath.Join(w.Kube.Dir(), "reboot-required"), running: map[string]*peer.Running{}}
		if err := os.WriteFile(d.sentinel, nil, 0o600); err != nil {
			return err
		}
		kured = d
		return nil
	}))
}

func TestSituations(t *testing.T) {
	if kured == nil {
		peer.Skip(t, peerName)
	}
	suite := situations.Suite{
		Kube: kured.Kube, Drainer: kured, User: "system:serviceaccount:" + namespace + ":" + peerName,
		Record: records.Record{
			Peer: peerName, Program: "kured, a reboot required", Version: cluster.Must(peer.Version(kured.Folder))(t),
		},
	}
	suite.Run(t)
	if err := kured.StillRun(); err != nil {
		t.Error(err)
	}
}

// drainer is a process for each node.
type drainer struct {
	*situations.World
	sentinel string

	mu      sync.Mutex
	running map[string]*peer.Running // By node: the last one.
}

func (d *drainer) Place(t *testing.T) situations.Place { return situations.NewPlace(t, d.Kube) }

func (d *drainer) Drain(t *testing.T, node string) {
	t.Helper()
	kubeconfig := cluster.Must(d.Kube.KubeconfigFileForServiceAccount(t.Context(), namespace, peerName))(t)
	running := cluster.Must(d.Start(t.Context(), "kured", peer.Options{
		Log: "kured-" + node, Env: []string{"KUBECONFIG=" + kubeconfig},
		Args: []string{
			"--node-id=" + node, "--period=1s", "--concurrency=100", "--reboot-sentinel=" + d.sentinel, "--reboot-command=/bin/true",
			"--metrics-host=127.0.0.1", "--metrics-port=" + strconv.Itoa(cluster.Must(manager.FreePort(t.Context()))(t)),
		},
	}))(t)
	d.mu.Lock()
	d.running[node] = running
	d.mu.Unlock()
	t.Cleanup(func() { d.end(t, running) })
}

func (*drainer) end(t *testing.T, running *peer.Running) {
	t.Helper()
	if err := running.Kill(); err != nil {
		t.Error(err)
	}
}

func (d *drainer) of(node string) *peer.Running {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running[node]
}

// CallOff is what a person does, as kured has no word for it.
func (d *drainer) CallOff(t *testing.T, node string) {
	t.Helper()
	d.end(t, d.of(node))
	result := cluster.Must(d.Kube.Kubectl(t.Context(), cluster.KubectlOptions{}, "uncordon", node))(t)
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
}

func (d *drainer) Restart(t *testing.T, node string) {
	t.Helper()
	d.end(t, d.of(node))
	d.Drain(t, node)
}

// Ended says whether it has rebooted the node.
func (d *drainer) Ended(_ context.Context, node string) (bool, string) {
	last := "nothing"
	for _, line := range d.of(node).Lines() {
		if strings.Contains(line.Text, "Invoked reboot command") {
			return true, line.Text
		}
		last = line.Text
	}
	return false, last
}

// Says is the last of its lines about an eviction.
func (d *drainer) Says(_ context.Context, node string) ([]string, error) {
	var said []string
	for _, line := range d.of(node).Lines() {
		if strings.HasPrefix(line.Text, "error when evicting") || strings.Contains(line.Text, "level=error") {
			said = []string{line.Text}
		}
	}
	return said, nil
}
