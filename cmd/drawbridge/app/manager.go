package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/internal/informers"
	"github.com/drawbridge-dev/drawbridge/internal/podcache"
	"github.com/drawbridge-dev/drawbridge/internal/podcache/packed"
	"github.com/drawbridge-dev/drawbridge/internal/protect"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/translate"
	"github.com/drawbridge-dev/drawbridge/webhook"
)

// leaderElectionID is the name of the leader's Lease.
const leaderElectionID = "drawbridge-leader"

// newScheme has the kinds we read and write.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(certmanagerv1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}

// key is the key of an object in our own namespace.
func (o *Options) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: name}
}

// serveWith returns a function that configures the TLS of one of our servers.
func serveWith(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) func(*tls.Config) {
	return func(c *tls.Config) {
		c.MinVersion = tls.VersionTLS12
		c.GetCertificate = certificate
	}
}

// newManager makes the manager with everything that listens or caches.
func newManager(conf *rest.Config, o Options, server *webhook.Server, tlsOptions func(*tls.Config), writes *refused.Tracker) (manager.Manager, error) {
	mgr, err := ctrl.NewManager(conf, manager.Options{
		Scheme:                        newScheme(),
		Logger:                        o.Logger,
		Cache:                         cacheOptions(o),
		NewCache:                      informers.NewCache(clock.RealClock{}, o.Logger),
		NewClient:                     writes.NewClient,
		WebhookServer:                 server,
		Metrics:                       metricsOptions(o, tlsOptions),
		HealthProbeBindAddress:        orOff(o.HealthAddr),
		PprofBindAddress:              orOff(o.PprofAddr),
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &o.LeaseDuration,
		RenewDeadline:                 &o.RenewDeadline,
		RetryPeriod:                   &o.RetryPeriod,
		GracefulShutdownTimeout:       &o.ShutdownTimeout,
		Controller: config.Controller{
			// Tests run several managers in one process. Our names are constants, each
			// used once per manager.
			SkipNameValidation: new(true),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make manager: %w", err)
	}
	writes.Record(mgr.GetEventRecorder(recorderName))
	return mgr, nil
}

// liveClient is a client without a cache: joining a request must see what was just written.
func liveClient(mgr manager.Manager, writes *refused.Tracker) (client.WithWatch, error) {
	c, err := client.NewWithWatch(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return writes.WrapWatch(c), nil
}

// metricsOptions say how the metrics are served. The bearer token must not be sent in
// the clear, so protection implies TLS.
func metricsOptions(o Options, tlsOptions func(*tls.Config)) metricsserver.Options {
	options := metricsserver.Options{BindAddress: orOff(o.MetricsAddr)}
	if o.Operations.MetricsProtected {
		options.SecureServing = true
		options.FilterProvider = protected
		options.TLSOpts = []func(*tls.Config){tlsOptions}
	}
	return options
}

// protected lets the API server decide who may read the metrics.
func protected(conf *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	clients, err := kubernetes.NewForConfigAndClient(conf, client)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return protect.New(clients.AuthenticationV1(), clients.AuthorizationV1(), clock.RealClock{}).Wrap, nil
}

// cacheOptions say what the informers hold: only what is read, and no Secret or Lease
// that is not ours.
func cacheOptions(o Options) cache.Options {
	own := map[string]cache.Config{o.Namespace: {}}
	pods, nodes := cache.ByObject{Transform: packed.NewSharing().Transform}, cache.ByObject{Transform: podcache.TransformNode}
	if o.CacheWhole {
		pods, nodes = cache.ByObject{}, cache.ByObject{}
	}
	options := cache.Options{
		// A read without an informer is a mistake: it would start one.
		ReaderFailOnMissingInformer: true,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:                   pods,
			&corev1.Node{}:                  nodes,
			&corev1.Namespace{}:             {Transform: cache.TransformStripManagedFields()},
			&policyv1.PodDisruptionBudget{}: {Transform: cache.TransformStripManagedFields()},
			&coordinationv1.Lease{}: {
				Namespaces: own,
				Label:      labels.SelectorFromSet(labels.Set{translate.LeaseLabel: translate.LeaseLabelValue}),
			},
			// With the name as the field selector, RBAC can limit list and watch to it.
			&corev1.Secret{}: {
				Namespaces: own,
				Field:      fields.OneTermEqualSelector("metadata.name", o.WebhookCertSecret),
			},
		},
	}
	if o.WebhookConfiguration != "" {
		options.ByObject[&admissionregistrationv1.ValidatingWebhookConfiguration{}] = cache.ByObject{
			Field: fields.OneTermEqualSelector("metadata.name", o.WebhookConfiguration),
		}
	}
	preemptionCache(o, options.ByObject)
	hookCache(o, options.ByObject)
	if named := configMaps(o); len(named) > 0 {
		options.ByObject[&corev1.ConfigMap{}] = cache.ByObject{Namespaces: named}
	}
	if o.Surge {
		maps.Copy(options.ByObject, surge.CacheOptions())
	}
	budgetCache(o, options.ByObject) // After those that keep more.
	return options
}

// configMaps are those that informers hold: one of a namespace at most, because with its
// name as the field selector RBAC can limit list and watch to it.
func configMaps(o Options) map[string]cache.Config {
	named := map[string]cache.Config{}
	add := func(namespace, name string) {
		named[namespace] = cache.Config{FieldSelector: fields.OneTermEqualSelector("metadata.name", name)}
	}
	if o.Operations.LogLevelConfig != "" {
		add(o.Namespace, o.Operations.LogLevelConfig)
	}
	if o.WebhookClients.ClientCA != "" {
		name := namespacedName(o.WebhookClients.ClientCA)
		add(name.Namespace, name.Name)
	}
	if o.Preemption.Enabled && o.Preemption.ClientCA != "" {
		name := o.Preemption.clientCA()
		add(name.Namespace, name.Name)
	}
	return named
}

// watchAll starts the informers of all kinds that are read from the cache.
func watchAll(ctx context.Context, informers cache.Informers, o Options) error {
	kinds := []client.Object{
		&v1alpha1.EvictionRequest{},
		&v1alpha1.EvictionInterceptor{},
		&v1alpha1.EvacuationPolicy{},
		&corev1.Namespace{},
		&corev1.Pod{},
		&corev1.Node{},
		&policyv1.PodDisruptionBudget{},
		&coordinationv1.Lease{},
		&corev1.Secret{},
	}
	if o.WebhookConfiguration != "" {
		kinds = append(kinds, &admissionregistrationv1.ValidatingWebhookConfiguration{})
	}
	if o.Maintenance.Enabled {
		kinds = append(kinds, &v1alpha1.NodeMaintenance{})
	}
	if len(configMaps(o)) > 0 {
		kinds = append(kinds, &corev1.ConfigMap{})
	}
	kinds = append(kinds, surgeKinds(o)...)
	kinds = append(kinds, hookKinds(o)...)
	kinds = append(kinds, budgetKinds(o)...)
	kinds = append(kinds, preemptionKinds(o)...)
	for _, obj := range kinds {
		if _, err := informers.GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
	}
	return nil
}

// orOff returns controller-runtime's value for "do not listen" if there is no address.
func orOff(addr string) string {
	if addr == "" {
		return "0"
	}
	return addr
}
