// Package presets creates the chart's objects of our own kinds: registrations and
// policies.
package presets

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
)

const (
	controllerName = "presets"
	// dataKey is where a ConfigMap has its objects.
	dataKey = "objects"
	timeout = 30 * time.Second
	// maxObjects and maxBytes bound a preset.
	maxObjects = 20
	maxBytes   = 1 << 20
)

// Label is on the objects of a preset; its value is the name of the ConfigMap.
const Label = v1alpha1.GroupName + "/preset"

// Controller creates the EvacuationPolicies and EvictionInterceptors of the chart. Helm
// cannot install them together with their CustomResourceDefinitions, so they come in
// ConfigMaps. A ClusterRole of the same name, which has the permissions they need, owns
// them: disabling a preset, or uninstalling the chart, leaves no registration without a
// component behind it.
type Controller struct {
	// Client writes, and its cache has both kinds.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	Clock     clock.WithTicker
	// Namespace has the ConfigMaps of those Names.
	Namespace string
	Names     []string
}

var _ reconcile.Reconciler = &Controller{}

// SetupWithManager adds the controller to the manager, on the leader only. It
// reconciles at its start, and whenever one of the objects changes or is deleted.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	request := func(name string) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
	}
	first := source.Func(func(_ context.Context, q controllers.Queue) error {
		for _, name := range c.Names {
			q.Add(request(name))
		}
		return nil
	})
	mine := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
		if name := obj.GetLabels()[Label]; slices.Contains(c.Names, name) {
			return []reconcile.Request{request(name)}
		}
		return nil
	})
	changes := builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))
	b := ctrl.NewControllerManagedBy(mgr).
		Watches(&v1alpha1.EvacuationPolicy{}, mine, changes).
		Watches(&v1alpha1.EvictionInterceptor{}, mine, changes).
		WatchesRawSource(first)
	return controllers.Complete(b, controllerName, c, controllers.Options{Clock: c.Clock, Timeout: timeout})
}

// Reconcile applies the objects of one preset.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	from := &corev1.ConfigMap{}
	if err := c.APIReader.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: req.Name}, from); err != nil {
		return reconcile.Result{}, fmt.Errorf("get preset %s: %w", req.Name, err)
	}
	role := &rbacv1.ClusterRole{}
	if err := c.APIReader.Get(ctx, types.NamespacedName{Name: req.Name}, role); err != nil {
		return reconcile.Result{}, fmt.Errorf("get the owner of preset %s: %w", req.Name, err)
	}
	objects, err := read(from.Data[dataKey])
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("read preset %s: %w", req.Name, err))
	}
	var errs []error
	for _, object := range objects {
		object.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: role.Name, UID: role.UID,
		}})
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[Label] = req.Name
		object.SetLabels(labels)
		if err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(controllerName), client.ForceOwnership); err != nil {
			errs = append(errs, fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err))
		}
	}
	return reconcile.Result{}, errors.Join(errs...)
}

// read reads the objects of a preset, which are of our own kinds.
func read(text string) ([]*unstructured.Unstructured, error) {
	if len(text) > maxBytes {
		return nil, fmt.Errorf("it is larger than %d bytes", maxBytes)
	}
	var objects []*unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader([]byte(text))))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			if len(objects) == 0 {
				return nil, errors.New("it has no objects")
			}
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("split the documents: %w", err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
			return nil, fmt.Errorf("decode a document: %w", err)
		}
		if len(object.Object) == 0 {
			continue
		}
		kind := object.GroupVersionKind()
		if kind.GroupVersion() != v1alpha1.SchemeGroupVersion || !slices.Contains([]string{"EvacuationPolicy", "EvictionInterceptor"}, kind.Kind) {
			return nil, fmt.Errorf("a %s does not belong into a preset", kind)
		}
		if objects = append(objects, object); len(objects) > maxObjects {
			return nil, fmt.Errorf("it has more than %d objects", maxObjects)
		}
	}
}
