//go:build unix

package kubevirt

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
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
	if err := apply(ctx, objects, func(kind string) bool { return !strings.HasSuffix(kind, "WebhookConfiguration") }); err != nil {
		return err
	}
	if err := waitServed(ctx); err != nil {
		return err
	}
	theirs.url, theirs.authority = evictionWebhook(objects, "virt-launcher-eviction-interceptor.kubevirt.io"), certificates.bundle()
	theirs.old = evictionWebhook(objects, "hotplug-pod-eviction-interceptor.kubevirt.io") == ""
	if err := deploy(ctx); err != nil {
		return err
	}
	if err := startPrograms(ctx, folder, port, certificates); err != nil {
		return err
	}
	if err := apply(ctx, objects, func(kind string) bool { return strings.HasSuffix(kind, "WebhookConfiguration") }); err != nil {
		return err
	}
	return startHandler(ctx)
}

// startPrograms starts both and waits until virt-api serves and virt-controller leads.
func startPrograms(ctx context.Context, folder string, port int, certificates *certificates) error {
	metrics, err := manager.FreePort(ctx)
	if err != nil {
		return err
	}
	_, err = start(ctx, folder, "virt-api", "kubevirt-apiserver",
		"--port="+strconv.Itoa(port),
		"--tls-cert-file="+certificates.cert("serving"), "--tls-key-file="+certificates.private("serving"),
		"--handler-cert-file="+certificates.cert("serving"), "--handler-key-file="+certificates.private("serving"))
	if err != nil {
		return err
	}
	controller, err := start(ctx, folder, "virt-controller", "kubevirt-controller",
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

// start starts a program of the folder under a service account, for as long as the
// cluster lives. What it says is beside the logs of the cluster.
func start(ctx context.Context, folder, program, account string, args ...string) (*cluster.Program, error) {
	binary, err := path(folder, program)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := kube.KubeconfigFileForServiceAccount(ctx, systemNamespace, account)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(kube.Dir() + "/logs/" + program + ".log")
	if err != nil {
		return nil, fmt.Errorf("create log: %w", err)
	}
	options := cluster.ProgramOptions{OnLine: func(line cluster.Line) { _, _ = fmt.Fprintln(log, line.Text) }}
	args = append([]string{"--kubeconfig=" + kubeconfig, "--listen=127.0.0.1"}, args...)
	started, err := kube.StartProgram(context.WithoutCancel(ctx), options, binary, args...)
	if err != nil {
		return nil, err
	}
	go func() {
		<-started.Done()
		ended.Store(program)
	}()
	return started, nil
}

// ended is the name of a program of KubeVirt that runs no more. virt-controller ends
// when it loses its lease.
var ended atomic.Value

// readObjects reads objects.yaml, and has the API server call virt-api on this machine.
func readObjects(folder string, port int, authority []byte) ([]*unstructured.Unstructured, error) {
	file, err := path(folder, "objects.yaml")
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(strings.TrimPrefix(document, "---\n")), &object.Object); err != nil {
			return nil, fmt.Errorf("read objects: %w", err)
		}
		if len(object.Object) == 0 {
			continue
		}
		unstructured.RemoveNestedField(object.Object, "status")
		unstructured.RemoveNestedField(object.Object, "metadata", "creationTimestamp")
		if err := reroute(object, port, authority); err != nil {
			return nil, err
		}
		objects = append(objects, object)
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

// apply creates those objects whose kind is wanted.
func apply(ctx context.Context, objects []*unstructured.Unstructured, wanted func(kind string) bool) error {
	for _, object := range objects {
		if !wanted(object.GetKind()) {
			continue
		}
		if err := admin.Create(ctx, object.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// waitServed waits until every definition is served, without which KubeVirt's programs do not start.
func waitServed(ctx context.Context) error {
	return cluster.Wait(ctx, "KubeVirt's kinds", func(ctx context.Context) error {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("apiextensions.k8s.io/v1")
		list.SetKind("CustomResourceDefinitionList")
		if err := admin.List(ctx, list); err != nil {
			return err
		}
		for i := range list.Items {
			if !conditionTrue(&list.Items[i], "Established") {
				return fmt.Errorf("%s is not", list.Items[i].GetName())
			}
		}
		return nil
	})
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
		if !conditionTrue(service, "Available") {
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
