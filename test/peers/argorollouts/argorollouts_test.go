//go:build unix

// Package argorollouts drains pods of Rollouts, with the real controller of Argo Rollouts.
package argorollouts

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
	"github.com/drawbridge-dev/drawbridge/test/peers/situations"
)

const (
	// peerName is the name that `make test-peers` has for it, that of its account and of its namespace.
	peerName = "argo-rollouts"
	// alice drains nodes, and may do nothing else.
	alice    = "alice"
	drainers = "drainers"
	// nodeLabel is on the nodes of a test; its value is the test's namespace.
	nodeLabel = "argorollouts.example.com/test"
	// tie is the label by which the controller ties pods to a ReplicaSet.
	tie = "rollouts-pod-template-hash"
)

// world has the program; nil if it is not tested.
var world *situations.World

func TestMain(m *testing.M) {
	os.Exit(situations.Main(m, peerName, func(ctx context.Context, w *situations.World) error {
		if err := w.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: peerName}}); err != nil {
			return err
		}
		// Its manifests leave the namespace to kubectl.
		err := w.Install(ctx, func(object *unstructured.Unstructured) {
			switch object.GetKind() {
			case "ServiceAccount", "ConfigMap", "Secret":
				object.SetNamespace(peerName)
			}
		})
		if err != nil {
			return err
		}
		if err := start(ctx, w); err != nil {
			return err
		}
		world = w
		return w.Kube.LetDrain(ctx, drainers)
	}))
}

// start starts the controller.
func start(ctx context.Context, w *situations.World) error {
	kubeconfig, err := w.Kube.KubeconfigFileForServiceAccount(ctx, peerName, peerName)
	if err != nil {
		return err
	}
	var ports [2]int
	for i := range ports {
		if ports[i], err = manager.FreePort(ctx); err != nil {
			return err
		}
	}
	running, err := w.Start(ctx, "rollouts-controller", peer.Options{Log: peerName, Args: []string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=false", fmt.Sprintf("--metricsPort=%d", ports[0]), fmt.Sprintf("--healthzPort=%d", ports[1]),
	}})
	if err != nil {
		return err
	}
	_, err = running.WaitLine(ctx, "Started rollout workers")
	return err
}

// app is a Rollout of one replica on a node, with a Service and a budget that allows nothing.
type app struct {
	namespace, node string
	pod             *corev1.Pod
	endpoints       *cluster.Counts
}

// newApp makes one that surges, and waits until it serves.
func newApp(t *testing.T, strategy map[string]any) *app {
	t.Helper()
	a := &app{namespace: world.Kube.Namespace(t)}
	a.node = a.addNode(t)
	template := builder.Deployment(a.namespace, "web").Pods(func(w *builder.PodWrapper) {
		w.NodeSelector(nodeLabel, a.namespace).Label(surge.OptInLabel, "enabled").Annotation(cluster.StartDelayAnnotation, "1s")
	}).Obj().Spec.Template
	content := cluster.Must(runtime.DefaultUnstructuredConverter.ToUnstructured(&template))(t)
	rollout := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"replicas": int64(1), "selector": map[string]any{"matchLabels": map[string]any{builder.AppLabel: "web"}},
		"template": content, "strategy": strategy,
	}}}
	rollout.SetAPIVersion("argoproj.io/v1alpha1")
	rollout.SetKind("Rollout")
	rollout.SetNamespace(a.namespace)
	rollout.SetName("web")
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{builder.AppLabel: "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	cluster.Create(t, world.Client, service, rollout)
	a.endpoints = world.Kube.WatchCounts(t, a.namespace, &discoveryv1.EndpointSliceList{}, cluster.ReadyEndpoints)
	a.endpoints.Await(t, 1)
	cluster.Create(t, world.Client, builder.Budget(a.namespace, "web").Selects(builder.AppLabel, "web").MaxUnavailable("0").Obj())
	cluster.Eventually(t, "the Rollout to be healthy", func(ctx context.Context) error {
		if err := world.Client.Get(ctx, client.ObjectKeyFromObject(rollout), rollout); err != nil {
			return err
		}
		if phase, _, _ := unstructured.NestedString(rollout.Object, "status", "phase"); phase != "Healthy" {
			return fmt.Errorf("status %v", rollout.Object["status"])
		}
		return nil
	})
	list := &corev1.PodList{}
	if err := world.Client.List(t.Context(), list, client.InNamespace(a.namespace)); err != nil || len(list.Items) != 1 {
		t.Fatalf("%d pods, %v", len(list.Items), err)
	}
	a.pod = &list.Items[0]
	if a.pod.Labels[tie] == "" {
		t.Fatalf("the pod has the labels %v", a.pod.Labels)
	}
	return a
}

func (a *app) addNode(t *testing.T) string {
	t.Helper()
	return cluster.Must(world.Kube.AddNodes(t.Context(), 1, func(n *corev1.Node) { n.Labels[nodeLabel] = a.namespace }))(t)[0]
}

// drain drains the node, until the end of the test.
func (a *app) drain(t *testing.T) *cluster.Program {
	t.Helper()
	options := cluster.KubectlOptions{User: alice, Groups: []string{drainers}}
	program := cluster.Must(world.Kube.StartKubectl(t.Context(), options, "drain", a.node, "--ignore-daemonsets"))(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("kubectl said: %v", program.Lines())
		}
	})
	return program
}

// said is what the surge said about the pod when it was done.
func (a *app) said(t *testing.T, text string) {
	t.Helper()
	cluster.WaitRequest(t, world.Client, a.pod, "answered by the surge: "+text, func(er *v1alpha1.EvictionRequest) bool {
		for _, report := range er.Status.Interceptors {
			if report.Name == surge.Name && strings.Contains(report.Message, text) {
				return report.CompletionTime != nil
			}
		}
		return false
	})
}

// free waits until the pod has no controller.
func (a *app) free(t *testing.T) {
	t.Helper()
	cluster.Eventually(t, "the pod to be free", func(ctx context.Context) error {
		now := &corev1.Pod{}
		if err := world.Client.Get(ctx, client.ObjectKeyFromObject(a.pod), now); err != nil {
			return err
		}
		if now.Annotations[surge.HandedUpAnnotation] == "" || metav1.GetControllerOf(now) != nil {
			return fmt.Errorf("owners %v, annotations %v", now.OwnerReferences, now.Annotations)
		}
		return nil
	})
}

func TestRollouts(t *testing.T) {
	if world == nil {
		peer.Skip(t, peerName)
	}
	inst := cluster.Must(manager.Install(t.Context(), world.Kube, manager.InstallOptions{}))(t)
	inst.ForTest(t, manager.Options{})
	canary := map[string]any{"canary": map[string]any{}}
	never := func(t *testing.T, a *app) {
		t.Helper()
		if least := a.endpoints.Least(t, 1); least < 1 {
			t.Errorf("at one time %d endpoints were Ready", least)
		}
	}
	t.Run("all", func(t *testing.T) {
		t.Run("a canary with an ordinary Service is replaced first", func(t *testing.T) {
			t.Parallel()
			a := newApp(t, canary)
			a.addNode(t)
			situations.Ended(t, a.drain(t))
			cluster.Gone(t, world.Client, a.pod)
			a.said(t, "has 1 of 1 replicas available without this pod.")
			never(t, a)
		})
		t.Run("a rollout while the pod is free takes it along", func(t *testing.T) {
			t.Parallel()
			a := newApp(t, canary)
			drain := a.drain(t)
			a.free(t)
			rollout := &unstructured.Unstructured{}
			rollout.SetAPIVersion("argoproj.io/v1alpha1")
			rollout.SetKind("Rollout")
			rollout.SetNamespace(a.namespace)
			rollout.SetName("web")
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"template":{"metadata":{"annotations":{"version":"2"}}}}}`))
			if err := world.Client.Patch(t.Context(), rollout, patch); err != nil {
				t.Fatal(err)
			}
			a.addNode(t)
			situations.Ended(t, drain)
			cluster.Gone(t, world.Client, a.pod)
			never(t, a)
		})
		t.Run("blue-green is left as it is", func(t *testing.T) {
			t.Parallel()
			a := newApp(t, map[string]any{"blueGreen": map[string]any{"activeService": "web"}})
			a.addNode(t)
			a.drain(t)
			a.said(t, "Service web selects its pods by the label "+tie)
			never(t, a)
		})
	})
	if err := world.StillRun(); err != nil {
		t.Error(err)
	}
}
