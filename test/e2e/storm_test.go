//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
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
)

// account is a service account that calls the API itself.
type account struct {
	kubernetes.Interface
	// status writes as the account does.
	status client.Client
}

// newAccount makes a service account of a namespace that may do this there.
func newAccount(t *testing.T, namespace, name string, rules ...rbacv1.PolicyRule) account {
	t.Helper()
	where := metav1.ObjectMeta{Namespace: namespace, Name: name}
	create(t, &rbacv1.Role{ObjectMeta: where, Rules: rules})
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: where,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	})
	config := must(kube.ConfigForServiceAccount(t.Context(), namespace, name))(t)
	return account{
		Interface: must(kubernetes.NewForConfig(config))(t),
		status:    must(client.New(config, client.Options{Scheme: scheme}))(t),
	}
}

// mayEvict lets an account evict pods.
func mayEvict() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}}
}

// evict evicts a pod and returns the code of the answer and its text. It waits
// until the authorizer knows of the account.
func (a account) evict(t *testing.T, eviction *policyv1.Eviction) (code int32, text string) {
	t.Helper()
	eventually(t, "the permission to evict", func(ctx context.Context) error {
		err := a.PolicyV1().Evictions(eviction.Namespace).Evict(ctx, eviction)
		if apierrors.IsForbidden(err) {
			return err
		}
		code, text = http.StatusCreated, ""
		if err != nil {
			status, ok := err.(apierrors.APIStatus)
			if !ok {
				return err
			}
			code, text = status.Status().Code, status.Status().Message
		}
		return nil
	})
	return code, text
}

// A caller that takes a 429 for a failure walks on to the next pod of the node. It
// must not move them all at once; a person who drains the node may.
func TestACallerThatWalksTheNodeStartsNoStorm(t *testing.T) {
	const pods, limit = 8, 3
	m := startManager(t, func(o *app.Options) { o.NewRequestsPerNode = limit })
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	onNode := map[string][]*corev1.Pod{}
	for _, node := range nodes {
		for i := range pods {
			pod := builder.Pod(namespace, fmt.Sprintf("%s-%d", node, i)).Node(node).Interceptors("flush.example.com").Obj()
			create(t, pod)
			onNode[node] = append(onNode[node], pod)
		}
	}
	for _, pod := range append(onNode[nodes[0]], onNode[nodes[1]]...) {
		*pod = *readyPod(t, namespace, pod.Name)
	}
	descheduler := newAccount(t, namespace, "my-descheduler", mayEvict())

	// walk evicts every pod of a node once and counts the answers.
	walk := func(node string) map[string]int {
		answers := map[string]int{}
		for _, pod := range onNode[node] {
			code, text := descheduler.evict(t, eviction(pod))
			answers[fmt.Sprintf("%d %s", code, text)]++
		}
		return answers
	}
	const (
		denied   = `429 admission webhook "eviction-requests.drawbridge.dev" denied the request: `
		refused  = denied + "Eviction could not be started yet: too many evacuations began on this node in the last minute, retry later"
		accepted = denied + "Eviction triggered evacuation: accepted, the pod's interceptors come first"
		waiting  = denied + `Eviction triggered evacuation: waiting for interceptor "flush.example.com" (1 of 2)`
	)
	wantWalk := func(node string, running, more int) {
		t.Helper()
		got := walk(node)
		// A request that was just made has its first interceptor a moment later.
		if began := got[accepted] + got[waiting]; began != running+more || got[refused] != pods-running-more {
			t.Errorf("want %d evacuations of %d and the rest refused, got %v", running+more, pods, got)
		}
	}
	wantRequests := func(node string, want int) {
		t.Helper()
		var got []string
		for _, pod := range onNode[node] {
			er, err := getRequest(t.Context(), pod)
			switch {
			case apierrors.IsNotFound(err):
			case err != nil:
				t.Fatal(err)
			default:
				got = append(got, er.Spec.Target.Pod.Name)
			}
		}
		if len(got) != want {
			t.Errorf("node %s: want %d requests, got %v", node, want, got)
		}
	}

	wantWalk(nodes[0], 0, limit)
	wantWalk(nodes[0], limit, 0)
	wantRequests(nodes[0], limit)
	wantWalk(nodes[1], 0, limit) // Another node has room of its own.
	wantRequests(nodes[1], limit)

	m.Clock.Advance(time.Minute)
	wantWalk(nodes[0], limit, limit)
	wantRequests(nodes[0], 2*limit)

	// kubectl drain begins what is left, and joins what runs.
	startDrain(t, "alice", nodes[0])
	for _, pod := range onNode[nodes[0]] {
		waitRequest(t, pod, "wanted by alice", func(er *v1alpha1.EvictionRequest) bool {
			return len(er.Spec.Requesters) > 0 && er.Spec.Requesters[len(er.Spec.Requesters)-1].Name == "alice.users.drawbridge.dev"
		})
	}
	wantRequests(nodes[1], limit)
	if got, want := verdicts(t, m, "denied", "too-many-new"), 3*(pods-limit)+pods-2*limit; got != want {
		t.Errorf("the metric says %d were turned away, want %d", got, want)
	}
}
