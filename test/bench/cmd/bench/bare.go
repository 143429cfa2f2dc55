//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drawbridge-dev/drawbridge/internal/garbage"
)

// serveBare is the least program of Drawbridge's shape: an informer of all pods with one
// handler, which does nothing, and the trivial webhook. The watch sends whole pods, as to
// every add-on that looks at more of a pod than its metadata, and each is made small before
// it is kept. What does not depend on what a program does with a pod is as in the manager:
// protobuf, no compression, and how often garbage is collected. The webhook listens when all
// pods are known. Arguments: address, certificate, key, kubeconfig.
func serveBare(ctx context.Context) error {
	if len(os.Args) != 5 {
		return errors.New("want address, certificate, key and kubeconfig")
	}
	garbage.Pace()
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[4])
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	config.ContentType, config.DisableCompression = runtime.ContentTypeProtobuf, true
	clients, err := kubernetes.NewForConfig(unlimited(config))
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	pods := coreinformers.NewPodInformer(clients, metav1.NamespaceAll, 0, toolscache.Indexers{})
	if err := pods.SetTransform(bare); err != nil {
		return fmt.Errorf("set transform: %w", err)
	}
	handled, err := pods.AddEventHandler(toolscache.ResourceEventHandlerFuncs{})
	if err != nil {
		return fmt.Errorf("add handler: %w", err)
	}
	go pods.RunWithContext(ctx)
	if !toolscache.WaitForCacheSync(ctx.Done(), handled.HasSynced) {
		return fmt.Errorf("wait for the first list of pods: %w", context.Cause(ctx))
	}
	return serveTLS(ctx, trivial)
}

// barePod is what the least program keeps of a pod.
type barePod struct {
	metav1.ObjectMeta

	node  string
	phase corev1.PodPhase
}

// bare is the transform of the least program. Anything that is not a pod passes unchanged.
func bare(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	return &barePod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, Labels: pod.Labels,
			ResourceVersion: pod.ResourceVersion, // The informer compares it.
		},
		node: pod.Spec.NodeName, phase: pod.Status.Phase,
	}, nil
}
