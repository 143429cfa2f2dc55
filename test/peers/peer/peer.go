//go:build unix

// Package peer runs the programs of others beside the embedded control plane, as the tests of
// test/peers do. None of them is part of this repository: `make test-peers PEER=NAME
// CHECKOUT=FOLDER` builds one from a checkout and names the result in the environment.
package peer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// The environment that `make test-peers` gives.
const (
	nameVariable   = "DRAWBRIDGE_PEER"
	folderVariable = "DRAWBRIDGE_PEER_FOLDER"
)

// Chosen says whether this peer is tested.
func Chosen(name string) bool { return os.Getenv(nameVariable) == name }

// Folder has what hack/peers/NAME/build.sh has built. It is empty if another peer is tested, or none.
func Folder(name string) string {
	if !Chosen(name) {
		return ""
	}
	return os.Getenv(folderVariable)
}

// Skip skips a test of a peer that is not tested.
func Skip(tb testing.TB, name string) {
	tb.Helper()
	tb.Skipf("only for `make test-peers PEER=%s CHECKOUT=FOLDER`: see hack/peers/README.md", name)
}

// File is the path of a file of the folder. Error: it is not there.
func File(folder, name string) (string, error) {
	file := filepath.Join(folder, name)
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("the folder of a peer (%s) does not have what its build.sh makes: %w", folderVariable, err)
	}
	return file, nil
}

// Version is what was built: a commit and its date, or that this is not known.
func Version(folder string) (string, error) {
	file, err := File(folder, "version")
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read version: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// Objects reads the objects.yaml of a folder: what the peer's chart or manifests have, in their
// order, without status. The text may be changed before it is read.
func Objects(folder string, change ...func(string) (string, error)) ([]*unstructured.Unstructured, error) {
	file, err := File(folder, "objects.yaml")
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}
	text := string(content)
	for _, do := range change {
		if text, err = do(text); err != nil {
			return nil, fmt.Errorf("read objects of %s: %w", file, err)
		}
	}
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(strings.TrimPrefix(document, "---\n")), &object.Object); err != nil {
			return nil, fmt.Errorf("read objects of %s: %w", file, err)
		}
		if len(object.Object) == 0 {
			continue
		}
		unstructured.RemoveNestedField(object.Object, "status")
		unstructured.RemoveNestedField(object.Object, "metadata", "creationTimestamp")
		objects = append(objects, object)
	}
	return objects, nil
}

// IsWebhook tells configurations of webhooks from other kinds. They come last: before anybody
// serves them, they would keep everything else out.
func IsWebhook(kind string) bool { return strings.HasSuffix(kind, "WebhookConfiguration") }

// NotWorkload tells what a program beside the cluster needs from what it does not: what would run it,
// and what would send it requests, with the certificates that cert-manager would make for that.
func NotWorkload(kind string) bool {
	switch kind {
	case "Deployment", "DaemonSet", "Service", "PodDisruptionBudget", "Certificate", "Issuer":
		return false
	}
	return !IsWebhook(kind)
}

// Apply creates those objects whose kind is wanted, if they are not there.
func Apply(ctx context.Context, c client.Client, objects []*unstructured.Unstructured, wanted func(kind string) bool) error {
	for _, object := range objects {
		if !wanted(object.GetKind()) {
			continue
		}
		if err := c.Create(ctx, object.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// WaitServed waits until every definition in the cluster is served, without which most programs
// do not start.
func WaitServed(ctx context.Context, c client.Reader) error {
	return cluster.Wait(ctx, "all definitions to be served", func(ctx context.Context) error {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("apiextensions.k8s.io/v1")
		list.SetKind("CustomResourceDefinitionList")
		if err := c.List(ctx, list); err != nil {
			return err
		}
		for i := range list.Items {
			if !ConditionTrue(&list.Items[i], "Established") {
				return fmt.Errorf("%s is not", list.Items[i].GetName())
			}
		}
		return nil
	})
}

// ConditionTrue says whether an object's status has the condition, and it is true.
func ConditionTrue(object *unstructured.Unstructured, name string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions") // None if they cannot be read.
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == name && condition["status"] == "True" {
			return true
		}
	}
	return false
}

// Programs are those that a peer consists of, beside one cluster.
type Programs struct {
	Cluster *cluster.Cluster
	// Folder has them.
	Folder string
	ended  atomic.Value // The name of one that has ended by itself.
}

// Options say how a program is started.
type Options struct {
	// Log is the name of its log beside those of the cluster, without ".log". Default: that of the program.
	Log string
	// Env is its environment; nil is that of the cluster's own components.
	Env []string
	// Args are its arguments.
	Args []string
}

// Running is a program that was started.
type Running struct {
	*cluster.Program
	stopped atomic.Bool
}

// Start starts a program of the folder, for as long as the cluster lives.
func (p *Programs) Start(ctx context.Context, program string, options Options) (*Running, error) {
	binary, err := File(p.Folder, program)
	if err != nil {
		return nil, err
	}
	if options.Log == "" {
		options.Log = program
	}
	log, err := os.OpenFile(filepath.Join(p.Cluster.Dir(), "logs", options.Log+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	started, err := p.Cluster.StartProgram(context.WithoutCancel(ctx), cluster.ProgramOptions{
		Env: options.Env, OnLine: func(line cluster.Line) { _, _ = fmt.Fprintln(log, line.Text) },
	}, binary, options.Args...)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	r := &Running{Program: started}
	go func() {
		<-started.Done()
		_ = log.Close() // It was written line by line.
		if !r.stopped.Load() {
			p.ended.Store(options.Log)
		}
	}()
	return r, nil
}

// Kill ends the program at once, as a test wants it. One that has ended is no error.
func (r *Running) Kill() error {
	r.stopped.Store(true)
	select {
	case <-r.Done():
		return nil
	default:
	}
	err := r.Program.Kill()
	<-r.Done()
	return err
}

// StillRun is an error if a program has ended by itself.
func (p *Programs) StillRun() error {
	if p == nil {
		return nil
	}
	if name := p.ended.Load(); name != nil {
		return fmt.Errorf("%s has ended; its log is beside those of the cluster", name)
	}
	return nil
}
