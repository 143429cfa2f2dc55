package httpcall

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Services finds the addresses of a Service.
type Services interface {
	// Addresses returns the cluster IPs of a Service, or the ready endpoints of a
	// headless one. It fails if there are none.
	Addresses(ctx context.Context, namespace, name string) ([]netip.Addr, error)
}

type services struct{ reader client.Reader }

var _ Services = services{}

// NewServices reads Services (get) and EndpointSlices (list). With a cache as the reader
// it would watch those of all namespaces; give it one that asks the API server.
func NewServices(reader client.Reader) Services { return services{reader} }

func (s services) Addresses(ctx context.Context, namespace, name string) ([]netip.Addr, error) {
	service := &corev1.Service{}
	if err := s.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, service); err != nil {
		return nil, fmt.Errorf("get Service %s/%s: %w", namespace, name, err)
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, refuse("the Service %s/%s is a name for another host (ExternalName)", namespace, name)
	}
	if service.Spec.ClusterIP != corev1.ClusterIPNone {
		literals := service.Spec.ClusterIPs
		if len(literals) == 0 && service.Spec.ClusterIP != "" {
			literals = []string{service.Spec.ClusterIP}
		}
		if len(literals) == 0 {
			return nil, fmt.Errorf("the Service %s/%s has no cluster IP yet", namespace, name)
		}
		return addresses("Service", literals)
	}
	literals, err := endpoints(ctx, s.reader, namespace, name)
	switch {
	case err != nil:
		return nil, err
	case len(literals) == 0:
		return nil, fmt.Errorf("the headless Service %s/%s has no ready endpoint", namespace, name)
	}
	return addresses("endpoint", literals)
}

// APIServer returns the addresses by which pods reach the API server: those of the
// Service kubernetes, and of its endpoints.
func APIServer(ctx context.Context, reader client.Reader) ([]netip.Addr, error) {
	found, err := services{reader}.Addresses(ctx, metav1.NamespaceDefault, "kubernetes")
	if err != nil {
		return nil, err
	}
	literals, err := endpoints(ctx, reader, metav1.NamespaceDefault, "kubernetes")
	if err != nil {
		return nil, err
	}
	behind, err := addresses("endpoint", literals)
	return append(found, behind...), err
}

// endpoints returns the addresses of a Service's ready endpoints.
func endpoints(ctx context.Context, reader client.Reader, namespace, name string) ([]string, error) {
	found := &discoveryv1.EndpointSliceList{}
	if err := reader.List(ctx, found, client.InNamespace(namespace), client.MatchingLabels{discoveryv1.LabelServiceName: name}); err != nil {
		return nil, fmt.Errorf("list EndpointSlices of Service %s/%s: %w", namespace, name, err)
	}
	return ready(found.Items), nil
}

// ready returns the addresses of ready endpoints, each once.
func ready(all []discoveryv1.EndpointSlice) []string {
	var literals []string
	for i := range all {
		if all[i].AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for j := range all[i].Endpoints {
			// Unknown is to be taken as ready.
			if is := all[i].Endpoints[j].Conditions.Ready; is == nil || *is {
				literals = append(literals, all[i].Endpoints[j].Addresses...)
			}
		}
	}
	slices.Sort(literals)
	return slices.Compact(literals)
}
