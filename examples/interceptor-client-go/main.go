// Command interceptor takes part in the eviction of pods as a program of a third
// party would: with nothing but client-go.
//
// It watches EvictionRequests. When it is the turn of the interceptor it speaks
// for (--name), it works for a while (--work), reports its heartbeat, and hands
// over to the next interceptor by setting its completion time. A real one would
// fail over a database, move a virtual machine or flush a queue in the meantime.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// evictionRequests is the resource to watch.
var evictionRequests = schema.GroupVersionResource{Group: "drawbridge.dev", Version: "v1alpha1", Resource: "evictionrequests"}

// minHeartbeat is the least time between two heartbeats that the API accepts.
const minHeartbeat = time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "interceptor:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file; the cluster this runs in when empty")
	name := flag.String("name", "", "name of the interceptor, a fully qualified domain name")
	namespace := flag.String("namespace", metav1.NamespaceAll, "namespace to look at; all when empty")
	work := flag.Duration("work", 10*time.Second, "how long the work for a pod takes")
	heartbeat := flag.Duration("heartbeat", 3*time.Minute, "time between two heartbeats, at least 1m")
	flag.Parse()
	if *name == "" {
		return errors.New("--name is required")
	}
	if *heartbeat < minHeartbeat {
		return fmt.Errorf("--heartbeat must be at least %s", minHeartbeat)
	}

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	requests, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	pods, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}

	i := &interceptor{
		name:      *name,
		work:      *work,
		heartbeat: *heartbeat,
		requests:  requests.Resource(evictionRequests),
		pods:      pods.CoreV1(),
		turns:     map[string]context.CancelFunc{},
	}
	defer i.wait()

	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(requests, 0, *namespace, nil)
	informer := factory.ForResource(evictionRequests).Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { i.look(ctx, obj) },
		UpdateFunc: func(_, obj any) { i.look(ctx, obj) },
		DeleteFunc: i.gone,
	}); err != nil {
		return err
	}
	fmt.Printf("%s is waiting for its turn\n", i.name)
	informer.RunWithContext(ctx)
	return nil
}

// look begins a turn when it has come and ends it when it is over.
func (i *interceptor) look(ctx context.Context, obj any) {
	request, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return
	}
	if i.isMyTurn(request) {
		i.begin(ctx, request)
		return
	}
	i.end(request, whyOver(request))
}

// gone ends the turn of a request that was deleted.
func (i *interceptor) gone(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	if request, ok := obj.(*unstructured.Unstructured); ok {
		i.end(request, "the request was deleted")
	}
}
