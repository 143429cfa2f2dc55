//go:build unix

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// testLabel is on the nodes of a test; its value is the test's namespace.
const testLabel = "e2e.drawbridge.dev/test"

// must returns a value, or ends the test.
func must[T any](value T, err error) func(testing.TB) T { return cluster.Must(value, err) }

var (
	eventually = cluster.Eventually
	// activeIs wants that it is the turn of this interceptor, isTrue that a condition is True.
	activeIs, isTrue = cluster.ActiveIs, cluster.IsTrue
)

// addNodes adds nodes for the pods of one namespace. Pods that say nothing may
// be scheduled anywhere: see onNodesOf.
func addNodes(t *testing.T, namespace string, n int) []string {
	t.Helper()
	label := func(node *corev1.Node) { node.Labels[testLabel] = namespace }
	return must(kube.AddNodes(t.Context(), n, label))(t)
}

// onNodesOf keeps the pods of a workload on the nodes of addNodes.
func onNodesOf(namespace string, more ...func(*builder.PodWrapper)) func(*builder.PodWrapper) {
	return func(w *builder.PodWrapper) {
		w.NodeSelector(testLabel, namespace)
		for _, change := range more {
			change(w)
		}
	}
}

// intercepted names interceptors in a pod template.
func intercepted(names ...string) func(*builder.PodWrapper) {
	return func(w *builder.PodWrapper) { w.Interceptors(names...) }
}

// create creates an object.
func create(t *testing.T, object client.Object) {
	t.Helper()
	cluster.Create(t, admin, object)
}

// createPod creates a pod and returns it as it is when it is Ready.
func createPod(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	create(t, pod)
	return readyPod(t, pod.Namespace, pod.Name)
}

// readyPod waits for a pod of that name which is Ready and not being deleted.
func readyPod(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	return cluster.ReadyPod(t, admin, namespace, name)
}

var isReady = cluster.IsReady

// readyPods waits until so many pods of the namespace are Ready on those nodes,
// and returns them.
func readyPods(t *testing.T, namespace string, n int, nodes ...string) []corev1.Pod {
	t.Helper()
	var ready []corev1.Pod
	eventually(t, fmt.Sprintf("%d pods to be Ready on %v", n, nodes), func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := admin.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		ready = nil
		for _, pod := range list.Items {
			for _, node := range nodes {
				if pod.Spec.NodeName == node && isReady(&pod) {
					ready = append(ready, pod)
				}
			}
		}
		if len(ready) != n {
			return fmt.Errorf("%d of %d", len(ready), len(list.Items))
		}
		return nil
	})
	return ready
}

// lives fails the test unless the very pod still runs and is not being deleted.
func lives(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	now := &corev1.Pod{}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil {
		t.Errorf("pod %s: %v", pod.Name, err)
		return
	}
	if now.UID != pod.UID || !isReady(now) {
		t.Errorf("pod %s: want it to run on, got UID %s (was %s), deleted %v", pod.Name, now.UID, pod.UID, now.DeletionTimestamp)
	}
}

// gone waits until the very pod is no more.
func gone(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	cluster.Gone(t, admin, pod)
}

// getRequest returns the request for a pod.
func getRequest(ctx context.Context, pod *corev1.Pod) (*v1alpha1.EvictionRequest, error) {
	return cluster.RequestFor(ctx, admin, pod)
}

// waitRequest waits until the request for a pod is as wanted, and returns it.
func waitRequest(t *testing.T, pod *corev1.Pod, what string, wanted func(*v1alpha1.EvictionRequest) bool) *v1alpha1.EvictionRequest {
	t.Helper()
	return cluster.WaitRequest(t, admin, pod, what, wanted)
}

// noRequest fails the test if there is a request for the pod.
func noRequest(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if _, err := getRequest(t.Context(), pod); !apierrors.IsNotFound(err) {
		t.Errorf("request for pod %s: want none, got error %v", pod.Name, err)
	}
}

// requesters are the names in a request.
func requesters(er *v1alpha1.EvictionRequest) []string {
	var names []string
	for _, r := range er.Spec.Requesters {
		names = append(names, r.Name)
	}
	return names
}

// waitEvent waits for an event about the very pod or request.
func waitEvent(t *testing.T, about client.Object, reason string) eventsv1.Event {
	t.Helper()
	var found eventsv1.Event
	eventually(t, "event "+reason+" of "+about.GetName(), func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		if err := admin.List(ctx, list, client.InNamespace(about.GetNamespace())); err != nil {
			return err
		}
		var seen []string
		for _, event := range list.Items {
			if event.Regarding.UID == about.GetUID() && event.Reason == reason {
				found = event
				return nil
			}
			seen = append(seen, event.Regarding.Name+" "+event.Reason)
		}
		return fmt.Errorf("there are %v", seen)
	})
	return found
}

// as makes kubectl run as somebody who may drain nodes.
func as(user string) cluster.KubectlOptions {
	return cluster.KubectlOptions{User: user, Groups: []string{drainers}}
}

// kubectl runs a command of a drainer, which must succeed.
func kubectl(t *testing.T, user string, args ...string) {
	t.Helper()
	result := must(kube.Kubectl(t.Context(), as(user), args...))(t)
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
}

// startDrain starts to drain a node. Its output is told if the test fails.
func startDrain(t *testing.T, user, node string, more ...string) *cluster.Program {
	t.Helper()
	args := append([]string{"drain", node, "--force", "--ignore-daemonsets", "--delete-emptydir-data"}, more...)
	drain := must(kube.StartKubectl(t.Context(), as(user), args...))(t)
	tellWhenFailed(t, user+"'s drain of "+node, drain)
	return drain
}

// startInterceptor runs examples/interceptor in a process of its own, for the pods
// of one namespace, under a service account of the same name that may do what its
// README says and nothing else.
func startInterceptor(t *testing.T, namespace, name string, work time.Duration) *cluster.Program {
	t.Helper()
	binary := must(manager.BuildInterceptor(t.Context()))(t)
	where := metav1.ObjectMeta{Namespace: namespace, Name: name}
	create(t, &rbacv1.Role{ObjectMeta: where, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"evictionrequests"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"evictionrequests/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}})
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: where,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	})
	kubeconfig := must(kube.KubeconfigFileForServiceAccount(t.Context(), namespace, name))(t)
	program := must(kube.StartProgram(t.Context(), cluster.ProgramOptions{}, binary,
		"--kubeconfig="+kubeconfig, "--name="+name, "--namespace="+namespace, "--work="+work.String()))(t)
	tellWhenFailed(t, "interceptor "+name, program)
	waitLine(t, program, "is waiting for its turn")
	return program
}

// serviceAccount is the user name of a service account.
func serviceAccount(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

func tellWhenFailed(t *testing.T, who string, program *cluster.Program) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		var said strings.Builder
		for _, line := range program.Lines() {
			fmt.Fprintf(&said, "%s %s\n", line.Time.Format(time.TimeOnly), line.Text)
		}
		t.Logf("%s said:\n%s", who, said.String())
	})
}

// waitLine waits for a line of a program with that text in it.
func waitLine(t *testing.T, program *cluster.Program, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(program.WaitLine(ctx, text))(t)
}

// finish waits for the end of a program, as long as it says something new.
func finish(t *testing.T, program *cluster.Program) cluster.Result {
	t.Helper()
	eventually(t, "the program to end", func(context.Context) error {
		select {
		case <-program.Done():
			return nil
		default:
		}
		said := map[string]bool{}
		for _, line := range program.Lines() {
			said[line.Text] = true
		}
		return fmt.Errorf("it has said %d different things", len(said))
	})
	return must(program.Wait())(t)
}

// finishWell waits for the end of a program, which must be a success.
func finishWell(t *testing.T, program *cluster.Program) cluster.Result {
	t.Helper()
	result := finish(t, program)
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
	return result
}

// killed ends a program the hard way.
func killed(t *testing.T, program *cluster.Program) {
	t.Helper()
	if err := program.Kill(); err != nil {
		t.Fatal(err)
	}
	finish(t, program)
}

// since returns what the API server was asked since the mark.
func since(t *testing.T, mark cluster.Mark) cluster.Requests {
	t.Helper()
	return must(kube.RequestLog().Since(t.Context(), mark))(t)
}
