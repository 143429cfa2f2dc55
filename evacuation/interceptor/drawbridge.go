package interceptor

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	apply "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
)

// drawbridge is the dialect of Drawbridge's own API, for the interceptor of that name.
type drawbridge string

var _ dialect = drawbridge("")

func (drawbridge) kind() schema.GroupVersionKind {
	return v1alpha1.SchemeGroupVersion.WithKind("EvictionRequest")
}

// note has nothing to do: a pod's request has its UID as name.
func (drawbridge) note(client.Object, bool) {}

func (d drawbridge) find(ctx context.Context, cached client.Reader, pod types.NamespacedName) (*request, error) {
	return d.get(ctx, cached, pod)
}

func (d drawbridge) get(ctx context.Context, reader client.Reader, name types.NamespacedName) (*request, error) {
	er := &v1alpha1.EvictionRequest{}
	switch err := reader.Get(ctx, name, er); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get eviction request %s: %w", name, err)
	default:
		return d.decode(er), nil
	}
}

func (d drawbridge) decode(obj client.Object) *request {
	er, ok := obj.(*v1alpha1.EvictionRequest)
	if !ok {
		return nil
	}
	key := client.ObjectKeyFromObject(er)
	q := &request{
		Key:       key,
		Version:   er.ResourceVersion,
		Turn:      turnOf(er, string(d)),
		Target:    Target{Request: key, RequestUID: er.UID},
		Evicted:   meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionEvicted),
		Revocable: v1alpha1.IsTrial(er),
		MustSave:  mustSave(er, string(d)),
	}
	if !q.concerns() {
		return q
	}
	q.Item, q.HeartbeatDeadline = itemOf(er, string(d)), v1alpha1.HeartbeatDeadlineOf(er, string(d))
	t := &q.Target
	t.Pod, t.PodUID = types.NamespacedName{Namespace: er.Namespace, Name: er.Spec.Target.Pod.Name}, er.Spec.Target.Pod.UID
	t.NodeName, t.Labels = er.Status.NodeName, er.Labels
	for _, requester := range er.Spec.Requesters {
		t.Requesters = append(t.Requesters, requester.Name)
	}
	if at := er.Status.ActivationTime; at != nil && q.Turn == active {
		t.ActivatedAt = at.Time
	}
	if at := er.Status.Deadline; at != nil {
		t.Deadline = at.Time
	}
	t.NodeLost = meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionNodeLost)
	return q
}

// mustSave reports whether a requester does not wait, and the interceptor waits for a turn
// that it will hardly get.
func mustSave(er *v1alpha1.EvictionRequest, name string) bool {
	if er.Status.Deadline == nil || er.Spec.Target.Pod == nil || er.DeletionTimestamp != nil || v1alpha1.IsFinished(er) ||
		slices.Contains(er.Status.ActiveInterceptors, name) || slices.Contains(er.Status.ProcessedInterceptors, name) {
		return false
	}
	hard := func(q v1alpha1.Requester) bool { return q.Type == v1alpha1.RequesterHard }
	planned := func(i v1alpha1.Interceptor) bool { return i.Name == name }
	return slices.ContainsFunc(er.Spec.Requesters, hard) && slices.ContainsFunc(er.Status.TargetInterceptors, planned)
}

func (d drawbridge) write(ctx context.Context, c client.Client, owner string, to *request, item item) error {
	report := apply.InterceptorStatus().WithName(string(d)).WithMessage(item.Message)
	if !item.StartedAt.IsZero() {
		report.WithStartTime(metav1.NewTime(item.StartedAt))
	}
	if !item.HeartbeatAt.IsZero() {
		report.WithHeartbeatTime(metav1.NewTime(item.HeartbeatAt))
	}
	if !item.ExpectedFinishAt.IsZero() {
		report.WithExpectedFinishTime(metav1.NewTime(item.ExpectedFinishAt))
	}
	if item.Forbidden {
		report.WithCancellation(v1alpha1.CancellationForbidden)
	}
	if !item.CompletedAt.IsZero() {
		report.WithCompletionTime(metav1.NewTime(item.CompletedAt))
	}
	return c.SubResource("status").Apply(ctx,
		apply.EvictionRequest(to.Target.Request.Name, to.Target.Request.Namespace).
			WithUID(to.Target.RequestUID).
			WithResourceVersion(to.Version).
			WithStatus(apply.EvictionRequestStatus().WithInterceptors(report)),
		client.FieldOwner(owner), client.ForceOwnership)
}
