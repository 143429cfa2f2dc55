package evictor

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/evictor/answer"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

var callTarget = target{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web-1"}, UID: "uid-1"}

// callServer answers evictions with a Status and counts them.
func callServer(t *testing.T, answer metav1.Status, seen func(*http.Request, []byte)) (callFunc, *atomic.Int32) {
	t.Helper()
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read the body: %v", err)
		}
		if seen != nil {
			seen(r, body)
		}
		reply := answer
		reply.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.Header().Set("Content-Type", "application/json")
		if reply.Details != nil && reply.Details.RetryAfterSeconds > 0 {
			w.Header().Set("Retry-After", "10")
		}
		w.WriteHeader(int(reply.Code))
		if err := json.NewEncoder(w).Encode(reply); err != nil {
			t.Errorf("write the answer: %v", err)
		}
	}))
	t.Cleanup(server.Close)
	client, err := newClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return newCall(client, time.Minute), &calls
}

func TestEvictCallSendsUIDAndGracePeriod(t *testing.T) {
	t.Parallel()
	seconds := int64(40)
	cases := map[string]*int64{"with a grace period": &seconds, "without one": nil}
	for name, grace := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got policyv1.Eviction
			var line string
			call, _ := callServer(t, metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated}, func(r *http.Request, body []byte) {
				line = r.Method + " " + r.URL.Path
				if err := json.Unmarshal(body, &got); err != nil {
					t.Errorf("the body is no eviction: %v: %s", err, body)
				}
			})
			if err := call(context.Background(), callTarget, grace); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff("POST /api/v1/namespaces/shop/pods/web-1/eviction", line); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			want := policyv1.Eviction{
				TypeMeta:      metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
				ObjectMeta:    metav1.ObjectMeta{Namespace: "shop", Name: "web-1"},
				DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: grace, Preconditions: metav1.NewUIDPreconditions("uid-1")},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEvictCallIsNotRepeated answers with the Retry-After of a budget that is not
// processed yet. client-go would obey it ten times over, for 100 s.
func TestEvictCallIsNotRepeated(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]*apierrors.StatusError{
		"429": builder.WithCause(apierrors.NewTooManyRequests(builder.BudgetText, 10), policyv1.DisruptionBudgetCause, "still being processed"),
		"504": apierrors.NewTimeoutError("conflicts", 10),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call, calls := callServer(t, reply.ErrStatus, nil)
			err := call(context.Background(), callTarget, nil)
			if n := calls.Load(); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
			want := answer.Classify(reply, 1)
			if diff := cmp.Diff(want, answer.Classify(err, 1)); diff != "" {
				t.Errorf("class of the answer (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEvictCallSeveralBudgets sends the bare 500 over the wire: client-go must
// leave it recognizable.
func TestEvictCallSeveralBudgets(t *testing.T) {
	t.Parallel()
	call, _ := callServer(t, metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: "more than one"}, nil)
	if got := answer.Classify(call(context.Background(), callTarget, nil), 2).Result; got != translate.ResultSeveralBudgets {
		t.Errorf("class %q, want %q", got, translate.ResultSeveralBudgets)
	}
}

func TestEvictCallOverloadedServer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		// As the server's own filters answer: plain text.
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
	}))
	t.Cleanup(server.Close)
	client, err := newClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	got := answer.Classify(newCall(client, time.Minute)(context.Background(), callTarget, nil), 1)
	if got.Result != translate.ResultOverloaded || got.RetryAfter != time.Second {
		t.Errorf("got %q after %s, want %q after 1s", got.Result, got.RetryAfter, translate.ResultOverloaded)
	}
}

func TestEvictCallHasADeadline(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	client, err := newClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	err = newCall(client, 20*time.Millisecond)(context.Background(), callTarget, nil)
	if got := answer.Classify(err, 0).Result; got != translate.ResultDeadline {
		t.Errorf("class %q (%v), want %q", got, err, translate.ResultDeadline)
	}
}

func TestLargestGracePeriod(t *testing.T) {
	t.Parallel()
	seconds := func(s int64) *int64 { return &s }
	cases := map[string]struct {
		given []*int64
		want  *int64
	}{
		"nobody asked":           {[]*int64{nil, nil}, nil},
		"no requesters":          {nil, nil},
		"the largest one":        {[]*int64{seconds(5), nil, seconds(60), seconds(30)}, seconds(60)},
		"zero is a grace period": {[]*int64{seconds(0)}, seconds(0)},
		"zero is less than the pod's own of another": {[]*int64{seconds(0), nil}, nil},
		"one that asked for little":                  {[]*int64{seconds(1)}, seconds(1)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requesters []v1alpha1.Requester
			for _, s := range tc.given {
				requesters = append(requesters, v1alpha1.Requester{GracePeriodSeconds: s})
			}
			if diff := cmp.Diff(tc.want, largestGracePeriod(builder.Pod("ns", "db-0").GracePeriod(45).Obj(), requesters)); diff != "" {
				t.Errorf("largestGracePeriod (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEvictPodState(t *testing.T) {
	t.Parallel()
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid-1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		if change != nil {
			change(p)
		}
		return p
	}
	owner := func(kind string, controller bool) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Controller: &controller}}
		}
	}
	cases := map[string]struct {
		pod  *corev1.Pod
		want PodState
	}{
		"nothing":             {nil, PodUnseen},
		"a bare pod":          {pod(nil), PodRunning},
		"a pending pod":       {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), PodRunning},
		"another UID":         {pod(func(p *corev1.Pod) { p.UID = "uid-2" }), PodReplaced},
		"deleting":            {pod(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: at(0)} }), PodTerminating},
		"failed":              {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), PodTerminal},
		"succeeded":           {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), PodTerminal},
		"of a DaemonSet":      {pod(owner("DaemonSet", true)), PodUnsupported},
		"of a ReplicaSet":     {pod(owner("ReplicaSet", true)), PodRunning},
		"owned, not managed":  {pod(owner("DaemonSet", false)), PodRunning},
		"a mirror of the pod": {pod(func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""} }), PodUnsupported},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := PodStateOf(tc.pod, "uid-1"); got != tc.want {
				t.Errorf("got state %d, want %d", got, tc.want)
			}
		})
	}
}
