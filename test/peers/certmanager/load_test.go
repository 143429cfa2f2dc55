//go:build unix

package certmanager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

const (
	// callEvery is the pause of a caller between two calls, createEvery between two pods.
	callEvery   = 20 * time.Millisecond
	createEvery = 100 * time.Millisecond
	// nobody is an interceptor that never does anything.
	nobody = "nobody.example.com"
)

// load evicts pods until it is stopped: those that are held for ever, those without an
// interceptor, and those of an interceptor that does its work. kubectl drains nodes with
// the latter two.
type load struct {
	namespace string
	worker    *worker
	mark      cluster.Mark
	before    int
	pair      *pair
	began     time.Time

	// ending is closed when no further call is to begin. Those that have begun come to
	// their end: the API server takes a caller who hangs up for a webhook that fails.
	ending chan struct{}
	group  sync.WaitGroup

	mu       sync.Mutex
	failures []string
	// intercepted are the pods with an interceptor, by their names.
	intercepted map[string]types.UID
	drains      int
}

func startLoad(t *testing.T, p *pair) *load {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	l := &load{
		namespace: kube.Namespace(t), worker: startWorker(t), pair: p,
		ending: make(chan struct{}), intercepted: map[string]types.UID{}, began: time.Now(),
	}
	t.Cleanup(l.end)
	var held []*corev1.Pod
	for _, name := range []string{"held-a", "held-b"} {
		pod := builder.Pod(l.namespace, name).Interceptors(nobody).Obj()
		if err := l.create(ctx, pod); err != nil {
			t.Fatal(err)
		}
		if err := waitRunning(ctx, pod); err != nil {
			t.Fatal(err)
		}
		held = append(held, pod)
	}
	l.mark, l.before = kube.RequestLog().Mark(), p.asked(t)
	for _, pod := range held {
		l.group.Go(func() { l.repeat(callEvery, func(int) error { return l.hold(ctx, pod) }) })
	}
	l.group.Go(func() { l.repeat(createEvery, func(n int) error { return l.pass(ctx, n) }) })
	l.group.Go(func() { l.repeat(createEvery, func(n int) error { return l.serve(ctx, n) }) })
	l.group.Go(func() { l.repeat(createEvery, func(n int) error { return l.drain(ctx, n) }) })
	return l
}

// end waits until the last call has its answer.
func (l *load) end() {
	select {
	case <-l.ending:
	default:
		close(l.ending)
	}
	l.group.Wait()
}

// repeat calls something until the load ends, and notes what went wrong.
func (l *load) repeat(every time.Duration, call func(n int) error) {
	pace := time.NewTicker(every)
	defer pace.Stop()
	for n := 0; ; n++ {
		select {
		case <-l.ending:
			return
		case <-pace.C:
		}
		if err := call(n); err != nil {
			l.mu.Lock()
			l.failures = append(l.failures, time.Now().Format(time.StampMilli)+": "+err.Error())
			l.mu.Unlock()
		}
	}
}

// create creates a pod, and notes it if it has an interceptor.
func (l *load) create(ctx context.Context, pod *corev1.Pod) error {
	if err := admin.Create(ctx, pod); err != nil {
		return fmt.Errorf("create pod: %w", err)
	}
	if pod.Annotations[v1alpha1.InterceptorsAnnotation] != "" {
		l.mu.Lock()
		l.intercepted[pod.Name] = pod.UID
		l.mu.Unlock()
	}
	return nil
}

// hold calls once for a pod that nobody takes care of.
func (l *load) hold(ctx context.Context, pod *corev1.Pod) error {
	if err := evict(ctx, pod); !isOurs(err) {
		return fmt.Errorf("pod %s is held, and the answer is %w", pod.Name, orNone(err))
	}
	return nil
}

// pass evicts a new pod without interceptors, with one call.
func (l *load) pass(ctx context.Context, n int) error {
	pod := builder.Pod(l.namespace, "plain-"+strconv.Itoa(n)).Obj()
	if err := l.create(ctx, pod); err != nil {
		return err
	}
	if err := evict(ctx, pod); err != nil {
		return fmt.Errorf("pod %s has no interceptor, and the answer is %w", pod.Name, err)
	}
	return nil
}

// serve evicts a new pod with an interceptor that works for a moment, by repeated calls.
func (l *load) serve(ctx context.Context, n int) error {
	pod := builder.Pod(l.namespace, "served-"+strconv.Itoa(n)).Interceptors(l.worker.name).Obj()
	if err := l.create(ctx, pod); err != nil {
		return err
	}
	if err := waitRunning(ctx, pod); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pace := time.NewTicker(createEvery)
	defer pace.Stop()
	for {
		switch err := evict(ctx, pod); {
		case apierrors.IsNotFound(err), err == nil && !l.worker.doneWith(pod.UID).IsZero(): // It is gone, or about to be.
			return nil
		case !isOurs(err):
			return fmt.Errorf("pod %s is served, and the answer is %w", pod.Name, orNone(err))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("pod %s is served, and still there: %w", pod.Name, ctx.Err())
		case <-pace.C:
		}
	}
}

// drain has kubectl drain a new node with pods of both kinds.
func (l *load) drain(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// The other pods of the load stay away from it.
	nodes, err := kube.AddNodes(ctx, 1, func(node *corev1.Node) { node.Spec.Unschedulable = true })
	if err != nil {
		return err
	}
	for i := range 3 {
		name := fmt.Sprintf("%d-%d", n, i)
		for _, pod := range []*builder.PodWrapper{
			builder.Pod(l.namespace, "drained-"+name), builder.Pod(l.namespace, "drained-served-"+name).Interceptors(l.worker.name),
		} {
			pod := pod.Node(nodes[0]).Obj()
			if err := l.create(ctx, pod); err != nil {
				return err
			}
			if err := waitRunning(ctx, pod); err != nil {
				return err
			}
		}
	}
	result, err := kube.Kubectl(ctx, cluster.KubectlOptions{}, "drain", nodes[0], "--force", "--ignore-daemonsets", "--delete-emptydir-data")
	if err := errors.Join(err, result.Err()); err != nil {
		return err
	}
	l.mu.Lock()
	l.drains++
	l.mu.Unlock()
	return kube.Client().CoreV1().Nodes().Delete(ctx, nodes[0], metav1.DeleteOptions{})
}

func waitRunning(ctx context.Context, pod *corev1.Pod) error {
	return poll(ctx, "pod "+pod.Name, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return errors.New("it is " + string(pod.Status.Phase))
		}
		return nil
	})
}

// evict calls the eviction subresource once.
func evict(ctx context.Context, pod *corev1.Pod) error {
	return admin.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}})
}

// isOurs reports whether the answer is the webhook's that an evacuation runs. That of a
// budget is a 429 as well.
func isOurs(err error) bool {
	return apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), `admission webhook "eviction-requests.drawbridge.dev"`)
}

func orNone(err error) error {
	if err == nil {
		return errors.New("that the pod is evicted")
	}
	return err
}

// account is what the API server has noted of the evictions during a load.
type account struct {
	Calls, Admitted, Refused, Failed, FailedOpen, PastInterceptor, Drains int
}

// stop ends the load, and compares what its callers, the API server, the replicas and the
// interceptor say.
func (l *load) stop(t *testing.T) account {
	t.Helper()
	l.end()
	took := time.Since(l.began)
	for i, failure := range l.failures {
		if i == 10 {
			t.Logf("and %d more", len(l.failures)-i)
			break
		}
		t.Logf("a call failed: %s", failure)
	}
	log := must(kube.RequestLog().Since(t.Context(), l.mark))(t)
	a := account{Drains: l.drains}
	finished := l.worker.read()
	answered := 0
	for _, r := range log {
		if r.Verb != "create" || r.Subresource != "eviction" || r.Namespace != l.namespace {
			continue
		}
		a.Calls++
		switch r.Code {
		case http.StatusCreated:
			a.Admitted++
			if uid, ok := l.intercepted[r.Name]; ok {
				// A call may wait for its answer while the interceptor comes to its end.
				if end := finished[uid]; end.IsZero() || r.Time.Before(end.Add(-workFor)) {
					t.Logf("it goes before its interceptor is done: %s", r)
					a.PastInterceptor++
				}
			}
		case http.StatusTooManyRequests:
			a.Refused++
		case http.StatusNotFound: // Its pod is gone.
		default:
			t.Logf("it fails: %s", r)
			a.Failed++
		}
		answered++
		for key, value := range r.Annotations {
			if strings.HasPrefix(key, "failed-open.validating.webhook.admission.k8s.io/") {
				t.Logf("the API server continues without %s: %s", value, r)
				a.FailedOpen++
				answered--
			}
		}
	}
	// The calls of other namespaces are those of nobody.
	if asked := l.pair.asked(t) - l.before; asked != answered-a.Failed {
		t.Errorf("the replicas were asked about %d evictions, and the API server was asked for %d of which it says %d have failed", asked, answered, a.Failed)
	}
	t.Logf("in %s: %+v, %d pods went through their interceptor", took.Round(time.Second), a, len(finished))
	if len(finished) == 0 || a.Admitted == 0 || a.Refused == 0 {
		t.Error("the load shows nothing")
	}
	return a
}

// unharmed fails the test unless every call has had a good answer.
func (l *load) unharmed(t *testing.T, a account) {
	t.Helper()
	if len(l.failures) > 0 {
		t.Errorf("%d calls had a bad answer", len(l.failures))
	}
	want := a
	want.Failed, want.FailedOpen, want.PastInterceptor = 0, 0, 0
	if diff := cmp.Diff(want, a); diff != "" {
		t.Errorf("evictions (-want +got):\n%s", diff)
	}
}
