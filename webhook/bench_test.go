package webhook

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// shared reads the way an informer does without deep copies: it copies the struct
// and shares what is below. The fake client goes through JSON, which would be all
// one sees in a benchmark.
type shared struct {
	pod     *corev1.Pod
	request *v1alpha1.EvictionRequest
}

func (s *shared) Get(_ context.Context, key types.NamespacedName, obj client.Object, _ ...client.GetOption) error {
	switch obj := obj.(type) {
	case *corev1.Pod:
		if s.pod != nil {
			*obj = *s.pod
			return nil
		}
	case *v1alpha1.EvictionRequest:
		if s.request != nil {
			*obj = *s.request
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, key.Name)
}

func (s *shared) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// BenchmarkEviction is one HTTP request, from its body to the answer's.
func BenchmarkEviction(b *testing.B) {
	record := translate.LeaseRecord{
		Requester: alice, Node: "n1", Display: "kubectl (alice)", Class: translate.ClassKubectl, TTL: 1 << 40, RenewedAt: t0,
		Markers: []string{"unschedulable"},
	}
	cases := map[string]struct {
		cache *shared
		lease *coordinationv1.Lease
		allow bool
	}{
		"repeated-denial": {
			cache: &shared{pod: db0().Obj(), request: er().Active(interA, t0).Obj()},
			lease: translate.EncodeLease(record, ownNamespace),
		},
		"nobody-intercepts": {
			cache: &shared{pod: builder.Pod("shop", "db-0").UID("uid-1").Node("n1").Phase(corev1.PodRunning).Obj()},
			allow: true,
		},
	}
	for name, tc := range cases {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			w.cache.set(tc.cache)
			if tc.lease != nil {
				w.leases.put(tc.lease)
			}
			body := reviewOf()
			if got := answerFor(w, body); got != tc.allow {
				b.Fatalf("allowed %t", got)
			}
			b.ReportAllocs()
			for b.Loop() {
				w.handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(b.Context(), http.MethodPost, EvictionPath+"?timeout=5s", bytes.NewReader(body)))
			}
			b.StopTimer()
			if calls := w.calls(); len(calls) > 0 {
				b.Errorf("API calls: %v", calls)
			}
		})
	}
}

func answerFor(w *world, body []byte) bool {
	return bytes.Contains(post(w.handler, body).Body.Bytes(), []byte(`"allowed":true`))
}
