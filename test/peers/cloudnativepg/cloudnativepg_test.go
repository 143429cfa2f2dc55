//go:build unix

// Package cloudnativepg runs the recipe for CloudNativePG with its real operator. There is no
// PostgreSQL: the instance managers in the pods, which the operator asks, are played.
package cloudnativepg

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	certutil "k8s.io/client-go/util/cert"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
	"github.com/drawbridge-dev/drawbridge/test/peers/situations"
)

const (
	// peerName is the name that `make test-peers` has for it.
	peerName = "cloudnative-pg"
	// system is the namespace of its manifests, account its service account there.
	system, account = "cnpg-system", "cnpg-manager"
	// alice drains nodes, and may do nothing else.
	alice    = "alice"
	drainers = "drainers"
)

// world has the program; nil if it is not tested.
var world *situations.World

func TestMain(m *testing.M) {
	os.Exit(situations.Main(m, peerName, func(ctx context.Context, w *situations.World) error {
		if err := errors.Join(w.Install(ctx), w.Kube.LetDrain(ctx, drainers)); err != nil {
			return err
		}
		world = w
		return start(ctx, w)
	}))
}

// start starts the operator, and has the API server call its webhooks.
func start(ctx context.Context, w *situations.World) error {
	kubeconfig, err := w.Kube.KubeconfigFileForServiceAccount(ctx, system, account)
	if err != nil {
		return err
	}
	port, err := manager.FreePort(ctx)
	if err != nil {
		return err
	}
	// Where it is given a certificate, it does not look for its Deployment to make one.
	certificate, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	folder := filepath.Join(w.Kube.Dir(), peerName)
	err = errors.Join(
		os.MkdirAll(folder, 0o700),
		os.WriteFile(filepath.Join(folder, "apiserver.crt"), certificate, 0o600), os.WriteFile(filepath.Join(folder, "apiserver.key"), key, 0o600),
	)
	if err != nil {
		return fmt.Errorf("write the certificate: %w", err)
	}
	running, err := w.Start(ctx, "manager", peer.Options{
		Log: peerName,
		Env: []string{
			"KUBECONFIG=" + kubeconfig, "OPERATOR_NAMESPACE=" + system, "WEBHOOK_CERT_DIR=" + folder,
			"OPERATOR_IMAGE_NAME=registry.example.com/cloudnative-pg:1",
		},
		Args: []string{"controller", "--metrics-bind-address=0", "--webhook-port=" + strconv.Itoa(port)},
	})
	if err != nil {
		return err
	}
	if _, err := running.WaitLine(ctx, "Serving webhook server"); err != nil {
		return err
	}
	return trust(ctx, w, port, certificate)
}

// trust creates its configurations of webhooks, for a port of this machine in place of the Service.
func trust(ctx context.Context, w *situations.World, port int, certificate []byte) error {
	objects, err := peer.Objects(w.Folder)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if !peer.IsWebhook(object.GetKind()) {
			continue
		}
		hooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
		if err != nil {
			return fmt.Errorf("read %s: %w", object.GetName(), err)
		}
		for _, hook := range hooks {
			path, _, err := unstructured.NestedString(hook.(map[string]any), "clientConfig", "service", "path")
			if err != nil {
				return fmt.Errorf("read %s: %w", object.GetName(), err)
			}
			hook.(map[string]any)["clientConfig"] = map[string]any{
				"url": fmt.Sprintf("https://localhost:%d%s", port, path), "caBundle": base64.StdEncoding.EncodeToString(certificate),
			}
		}
		if err := unstructured.SetNestedSlice(object.Object, hooks, "webhooks"); err != nil {
			return fmt.Errorf("write %s: %w", object.GetName(), err)
		}
	}
	return peer.Apply(ctx, w.Client, objects, peer.IsWebhook)
}

var asAlice = cluster.KubectlOptions{User: alice, Groups: []string{drainers}}
