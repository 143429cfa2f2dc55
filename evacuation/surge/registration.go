package surge

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/clockqueue"
)

const (
	registrationName = "surge-registration"
	// registrationKey is where the ConfigMap has the object.
	registrationKey = "registration"
	// registrationTimeout bounds one Reconcile.
	registrationTimeout = 30 * time.Second
)

// Registration is the controller that makes the EvictionInterceptor of the chart.
// Helm cannot install it beside its CustomResourceDefinition, so it comes in a
// ConfigMap. A ClusterRole of the chart owns it: whoever uninstalls that, or
// switches the surge off, leaves no registration behind that nobody answers to.
type Registration struct {
	// Client writes, and its cache has EvictionInterceptors.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	Clock     clock.WithTicker
	// ConfigMap has the registration, ClusterRole owns it.
	ConfigMap   types.NamespacedName
	ClusterRole string
}

// SetupWithManager adds the controller to the manager, on the leader only. It looks
// once at its start, and whenever the registration changes or goes.
func (r *Registration) SetupWithManager(mgr ctrl.Manager) error {
	mine := reconcile.Request{NamespacedName: types.NamespacedName{Name: Name}}
	first := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(mine)
		return nil
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named(registrationName).
		For(&v1alpha1.EvictionInterceptor{}, builder.WithPredicates(predicate.And(
			predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() == Name }),
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}),
		))).
		WatchesRawSource(first).
		WithOptions(controller.Options{
			NeedLeaderElection:    new(true),
			ReconciliationTimeout: registrationTimeout,
			NewQueue:              clockqueue.New(r.Clock),
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up controller %s: %w", registrationName, err)
	}
	return nil
}

// Reconcile applies the registration.
func (r *Registration) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if req.Name != Name {
		return reconcile.Result{}, nil
	}
	config := &corev1.ConfigMap{}
	if err := r.APIReader.Get(ctx, r.ConfigMap, config); err != nil {
		return reconcile.Result{}, fmt.Errorf("get the registration: %w", err)
	}
	role := &rbacv1.ClusterRole{}
	if err := r.APIReader.Get(ctx, types.NamespacedName{Name: r.ClusterRole}, role); err != nil {
		return reconcile.Result{}, fmt.Errorf("get the owner of the registration: %w", err)
	}
	object, err := readRegistration(config.Data[registrationKey], role)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(registrationName), client.ForceOwnership); err != nil {
		return reconcile.Result{}, fmt.Errorf("apply the registration: %w", err)
	}
	return reconcile.Result{}, nil
}

// readRegistration reads the object and gives it its owner.
func readRegistration(text string, owner *rbacv1.ClusterRole) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(text), &object.Object); err != nil {
		return nil, fmt.Errorf("read the registration: %w", err)
	}
	want := v1alpha1.SchemeGroupVersion.WithKind("EvictionInterceptor")
	if got := object.GroupVersionKind(); got != want || object.GetName() != Name {
		return nil, fmt.Errorf("read the registration: it is a %s %q, want %s %q", got, object.GetName(), want, Name)
	}
	object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: owner.Name, UID: owner.UID,
	}})
	return object, nil
}
