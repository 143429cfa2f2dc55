package upstream

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/lifecycle/v1alpha1"
)

// plan are the responders of a pod, in their order.
func plan(pod *corev1.Pod) []responder {
	list := []responder{{Name: last, Priority: new(int32(100))}}
	for _, r := range pod.Spec.EvictionResponders {
		list = append(list, responder{Name: r.Name, Priority: r.Priority})
	}
	for i := range list {
		list[i].State = lifecyclev1alpha1.ResponderStateInactive
	}
	domain := func(r responder) []string {
		labels := strings.Split(strings.Split(r.Name, "/")[0], ".")
		slices.Reverse(labels)
		return labels
	}
	slices.SortFunc(list, func(a, b responder) int {
		return cmp.Or(cmp.Compare(*b.Priority, *a.Priority), slices.Compare(domain(a), domain(b)), strings.Compare(a.Name, b.Name))
	})
	return list
}

// evict is the responder that comes last.
func (c *Controllers) evict(ctx context.Context, t *target, e *eviction) error {
	i := slices.IndexFunc(e.Status.TargetResponders, func(r responder) bool {
		return r.Name == last && r.State == lifecyclev1alpha1.ResponderStateActive
	})
	if i < 0 || reportOf(e, e.Status.TargetResponders, i).CompletionTime != nil {
		return nil
	}
	say := func(message string, done bool) error {
		item := apply.ResponderStatus().WithName(last).WithMessage(message).WithHeartbeatTime(metav1.NewTime(t.now))
		if done {
			item.WithCompletionTime(metav1.NewTime(t.now))
		}
		return c.write(ctx, e, apply.EvictionStatus().WithResponders(item), Evictor)
	}
	tried := c.tried[e.UID]
	switch {
	case t.over():
		return say("deleted and fully terminated", true)
	case t.pod.DeletionTimestamp != nil, t.now.Before(tried.next):
		return nil
	}
	err := c.client.PolicyV1().Evictions(t.namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: t.namespace, Name: t.name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &t.uid}},
	})
	if err == nil {
		return say("marked for deletion", false)
	}
	tried.count++
	tried.next = t.now.Add(min(retry<<(tried.count-1), 5*time.Second))
	c.tried[e.UID] = tried
	return say(fmt.Sprintf("deletion through /eviction failed (attempts=%d): %v", tried.count, err), false)
}
