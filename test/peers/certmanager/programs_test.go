//go:build unix

package certmanager

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
)

// systemNamespace is cert-manager's own.
const systemNamespace = "cert-manager"

// definitions are those of cert-manager's kinds.
var definitions []*unstructured.Unstructured

// startCertManager installs the objects of cert-manager's chart, and starts its programs
// in place of the chart's Deployments.
func startCertManager(ctx context.Context, folder string) error {
	port, err := manager.FreePort(ctx)
	if err != nil {
		return err
	}
	objects, err := readObjects(folder, port)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if object.GetKind() == "CustomResourceDefinition" {
			definitions = append(definitions, object)
		}
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}}
	if err := admin.Create(ctx, namespace); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	if err := peer.Apply(ctx, admin, objects, func(kind string) bool { return kind != "Deployment" && !peer.IsWebhook(kind) }); err != nil {
		return err
	}
	if err := waitServed(ctx); err != nil {
		return err
	}
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		if err := startInPlaceOf(ctx, object, port); err != nil {
			return err
		}
	}
	if err := peer.Apply(ctx, admin, objects, peer.IsWebhook); err != nil {
		return err
	}
	return waitAdmitted(ctx)
}

// own are the arguments of a program besides those of its Deployment: where it listens.
// The chart was rendered without metrics, which only the controller serves all the same.
func own(ctx context.Context, program string, port int) ([]string, error) {
	health, err := manager.FreePort(ctx)
	if err != nil {
		return nil, err
	}
	switch program {
	case "webhook":
		return []string{"--secure-port=" + strconv.Itoa(port), "--healthz-port=" + strconv.Itoa(health)}, nil
	case "controller":
		metrics, err := manager.FreePort(ctx)
		if err != nil {
			return nil, err
		}
		return []string{"--metrics-listen-address=127.0.0.1:" + strconv.Itoa(metrics), "--internal-healthz-listen-address=127.0.0.1:" + strconv.Itoa(health)}, nil
	default:
		return nil, nil
	}
}

// startInPlaceOf starts the program of a Deployment under its account and with its
// arguments.
func startInPlaceOf(ctx context.Context, object *unstructured.Unstructured, port int) error {
	deployment := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment); err != nil {
		return fmt.Errorf("read Deployment %s: %w", object.GetName(), err)
	}
	program := deployment.Labels["app.kubernetes.io/component"]
	pod := deployment.Spec.Template.Spec
	kubeconfig, err := kube.KubeconfigFileForServiceAccount(ctx, systemNamespace, pod.ServiceAccountName)
	if err != nil {
		return err
	}
	further, err := own(ctx, program, port)
	if err != nil {
		return err
	}
	// The last one of a flag counts.
	args := append(slices.Clone(pod.Containers[0].Args), "--kubeconfig="+kubeconfig)
	args = append(args, further...)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$(POD_NAMESPACE)", systemNamespace)
	}
	// cainjector takes no notice of the flag.
	_, err = programs.Start(ctx, program, peer.Options{Log: "cert-manager-" + program, Env: []string{"KUBECONFIG=" + kubeconfig}, Args: args})
	return err
}

// readObjects reads objects.yaml, and has the API server call cert-manager's webhook on
// this machine.
func readObjects(folder string, port int) ([]*unstructured.Unstructured, error) {
	// The chart was rendered for a webhook at this address, without a port.
	const address = "https://localhost/"
	return peer.Objects(folder, func(text string) (string, error) {
		if !strings.Contains(text, address) {
			return "", fmt.Errorf("no webhook is at %s", address)
		}
		return strings.ReplaceAll(text, address, "https://localhost:"+strconv.Itoa(port)+"/"), nil
	})
}

// poll waits for a state of the installation.
func poll(ctx context.Context, what string, check func(context.Context) error) error {
	return cluster.Wait(ctx, what, func(ctx context.Context) error {
		if err := programs.StillRun(); err != nil {
			return err
		}
		return check(ctx)
	})
}

// waitServed waits until cert-manager's kinds are served.
func waitServed(ctx context.Context) error {
	return poll(ctx, "cert-manager's kinds", func(ctx context.Context) error {
		for _, list := range []client.ObjectList{&certmanagerv1.CertificateList{}, &certmanagerv1.CertificateRequestList{}, &certmanagerv1.IssuerList{}, &certmanagerv1.ClusterIssuerList{}} {
			if err := admin.List(ctx, list); err != nil {
				return err
			}
		}
		return nil
	})
}

// waitAdmitted waits until the API server reaches cert-manager's webhook, whose authority
// cainjector has put into its configurations.
func waitAdmitted(ctx context.Context) error {
	return poll(ctx, "cert-manager's webhook", func(ctx context.Context) error {
		issuer := &certmanagerv1.Issuer{
			ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "probe"},
			Spec:       certmanagerv1.IssuerSpec{IssuerConfig: certmanagerv1.IssuerConfig{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}},
		}
		if err := admin.Create(ctx, issuer, client.DryRunAll); err != nil {
			return err
		}
		// A webhook that is not called yet would let that pass as well.
		issuer.Spec = certmanagerv1.IssuerSpec{}
		issuer.ResourceVersion = ""
		err := admin.Create(ctx, issuer, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "webhook.cert-manager.io") {
			return fmt.Errorf("an Issuer without a configuration: want the webhook to refuse it, got %v", err)
		}
		return nil
	})
}
