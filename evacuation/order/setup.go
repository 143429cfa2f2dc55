package order

import (
	corev1 "k8s.io/api/core/v1"
	eventsclient "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
)

// Options of the interceptor in a manager. All are required.
type Options struct {
	Clock    clock.WithTicker
	Registry Registry
	Recorder eventsclient.EventRecorder
}

// Add adds the interceptor to a manager, on the leader only. The cache needs informers of pods,
// EvictionRequests, Nodes and Namespaces.
func Add(mgr ctrl.Manager, options Options) error {
	err := controllers.Require("set up the order of pods", map[string]bool{
		"Clock": options.Clock != nil, "Registry": options.Registry != nil, "Recorder": options.Recorder != nil,
	})
	if err != nil {
		return err
	}
	o := &Order{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Registry: options.Registry, Clock: options.Clock, Recorder: options.Recorder,
	}
	return interceptor.Add(mgr, o, interceptor.Options{
		Name: Name, Clock: options.Clock, Recorder: options.Recorder,
		Watches: []interceptor.Watch{
			{Object: &corev1.Pod{}, Requests: o.waiting, Predicates: []predicate.Predicate{o.podEvents()}},
			{Object: &v1alpha1.EvictionRequest{}, Requests: o.waiting, Predicates: []predicate.Predicate{requestEvents()}},
			{Object: &corev1.Node{}, Requests: o.waiting, Predicates: []predicate.Predicate{nodeEvents()}},
		},
	})
}
