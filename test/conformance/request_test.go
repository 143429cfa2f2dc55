package conformance

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// change is what one write does to a request.
type change func(*v1alpha1.EvictionRequest)

// newRequest is a request that can be created, for a pod that does not exist.
func newRequest(namespace string, changes ...change) *v1alpha1.EvictionRequest {
	uid := uuid.NewUUID()
	er := &v1alpha1.EvictionRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: string(uid)},
		Spec: v1alpha1.EvictionRequestSpec{
			Target:     v1alpha1.EvictionTarget{Pod: &v1alpha1.LocalPodReference{Name: "web-1", UID: uid}},
			Requesters: []v1alpha1.Requester{{Name: "drain.example.com"}},
		},
	}
	for _, change := range changes {
		change(er)
	}
	return er
}

// newRawRequest is newRequest for what our types cannot express.
func newRawRequest(t *testing.T, namespace string, change func(object map[string]any)) *unstructured.Unstructured {
	t.Helper()
	er := newRequest(namespace)
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(er)
	if err != nil {
		t.Fatal(err)
	}
	delete(object, "status")
	change(object)
	raw := &unstructured.Unstructured{Object: object}
	raw.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("EvictionRequest"))
	return raw
}

// createRequest creates newRequest.
func createRequest(t *testing.T, c client.Client, namespace string, changes ...change) *v1alpha1.EvictionRequest {
	t.Helper()
	er := newRequest(namespace, changes...)
	if err := c.Create(t.Context(), er); err != nil {
		t.Fatalf("create request: %v", err)
	}
	return er
}

// accepted is what a table says of a write that must succeed. Anything else is
// part of the message of a rejection.
const accepted = ""

// checkAnswer compares the answer to a write with what a table wants: accepted, or
// a part of the message of a rejection, which has to be 422 Invalid or 403 Forbidden.
func checkAnswer(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == accepted && err != nil:
		t.Fatalf("must be accepted, but: %v", err)
	case want == accepted:
	case err == nil:
		t.Fatalf("must be rejected (%s), but was accepted", want)
	case !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err):
		t.Fatalf("must be rejected as Invalid or Forbidden, but: %v", err)
	case !strings.Contains(err.Error(), want):
		t.Fatalf("wrong reason of the rejection:\nwant a part: %s\n        got: %v", want, err)
	}
}

// checkCreate creates an object and compares the answer; a rejected one must not
// be stored.
func checkCreate(t *testing.T, c client.Client, object client.Object, want string) {
	t.Helper()
	checkAnswer(t, c.Create(t.Context(), object), want)
	if want == accepted || object.GetName() == "" {
		return
	}
	stored := &v1alpha1.EvictionRequest{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), stored); !apierrors.IsNotFound(err) {
		t.Errorf("rejected, but the object is stored (error: %v)", err)
	}
}

// writeCase is a sequence of writes to a new request. All of given must be
// accepted; of the last one the table says what must happen.
type writeCase struct {
	given []change
	write change
	want  string
}

// run makes the writes to spec or, with status, to the status subresource. A
// rejected write must leave the stored object as it was.
func (w writeCase) run(t *testing.T, c client.Client, namespace string, status bool) {
	t.Helper()
	er := createRequest(t, c, namespace)
	for i, given := range w.given {
		given(er)
		if err := update(t, c, er, status); err != nil {
			t.Fatalf("given write %d of %d: %v", i+1, len(w.given), err)
		}
	}
	before := er.ResourceVersion
	w.write(er)
	checkAnswer(t, update(t, c, er, status), w.want)
	stored := &v1alpha1.EvictionRequest{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(er), stored); err != nil {
		t.Fatal(err)
	}
	if w.want != accepted && stored.ResourceVersion != before {
		t.Error("rejected, but the stored object has changed")
	}
}

func update(t *testing.T, c client.Client, er *v1alpha1.EvictionRequest, status bool) error {
	t.Helper()
	if status {
		return c.Status().Update(t.Context(), er)
	}
	return c.Update(t.Context(), er)
}

// Interceptors of the requests in these tests.
const (
	interceptorA = "a.example.com"
	interceptorB = "b.example.com"
	interceptorC = "c.example.com"
	imperative   = v1alpha1.ImperativeEvictionInterceptor
)

// together makes several changes one write.
func together(changes ...change) change {
	return func(er *v1alpha1.EvictionRequest) {
		for _, change := range changes {
			change(er)
		}
	}
}

// targets sets targetInterceptors and interceptors, as the controller does in the
// beginning.
func targets(names ...string) change {
	return func(er *v1alpha1.EvictionRequest) {
		er.Status.TargetInterceptors, er.Status.Interceptors = nil, nil
		for _, name := range names {
			er.Status.TargetInterceptors = append(er.Status.TargetInterceptors, v1alpha1.Interceptor{Name: name})
			er.Status.Interceptors = append(er.Status.Interceptors, v1alpha1.InterceptorStatus{Name: name})
		}
	}
}

// skippable makes an item of targetInterceptors one that needs an hour, or no turn.
func skippable(name string) change {
	return func(er *v1alpha1.EvictionRequest) {
		for i := range er.Status.TargetInterceptors {
			if of := &er.Status.TargetInterceptors[i]; of.Name == name {
				of.Minimum, of.OnShortNotice = &metav1.Duration{Duration: time.Hour}, v1alpha1.ShortNoticeSkip
			}
		}
	}
}

// onNodeLost says what happens to an item of targetInterceptors on a lost node.
func onNodeLost(name string, policy v1alpha1.NodeLostPolicy) change {
	return func(er *v1alpha1.EvictionRequest) {
		for i := range er.Status.TargetInterceptors {
			if of := &er.Status.TargetInterceptors[i]; of.Name == name {
				of.OnNodeLost = policy
			}
		}
	}
}

// within gives an item of targetInterceptors a heartbeatDeadline.
func within(name string, deadline time.Duration) change {
	return func(er *v1alpha1.EvictionRequest) {
		for i := range er.Status.TargetInterceptors {
			if er.Status.TargetInterceptors[i].Name == name {
				er.Status.TargetInterceptors[i].HeartbeatDeadline = &metav1.Duration{Duration: deadline}
			}
		}
	}
}

// active sets activeInterceptors.
func active(names ...string) change {
	return func(er *v1alpha1.EvictionRequest) { er.Status.ActiveInterceptors = names }
}

// processed sets processedInterceptors.
func processed(names ...string) change {
	return func(er *v1alpha1.EvictionRequest) { er.Status.ProcessedInterceptors = names }
}

// report changes the item of one interceptor.
func report(name string, change func(*v1alpha1.InterceptorStatus)) change {
	return func(er *v1alpha1.EvictionRequest) {
		for i := range er.Status.Interceptors {
			if er.Status.Interceptors[i].Name == name {
				change(&er.Status.Interceptors[i])
			}
		}
	}
}

// condition sets one condition.
func condition(name string, status metav1.ConditionStatus, reason string) change {
	return func(er *v1alpha1.EvictionRequest) {
		wanted := metav1.Condition{Type: name, Status: status, Reason: reason, LastTransitionTime: metav1.Now()}
		for i := range er.Status.Conditions {
			if er.Status.Conditions[i].Type == name {
				er.Status.Conditions[i] = wanted
				return
			}
		}
		er.Status.Conditions = append(er.Status.Conditions, wanted)
	}
}

// at is a time so many seconds after the beginning of the test run.
func at(seconds int) *metav1.Time {
	return &metav1.Time{Time: t0.Add(time.Duration(seconds) * time.Second)}
}

var t0 = time.Now().Truncate(time.Second)

// getRaw reads a stored request as it is.
func getRaw(t *testing.T, c client.Client, key client.ObjectKey) map[string]any {
	t.Helper()
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("EvictionRequest"))
	if err := c.Get(t.Context(), key, stored); err != nil {
		t.Fatal(err)
	}
	return stored.Object
}
