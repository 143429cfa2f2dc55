//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/translate"
)

const (
	inProgress = "descheduler.alpha.kubernetes.io/eviction-in-progress"
	evictOnly  = "descheduler.alpha.kubernetes.io/request-evict-only"
	// ourHint is the value of the annotations that Drawbridge sets.
	ourHint = "drawbridge.dev"
	// descheduleTTL is how long the descheduler is believed to want a pod.
	descheduleTTL = time.Hour
)

// patientInterceptors keeps interceptors waiting for as long as a test likes.
func patientInterceptors(o *app.Options) {
	o.Policy.HeartbeatDeadline, o.Policy.StartupGrace = 24*time.Hour, 0
}

// newDescheduler returns what evicts a pod as the descheduler does: under a service
// account, signed, through client-go, and believing that the eviction goes on in
// the background if the answer says so (kubernetes-sigs/descheduler:
// pkg/descheduler/evictions/evictions.go v0.36.0).
func newDescheduler(t *testing.T, namespace string) func(*corev1.Pod) (background bool) {
	t.Helper()
	config := must(kube.ConfigForServiceAccount(t.Context(), namespace, "descheduler"))(t)
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "descheduler"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: drainers},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "descheduler"}},
	})
	calls := must(kubernetes.NewForConfig(config))(t)
	evict := func(name string) error {
		return calls.PolicyV1().Evictions(namespace).Evict(t.Context(), &policyv1.Eviction{
			TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name,
				Annotations: map[string]string{"requested-by": "sigs.k8s.io/descheduler"},
			},
			DeleteOptions: &metav1.DeleteOptions{},
		})
	}
	eventually(t, "the descheduler to be allowed to evict", func(context.Context) error {
		return client.IgnoreNotFound(evict("nobody"))
	})
	return func(pod *corev1.Pod) bool {
		t.Helper()
		err := evict(pod.Name)
		if err != nil && !apierrors.IsTooManyRequests(err) {
			t.Fatalf("evict %s: %v", pod.Name, err)
		}
		return err != nil && strings.Contains(err.Error(), "Eviction triggered evacuation")
	}
}

// waitHint waits until an annotation of the very pod has this value; "" if it is to
// be gone.
func waitHint(t *testing.T, pod *corev1.Pod, annotation, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("annotation %s of pod %s to be %q", annotation, pod.Name, want), func(ctx context.Context) error {
		now := &corev1.Pod{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
			return err
		}
		if now.UID != pod.UID {
			return fmt.Errorf("there is another pod of that name")
		}
		if got, present := now.Annotations[annotation]; got != want || present != (want != "") {
			return fmt.Errorf("the annotations are %v", now.Annotations)
		}
		return nil
	})
}

// patchesOf are the patches of a pod by Drawbridge.
func patchesOf(requests cluster.Requests, pod *corev1.Pod) cluster.Requests {
	return requests.By(drawbridge()).Where(func(r cluster.Request) bool {
		return r.Verb == "patch" && r.Resource == "pods" && r.Subresource == "" && r.Namespace == pod.Namespace && r.Name == pod.Name
	})
}

// wantPatches wants so many of each pod. One that the API server refuses changed nothing: it tests
// what it saw, and the cache may be behind Drawbridge's own write.
func wantPatches(t *testing.T, requests cluster.Requests, want map[*corev1.Pod]int) {
	t.Helper()
	for pod, n := range want {
		got := patchesOf(requests, pod)
		if n > 0 {
			got = got.Where(func(r cluster.Request) bool { return r.Code != http.StatusUnprocessableEntity })
		}
		if len(got) != n {
			t.Errorf("pod %s: want %d patches, got:\n%s", pod.Name, n, got)
		}
	}
}

// The descheduler asks once, hears that the eviction goes on, and sees by the pod's
// annotation that it does, until it ends in one way or another. The annotation of
// somebody else is none of our business.
func TestTheDeschedulerSeesThatAnEvictionGoesOn(t *testing.T) {
	m := startManager(t, func(o *app.Options) {
		patientInterceptors(o)
		o.Guard.Enabled = false // Nothing else patches pods.
	})
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	const slow, theirs = "slow.example.com", "kubevirt"
	mark := kube.RequestLog().Mark()
	pod := func(name string) *builder.PodWrapper {
		return builder.Pod(namespace, name).Node(node).Interceptors(slow).Annotation(evictOnly, "template")
	}
	canceled := createPod(t, pod("canceled").Obj())
	ended := createPod(t, pod("ended").Obj())
	deleted := createPod(t, pod("deleted").Obj())
	foreign := createPod(t, pod("foreign").Annotation(inProgress, theirs).Obj())
	moved := createPod(t, pod("moved").Obj())
	plain := createPod(t, builder.Pod(namespace, "plain").Node(node).Obj())

	deschedule := newDescheduler(t, namespace)
	for _, p := range []*corev1.Pod{canceled, ended, deleted, foreign, moved} {
		if !deschedule(p) {
			t.Errorf("the eviction of %s counts as failed", p.Name)
		}
	}
	if deschedule(plain) {
		t.Error("the eviction of a pod that nobody intercepts is held up")
	}
	for _, p := range []*corev1.Pod{canceled, ended, deleted, moved} {
		waitHint(t, p, inProgress, ourHint)
	}

	// The pod ends by itself and is kept, as those of Jobs are.
	now := &corev1.Pod{}
	eventually(t, "the pod to end", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(ended), now); err != nil {
			return err
		}
		now.Status.Phase = corev1.PodSucceeded
		return admin.Status().Update(ctx, now)
	})
	waitRequest(t, ended, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	waitHint(t, ended, inProgress, "")

	// Somebody deletes the request, the interceptor of another finishes.
	er := waitRequest(t, deleted, "there", func(*v1alpha1.EvictionRequest) bool { return true })
	if err := admin.Delete(t.Context(), er); err != nil {
		t.Fatal(err)
	}
	waitHint(t, deleted, inProgress, "")
	complete(t, moved, slow, m.Clock.Now)
	gone(t, moved)
	gone(t, plain)

	// The descheduler has lost interest.
	lives(t, canceled)
	m.Clock.Advance(translate.Granted(descheduleTTL))
	waitRequest(t, canceled, "Canceled", isTrue(v1alpha1.ConditionCanceled))
	waitRequest(t, foreign, "Canceled", isTrue(v1alpha1.ConditionCanceled))
	waitHint(t, canceled, inProgress, "")
	waitHint(t, canceled, evictOnly, "template")
	waitHint(t, foreign, inProgress, theirs)
	lives(t, canceled)
	lives(t, foreign)

	wantPatches(t, since(t, mark), map[*corev1.Pod]int{canceled: 2, ended: 2, deleted: 2, moved: 1, foreign: 0, plain: 0})
}

// An eviction that nobody intercepts is over in a moment and costs no mark, unless a
// budget is in its way.
func TestAnEvictionIsMarkedOnceABudgetRefusesIt(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	mark := kube.RequestLog().Mark()
	quick := createPod(t, builder.Pod(namespace, "quick").Node(node).Obj())
	stuck := createPod(t, builder.Pod(namespace, "stuck").Node(node).Change(ofApp("stuck")).Obj())
	createBudget(t, builder.Budget(namespace, "stuck").Selects(builder.AppLabel, "stuck").MinAvailable("1").Obj(), 1)
	mover := newNative(t, namespace, "mover", "mover.example.com")

	mover.apply(t, quick, true)
	mover.apply(t, stuck, true)
	gone(t, quick)
	waitHint(t, stuck, inProgress, ourHint)
	if got := patchesOf(since(t, mark), quick); len(got) != 0 {
		t.Errorf("want no patch of a pod that goes at once, got:\n%s", got)
	}
	mover.apply(t, stuck, false)
	waitHint(t, stuck, inProgress, "")
}

// What a killed manager leaves on pods, the next one takes away, and only that.
func TestMarksOfAKilledManagerAreTakenAway(t *testing.T) {
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	pod := func(name string) *builder.PodWrapper {
		return builder.Pod(namespace, name).Node(node).Interceptors("slow.example.com")
	}
	over := createPod(t, pod("over").Obj())
	goesOn := createPod(t, pod("goes-on").Obj())
	foreign := createPod(t, pod("foreign").Annotation(inProgress, "kubevirt").Obj())
	mover := newNative(t, namespace, "mover", "mover.example.com")

	manager := startProcess(t, impatient...)
	mover.apply(t, over, true)
	mover.apply(t, goesOn, true)
	waitHint(t, over, inProgress, ourHint)
	waitHint(t, goesOn, inProgress, ourHint)
	waitGuard(t, goesOn, true) // Or the next one would label it.
	if err := manager.Kill(); err != nil {
		t.Fatal(err)
	}
	er := waitRequest(t, over, "there", func(*v1alpha1.EvictionRequest) bool { return true })
	if err := admin.Delete(t.Context(), er); err != nil {
		t.Fatal(err)
	}
	waitHint(t, over, inProgress, ourHint)

	mark := kube.RequestLog().Mark()
	manager = startProcess(t, impatient...)
	waitHint(t, over, inProgress, "")
	waitHint(t, goesOn, inProgress, ourHint)
	waitHint(t, foreign, inProgress, "kubevirt")
	wantPatches(t, since(t, mark), map[*corev1.Pod]int{goesOn: 0, foreign: 0})
	if err := manager.Stop(t.Context()); err != nil {
		t.Errorf("stop the manager: %v", err)
	}
}

// With the opt-in, every pod that somebody intercepts has request-evict-only before
// anybody calls, whether its annotation or a registration names the interceptor, and
// as long as that is so.
func TestInterceptedPodsAreMarkedForTheDescheduler(t *testing.T) {
	startManager(t, func(o *app.Options) {
		patientInterceptors(o)
		o.DeschedulerEvictOnly = true
	})
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	mark := kube.RequestLog().Mark()
	named := createPod(t, builder.Pod(namespace, "named").Node(node).Interceptors("slow.example.com").Obj())
	foreign := createPod(t, builder.Pod(namespace, "foreign").Node(node).Interceptors("slow.example.com").Annotation(evictOnly, "theirs").Obj())
	selected := createPod(t, builder.Pod(namespace, "selected").Node(node).Label("tier", namespace).Obj())
	running := createPod(t, builder.Pod(namespace, "running").Node(node).Label("tier", namespace).Obj())
	plain := createPod(t, builder.Pod(namespace, "plain").Node(node).Obj())
	waitHint(t, named, evictOnly, ourHint)

	registration := &v1alpha1.EvictionInterceptor{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + ".example.com"},
		Spec:       v1alpha1.EvictionInterceptorSpec{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": namespace}}},
	}
	create(t, registration)
	t.Cleanup(func() {
		if err := admin.Delete(context.WithoutCancel(t.Context()), registration); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	waitHint(t, selected, evictOnly, ourHint)
	waitHint(t, running, evictOnly, ourHint)
	if !newDescheduler(t, namespace)(running) {
		t.Error("the eviction of a marked pod counts as failed")
	}
	waitHint(t, running, inProgress, ourHint)

	if err := admin.Delete(t.Context(), registration); err != nil {
		t.Fatal(err)
	}
	waitHint(t, selected, evictOnly, "")
	// The descheduler would forget it in the middle.
	waitHint(t, running, evictOnly, ourHint)
	er := waitRequest(t, running, "there", func(*v1alpha1.EvictionRequest) bool { return true })
	if err := admin.Delete(t.Context(), er); err != nil {
		t.Fatal(err)
	}
	waitHint(t, running, inProgress, "")
	waitHint(t, running, evictOnly, "")
	waitHint(t, foreign, evictOnly, "theirs")

	wantPatches(t, since(t, mark), map[*corev1.Pod]int{named: 1, foreign: 0, plain: 0, selected: 2})
}
