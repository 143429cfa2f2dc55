package hookstest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// facts is all that the refusal of a test depends on.
type facts struct {
	Hook *v1alpha1.EvacuationHook
	Pod  *corev1.Pod
	// Request is that of the pod, nil if there is none.
	Request *v1alpha1.EvictionRequest
	// Interceptors of the pod, in their order.
	Interceptors []string
	// Warnings say what is not known.
	Warnings []string
}

func (t *options) gather(ctx context.Context, c *cli.Connection, name, pod string) (facts, error) {
	f := facts{Pod: &corev1.Pod{}}
	hooks, err := c.Hooks(ctx, client.InNamespace(c.Namespace))
	if err != nil {
		return f, err
	}
	if f.Hook, err = hookNamed(hooks, name, c.Namespace); err != nil {
		return f, err
	}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: pod}, f.Pod); {
	case apierrors.IsNotFound(err):
		return f, fmt.Errorf("there is no pod %q in namespace %q: see --namespace", pod, c.Namespace)
	case err != nil:
		return f, fmt.Errorf("get pod %s: %w", pod, err)
	}
	if err := canRun(f.Pod); err != nil {
		return f, err
	}
	known := registration.Known{Hooks: hooks}
	namespace := &corev1.Namespace{}
	switch err := c.Get(ctx, client.ObjectKey{Name: c.Namespace}, namespace); {
	case err == nil:
		known.Namespaces = append(known.Namespaces, *namespace)
	case !apierrors.IsForbidden(err): // Few hooks read the namespace.
		return f, fmt.Errorf("get namespace %s: %w", c.Namespace, err)
	}
	var registrations v1alpha1.EvictionInterceptorList
	switch err := c.List(ctx, &registrations); {
	case apierrors.IsForbidden(err):
		f.Warnings = append(f.Warnings, fmt.Sprintf("interceptors that are not hooks are not known, and one that comes before the hook would run, too: %v", err))
	case err != nil:
		return f, fmt.Errorf("list evictioninterceptors: %w", err)
	}
	known.Registrations = registrations.Items
	native := pods.HasNativeResponders(f.Pod) && t.Installed(ctx, c).Native
	if f.Interceptors, err = registration.Static(registration.Options{Namespace: t.System, Native: func() bool { return native }}, known).Resolve(f.Pod); err != nil {
		return f, fmt.Errorf("decide what intercepts pod %s: %w", pod, err)
	}
	er := &v1alpha1.EvictionRequest{}
	switch err := c.Get(ctx, v1alpha1.RequestKey(f.Pod), er); {
	case err == nil:
		f.Request = er
	case apierrors.IsForbidden(err) && t.dryRun:
	case !apierrors.IsNotFound(err):
		return f, fmt.Errorf("get the request for pod %s: %w", pod, err)
	}
	return f, nil
}

// hookNamed finds a hook, or lists those that there are.
func hookNamed(hooks []v1alpha1.EvacuationHook, name, namespace string) (*v1alpha1.EvacuationHook, error) {
	var names []string
	for i := range hooks {
		if hooks[i].Name == name {
			return &hooks[i], nil
		}
		names = append(names, hooks[i].Name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there is no EvacuationHook in namespace %q: see --namespace", namespace)
	}
	slices.Sort(names)
	return nil, fmt.Errorf("there is no EvacuationHook %q in namespace %q; those there are: %s", name, namespace, strings.Join(names, ", "))
}

// canRun says why nothing can run for a pod.
func canRun(pod *corev1.Pod) error {
	switch {
	case pods.HasEnded(pod):
		return fmt.Errorf("pod %s has ended (%s): no hook runs for it", pod.Name, pod.Status.Phase)
	case !pod.DeletionTimestamp.IsZero():
		return fmt.Errorf("pod %s is being deleted: no hook runs for it", pod.Name)
	case pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodPending:
		return fmt.Errorf("pod %s does not run yet (%s): try again when it does", pod.Name, cmp.Or(pod.Status.Phase, corev1.PodPending))
	}
	return nil
}

// refuse says why the hook cannot be tested for the pod.
func refuse(f facts) error {
	hook, pod := f.Hook, f.Pod.Name
	name := v1alpha1.HookInterceptor(client.ObjectKeyFromObject(hook))
	accepted := meta.FindStatusCondition(hook.Status.Conditions, v1alpha1.ConditionAccepted)
	place := slices.Index(f.Interceptors, name)
	switch {
	case !hook.DeletionTimestamp.IsZero():
		return fmt.Errorf("hook %s is being deleted", hook.Name)
	case accepted == nil, accepted.ObservedGeneration != hook.Generation:
		return fmt.Errorf("the manager has not observed hook %s since it was written: try again in some seconds, or see kubectl drawbridge doctor", hook.Name)
	case accepted.Status != metav1.ConditionTrue:
		return fmt.Errorf("hook %s is not accepted: %s", hook.Name, text.Clean(accepted.Message))
	case place < 0 && len(f.Interceptors) == 0:
		return fmt.Errorf("hook %s does not cover pod %s; nothing does. kubectl drawbridge hooks %s -n %s lists the pods that it covers", hook.Name, pod, hook.Name, hook.Namespace)
	case place < 0:
		return fmt.Errorf("hook %s does not cover pod %s; its interceptors are %s. kubectl drawbridge hooks %s -n %s lists the pods that it covers",
			hook.Name, pod, strings.Join(f.Interceptors, ", "), hook.Name, hook.Namespace)
	case f.Request != nil && !f.Request.DeletionTimestamp.IsZero():
		return fmt.Errorf("an earlier request for pod %s is being deleted: try again when it is gone. See kubectl drawbridge why %s -n %s", pod, pod, hook.Namespace)
	case f.Request != nil && !v1alpha1.IsFinished(f.Request):
		return fmt.Errorf("the eviction of pod %s is requested already: kubectl drawbridge why %s -n %s", pod, pod, hook.Namespace)
	case place > 0:
		return fmt.Errorf("interceptors of pod %s come before hook %s, and would run for real: %s. Give a copy of the hook a higher priority, or try it with another pod",
			pod, hook.Name, strings.Join(f.Interceptors[:place], ", "))
	}
	return nil
}
