//go:build unix

package webhook_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/webhook"
)

const (
	interA   = "a.example.com"
	aliceFQ  = "alice.users.drawbridge.dev"
	bobFQ    = "bob.users.drawbridge.dev"
	waitingA = `Eviction triggered evacuation: waiting for interceptor "a.example.com" (1 of 2)`
)

// live is the whole of Drawbridge on a real control plane: what the fake API
// server of the other tests only stands in for.
type live struct {
	*testing.T
	cluster   *cluster.Cluster
	admin     client.Client
	account   string
	namespace string
}

func TestOnARealControlPlane(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a control plane")
	}
	c := cluster.ForTest(t, cluster.Options{Nodes: 2, RequestLog: true})
	installed, err := manager.Install(t.Context(), c, manager.InstallOptions{})
	if err != nil {
		t.Fatal(err)
	}
	manager, err := installed.Start(t.Context(), manager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(manager.Kill)
	account := "system:serviceaccount:" + installed.Namespace + ":" + installed.ServiceAccount
	for name, test := range map[string]func(*live){
		"a burst makes one request, and repeating it none": burst,
		"requesters join and keep their entries":           join,
		"a canceled request restarts":                      restart,
		"a dry run writes nothing":                         dryRun,
		"times in a status are checked":                    times,
		"a replacement is spared, a second drain is not":   replacement,
	} {
		t.Run(name, func(t *testing.T) {
			l := &live{T: t, cluster: c, account: account, namespace: c.Namespace(t)}
			l.admin = l.as("admin")
			test(l)
		})
	}
}

// as is a client of a user who may do everything.
func (l *live) as(user string) client.Client {
	l.Helper()
	config, err := l.cluster.ConfigFor(user, "system:masters")
	if err != nil {
		l.Fatal(err)
	}
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: builder.Scheme(l.T)})
	if err != nil {
		l.Fatal(err)
	}
	return c
}

// run creates pod db-0 with an interceptor and waits until it runs.
func (l *live) run(node string) *corev1.Pod {
	l.Helper()
	wrapper := builder.Pod(l.namespace, "db-0").Interceptors(interA)
	if node != "" {
		wrapper.NodeSelector(corev1.LabelHostname, node).Tolerate()
	}
	pod := wrapper.Obj()
	if err := l.admin.Create(l.Context(), pod); err != nil {
		l.Fatal(err)
	}
	cluster.Eventually(l, "the pod runs", func(ctx context.Context) error {
		if err := l.admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("phase %s", pod.Status.Phase)
		}
		return nil
	})
	return pod
}

// evict is one call by name.
func (l *live) evict(as client.Client, pod *corev1.Pod, options *metav1.DeleteOptions) error {
	return as.SubResource("eviction").Create(l.Context(), pod.DeepCopy(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: options,
	})
}

func (l *live) wantDenied(err error, text string) {
	l.Helper()
	if !apierrors.IsTooManyRequests(err) || !strings.Contains(fmt.Sprint(err), text) {
		l.Errorf("want a 429 with %q, got %v", text, err)
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		l.Errorf("the answer asks to wait for %d s", seconds)
	}
}

// request waits until the request for the pod is what is wanted.
func (l *live) request(uid types.UID, what string, want func(*v1alpha1.EvictionRequest) bool) *v1alpha1.EvictionRequest {
	l.Helper()
	request := &v1alpha1.EvictionRequest{}
	cluster.Eventually(l, what, func(ctx context.Context) error {
		*request = v1alpha1.EvictionRequest{}
		if err := l.admin.Get(ctx, client.ObjectKey{Namespace: l.namespace, Name: string(uid)}, request); err != nil {
			return err
		}
		if !want(request) {
			return fmt.Errorf("spec %+v, status %+v", request.Spec, request.Status)
		}
		return nil
	})
	return request
}

func active(er *v1alpha1.EvictionRequest) bool {
	return len(er.Status.ActiveInterceptors) == 1 && er.Status.ActiveInterceptors[0] == interA && er.Status.ObservedGeneration == er.Generation
}

func requesters(er *v1alpha1.EvictionRequest) (names []string) {
	for _, r := range er.Spec.Requesters {
		names = append(names, r.Name)
	}
	return names
}

func burst(l *live) {
	carol, pod := l.as("carol"), l.run("") // Nobody else's lease may stand in for hers.
	log := l.cluster.RequestLog()
	mark := log.Mark()
	errs := make([]error, 50)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() { errs[i] = l.evict(carol, pod, nil) })
	}
	group.Wait()
	for _, err := range errs {
		l.wantDenied(err, "Eviction triggered evacuation: ")
	}
	l.request(pod.UID, "the interceptor is active", active)
	// Only what the handler writes: leases, and the main resource by apply as this
	// requester. The engine's writes are not counted here.
	count := func(mark cluster.Mark) map[string]int {
		requests, err := log.Since(l.Context(), mark)
		if err != nil {
			l.Fatal(err)
		}
		counts := map[string]int{}
		for _, r := range requests.By(l.account) {
			// About the pods of a test that has ended the controllers may ask now.
			if r.Resource == "leases" && r.Writes() || r.Resource == "nodes" && r.Verb == "get" || r.Resource == "pods" && r.Verb == "get" && r.Namespace == l.namespace {
				counts[r.Verb+" "+r.Resource]++
			}
		}
		return counts
	}
	if diff := cmp.Diff(map[string]int{"create leases": 1, "get nodes": 1}, count(mark)); diff != "" {
		l.Errorf("requests for the burst, besides those about requests and events (-want +got):\n%s", diff)
	}
	er := l.request(pod.UID, "the interceptor is active", active)
	applied := 0
	for _, field := range er.ManagedFields {
		if field.Manager == webhook.FieldManager("carol.users.drawbridge.dev") {
			applied++
		}
	}
	if applied != 1 || er.Generation != 1 {
		l.Errorf("applied by %d managers, generation %d", applied, er.Generation)
	}
	cluster.Eventually(l, "the webhook's cache shows who is active", func(context.Context) error {
		if err := l.evict(carol, pod, nil); !strings.Contains(fmt.Sprint(err), waitingA) {
			return err
		}
		return nil
	})
	version := er.ResourceVersion
	mark = log.Mark()
	for range 20 {
		l.wantDenied(l.evict(carol, pod, nil), waitingA)
	}
	requests, err := log.Since(l.Context(), mark)
	if err != nil {
		l.Fatal(err)
	}
	// The controllers of the guard and of the descheduler's marks patch the pod when they come to it,
	// the former makes a budget before, and the manager asks the API server now and then whether that
	// calls the webhook.
	about := requests.By(l.account).Where(func(r cluster.Request) bool {
		return r.Resource != "events" && r.Resource != "poddisruptionbudgets" && (r.Resource != "pods" || r.Verb != "patch") &&
			(r.Resource == "leases" || r.Namespace == l.namespace)
	})
	if len(about) > 0 {
		l.Errorf("repeated denials made requests: %v", about)
	}
	if now := l.request(pod.UID, "the interceptor is active", active).ResourceVersion; now != version {
		l.Errorf("the request changed from %s to %s", version, now)
	}
}

func join(l *live) {
	alice, bob, pod := l.as("alice"), l.as("bob"), l.run("")
	l.wantDenied(l.evict(alice, pod, nil), "Eviction triggered evacuation: ")
	l.request(pod.UID, "the interceptor is active", active)
	l.wantDenied(l.evict(bob, pod, &metav1.DeleteOptions{GracePeriodSeconds: new(int64(90))}), "Eviction triggered evacuation: ")
	er := l.request(pod.UID, "bob is a requester", func(er *v1alpha1.EvictionRequest) bool { return len(er.Spec.Requesters) == 2 })
	if diff := cmp.Diff([]string{aliceFQ, bobFQ}, requesters(er)); diff != "" {
		l.Errorf("requesters (-want +got):\n%s", diff)
	}
	if got := er.Spec.Requesters[1].GracePeriodSeconds; got == nil || *got != 90 {
		l.Errorf("bob's grace period is %v", got)
	}
	l.wantDenied(l.evict(alice, pod, &metav1.DeleteOptions{GracePeriodSeconds: new(int64(60))}), "Eviction triggered evacuation: ")
	er = l.request(pod.UID, "alice has a grace period", func(er *v1alpha1.EvictionRequest) bool { return er.Spec.Requesters[0].GracePeriodSeconds != nil })
	if got := er.Spec.Requesters; len(got) != 2 || *got[0].GracePeriodSeconds != 60 || *got[1].GracePeriodSeconds != 90 {
		l.Errorf("requesters %+v", got)
	}
}

func restart(l *live) {
	alice, pod := l.as("alice"), l.run("")
	l.wantDenied(l.evict(alice, pod, nil), "Eviction triggered evacuation: ")
	first := l.request(pod.UID, "the interceptor is active", active)
	emptied := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"requesters":[]}}`))
	if err := l.admin.Patch(l.Context(), first.DeepCopy(), emptied); err != nil {
		l.Fatal(err)
	}
	l.request(pod.UID, "the request is canceled", func(er *v1alpha1.EvictionRequest) bool {
		return meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionCanceled)
	})
	// The caller comes back, as often as it takes for the webhook's cache to follow.
	cluster.Eventually(l, "the request has begun anew", func(ctx context.Context) error {
		l.wantDenied(l.evict(alice, pod, nil), "Evict")
		er := &v1alpha1.EvictionRequest{}
		if err := l.admin.Get(ctx, client.ObjectKeyFromObject(first), er); err != nil {
			return err
		}
		if er.UID == first.UID || !active(er) {
			return fmt.Errorf("uid %s, status %+v", er.UID, er.Status)
		}
		return nil
	})
}

func dryRun(l *live) {
	alice, pod := l.as("alice"), l.run("")
	if err := l.evict(alice, pod, &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		l.Errorf("a dry run got %v", err)
	}
	var list v1alpha1.EvictionRequestList
	if err := l.admin.List(l.Context(), &list, client.InNamespace(l.namespace)); err != nil || len(list.Items) > 0 {
		l.Errorf("%d requests, error %v", len(list.Items), err)
	}
}

func times(l *live) {
	alice, pod := l.as("alice"), l.run("")
	l.wantDenied(l.evict(alice, pod, nil), "Eviction triggered evacuation: ")
	l.request(pod.UID, "the interceptor is active", active)
	report := func(offset time.Duration) error {
		er := l.request(pod.UID, "the interceptor is active", active)
		at := metav1.NewTime(clock.RealClock{}.Now().Add(offset))
		er.Status.Interceptors[0].StartTime, er.Status.Interceptors[0].HeartbeatTime = &at, &at
		return l.admin.Status().Update(l.Context(), er)
	}
	if err := report(time.Minute); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "heartbeatTime") || !strings.Contains(err.Error(), "startTime") {
		l.Errorf("a report from the future: %v", err)
	}
	// Somebody else may write in between, and what stands still for 10 seconds is not of now any more.
	cluster.Eventually(l, "a report of now to be taken", func(context.Context) error { return report(0) })
}

func replacement(l *live) {
	alice := l.as("alice")
	var nodes corev1.NodeList
	if err := l.admin.List(l.Context(), &nodes); err != nil {
		l.Fatal(err)
	}
	from, to := nodes.Items[0].Name, nodes.Items[1].Name
	pod := l.run(from)
	l.wantDenied(l.evict(alice, pod, nil), "Eviction triggered evacuation: ")
	l.request(pod.UID, "the interceptor is active", active)
	if err := l.admin.Delete(l.Context(), pod.DeepCopy()); err != nil {
		l.Fatal(err)
	}
	l.request(pod.UID, "the request is evicted", func(er *v1alpha1.EvictionRequest) bool {
		return meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionEvicted)
	})
	successor := l.run(to)
	err := l.evict(alice, successor, nil)
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "is not evicted") {
		l.Errorf("the replacement: want 404, got %v", err)
	}
	cordon := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`))
	if err := l.admin.Patch(l.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: to}}, cordon); err != nil {
		l.Fatal(err)
	}
	l.wantDenied(l.evict(alice, successor, nil), "Eviction triggered evacuation: ")
}
