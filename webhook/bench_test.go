package webhook

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/allocation"
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

func (s *shared) Get(_ context.Context, _ types.NamespacedName, obj client.Object, _ ...client.GetOption) error {
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
	return errShared
}

// errShared costs nothing, as the manager's cache answers that there is no request.
var errShared = apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, "any")

func (s *shared) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// BenchmarkEviction is one HTTP request, from its body to the answer's.
func BenchmarkEviction(b *testing.B) {
	cases := map[string]struct {
		cache *shared
		lease *coordinationv1.Lease
		allow bool
	}{
		"repeated-denial": {
			cache: &shared{pod: db0().Obj(), request: er().Active(interA, t0).Obj()},
			lease: leaseOfN1(),
		},
		"nobody-intercepts": {
			cache: &shared{pod: nobodys()},
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

// nobodys is a pod that nobody intercepts.
func nobodys() *corev1.Pod {
	return builder.Pod("shop", "db-0").UID("uid-1").Node("n1").Phase(corev1.PodRunning).Obj()
}

// Each call of each drain tool is a review. The time of a small one is that of its allocations.
func TestAReviewAllocatesLittle(t *testing.T) {
	cases := map[string]struct {
		cache *shared
		allow bool
		most  allocation.Cost
	}{
		"allowed: nobody intercepts":         {&shared{pod: nobodys()}, true, allocation.Cost{Allocs: 38, Bytes: 6100}},
		"denied again: an interceptor works": {&shared{pod: db0().Obj(), request: er().Active(interA, t0).Obj()}, false, allocation.Cost{Allocs: 61, Bytes: 8000}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cache.set(tc.cache)
			w.leases.put(leaseOfN1())
			allocation.AtMost(t, tc.most, caller(t, w.handler, tc.allow))
			if diff := cmp.Diff([]string(nil), w.calls()); diff != "" {
				t.Errorf("API calls (-want +got):\n%s", diff)
			}
		})
	}
}

// A call renews the lease of its caller, once per third of the lease's duration. The write
// itself is the client's.
func TestARenewalAllocatesLittle(t *testing.T) {
	w := newWorld(t)
	w.cache.set(&shared{pod: db0().Obj(), request: er().Active(interA, t0).Obj()})
	lease := leaseOfN1()
	lease.Spec.RenewTime = &metav1.MicroTime{Time: t0.Add(-time.Minute)}
	w.leases.put(lease)
	patches := &patched{}
	w.renewer.leases.writer = patches
	call := caller(t, w.handler, false)
	allocation.AtMost(t, allocation.Cost{Allocs: 118, Bytes: 14_100}, func() {
		call()
		w.renewer.renewQueued(t.Context(), <-w.renewer.queue)
		// As if it were due again.
		w.renewer.leases.written.Remove(writtenKey(leaseN1, translate.ClassKubectl))
	})
	if patches.n == 0 {
		t.Error("no lease was renewed")
	}
}

// patched counts patches, and can do nothing else.
type patched struct {
	client.Client

	n int
}

func (p *patched) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	p.n++
	return nil
}

// caller returns a function that sends the review of alice's call for db-0, and checks the
// answer. It allocates nothing itself.
func caller(t *testing.T, handler http.Handler, allow bool) func() {
	t.Helper()
	body, want := bytes.NewReader(reviewOf()), []byte(fmt.Sprintf(`"allowed":%t`, allow))
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, EvictionPath+"?timeout=5s", body)
	w := &answer{header: http.Header{}}
	return func() {
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		w.Reset()
		if handler.ServeHTTP(w, request); !bytes.Contains(w.Bytes(), want) {
			t.Fatalf("the answer is %s", w)
		}
	}
}

// answer is a response whose memory is used again.
type answer struct {
	bytes.Buffer

	header http.Header
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(int) {}

func (a *answer) SetReadDeadline(time.Time) error { return nil }
