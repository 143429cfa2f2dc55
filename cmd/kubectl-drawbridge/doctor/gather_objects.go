package doctor

import (
	"context"
	"fmt"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmetav1 "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/native/charge"
	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
	"github.com/drawbridge-dev/drawbridge/internal/podcache"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// own reads the objects of the installation that have a known name.
func (g *Gatherer) own(ctx context.Context, f *Facts) {
	s := f.settings()
	lease := &coordinationv1.Lease{}
	if s.leaderElect && g.get(ctx, f, Leader, leaderLease, lease) {
		f.Lease = lease
	}
	if name := f.secretName(); name != "" {
		secret := &corev1.Secret{}
		if g.get(ctx, f, Secret, name, secret) {
			// Nothing else is kept: the Secret has a private key.
			f.Certificate = map[string][]byte{keyCert: secret.Data[keyCert]}
		}
	}
	if s.certManager == "" {
		return
	}
	certificate := &certmanagerv1.Certificate{}
	if g.get(ctx, f, CertManager, s.certManager, certificate) {
		f.CertManager = certificateStatus(certificate)
	}
}

// native reads what there is about Kubernetes' own API, if the manager looks at it.
func (g *Gatherer) native(ctx context.Context, f *Facts) {
	s := f.settings()
	if f.Native = f.NativeServed && s.native != charge.Off; !f.Native {
		return
	}
	stored := &corev1.ConfigMap{}
	if g.get(ctx, f, NativeState, s.nativeState, stored) {
		f.InCharge = new(charge.StateOf(stored))
	}
	read(ctx, g, f, NativeRequests, func() *lifecyclev1alpha1.EvictionRequestList { return &lifecyclev1alpha1.EvictionRequestList{} },
		func(r *lifecyclev1alpha1.EvictionRequest) {
			if len(r.Status.Conditions) == 0 && r.Spec.Intent == lifecyclev1alpha1.EvictionRequestIntentEviction {
				f.Unseen = append(f.Unseen, *r)
			}
		})
}

// get reads one object of the installation's namespace. A missing object is a fact and
// not noted.
func (g *Gatherer) get(ctx context.Context, f *Facts, source Source, name string, object client.Object) bool {
	err := g.reader.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: name}, object)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false
	}
	return f.note(source, err)
}

// certificateStatus reads the condition Ready.
func certificateStatus(certificate *certmanagerv1.Certificate) *CertificateStatus {
	status := &CertificateStatus{Name: certificate.Name, Message: "cert-manager has not observed it: is it installed and running?"}
	for _, condition := range certificate.Status.Conditions {
		if condition.Type == certmanagerv1.CertificateConditionReady {
			status.Ready = condition.Status == cmmetav1.ConditionTrue
			status.Message = condition.Message
		}
	}
	return status
}

// permissions checks each permission of the manager.
func (g *Gatherer) permissions(ctx context.Context, f *Facts) {
	if f.ServiceAccount == "" {
		return
	}
	for _, need := range Needs(f) {
		for _, verb := range need.Verbs {
			one := need
			one.Verbs = []string{verb}
			review := &authorizationv1.SubjectAccessReview{Spec: reviewOf(f, one, verb)}
			if !f.note(Reviews, g.reader.Create(ctx, review)) {
				return
			}
			f.Permissions = append(f.Permissions, Permission{Need: one, Allowed: review.Status.Allowed})
		}
	}
}

func reviewOf(f *Facts, need Need, verb string) authorizationv1.SubjectAccessReviewSpec {
	resource, subresource := need.parts()
	attributes := &authorizationv1.ResourceAttributes{
		Group: need.Group, Resource: resource, Subresource: subresource, Verb: verb, Name: need.Name,
	}
	if need.Here {
		attributes.Namespace = f.Namespace
	}
	return authorizationv1.SubjectAccessReviewSpec{
		User: fmt.Sprintf("system:serviceaccount:%s:%s", f.Namespace, f.ServiceAccount),
		// As the API server sees it.
		Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + f.Namespace, "system:authenticated"},
		ResourceAttributes: attributes,
	}
}

// probe makes a call that must reach a manager.
func (g *Gatherer) probe(ctx context.Context, f *Facts) {
	if s := f.settings(); f.configuration() == nil && s.known && s.configuration == "" {
		return // Switched off.
	}
	err := failurepolicy.Prove(ctx, g.evictions, f.Namespace)
	switch {
	case err == nil:
		f.Probe = &Probe{}
	case apierrors.IsForbidden(err):
		f.note(Evictions, err)
	default:
		f.Probe = &Probe{Problem: err.Error()}
	}
}

// objects reads the objects of the cluster's users.
func (g *Gatherer) objects(ctx context.Context, f *Facts) {
	withBudget := map[string]bool{}
	read(ctx, g, f, Budgets, func() *policyv1.PodDisruptionBudgetList { return &policyv1.PodDisruptionBudgetList{} }, func(b *policyv1.PodDisruptionBudget) {
		b.ManagedFields = nil
		f.Budgets = append(f.Budgets, *b)
		f.keysOf(b, "PodDisruptionBudget", nil)
		withBudget[b.Namespace] = withBudget[b.Namespace] || !isGuard(b)
	})
	read(ctx, g, f, Namespaces, func() *corev1.NamespaceList { return &corev1.NamespaceList{} }, func(n *corev1.Namespace) {
		f.Namespaces = append(f.Namespaces, *n)
		f.keysOf(n, "Namespace", nil)
	})
	read(ctx, g, f, Registrations, func() *v1alpha1.EvictionInterceptorList { return &v1alpha1.EvictionInterceptorList{} },
		func(r *v1alpha1.EvictionInterceptor) {
			f.Registrations = append(f.Registrations, *r)
			f.keysOf(r, "EvictionInterceptor", nil)
		})
	read(ctx, g, f, Hooks, func() *v1alpha1.EvacuationHookList { return &v1alpha1.EvacuationHookList{} }, func(h *v1alpha1.EvacuationHook) {
		f.Hooks = append(f.Hooks, *h)
		f.keysOf(h, "EvacuationHook", nil)
	})
	if f.Unread[Hooks].Missing {
		delete(f.Unread, Hooks) // An installation without the feature has none.
	}
	read(ctx, g, f, EvictionBudgets, func() *v1alpha1.EvictionBudgetList { return &v1alpha1.EvictionBudgetList{} },
		func(b *v1alpha1.EvictionBudget) {
			f.EvictionBudgets = append(f.EvictionBudgets, *b)
			f.keysOf(b, "EvictionBudget", nil)
		})
	registry := resolver(f)
	read(ctx, g, f, Pods, func() *corev1.PodList { return &corev1.PodList{} }, func(p *corev1.Pod) {
		_, names := p.Annotations[v1alpha1.InterceptorsAnnotation]
		if pods.HasEnded(p) {
			return
		}
		f.keysOf(p, "Pod", nil)
		f.meet(registry, p)
		if !names && len(p.Spec.EvictionResponders) == 0 && !withBudget[p.Namespace] {
			return
		}
		if slim, err := podcache.Transform(p); err == nil { // It never fails.
			f.Pods = append(f.Pods, *slim.(*corev1.Pod))
		}
	})
	read(ctx, g, f, Nodes, func() *corev1.NodeList { return &corev1.NodeList{} }, func(n *corev1.Node) {
		f.keysOf(n, "Node", nil)
		_, marked := n.Annotations[v1alpha1.MaintenancesAnnotation]
		_, cordoned := n.Annotations[v1alpha1.CordonAnnotation]
		if marked || cordoned || tainted(n) {
			f.Nodes = append(f.Nodes, *n)
		}
	})
	read(ctx, g, f, EvacuationPolicies, func() *v1alpha1.EvacuationPolicyList { return &v1alpha1.EvacuationPolicyList{} },
		func(p *v1alpha1.EvacuationPolicy) {
			f.EvacuationPolicies = append(f.EvacuationPolicies, *p)
			f.keysOf(p, "EvacuationPolicy", nil)
		})
	read(ctx, g, f, Requests, func() *v1alpha1.EvictionRequestList { return &v1alpha1.EvictionRequestList{} }, func(er *v1alpha1.EvictionRequest) {
		if state := v1alpha1.Summarize(er).State; state != v1alpha1.StateEvicted && state != v1alpha1.StateCanceled {
			f.Requests = append(f.Requests, *er)
			f.keysOf(er, "EvictionRequest", nil)
		}
	})
	read(ctx, g, f, Maintenances, func() *v1alpha1.NodeMaintenanceList { return &v1alpha1.NodeMaintenanceList{} },
		func(m *v1alpha1.NodeMaintenance) {
			f.Maintenances = append(f.Maintenances, *m)
			f.keysOf(m, "NodeMaintenance", nil)
		})
	g.workloads(ctx, f)
	g.timeLimits(ctx, f)
}
