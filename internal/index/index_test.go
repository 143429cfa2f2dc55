package index_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/index"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// indexer records the indexes by kind and name.
type indexer map[string]client.IndexerFunc

func (i indexer) IndexField(_ context.Context, _ client.Object, name string, extract client.IndexerFunc) error {
	i[name] = extract
	return nil
}

type broken struct{}

var errBroken = errors.New("broken")

func (broken) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return errBroken
}

func request(pod *v1alpha1.LocalPodReference, leases ...string) *v1alpha1.EvictionRequest {
	r := &v1alpha1.EvictionRequest{}
	r.Spec.Target.Pod = pod
	for _, l := range leases {
		r.Spec.Requesters = append(r.Spec.Requesters, v1alpha1.Requester{Name: "a.example.com", LeaseName: l})
	}
	return r
}

func requestedBy(names ...string) *v1alpha1.EvictionRequest {
	r := &v1alpha1.EvictionRequest{}
	for _, name := range names {
		r.Spec.Requesters = append(r.Spec.Requesters, v1alpha1.Requester{Name: name})
	}
	return r
}

func TestIndexes(t *testing.T) {
	lease := translate.EncodeLease(translate.LeaseRecord{
		Requester: "alice.users.drawbridge.dev", Node: "n1", TTL: time.Minute, RenewedAt: time.Unix(0, 0),
	}, "drawbridge-system")

	cases := map[string]struct {
		index string
		obj   client.Object
		want  []string
	}{
		"a request is found by its pod's name":             {index.RequestsByPodName, request(&v1alpha1.LocalPodReference{Name: "db-0", UID: "u"}), []string{"db-0"}},
		"a request without a pod is not":                   {index.RequestsByPodName, request(nil), nil},
		"a request is found by each of its leases":         {index.RequestsByLease, request(nil, "l1", "", "l2"), []string{"l1", "l2"}},
		"a request of native requesters has no lease":      {index.RequestsByLease, request(nil, ""), nil},
		"a request is found by its maintenances":           {index.RequestsByMaintenance, requestedBy("a.example.com", "m.node-maintenance.drawbridge.dev"), []string{"m.node-maintenance.drawbridge.dev"}},
		"a pod is found by its node":                       {index.PodsByNode, &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1"}}, []string{"n1"}},
		"a pod without a node is not":                      {index.PodsByNode, &corev1.Pod{}, nil},
		"a lease is found by its node":                     {index.LeasesByNode, lease, []string{"n1"}},
		"a lease of somebody else is not":                  {index.LeasesByNode, &coordinationv1.Lease{}, nil},
		"an object of another kind has no pod name":        {index.RequestsByPodName, &corev1.Pod{}, nil},
		"an object of another kind has no leases":          {index.RequestsByLease, &corev1.Pod{}, nil},
		"an object of another kind is nobody's node drain": {index.LeasesByNode, &corev1.Pod{}, nil},
	}
	got := indexer{}
	if err := index.Setup(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, got[tc.index](tc.obj)); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSetupReportsTheIndexItCouldNotAdd(t *testing.T) {
	if err := index.Setup(t.Context(), broken{}); !errors.Is(err, errBroken) {
		t.Errorf("error %v, want %v", err, errBroken)
	}
}

func TestAllIsWhatSetupAdds(t *testing.T) {
	set := indexer{}
	if err := index.Setup(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	var names []string
	index.All(func(_ client.Object, name string, _ client.IndexerFunc) { names = append(names, name) })
	if len(names) != len(set) || slices.ContainsFunc(names, func(n string) bool { return set[n] == nil }) {
		t.Errorf("All names %v, Setup added %d", names, len(set))
	}
}
