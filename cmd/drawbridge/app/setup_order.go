package app

import (
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drawbridge-dev/drawbridge/evacuation/order"
)

// setupOrder adds the interceptor that keeps the order of the pods of a node. It is always
// there: registrations opt in.
func setupOrder(mgr ctrl.Manager, o Options, registry order.Registry) error {
	return order.Add(mgr, order.Options{Clock: o.Clock, Registry: registry, Recorder: mgr.GetEventRecorder(recorderName)})
}
