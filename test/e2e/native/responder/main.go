// Command responder answers native Evictions with nothing but client-go: a stand-in for a program of
// which Drawbridge knows nothing. Where it has its turn it reports, works for --work (below 20m) and completes.
package main

import (
	"context"
	"flag"
	"log"
	"slices"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/lifecycle/v1alpha1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig, name, work := flag.String("kubeconfig", "", ""), flag.String("name", "acme.example.com/migrate", ""), flag.Duration("work", time.Second, "")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	reports := map[string]apply.ResponderStatusApplyConfiguration{} // What it has said, by the UID of an Eviction.
	look := func(obj any) {
		eviction, now := obj.(*lifecyclev1alpha1.Eviction), metav1.Now()
		i := slices.IndexFunc(eviction.Status.TargetResponders, func(r lifecyclev1alpha1.TargetResponder) bool { return r.Name == *name })
		report, begun := reports[string(eviction.UID)]
		switch {
		case i >= 0 && eviction.Status.TargetResponders[i].State == lifecyclev1alpha1.ResponderStateCanceled && begun:
			log.Printf("%s/%s: canceled", eviction.Namespace, eviction.Name)
			delete(reports, string(eviction.UID))
			return
		case i < 0 || eviction.Status.TargetResponders[i].State != lifecyclev1alpha1.ResponderStateActive,
			begun && (report.CompletionTime != nil || now.Time.Before(report.ExpectedCompletionTime.Time)):
			return
		case !begun:
			report.WithName(*name).WithHeartbeatTime(now).WithExpectedCompletionTime(metav1.NewTime(now.Add(*work))).WithMessage("at work")
		default:
			report.WithCompletionTime(now).WithMessage("done")
		}
		mine := apply.Eviction(eviction.Name, eviction.Namespace).WithUID(eviction.UID).WithStatus(apply.EvictionStatus().WithResponders(&report))
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, err := client.LifecycleV1alpha1().Evictions(eviction.Namespace).ApplyStatus(ctx, mine, metav1.ApplyOptions{FieldManager: *name, Force: true}); err != nil {
			log.Printf("%s/%s: %v", eviction.Namespace, eviction.Name, err) // It looks again within a second.
			return
		}
		reports[string(eviction.UID)] = report
	}
	label := informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = *name + " in (responder, requester-responder)" })
	informer := informers.NewSharedInformerFactoryWithOptions(client, time.Second, label).Lifecycle().V1alpha1().Evictions().Informer()
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }})
	informer.RunWithContext(context.Background())
}
