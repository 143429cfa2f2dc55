package order

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsclient "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/events"
)

// Name of the interceptor.
const Name = v1alpha1.OrderInterceptor

// soon is after how long a pod is looked at again while the caches are behind.
const soon = 2 * time.Second

// Registry says whom a pod waits for. It answers from memory.
type Registry interface {
	// After returns the orders of the registrations that intercept the pod.
	After(pod *corev1.Pod) ([]*registration.After, error)
}

var _ Registry = &registration.Registry{}

// Order is the interceptor. All fields are required.
type Order struct {
	// Client reads from the cache, which needs the indexes of package index.
	Client client.Reader
	// APIReader reads nodes from the API server.
	APIReader client.Reader
	Registry  Registry
	Clock     clock.PassiveClock
	Recorder  eventsclient.EventRecorder

	following follower
}

var (
	_ interceptor.Interceptor = &Order{}
	_ interceptor.Goner       = &Order{}
)

// Evacuate is done when the pod has to wait for nobody.
func (o *Order) Evacuate(ctx context.Context, t interceptor.Target) (interceptor.Progress, error) {
	switch {
	case t.NodeName == "":
		return interceptor.Progress{Done: true, Message: "The pod is on no node."}, nil
	case t.NodeLost:
		o.following.forget(t.NodeName, t.Request)
		return interceptor.Progress{Done: true, Message: "The node is lost: no pod leaves it any more."}, nil
	}
	// Before it looks: what happens afterwards wakes it.
	o.following.follow(t.NodeName, t.Request)
	d, err := o.decision(ctx, t)
	switch {
	case notYet(err):
		return interceptor.Progress{Message: "The pods of the node are not known yet.", CheckAfter: soon}, nil
	case err != nil:
		return interceptor.Progress{}, err
	case !d.Done:
		return interceptor.Progress{Message: d.Message, CheckAfter: max(d.Again.Sub(o.Clock.Now()), time.Millisecond)}, nil
	}
	o.following.forget(t.NodeName, t.Request)
	if len(d.Late) > 0 {
		o.emit(t, events.OrderTimedOut(t.Pod.Name, t.NodeName, d.Timeout, list(d.Late)))
	}
	if len(d.Circle) > 0 {
		o.emit(t, events.OrderCircle(t.Pod.Name, list(d.Circle)))
	}
	return interceptor.Progress{Done: true, Message: d.Message}, nil
}

// decision gathers and decides. Drain tools cordon a node just before they ask for its pods, so
// the cache, which may be behind, is not trusted where it lets the pod go.
func (o *Order) decision(ctx context.Context, t interceptor.Target) (Decision, error) {
	drained, err := o.isDrained(ctx, o.Client, t.NodeName)
	if err != nil {
		return Decision{}, err
	}
	in, err := o.gather(ctx, t, drained)
	if err != nil {
		return Decision{}, err
	}
	d := Decide(in)
	if !d.Done || drained || len(in.Self.after) == 0 {
		return d, nil
	}
	if drained, err = o.isDrained(ctx, o.APIReader, t.NodeName); err != nil || !drained {
		return d, err
	}
	if in, err = o.gather(ctx, t, drained); err != nil {
		return Decision{}, err
	}
	return Decide(in), nil
}

// Gone forgets the pod, which ended in its turn.
func (o *Order) Gone(_ context.Context, t interceptor.Target) error {
	o.following.forget(t.NodeName, t.Request)
	return nil
}

// emit records an event on the request and on the pod: people may check either.
func (o *Order) emit(t interceptor.Target, e events.Event) {
	request := &corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "EvictionRequest",
		Namespace: t.Request.Namespace, Name: t.Request.Name, UID: t.RequestUID,
	}
	about := &corev1.ObjectReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod",
		Namespace: t.Pod.Namespace, Name: t.Pod.Name, UID: t.PodUID,
	}
	events.Emit(o.Recorder, request, about, e)
	events.Emit(o.Recorder, about, request, e)
}
