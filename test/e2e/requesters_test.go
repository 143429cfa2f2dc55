//go:build unix

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// native is a requester that knows the API: it says itself what it wants.
type native struct {
	client client.Client
	name   string
}

// newNative lets a user write requests, and delete the pods of a namespace, as the
// authorization policy demands.
func newNative(t *testing.T, namespace, user, name string) native {
	t.Helper()
	where := metav1.ObjectMeta{Namespace: namespace, Name: user}
	create(t, &rbacv1.Role{ObjectMeta: where, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"evictionrequests"}, Verbs: []string{"get", "create", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"delete"}},
	}})
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: where,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	})
	config := must(kube.ConfigFor(user))(t)
	return native{client: must(client.New(config, client.Options{Scheme: scheme}))(t), name: name}
}

// apply says that it wants the pod evicted, or that it does not any more.
func (n native) apply(t *testing.T, pod *corev1.Pod, wanted bool) {
	t.Helper()
	cluster.ApplyWish(t, n.client, n.name, pod, wanted)
}

// wantedBy wants exactly these requesters, in any order.
func wantedBy(names ...string) func(*v1alpha1.EvictionRequest) bool {
	return func(er *v1alpha1.EvictionRequest) bool {
		return slices.Equal(slices.Sorted(slices.Values(requesters(er))), slices.Sorted(slices.Values(names)))
	}
}

// report changes the report of the active interceptor, as that would.
func report(t *testing.T, pod *corev1.Pod, name string, change func(*v1alpha1.InterceptorStatus)) {
	t.Helper()
	eventually(t, name+" to report", func(ctx context.Context) error {
		er, err := getRequest(ctx, pod)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(er.Status.Interceptors, func(s v1alpha1.InterceptorStatus) bool { return s.Name == name })
		if i < 0 {
			return fmt.Errorf("no item of %s in %+v", name, er.Status)
		}
		change(&er.Status.Interceptors[i])
		return admin.Status().Update(ctx, er)
	})
}

// A rolling drain goes from node to node under the same credentials. What spares
// the replacement on the second node, while the first one is drained, must not
// spare it when its own node comes.
func TestARollingDrainMovesAStatefulSetTwice(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	n1 := addNodes(t, namespace, 1)[0]
	const name = "failover.example.com"
	startInterceptor(t, namespace, name, time.Second)
	create(t, builder.StatefulSet(namespace, "db").Pods(onNodesOf(namespace, intercepted(name))).Obj())
	first := readyPods(t, namespace, 1, n1)[0]
	n2 := addNodes(t, namespace, 1)[0]

	finishWell(t, startDrain(t, "frank", n1))
	second := readyPods(t, namespace, 1, n2)[0]
	if first.UID == second.UID || first.Name != second.Name {
		t.Fatalf("want a replacement of the same name, got %s (UID %s) for %s (UID %s)", second.Name, second.UID, first.Name, first.UID)
	}
	noRequest(t, &second)

	kubectl(t, "frank", "uncordon", n1)
	result := finishWell(t, startDrain(t, "frank", n2))
	saysAll(t, "standard output", result.Stdout, "node/"+n2+" drained")
	third := readyPods(t, namespace, 1, n1)[0]
	noRequest(t, &third)
	for _, pod := range []*corev1.Pod{&first, &second} {
		er := waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
		if diff := cmp.Diff([]string{name, v1alpha1.ImperativeEvictionInterceptor}, er.Status.ProcessedInterceptors); diff != "" {
			t.Errorf("processed of the pod on %s (-want +got):\n%s", pod.Spec.NodeName, diff)
		}
		if er.Status.Interceptors[0].CompletionTime == nil {
			t.Errorf("the interceptor did not do its work for the pod on %s: %+v", pod.Spec.NodeName, er.Status)
		}
	}
}
