//go:build unix

package install_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// heldDrain is a real kubectl drain that waits: a Deployment's pod is replaced first, and
// there is no node yet that would take the replacement.
type heldDrain struct {
	admin           client.Client
	namespace, node string
	// pod is replaced; plain is a pod that nobody intercepts, on another node.
	pod, plain *corev1.Pod
	drain      *cluster.Program
}

// ofTheDrain is the label of the nodes that take the Deployment's pods.
const ofTheDrain = "test.drawbridge.dev/drain"

// startHeldDrain needs a manager that runs. It returns when kubectl has been told to wait.
func startHeldDrain(ctx context.Context, t *testing.T) *heldDrain {
	t.Helper()
	h := &heldDrain{admin: administrator(t), namespace: kube.Namespace(t)}
	h.node = addNodes(t, 1, h.mark)[0]
	web := builder.Deployment(h.namespace, "web").Replicas(1).Rolling("1", "0").Pods(func(p *builder.PodWrapper) {
		p.Label(surge.OptInLabel, "enabled").NodeSelector(ofTheDrain, h.namespace)
	}).Obj()
	if err := h.admin.Create(ctx, web); err != nil {
		t.Fatal(err)
	}
	var err error
	if h.plain, err = createPod(ctx, kube.Client(), h.namespace, builder.Pod(h.namespace, "plain").Node(addNodes(t, 1)[0]).Obj()); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, "the Deployment's pod", func(ctx context.Context) error {
		pods, err := h.running(ctx)
		if err != nil || len(pods) != 1 {
			return fmt.Errorf("%d run, %w", len(pods), err)
		}
		h.pod = &pods[0]
		return nil
	})
	if h.drain, err = kube.StartKubectl(ctx, cluster.KubectlOptions{}, "drain", h.node); err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := h.drain.WaitLine(waiting, "Eviction triggered evacuation: "); err != nil {
		t.Fatalf("kubectl drain is not told to wait: %v\n%s", err, said(h.drain))
	}
	return h
}

func (h *heldDrain) mark(node *corev1.Node) { node.Labels[ofTheDrain] = h.namespace }

// running are the Deployment's pods that are ready.
func (h *heldDrain) running(ctx context.Context) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := h.admin.List(ctx, list, client.InNamespace(h.namespace), client.MatchingLabels{builder.AppLabel: "web"}); err != nil {
		return nil, err
	}
	var running []corev1.Pod
	for i := range list.Items {
		if list.Items[i].Status.Phase == corev1.PodRunning && list.Items[i].DeletionTimestamp == nil {
			running = append(running, list.Items[i])
		}
	}
	return running, nil
}

// asker evicts both pods again and again. Nobody may be refused who is not intercepted, and
// nobody be evicted who is.
type asker struct {
	held   *heldDrain
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	asked int
	wrong []string
}

func (h *heldDrain) ask(ctx context.Context) *asker {
	ctx, cancel := context.WithCancel(ctx)
	a := &asker{held: h, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		wait.UntilWithContext(ctx, a.once, 10*time.Millisecond)
	}()
	return a
}

func (a *asker) once(ctx context.Context) {
	evict := func(pod *corev1.Pod, options *metav1.DeleteOptions) error {
		return kube.Client().PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: options,
		})
	}
	free := evict(a.held.plain, &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	intercepted := evict(a.held.pod, nil)
	if ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if free != nil {
		a.wrong = append(a.wrong, "a pod that nobody intercepts: "+free.Error())
	}
	if !apierrors.IsTooManyRequests(intercepted) || !strings.Contains(intercepted.Error(), "Eviction triggered evacuation: ") {
		a.wrong = append(a.wrong, fmt.Sprintf("a pod that is intercepted: %v", intercepted))
	}
}

// more waits for this many further answers.
func (a *asker) more(t *testing.T, n int) {
	t.Helper()
	a.mu.Lock()
	enough := a.asked + n
	a.mu.Unlock()
	cluster.Eventually(t, "further answers", func(context.Context) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.asked < enough {
			return fmt.Errorf("%d of %d", a.asked, enough)
		}
		return nil
	})
}

// stop ends the questions and judges the answers.
func (a *asker) stop(t *testing.T, when string) {
	t.Helper()
	a.cancel()
	<-a.done
	a.mu.Lock()
	defer a.mu.Unlock()
	t.Logf("%s: %d answers, %d wrong", when, a.asked, len(a.wrong))
	if len(a.wrong) > 0 {
		t.Errorf("%s, %d of %d answers are wrong, first:\n%s", when, len(a.wrong), a.asked, a.wrong[0])
	}
}

// replaceManager puts another manager in the place of the only one while kubectl pauses. kubectl
// is stopped meanwhile: it asks again five seconds later, and a slow machine takes longer.
func (h *heldDrain) replaceManager(t *testing.T, replace func()) {
	t.Helper()
	refused := func() int { return strings.Count(said(h.drain), "(will retry after 5s)") }
	before := refused()
	cluster.Eventually(t, "kubectl to be refused", func(context.Context) error {
		if refused() == before {
			return fmt.Errorf("%d times so far", before)
		}
		return nil
	})
	if err := h.drain.Pause(); err != nil {
		t.Fatal(err)
	}
	replace()
	if err := h.drain.Resume(); err != nil {
		t.Fatal(err)
	}
}

// finish makes room for the replacement and waits for kubectl.
func (h *heldDrain) finish(ctx context.Context, t *testing.T) {
	t.Helper()
	if now := (&corev1.Pod{}); h.admin.Get(ctx, client.ObjectKeyFromObject(h.pod), now) != nil || now.UID != h.pod.UID || now.DeletionTimestamp != nil {
		t.Fatalf("the pod did not wait for its replacement:\n%s", said(h.drain))
	}
	addNodes(t, 1, h.mark)
	result, err := h.drain.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
	pods, err := h.running(ctx)
	if err != nil || len(pods) != 1 || pods[0].Spec.NodeName == h.node {
		t.Errorf("after the drain %d pods run, error %v", len(pods), err)
	}
}
