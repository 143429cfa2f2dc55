package interceptortest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	apply "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
)

// clockSkew is how far a reported time may be from the server's (ruling R8).
const clockSkew = 10 * time.Second

// server is the part of an API server and of Drawbridge's controller that one
// interceptor sees: one request. The embedded Client is nil, so that methods that the
// SDK should not use panic.
type server struct {
	client.Client
	t     testing.TB
	clock clock.PassiveClock
	name  string

	request *v1alpha1.EvictionRequest
	made    int
	failure error
	reports []v1alpha1.InterceptorStatus
	events  []string
}

func (s *server) stamp() *metav1.Time {
	return &metav1.Time{Time: s.clock.Now().Truncate(time.Second)}
}

// create creates the request, with known interceptors, none of them active.
func (s *server) create(o Options) {
	s.made++
	er := &v1alpha1.EvictionRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Pod.Namespace, Name: string(o.PodUID), UID: types.UID("request-" + strconv.Itoa(s.made)),
			ResourceVersion: "1", Generation: 1, CreationTimestamp: *s.stamp(), Labels: o.Labels,
		},
		Spec: v1alpha1.EvictionRequestSpec{
			Target: v1alpha1.EvictionTarget{Pod: &v1alpha1.LocalPodReference{Name: o.Pod.Name, UID: o.PodUID}},
		},
	}
	for _, name := range o.Requesters {
		er.Spec.Requesters = append(er.Spec.Requesters, v1alpha1.Requester{Name: name})
	}
	er.Status.NodeName = o.NodeName
	for _, name := range []string{s.name, v1alpha1.ImperativeEvictionInterceptor} {
		er.Status.TargetInterceptors = append(er.Status.TargetInterceptors, v1alpha1.Interceptor{Name: name})
		er.Status.Interceptors = append(er.Status.Interceptors, v1alpha1.InterceptorStatus{Name: name})
	}
	s.request = er
}

// changed gives the request a new version.
func (s *server) changed() {
	version, err := strconv.Atoi(s.request.ResourceVersion)
	if err != nil {
		s.t.Fatalf("interceptortest: %v", err)
	}
	s.request.ResourceVersion = strconv.Itoa(version + 1)
}

// mustExist fails a test that uses a missing request.
func (s *server) mustExist() {
	s.t.Helper()
	if s.request == nil {
		s.t.Fatal("interceptortest: the request is deleted; see Recreate")
	}
}

func (s *server) activate() {
	s.t.Helper()
	s.mustExist()
	s.request.Status.ActiveInterceptors = []string{s.name}
	s.request.Status.ActivationTime = s.stamp()
	s.changed()
}

// turnEnds moves the name from the active to the processed interceptors.
func (s *server) turnEnds() {
	status := &s.request.Status
	if slices.Contains(status.ActiveInterceptors, s.name) {
		status.ActiveInterceptors, status.ActivationTime = nil, nil
		status.ProcessedInterceptors = append(status.ProcessedInterceptors, s.name)
	}
	s.changed()
}

func (s *server) hurry(deadline time.Time) {
	s.t.Helper()
	s.mustExist()
	s.request.Status.Deadline, s.request.Status.DeadlineSource = new(metav1.NewTime(deadline)), s.request.Spec.Requesters[0].Name
	s.changed()
}

func (s *server) passOver() {
	s.t.Helper()
	s.mustExist()
	s.turnEnds()
	s.request.Status.ActiveInterceptors = []string{v1alpha1.ImperativeEvictionInterceptor}
	s.request.Status.ActivationTime = s.stamp()
}

// handOver is what the controller does after a completion; it reports whether
// there was one.
func (s *server) handOver() bool {
	s.t.Helper()
	item := s.item()
	if item == nil || item.CompletionTime == nil || !slices.Contains(s.request.Status.ActiveInterceptors, s.name) {
		return false
	}
	s.passOver()
	return true
}

func (s *server) cancel() {
	s.t.Helper()
	s.mustExist()
	s.request.Spec.Requesters = nil
	s.request.Generation++
	s.turnEnds()
	s.request.Status.ActiveInterceptors = nil
	s.condition(v1alpha1.ConditionCanceled, v1alpha1.ReasonNoRequesters)
}

func (s *server) evicted() {
	s.t.Helper()
	s.mustExist()
	s.turnEnds()
	s.request.Status.ActiveInterceptors = nil
	s.condition(v1alpha1.ConditionEvicted, v1alpha1.ReasonPodDeleted)
}

func (s *server) condition(kind, reason string) {
	meta.SetStatusCondition(&s.request.Status.Conditions, metav1.Condition{
		Type: kind, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: *s.stamp(),
	})
}

// item is the interceptor's own one, nil without a request.
func (s *server) item() *v1alpha1.InterceptorStatus {
	if s.request == nil {
		return nil
	}
	return &s.request.Status.Interceptors[0]
}

// Get returns the request.
func (s *server) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	er, ok := obj.(*v1alpha1.EvictionRequest)
	if !ok {
		return fmt.Errorf("interceptortest has no %T", obj)
	}
	if s.request == nil || key != client.ObjectKeyFromObject(s.request) {
		return apierrors.NewNotFound(v1alpha1.Resource("evictionrequests"), key.Name)
	}
	s.request.DeepCopyInto(er)
	return nil
}

// SubResource gives access to the status.
func (s *server) SubResource(name string) client.SubResourceClient {
	if name != "status" {
		s.t.Fatalf("interceptortest has no subresource %s", name)
	}
	return statusClient{s: s}
}

type statusClient struct {
	client.SubResourceClient
	s *server
}

// Apply takes a report of the interceptor.
func (c statusClient) Apply(_ context.Context, obj runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
	s := c.s
	if s.failure != nil {
		return s.failure
	}
	config, ok := obj.(*apply.EvictionRequestApplyConfiguration)
	if !ok || config.Status == nil || len(config.Status.Interceptors) != 1 {
		return fmt.Errorf("interceptortest: not a report: %T", obj)
	}
	resource := v1alpha1.Resource("evictionrequests")
	switch {
	case s.request == nil:
		return apierrors.NewNotFound(resource, *config.Name)
	case *config.UID != s.request.UID || *config.ResourceVersion != s.request.ResourceVersion:
		return apierrors.NewConflict(resource, *config.Name, fmt.Errorf("version %s is stored", s.request.ResourceVersion))
	}
	sent := config.Status.Interceptors[0]
	after := v1alpha1.InterceptorStatus{
		Name: *sent.Name, StartTime: sent.StartTime, HeartbeatTime: sent.HeartbeatTime,
		ExpectedFinishTime: sent.ExpectedFinishTime, CompletionTime: sent.CompletionTime, Message: *sent.Message,
	}
	if problems := s.check(*s.item(), after); len(problems) > 0 {
		return apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("EvictionRequest").GroupKind(), s.request.Name, problems)
	}
	*s.item() = after
	s.reports = append(s.reports, *after.DeepCopy())
	s.changed()
	return nil
}

// check applies the rules of the schema and of Drawbridge's webhook to one report
// (statements 34 and 41-49).
func (s *server) check(before, after v1alpha1.InterceptorStatus) field.ErrorList {
	now := s.clock.Now()
	var problems field.ErrorList
	refuse := func(name, why string) {
		problems = append(problems, field.Invalid(field.NewPath("status", "interceptors").Key(after.Name).Child(name), "", why))
	}
	near := func(t *metav1.Time) bool { return t.Sub(now).Abs() <= clockSkew }
	if !slices.Contains(s.request.Status.ActiveInterceptors, after.Name) {
		refuse("name", "only the item of the active interceptor may change")
	}
	if (after.StartTime == nil) != (after.HeartbeatTime == nil) {
		refuse("startTime", "must be set together with heartbeatTime")
	}
	if before.StartTime != nil && !before.StartTime.Equal(after.StartTime) {
		refuse("startTime", "is immutable once set")
	}
	if before.StartTime == nil && after.StartTime != nil && !near(after.StartTime) {
		refuse("startTime", "must be close to now")
	}
	if b, a := before.HeartbeatTime, after.HeartbeatTime; b != nil && !b.Equal(a) && (a == nil || a.Sub(b.Time) < time.Minute) {
		refuse("heartbeatTime", "must be at least 60 seconds after the stored one")
	}
	if a := after.HeartbeatTime; a != nil && a.After(now.Add(clockSkew)) {
		refuse("heartbeatTime", "must not be in the future")
	}
	if a := after.ExpectedFinishTime; a != nil && !a.Equal(before.ExpectedFinishTime) && a.Time.Before(now.Truncate(time.Second)) {
		refuse("expectedFinishTime", "must not be in the past")
	}
	if before.CompletionTime != nil {
		refuse("completionTime", "is immutable once set")
	}
	if after.CompletionTime != nil && !near(after.CompletionTime) {
		refuse("completionTime", "must be close to now")
	}
	return problems
}

// Eventf records an event.
func (s *server) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	s.events = append(s.events, fmt.Sprintf("%s %s: %s", kind, reason, fmt.Sprintf(note, args...)))
}
