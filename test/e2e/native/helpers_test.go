//go:build unix

package native

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

const (
	migrate = "acme.example.com/migrate"
	save    = "db.example.com/save"
	evictor = lifecyclev1alpha1.EvictionResponderImperativeEviction
	// ours is an interceptor of Drawbridge's own API, which the tests act for.
	ours = "ours.example.com"
)

func create(t *testing.T, o client.Object) {
	t.Helper()
	if err := admin.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func createPod(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	create(t, pod)
	return cluster.ReadyPod(t, admin, pod.Namespace, pod.Name)
}

// placed is a namespace with a node of its own.
func placed(t *testing.T) (namespace, node string) {
	t.Helper()
	namespace = kube.Namespace(t)
	ctx, cancel := context.WithTimeout(t.Context(), cluster.Patience)
	defer cancel()
	nodes, err := kube.AddNodes(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	return namespace, nodes[0]
}

// wish is a native request for a pod.
func wish(pod *corev1.Pod, name, requester string) *lifecyclev1alpha1.EvictionRequest {
	return &lifecyclev1alpha1.EvictionRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: name},
		Spec: lifecyclev1alpha1.EvictionRequestSpec{
			Target:    lifecyclev1alpha1.EvictionRequestTarget{Pod: &lifecyclev1alpha1.EvictionRequestPodReference{Name: pod.Name, UID: pod.UID}},
			Requester: requester, Intent: lifecyclev1alpha1.EvictionRequestIntentEviction,
		},
	}
}

// wants creates one.
func wants(t *testing.T, pod *corev1.Pod) *lifecyclev1alpha1.EvictionRequest {
	t.Helper()
	r := wish(pod, pod.Name, "drain.example.com/me")
	create(t, r)
	return r
}

// withdraw changes the intent of a request.
func withdraw(t *testing.T, r *lifecyclev1alpha1.EvictionRequest) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"intent":"Withdrawn"}}`))
	if err := admin.Patch(t.Context(), r, patch); err != nil {
		t.Fatal(err)
	}
}

// startResponder starts the program under a name, for all namespaces.
func startResponder(t *testing.T, name string, work time.Duration) *cluster.Program {
	t.Helper()
	kubeconfig, err := kube.KubeconfigFile(strings.ReplaceAll(name, "/", "-"), responders)
	if err != nil {
		t.Fatal(err)
	}
	p, err := kube.StartProgram(t.Context(), cluster.ProgramOptions{}, program, "--kubeconfig="+kubeconfig, "--name="+name, "--work="+work.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill(); _, _ = p.Wait() })
	return p
}

// in makes a name of a responder or interceptor that only one test uses.
func in(namespace, name string) string {
	if domain, key, native := strings.Cut(name, "/"); native {
		return namespace + "." + domain + "/" + key
	}
	return namespace + "." + name
}

// evictions are those of a pod, by age and name.
func evictions(ctx context.Context, pod *corev1.Pod) ([]lifecyclev1alpha1.Eviction, error) {
	var list lifecyclev1alpha1.EvictionList
	if err := admin.List(ctx, &list, client.InNamespace(pod.Namespace)); err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(list.Items, func(e lifecyclev1alpha1.Eviction) bool { return e.Spec.Target.Pod.UID != pod.UID })
	slices.SortFunc(found, func(a, b lifecyclev1alpha1.Eviction) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return found, nil
}

// says is an Eviction in one line.
func says(e *lifecyclev1alpha1.Eviction) string {
	line := e.Name + ":"
	for _, r := range e.Status.TargetResponders {
		line += " " + r.Name + "=" + string(r.State)
	}
	return line + endOf(e.Status.Conditions)
}

func endOf(conditions []metav1.Condition) (text string) {
	for _, c := range conditions {
		text += fmt.Sprintf(" %s=%s/%s", c.Type, c.Status, c.Reason)
	}
	return text
}

// waitEviction waits until the last Eviction of a pod is as wanted.
func waitEviction(t *testing.T, pod *corev1.Pod, what string, wanted func(*lifecyclev1alpha1.Eviction) bool) *lifecyclev1alpha1.Eviction {
	t.Helper()
	var last lifecyclev1alpha1.Eviction
	waiting.Eventually(t, "the Eviction of pod "+pod.Name+" to be "+what, func(ctx context.Context) error {
		found, err := evictions(ctx, pod)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return errors.New("there is none")
		}
		last = found[len(found)-1]
		if !wanted(&last) {
			return fmt.Errorf("%s; responders %+v", says(&last), last.Status.Responders)
		}
		return nil
	})
	return &last
}

// turnOf wants a responder to be active.
func turnOf(name string) func(*lifecyclev1alpha1.Eviction) bool {
	return func(e *lifecyclev1alpha1.Eviction) bool {
		return stateOf(e, name) == lifecyclev1alpha1.ResponderStateActive
	}
}

func stateOf(e *lifecyclev1alpha1.Eviction, name string) lifecyclev1alpha1.ResponderStateType {
	for _, r := range e.Status.TargetResponders {
		if r.Name == name {
			return r.State
		}
	}
	return ""
}

// has wants a condition to be True, with that reason.
func has(condition lifecyclev1alpha1.EvictionConditionType, reason lifecyclev1alpha1.EvictionConditionReason) func(*lifecyclev1alpha1.Eviction) bool {
	return func(e *lifecyclev1alpha1.Eviction) bool {
		return slices.ContainsFunc(e.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == string(condition) && c.Status == metav1.ConditionTrue && c.Reason == string(reason)
		})
	}
}

// messageOf is what the condition says that is True.
func messageOf(conditions []metav1.Condition) string {
	for _, c := range conditions {
		if c.Status == metav1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

var (
	isEvicted  = has(lifecyclev1alpha1.EvictionConditionTargetEvicted, lifecyclev1alpha1.EvictionConditionReasonPodDeleted)
	isCanceled = has(lifecyclev1alpha1.EvictionConditionFailed, lifecyclev1alpha1.EvictionConditionReasonCanceledDueToNoRequesters)
)

// waitWish waits until a native request says so.
func waitWish(t *testing.T, r *lifecyclev1alpha1.EvictionRequest, want string) *lifecyclev1alpha1.EvictionRequest {
	t.Helper()
	found := &lifecyclev1alpha1.EvictionRequest{}
	waiting.Eventually(t, "the native request "+r.Name+" to say"+want, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(r), found); err != nil {
			return err
		}
		if got := endOf(found.Status.Conditions); got != want {
			return fmt.Errorf("it says%s", got)
		}
		return nil
	})
	return found
}

const (
	runs    = " Failed=False/AwaitingEviction TargetEvicted=False/AwaitingEviction"
	evicted = " Failed=False/Succeeded TargetEvicted=True/PodDeleted"
	invalid = " Failed=True/EvictionInvalid TargetEvicted=False/EvictionFailed"
)

// responds reports in the name of a responder.
func responds(t *testing.T, pod *corev1.Pod, name string, change func(*lifecyclev1alpha1.ResponderStatus)) {
	t.Helper()
	waiting.Eventually(t, name+" to report", func(ctx context.Context) error {
		found, err := evictions(ctx, pod)
		if err != nil || len(found) == 0 {
			return errors.Join(err, errors.New("no Eviction"))
		}
		e := &found[len(found)-1]
		for i := range e.Status.Responders {
			if e.Status.Responders[i].Name == name {
				change(&e.Status.Responders[i])
				return admin.Status().Update(ctx, e)
			}
		}
		return fmt.Errorf("%s is no responder of %s", name, says(e))
	})
}

// completes waits for the turn of a responder and ends it.
func completes(t *testing.T, pod *corev1.Pod, name string) {
	t.Helper()
	waitEviction(t, pod, "in the hands of "+name, turnOf(name))
	responds(t, pod, name, func(r *lifecyclev1alpha1.ResponderStatus) { r.CompletionTime = new(metav1.Now()) })
}

// intercepts waits for the turn of an interceptor of ours and ends it.
func intercepts(t *testing.T, pod *corev1.Pod, name string) {
	t.Helper()
	cluster.WaitRequest(t, admin, pod, "in the hands of "+name, func(er *v1alpha1.EvictionRequest) bool {
		return slices.Contains(er.Status.ActiveInterceptors, name)
	})
	waiting.Eventually(t, name+" to report", func(ctx context.Context) error {
		er, err := cluster.RequestFor(ctx, admin, pod)
		if err != nil {
			return err
		}
		at := new(metav1.NewTime(time.Now().Truncate(time.Second)))
		for i := range er.Status.Interceptors {
			if s := &er.Status.Interceptors[i]; s.Name == name {
				s.StartTime, s.HeartbeatTime, s.CompletionTime = at, at, at
			}
		}
		return admin.Status().Update(ctx, er)
	})
}

// gone waits until the very pod is no more.
func gone(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	cluster.Gone(t, admin, pod)
}

// lives wants the very pod to run on.
func lives(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	now := &corev1.Pod{}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil || now.UID != pod.UID || now.DeletionTimestamp != nil {
		t.Errorf("pod %s: want it to run on, got UID %s, deleted %v, error %v", pod.Name, now.UID, now.DeletionTimestamp, err)
	}
}

// noRequest wants that there is none of ours.
func noRequest(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if _, err := cluster.RequestFor(t.Context(), admin, pod); !apierrors.IsNotFound(err) {
		t.Errorf("request for pod %s: want none, got error %v", pod.Name, err)
	}
}

// requesterOf asks as a program that uses the SDK.
func requesterOf() *requester.Requester {
	return &requester.Requester{Name: "drain.example.com", Client: admin}
}

// joins asks by our own API.
func joins(t *testing.T, pod *corev1.Pod) *v1alpha1.EvictionRequest {
	t.Helper()
	er, err := requesterOf().Join(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	return er
}

func leaves(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := requesterOf().Withdraw(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// calls asks as kubectl drain does, and wants to be told to wait. Like that it goes on asking until
// the pod is gone: a kubectl that is silent for two minutes counts as gone itself.
func calls(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	waiting.Eventually(t, "a call to be answered", func(context.Context) error {
		code, _, body := kube.PostEviction(t, pod, cluster.Eviction(pod), "alice", drainers)
		if code != http.StatusTooManyRequests || !strings.Contains(string(body), "Eviction triggered evacuation") {
			return waiting.InVain(fmt.Errorf("%d %s", code, body))
		}
		return nil
	})
	config := cluster.Must(kube.ConfigFor("alice", drainers))(t)
	config.UserAgent = "kubectl/v1.37.1"
	kubectl := cluster.Must(kubernetes.NewForConfig(config))(t).PolicyV1().Evictions(pod.Namespace)
	call := cluster.Eviction(pod)
	call.DeleteOptions.Preconditions = metav1.NewUIDPreconditions(string(pod.UID)) // Not its successor of that name.
	ctx, ended := t.Context(), make(chan struct{})
	go func() {
		defer close(ended)
		_ = wait.PollUntilContextCancel(ctx, 20*time.Second, false, func(ctx context.Context) (gone bool, _ error) {
			err := kubectl.Evict(ctx, call)
			return err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err), nil
		})
	}()
	t.Cleanup(func() { <-ended })
}

// wishes are the native requests for a pod.
func wishes(t *testing.T, pod *corev1.Pod) []lifecyclev1alpha1.EvictionRequest {
	t.Helper()
	var list lifecyclev1alpha1.EvictionRequestList
	if err := admin.List(t.Context(), &list, client.InNamespace(pod.Namespace)); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(r lifecyclev1alpha1.EvictionRequest) bool { return r.Spec.Target.Pod.UID != pod.UID })
}
