//go:build unix

package kubevirt

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
)

const (
	systemNamespace = vmcrds.SystemNamespace
	// apiService is the service by which virt-api is called.
	apiService = "virt-api"
	// validator has KubeVirt's eviction webhooks, among others.
	validator = "virt-api-validator"
)

// startKubeVirt installs KubeVirt's objects and starts its programs, under the accounts
// and with the permissions that its operator would give them.
func startKubeVirt(ctx context.Context, folder string, certificates *certificates) error {
	port, err := manager.FreePort(ctx)
	if err != nil {
		return err
	}
	objects, err := readObjects(folder, port, certificates.bundle())
	if err != nil {
		return err
	}
	// Webhooks that nobody serves yet would keep everything else out.
	if err := peer.Apply(ctx, admin, objects, func(kind string) bool { return !peer.IsWebhook(kind) }); err != nil {
		return err
	}
	if err := peer.WaitServed(ctx, admin); err != nil {
		return err
	}
	theirs.url, theirs.authority = evictionWebhook(objects, "virt-launcher-eviction-interceptor.kubevirt.io"), certificates.bundle()
	theirs.old = evictionWebhook(objects, "hotplug-pod-eviction-interceptor.kubevirt.io") == ""
	if err := deploy(ctx); err != nil {
		return err
	}
	if err := startPrograms(ctx, port, certificates); err != nil {
		return err
	}
	if err := peer.Apply(ctx, admin, objects, peer.IsWebhook); err != nil {
		return err
	}
	return startHandler(ctx)
}

// startPrograms starts both and waits until virt-api serves and virt-controller leads.
func startPrograms(ctx context.Context, port int, certificates *certificates) error {
	metrics, err := manager.FreePort(ctx)
	if err != nil {
		return err
	}
	_, err = start(ctx, "virt-api", "kubevirt-apiserver",
		"--port="+strconv.Itoa(port),
		"--tls-cert-file="+certificates.cert("serving"), "--tls-key-file="+certificates.private("serving"),
		"--handler-cert-file="+certificates.cert("serving"), "--handler-key-file="+certificates.private("serving"))
	if err != nil {
		return err
	}
	controller, err := start(ctx, "virt-controller", "kubevirt-controller",
		"--port="+strconv.Itoa(metrics), "--launcher-image=virt-launcher:test",
		"--prom-cert-file="+certificates.cert("serving"), "--prom-key-file="+certificates.private("serving"))
	if err != nil {
		return err
	}
	if _, err := controller.WaitLine(ctx, "STARTING controllers"); err != nil {
		return err
	}
	return waitAvailable(ctx)
}

// start starts a program under a service account.
func start(ctx context.Context, program, account string, args ...string) (*peer.Running, error) {
	kubeconfig, err := kube.KubeconfigFileForServiceAccount(ctx, systemNamespace, account)
	if err != nil {
		return nil, err
	}
	return programs.Start(ctx, program, peer.Options{Args: append([]string{"--kubeconfig=" + kubeconfig, "--listen=127.0.0.1"}, args...)})
}

// readObjects reads objects.yaml, and has the API server call virt-api on this machine.
func readObjects(folder string, port int, authority []byte) ([]*unstructured.Unstructured, error) {
	objects, err := peer.Objects(folder)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		if err := reroute(object, port, authority); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// reroute sends what is for virt-api's service to the port of this machine.
func reroute(object *unstructured.Unstructured, port int, authority []byte) error {
	switch object.GetKind() {
	case "Service":
		object.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
	case "APIService":
		spec := object.Object["spec"].(map[string]any)
		spec["caBundle"] = encode(authority)
		spec["service"] = map[string]any{"namespace": systemNamespace, "name": apiService, "port": int64(port)}
		delete(spec, "insecureSkipTLSVerify")
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		webhooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
		if err != nil {
			return fmt.Errorf("read webhooks of %s: %w", object.GetName(), err)
		}
		for _, webhook := range webhooks {
			webhook := webhook.(map[string]any)
			path, _, err := unstructured.NestedString(webhook, "clientConfig", "service", "path")
			if err != nil {
				return fmt.Errorf("read webhooks of %s: %w", object.GetName(), err)
			}
			webhook["clientConfig"] = map[string]any{"url": "https://localhost:" + strconv.Itoa(port) + path, "caBundle": encode(authority)}
		}
		object.Object["webhooks"] = webhooks
	}
	return nil
}

// evictionWebhook is where a webhook of KubeVirt's is, empty if there is none.
func evictionWebhook(objects []*unstructured.Unstructured, name string) string {
	for _, object := range objects {
		webhooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks") // Others have none.
		for _, webhook := range webhooks {
			webhook := webhook.(map[string]any)
			if webhook["name"] == name {
				return webhook["clientConfig"].(map[string]any)["url"].(string)
			}
		}
	}
	return ""
}

// waitAvailable waits until the API server reaches virt-api.
func waitAvailable(ctx context.Context) error {
	return cluster.Wait(ctx, "virt-api", func(ctx context.Context) error {
		service := &unstructured.Unstructured{}
		service.SetAPIVersion("apiregistration.k8s.io/v1")
		service.SetKind("APIService")
		if err := admin.Get(ctx, client.ObjectKey{Name: "v1.subresources.kubevirt.io"}, service); err != nil {
			return err
		}
		if !peer.ConditionTrue(service, "Available") {
			return fmt.Errorf("status: %v", service.Object["status"])
		}
		return nil
	})
}

// deploy creates the KubeVirt object as the operator leaves it.
func deploy(ctx context.Context) error {
	config := vmcrds.New(vmcrds.Config, systemNamespace, "kubevirt", map[string]any{
		"spec.configuration.developerConfiguration.useEmulation": true,
	})
	if err := admin.Create(ctx, config); err != nil {
		return fmt.Errorf("create the KubeVirt object: %w", err)
	}
	vmcrds.Set(config, "status.phase", "Deployed")
	if err := admin.Status().Update(ctx, config); err != nil {
		return fmt.Errorf("deploy KubeVirt: %w", err)
	}
	return nil
}

// startHandler begins to play virt-handler, under its account.
func startHandler(ctx context.Context) error {
	config, err := kube.ConfigForServiceAccount(ctx, systemNamespace, "kubevirt-handler")
	if err != nil {
		return err
	}
	own, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make client of virt-handler: %w", err)
	}
	guests = &handler{own: own, kubelet: admin}
	go guests.run(context.WithoutCancel(ctx))
	return nil
}

// pods lists the pods of a namespace.
func pods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := admin.List(ctx, list, client.InNamespace(namespace))
	return list.Items, err
}
