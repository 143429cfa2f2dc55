package builder

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// EvictionRequestWrapper builds an EvictionRequest.
type EvictionRequestWrapper struct {
	*v1alpha1.EvictionRequest
	common[*EvictionRequestWrapper, *v1alpha1.EvictionRequest]
}

func wrapEvictionRequest(object *v1alpha1.EvictionRequest) *EvictionRequestWrapper {
	return share(&EvictionRequestWrapper{EvictionRequest: object}, object, wrapEvictionRequest)
}

// EvictionRequest begins with a request for this pod, named by its UID, without
// requesters.
func EvictionRequest(namespace, pod string, uid types.UID) *EvictionRequestWrapper {
	return wrapEvictionRequest(&v1alpha1.EvictionRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: string(uid)},
		Spec: v1alpha1.EvictionRequestSpec{
			Target: v1alpha1.EvictionTarget{Pod: &v1alpha1.LocalPodReference{Name: pod, UID: uid}},
		},
	})
}

// HeartbeatDeadline sets that of an interceptor of the plan.
func (w *EvictionRequestWrapper) HeartbeatDeadline(interceptor string, deadline time.Duration) *EvictionRequestWrapper {
	for i := range w.Status.TargetInterceptors {
		if target := &w.Status.TargetInterceptors[i]; target.Name == interceptor {
			target.HeartbeatDeadline = &metav1.Duration{Duration: deadline}
		}
	}
	return w
}

// Name sets metadata.name, for requests that are named wrongly on purpose.
func (w *EvictionRequestWrapper) Name(name string) *EvictionRequestWrapper {
	w.EvictionRequest.Name = name
	return w
}

// Requesters adds requesters that never expire.
func (w *EvictionRequestWrapper) Requesters(names ...string) *EvictionRequestWrapper {
	for _, name := range names {
		w.Requester(v1alpha1.Requester{Name: name})
	}
	return w
}

// Leased adds a requester whose wish ends with a Lease.
func (w *EvictionRequestWrapper) Leased(name, lease string) *EvictionRequestWrapper {
	return w.Requester(v1alpha1.Requester{Name: name, LeaseName: lease})
}

// Requester adds a requester as it is.
func (w *EvictionRequestWrapper) Requester(requester v1alpha1.Requester) *EvictionRequestWrapper {
	w.Spec.Requesters = append(w.Spec.Requesters, requester)
	return w
}

// Observed sets status.observedGeneration to the present generation.
func (w *EvictionRequestWrapper) Observed() *EvictionRequestWrapper {
	w.Status.ObservedGeneration = w.EvictionRequest.Generation
	return w
}

// NodeName sets status.nodeName.
func (w *EvictionRequestWrapper) NodeName(name string) *EvictionRequestWrapper {
	w.Status.NodeName = name
	return w
}

// Interceptors makes it a request whose interceptors were found out: these, and
// imperative-eviction.k8s.io last. Each has a report with nothing in it.
func (w *EvictionRequestWrapper) Interceptors(names ...string) *EvictionRequestWrapper {
	w.Status.TargetInterceptors, w.Status.Interceptors = nil, nil
	for _, name := range append(names[:len(names):len(names)], v1alpha1.ImperativeEvictionInterceptor) {
		w.Status.TargetInterceptors = append(w.Status.TargetInterceptors, v1alpha1.Interceptor{Name: name})
		w.Status.Interceptors = append(w.Status.Interceptors, v1alpha1.InterceptorStatus{Name: name})
	}
	return w
}

// Active makes it this interceptor's turn since then.
func (w *EvictionRequestWrapper) Active(name string, since time.Time) *EvictionRequestWrapper {
	w.Status.ActiveInterceptors = []string{name}
	w.Status.ActivationTime = ptr.To(metav1.NewTime(since))
	return w
}

// Deadline is when the interceptors have to be done, because of a requester.
func (w *EvictionRequestWrapper) Deadline(requester string, at time.Time) *EvictionRequestWrapper {
	w.Status.Deadline, w.Status.DeadlineSource = ptr.To(metav1.NewTime(at)), "requester "+requester
	return w
}

// Processed adds interceptors whose turn is over.
func (w *EvictionRequestWrapper) Processed(names ...string) *EvictionRequestWrapper {
	w.Status.ProcessedInterceptors = append(w.Status.ProcessedInterceptors, names...)
	return w
}

// Report changes the report of an interceptor, which Interceptors must have set up.
func (w *EvictionRequestWrapper) Report(name string, change func(*v1alpha1.InterceptorStatus)) *EvictionRequestWrapper {
	for i := range w.Status.Interceptors {
		if w.Status.Interceptors[i].Name == name {
			change(&w.Status.Interceptors[i])
			return w
		}
	}
	panic("builder: no interceptor " + name + " in the request")
}

// Refused makes the last interceptor one whose calls were refused so often, last by
// these budgets.
func (w *EvictionRequestWrapper) Refused(retries int32, budgets ...string) *EvictionRequestWrapper {
	return w.Report(v1alpha1.ImperativeEvictionInterceptor, func(report *v1alpha1.InterceptorStatus) {
		report.Retries = retries
		report.Message = fmt.Sprintf("Could not evict a pod due to failing eviction requests, number of retries: %d.", retries)
		report.Refusal = &v1alpha1.EvictionRefusal{
			Reason: "EvictionBlocked", Budgets: budgets,
			Message: "The disruption budget " + strings.Join(budgets, ", ") + " needs 3 healthy pods and has 3 currently.",
		}
	})
}

// Started makes the interceptor one that began then and has not reported since.
func (w *EvictionRequestWrapper) Started(name string, at time.Time) *EvictionRequestWrapper {
	return w.Report(name, func(report *v1alpha1.InterceptorStatus) {
		report.StartTime, report.HeartbeatTime = ptr.To(metav1.NewTime(at)), ptr.To(metav1.NewTime(at))
	})
}

// Heartbeat sets when the interceptor last reported.
func (w *EvictionRequestWrapper) Heartbeat(name string, at time.Time) *EvictionRequestWrapper {
	return w.Report(name, func(report *v1alpha1.InterceptorStatus) {
		report.HeartbeatTime = ptr.To(metav1.NewTime(at))
	})
}

// Completed sets when the interceptor completed.
func (w *EvictionRequestWrapper) Completed(name string, at time.Time) *EvictionRequestWrapper {
	return w.Report(name, func(report *v1alpha1.InterceptorStatus) {
		report.CompletionTime = ptr.To(metav1.NewTime(at))
	})
}

// Condition sets a condition that is True since then.
func (w *EvictionRequestWrapper) Condition(kind, reason string, since time.Time) *EvictionRequestWrapper {
	meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{
		Type: kind, Status: metav1.ConditionTrue, Reason: reason,
		LastTransitionTime: metav1.NewTime(since), ObservedGeneration: w.EvictionRequest.Generation,
	})
	return w
}

// Evicted makes it a request whose target ended then.
func (w *EvictionRequestWrapper) Evicted(reason string, at time.Time) *EvictionRequestWrapper {
	return w.Condition(v1alpha1.ConditionEvicted, reason, at)
}

// Canceled makes it a request that was canceled then.
func (w *EvictionRequestWrapper) Canceled(reason string, at time.Time) *EvictionRequestWrapper {
	return w.Condition(v1alpha1.ConditionCanceled, reason, at)
}
