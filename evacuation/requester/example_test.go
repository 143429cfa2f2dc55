package requester_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
)

func newRequester(config *rest.Config) (*requester.Requester, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	return &requester.Requester{Name: "rebalancer.example.com", Client: c}, nil
}

// move has the pod evicted and tells how it goes.
func move(ctx context.Context, r *requester.Requester, pod *corev1.Pod) error {
	end, err := r.Follow(ctx, pod, func(u requester.Update) error {
		fmt.Printf("%s: %s %s %d/%d %s\n", pod.Name, u.State, u.Interceptor, u.Position, u.Total, u.Message)
		return nil
	})
	switch {
	case errors.Is(err, context.Canceled):
		// We do not want it any more. The request continues for those who still do.
		return r.Withdraw(context.WithoutCancel(ctx), pod)
	case err != nil:
		return err
	case end.State != v1alpha1.StateEvicted:
		return fmt.Errorf("pod %s cannot be evicted: %s", pod.Name, end.Message)
	}
	return nil
}

func ExampleRequester() {
	var (
		ctx    context.Context // Canceled when the pod is to stay after all.
		config *rest.Config
		pod    *corev1.Pod
	)
	r, err := newRequester(config)
	if err != nil {
		return
	}
	_ = move(ctx, r, pod)
}
