package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
)

const (
	nameLabel = "app.kubernetes.io/name"
	chartName = "drawbridge"
	// pageSize of lists: large ones are read in pages.
	pageSize = 500
)

// scheme has the kinds that are read.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(certmanagerv1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}()

// Gatherer reads the facts.
type Gatherer struct {
	reader    client.Client
	evictions policyclient.EvictionsGetter
	discovery *discovery.DiscoveryClient
	clock     clock.PassiveClock
}

// NewGatherer returns one for a cluster. The configuration's timeout bounds each call;
// it must have one. No call is made yet.
func NewGatherer(config *rest.Config, clk clock.PassiveClock) (*Gatherer, error) {
	if config.Timeout <= 0 {
		return nil, errors.New("make a client of the cluster: the configuration has no timeout")
	}
	reader, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	evictions, err := policyclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	versions, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	return &Gatherer{reader: reader, evictions: evictions, discovery: versions, clock: clk}, nil
}

// Gather reads the facts about the installation in the namespace, or in any namespace
// if it is empty. It changes nothing in the cluster. What cannot be read is noted in
// the facts; an error means that the API server cannot be reached at all.
func (g *Gatherer) Gather(ctx context.Context, namespace string) (*Facts, error) {
	f := &Facts{Now: g.clock.Now(), Unread: map[Source]Unread{}}
	version, err := g.discovery.ServerVersionWithContext(ctx)
	var unreachable *url.Error
	switch {
	case err == nil:
		f.Kubernetes = version.GitVersion
	case apierrors.IsUnauthorized(err), errors.As(err, &unreachable):
		return nil, fmt.Errorf("learn the version of the cluster: %w", err)
	default:
		f.note(Version, err)
	}
	f.NativeServed = cli.NativeServed(g.reader.RESTMapper())
	g.configurations(ctx, f)
	g.installation(ctx, f, namespace)
	g.permissions(ctx, f)
	g.probe(ctx, f)
	g.objects(ctx, f)
	g.dryRunWrites(ctx, f)
	g.tryWrites(ctx, f)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read the facts: %w", err)
	}
	return f, nil
}

// note remembers that a source could not be read. It reports whether it could.
func (f *Facts) note(source Source, err error) bool {
	switch {
	case err == nil:
		return true
	case apierrors.IsForbidden(err):
		f.Unread[source] = Unread{Forbidden: true, Detail: err.Error()}
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		f.Unread[source] = Unread{Missing: true, Detail: err.Error()}
	default:
		f.Unread[source] = Unread{Detail: err.Error()}
	}
	return false
}

// read reads a list in pages and passes each object to keep.
func read[T any, L client.ObjectList](ctx context.Context, g *Gatherer, f *Facts, source Source, list func() L, keep func(*T), options ...client.ListOption) {
	p := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		page := list()
		return page, g.reader.List(ctx, page, append(options, client.Limit(o.Limit), client.Continue(o.Continue))...)
	})
	p.PageSize = pageSize
	f.note(source, p.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		if item, ok := any(object).(*T); ok {
			keep(item)
		}
		return nil
	}))
}

// configurations reads the cluster-scoped objects that show how Drawbridge was
// installed.
func (g *Gatherer) configurations(ctx context.Context, f *Facts) {
	read(ctx, g, f, CRDs, func() *apiextensionsv1.CustomResourceDefinitionList {
		return &apiextensionsv1.CustomResourceDefinitionList{}
	},
		func(c *apiextensionsv1.CustomResourceDefinition) {
			if c.Spec.Group == v1alpha1.GroupName {
				c.Spec.Versions = withoutSchemas(c.Spec.Versions)
				f.CRDs = append(f.CRDs, *c)
			}
		})
	read(ctx, g, f, AdmissionPolicies, func() *admissionregistrationv1.ValidatingAdmissionPolicyList {
		return &admissionregistrationv1.ValidatingAdmissionPolicyList{}
	}, func(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
		f.AdmissionPolicies = append(f.AdmissionPolicies, *p)
	})
	read(ctx, g, f, PolicyBindings, func() *admissionregistrationv1.ValidatingAdmissionPolicyBindingList {
		return &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}
	}, func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
		f.PolicyBindings = append(f.PolicyBindings, *b)
	})
	read(ctx, g, f, ValidatingWebhooks, func() *admissionregistrationv1.ValidatingWebhookConfigurationList {
		return &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	}, func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
		f.Validating = append(f.Validating, *c)
	})
	read(ctx, g, f, MutatingWebhooks, func() *admissionregistrationv1.MutatingWebhookConfigurationList {
		return &admissionregistrationv1.MutatingWebhookConfigurationList{}
	}, func(c *admissionregistrationv1.MutatingWebhookConfiguration) { f.Mutating = append(f.Mutating, *c) })
}

// withoutSchemas drops the schemas, the largest part of a definition.
func withoutSchemas(versions []apiextensionsv1.CustomResourceDefinitionVersion) []apiextensionsv1.CustomResourceDefinitionVersion {
	for i := range versions {
		versions[i].Schema = nil
	}
	return versions
}

// installation finds the installation and reads its workload objects.
func (g *Gatherer) installation(ctx context.Context, f *Facts, namespace string) {
	hint := namespace
	if hint == "" {
		hint = calledNamespace(f)
	}
	keep := func(d *appsv1.Deployment) {
		if isManager(d) {
			f.Deployments = append(f.Deployments, *d)
		}
	}
	list := func() *appsv1.DeploymentList { return &appsv1.DeploymentList{} }
	read(ctx, g, f, Deployments, list, keep, client.MatchingLabels{nameLabel: chartName})
	if len(f.Deployments) == 0 && hint != "" {
		// It may have another name, or the user may only read this namespace.
		delete(f.Unread, Deployments)
		read(ctx, g, f, Deployments, list, keep, client.InNamespace(hint))
	}
	f.Namespace = chosen(f.Deployments, namespace, hint)

	d := f.deployment()
	if d != nil {
		f.ServiceAccount = d.Spec.Template.Spec.ServiceAccountName
		if selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err == nil {
			read(ctx, g, f, ManagerPods, func() *corev1.PodList { return &corev1.PodList{} },
				func(p *corev1.Pod) { f.ManagerPods = append(f.ManagerPods, *p) },
				client.InNamespace(f.Namespace), client.MatchingLabelsSelector{Selector: selector})
		}
	} else {
		g.account(ctx, f)
	}
	g.own(ctx, f)
	g.native(ctx, f)
}

// account finds the service account of a manager that has no Deployment.
func (g *Gatherer) account(ctx context.Context, f *Facts) {
	read(ctx, g, f, ServiceAccounts, func() *corev1.ServiceAccountList { return &corev1.ServiceAccountList{} }, func(a *corev1.ServiceAccount) {
		if f.ServiceAccount == "" {
			f.ServiceAccount = a.Name
		}
	}, client.InNamespace(f.Namespace), client.MatchingLabels{nameLabel: chartName})
}

// calledNamespace is the namespace that the webhook's calls go to, or, for the probe,
// are limited to; empty if there is no such webhook.
func calledNamespace(f *Facts) string {
	for i := range f.Validating {
		c := &f.Validating[i]
		w := webhookNamed(c, failurepolicy.EvictionWebhook)
		if w == nil {
			continue
		}
		if w.ClientConfig.Service != nil {
			return w.ClientConfig.Service.Namespace
		}
		if probe := webhookNamed(c, failurepolicy.ProbeWebhook); probe != nil && probe.NamespaceSelector != nil {
			return probe.NamespaceSelector.MatchLabels[corev1.LabelMetadataName]
		}
	}
	return ""
}

// isManager reports whether a Deployment runs the manager.
func isManager(d *appsv1.Deployment) bool {
	return slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == managerContainer && slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--webhook-configuration=") })
	})
}

// chosen is the namespace to examine: the requested one, the one that the webhook calls
// if there is a Deployment in it, or that of the first Deployment.
func chosen(found []appsv1.Deployment, asked, hint string) string {
	switch {
	case asked != "":
		return asked
	case len(found) == 0 && hint == "":
		return cli.DefaultNamespace
	case len(found) == 0 || slices.ContainsFunc(found, func(d appsv1.Deployment) bool { return d.Namespace == hint }):
		return hint
	default:
		return found[0].Namespace
	}
}
