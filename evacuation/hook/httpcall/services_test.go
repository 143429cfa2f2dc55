package httpcall

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestAddressesOfAService(t *testing.T) {
	slice := func(kind discoveryv1.AddressType, ready *bool, addresses ...string) discoveryv1.EndpointSlice {
		return discoveryv1.EndpointSlice{AddressType: kind, Endpoints: []discoveryv1.Endpoint{{
			Addresses: addresses, Conditions: discoveryv1.EndpointConditions{Ready: ready},
		}}}
	}
	cases := map[string]struct {
		spec      *corev1.ServiceSpec
		slices    []discoveryv1.EndpointSlice
		want      []string
		wantError string
	}{
		"its cluster IPs":             {spec: &corev1.ServiceSpec{ClusterIP: "10.96.1.1", ClusterIPs: []string{"10.96.1.1", "fd00::1"}}, want: []string{"10.96.1.1", "fd00::1"}},
		"its only cluster IP":         {spec: &corev1.ServiceSpec{ClusterIP: "10.96.1.1"}, want: []string{"10.96.1.1"}},
		"none yet":                    {spec: &corev1.ServiceSpec{}, wantError: "the Service shop/db has no cluster IP yet"},
		"none that exists":            {wantError: `get Service shop/db: services "db" not found`},
		"one that is a name":          {spec: &corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}, wantError: "the call is refused: the Service shop/db is a name for another host (ExternalName): " + allowed},
		"a headless one without pods": {spec: &corev1.ServiceSpec{ClusterIP: "None"}, wantError: "the headless Service shop/db has no ready endpoint"},
		"ready endpoints of a headless one": {
			spec: &corev1.ServiceSpec{ClusterIP: "None"},
			slices: []discoveryv1.EndpointSlice{
				slice(discoveryv1.AddressTypeIPv4, ptr.To(true), "10.1.0.2"), slice(discoveryv1.AddressTypeIPv4, nil, "10.1.0.1", "10.1.0.2"),
				slice(discoveryv1.AddressTypeIPv4, ptr.To(false), "10.1.0.3"), slice(discoveryv1.AddressTypeFQDN, nil, "example.com"),
			},
			want: []string{"10.1.0.1", "10.1.0.2"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				var answer any
				switch uri := r.URL.RequestURI(); {
				case uri == "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Ddb":
					answer = &discoveryv1.EndpointSliceList{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}, Items: tc.slices}
				case uri == "/api/v1/namespaces/shop/services/db" && tc.spec != nil:
					answer = &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, Spec: *tc.spec}
				case uri == "/api/v1/namespaces/shop/services/db":
					w.WriteHeader(http.StatusNotFound)
					answer = &metav1.Status{
						TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
						Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound, Message: `services "db" not found`,
					}
				default:
					t.Errorf("%s is asked", uri)
				}
				_ = json.NewEncoder(w).Encode(answer)
			}))
			defer server.Close()
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("Service"), meta.RESTScopeNamespace)
			mapper.Add(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), meta.RESTScopeNamespace)
			transport := &http.Transport{DisableKeepAlives: true}
			reader, err := client.New(
				&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}},
				client.Options{HTTPClient: &http.Client{Transport: transport}, Mapper: mapper, Scheme: clientscheme.Scheme},
			)
			if err != nil {
				t.Fatal(err)
			}
			got, err := NewServices(reader).Addresses(t.Context(), "shop", "db")
			message := ""
			if err != nil {
				message = err.Error()
			}
			if diff := cmp.Diff(tc.wantError, message); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			var want []netip.Addr
			for _, literal := range tc.want {
				want = append(want, netip.MustParseAddr(literal))
			}
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			var refusal *RefusedError
			if isName := tc.spec != nil && tc.spec.Type == corev1.ServiceTypeExternalName; errors.As(err, &refusal) != isName {
				t.Errorf("%v is a refusal: %t", err, !isName)
			}
		})
	}
}
