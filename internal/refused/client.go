package refused

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	lifecycleapply "k8s.io/client-go/applyconfigurations/lifecycle/v1alpha1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	applyv1alpha1 "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
)

// NewClient returns a constructor of clients whose writes go through the tracker: for
// manager.Options. Dry runs and reviews are no writes.
func (t *Tracker) NewClient(conf *rest.Config, options client.Options) (client.Client, error) {
	c, err := client.New(conf, options)
	if err != nil {
		return nil, err
	}
	return t.Wrap(c), nil
}

// Wrap lets the writes of a client go through the tracker.
func (t *Tracker) Wrap(c client.Client) client.Client { return &tracked{Client: c, tracker: t} }

// WrapWatch is Wrap for a client that can watch.
func (t *Tracker) WrapWatch(c client.WithWatch) client.WithWatch {
	return &trackedWatch{Client: t.Wrap(c), watcher: c}
}

// trackedWatch is a client that can watch, and whose writes are tracked.
type trackedWatch struct {
	client.Client
	watcher client.WithWatch
}

var _ client.WithWatch = &trackedWatch{}

// Watch begins a watch.
func (c *trackedWatch) Watch(ctx context.Context, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
	return c.watcher.Watch(ctx, list, opts...)
}

// tracked is a client whose writes are tracked.
type tracked struct {
	client.Client
	tracker *Tracker
}

var _ client.Client = &tracked{}

// do sends a write of an object, or of a subresource of it.
func (c *tracked) do(ctx context.Context, obj client.Object, subresource, verb, manager string, dryRun []string, send func() error) error {
	gvk, err := apiutil.GVKForObject(obj, c.Scheme())
	if err != nil {
		return send() // It says the same.
	}
	if slices.Contains(dryRun, metav1.DryRunAll) || isReview(gvk.Group) {
		return send()
	}
	object := Object{Kind: kindOf(gvk), Namespace: obj.GetNamespace(), Name: obj.GetName()}
	about := func() []corev1.ObjectReference {
		return c.subjects(ctx, gvk, object, obj.GetUID())
	}
	return c.tracker.Do(ctx, Name(object.Kind, subresource, false, manager), verb, object, manager, about, send)
}

// subjects are the object, if it exists; and for a request its pod as well, as the cache
// has it.
func (c *tracked) subjects(ctx context.Context, gvk schema.GroupVersionKind, object Object, uid types.UID) []corev1.ObjectReference {
	switch {
	case object.Kind == "EvictionRequest":
		var er v1alpha1.EvictionRequest
		if err := c.Get(ctx, types.NamespacedName{Namespace: object.Namespace, Name: object.Name}, &er); err != nil {
			return nil // It does not exist, or no longer.
		}
		return ofRequest(&er)
	case object.Kind == "EvacuationPolicy" && uid == "": // It is applied.
		uid = c.uidOf(ctx, object, &v1alpha1.EvacuationPolicy{})
	case object.Kind == "EvictionInterceptor" && uid == "":
		uid = c.uidOf(ctx, object, &v1alpha1.EvictionInterceptor{})
	}
	if uid == "" {
		return nil
	}
	return []corev1.ObjectReference{{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: object.Namespace, Name: object.Name, UID: uid}}
}

// uidOf is the UID of an object in the cache, empty if there is none.
func (c *tracked) uidOf(ctx context.Context, object Object, into client.Object) types.UID {
	if err := c.Get(ctx, types.NamespacedName{Namespace: object.Namespace, Name: object.Name}, into); err != nil {
		return ""
	}
	return into.GetUID()
}

// isReview reports whether objects of the group are questions, which store nothing.
func isReview(group string) bool {
	return group == "authentication.k8s.io" || group == "authorization.k8s.io"
}

// apply sends an apply configuration.
func (c *tracked) apply(ctx context.Context, config runtime.ApplyConfiguration, subresource, manager string, dryRun []string, send func() error) error {
	object, known := objectOf(config)
	if !known || slices.Contains(dryRun, metav1.DryRunAll) {
		return send()
	}
	if er, ok := config.(*applyv1alpha1.EvictionRequestApplyConfiguration); ok && subresource == "" && manager != managerLabels && er.ObjectMetaApplyConfiguration != nil && len(er.Labels) > 0 {
		// A policy may refuse the pod's labels only: whoever asks tries without them next.
		ctx = trying(ctx)
	}
	about := func() []corev1.ObjectReference {
		return c.subjects(ctx, v1alpha1.SchemeGroupVersion.WithKind(object.Kind), object, "")
	}
	return c.tracker.Do(ctx, Name(object.Kind, subresource, true, manager), "apply", object, manager, about, send)
}

// objectOf is what is applied; not known if we apply no such kind.
func objectOf(config runtime.ApplyConfiguration) (Object, bool) {
	switch object := config.(type) {
	case *applyv1alpha1.EvictionRequestApplyConfiguration:
		return Object{Kind: "EvictionRequest", Namespace: deref(object.GetNamespace()), Name: deref(object.GetName())}, true
	case *lifecycleapply.EvictionApplyConfiguration:
		return Object{Kind: nativeEviction, Namespace: deref(object.GetNamespace()), Name: deref(object.GetName())}, true
	case *applyv1alpha1.EvacuationPolicyApplyConfiguration:
		return Object{Kind: "EvacuationPolicy", Name: deref(object.GetName())}, true
	case client.Object: // client.ApplyConfigurationFromUnstructured.
		return Object{Kind: object.GetObjectKind().GroupVersionKind().Kind, Namespace: object.GetNamespace(), Name: object.GetName()}, true
	}
	return Object{}, false
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Create sends the object, unless that was refused a moment ago.
func (c *tracked) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	o := (&client.CreateOptions{}).ApplyOptions(opts)
	return c.do(ctx, obj, "", "create", o.FieldManager, o.DryRun, func() error { return c.Client.Create(ctx, obj, opts...) })
}

// Update sends the object, unless that was refused a moment ago.
func (c *tracked) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	o := (&client.UpdateOptions{}).ApplyOptions(opts)
	return c.do(ctx, obj, "", "update", o.FieldManager, o.DryRun, func() error { return c.Client.Update(ctx, obj, opts...) })
}

// Patch sends the patch, unless that was refused a moment ago.
func (c *tracked) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	o := (&client.PatchOptions{}).ApplyOptions(opts)
	return c.do(ctx, obj, "", "patch", o.FieldManager, o.DryRun, func() error { return c.Client.Patch(ctx, obj, patch, opts...) })
}

// Delete deletes the object, unless that was refused a moment ago.
func (c *tracked) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	o := (&client.DeleteOptions{}).ApplyOptions(opts)
	return c.do(ctx, obj, "", "delete", "", o.DryRun, func() error { return c.Client.Delete(ctx, obj, opts...) })
}

// Apply applies the configuration, unless that was refused a moment ago.
func (c *tracked) Apply(ctx context.Context, config runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	o := (&client.ApplyOptions{}).ApplyOptions(opts)
	return c.apply(ctx, config, "", o.FieldManager, o.DryRun, func() error { return c.Client.Apply(ctx, config, opts...) })
}

// Status is the client of the status.
func (c *tracked) Status() client.SubResourceWriter { return c.SubResource("status") }

// SubResource is the client of a subresource.
func (c *tracked) SubResource(name string) client.SubResourceClient {
	return &trackedSubresource{SubResourceClient: c.Client.SubResource(name), client: c, name: name}
}

// trackedSubresource is the client of a subresource. Create is for evictions and scales,
// whose callers handle every answer themselves.
type trackedSubresource struct {
	client.SubResourceClient
	client *tracked
	name   string
}

var _ client.SubResourceClient = &trackedSubresource{}

// Update sends the object, unless that was refused a moment ago.
func (s *trackedSubresource) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	o := (&client.SubResourceUpdateOptions{}).ApplyOptions(opts)
	return s.client.do(ctx, obj, s.name, "update", o.FieldManager, o.DryRun, func() error { return s.SubResourceClient.Update(ctx, obj, opts...) })
}

// Patch sends the patch, unless that was refused a moment ago.
func (s *trackedSubresource) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	o := (&client.SubResourcePatchOptions{}).ApplyOptions(opts)
	return s.client.do(ctx, obj, s.name, "patch", o.FieldManager, o.DryRun, func() error { return s.SubResourceClient.Patch(ctx, obj, patch, opts...) })
}

// Apply applies the configuration, unless that was refused a moment ago.
func (s *trackedSubresource) Apply(ctx context.Context, config runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	o := (&client.SubResourceApplyOptions{}).ApplyOpts(opts)
	return s.client.apply(ctx, config, s.name, o.FieldManager, o.DryRun, func() error { return s.SubResourceClient.Apply(ctx, config, opts...) })
}
