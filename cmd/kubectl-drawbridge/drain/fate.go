package drain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/budgetstatus"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/listing"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/refusals"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// fate is what a drain would do to a pod.
type fate struct {
	namespace, pod, node string
	// stays: the drain leaves it where it is, and does not wait for it.
	stays bool
	// would is what happens to it, after "would".
	would string
}

// fateInput is everything that determines the fate of a pod.
type fateInput struct {
	pod *corev1.Pod
	// maintenance is the one that would drain the node.
	maintenance *v1alpha1.NodeMaintenance
	// interceptors come before the eviction; unsure is why some may be missing.
	interceptors []string
	unsure       error
	// request for this pod; nil if there is none.
	request *v1alpha1.EvictionRequest
	// eviction is the native one that counts for this pod; nil if there is none.
	eviction *lifecyclev1alpha1.Eviction
	// budgets that select the pod.
	budgets []why.Budget
	// dryRun is what the API server answers to its eviction; nil if it was not asked.
	dryRun *why.DryRun
	// unwritten is why a dry run of its request is refused; nil if it is not.
	unwritten *refusals.Refusal
	// budgetStatuses are when the pod's EvictionBudgets let it go.
	budgetStatuses []budgetstatus.Status
	// wait is maintenance.evacuationWait; nil if it is not known.
	wait *time.Duration
}

// fateOf returns what a drain would do to the pod. It is pure.
func fateOf(in fateInput) fate {
	f := fate{namespace: in.pod.Namespace, pod: in.pod.Name, node: in.pod.Spec.NodeName}
	switch {
	case pods.IsMirror(in.pod):
		f.stays, f.would = true, "stay: static pod"
	case pods.IsOfDaemonSet(in.pod):
		f.stays, f.would = true, "stay: DaemonSet "+metav1.GetControllerOf(in.pod).Name
	case pods.HasEnded(in.pod):
		f.stays, f.would = true, "stay: has ended"
	case in.pod.DeletionTimestamp != nil:
		f.would = "be waited for: it is being deleted"
	default:
		if f.would = in.blocks(); f.would == "" {
			f.would = in.going() + in.grantedLater()
		}
	}
	return f
}

// blocks is why a pod would not be evacuated, and block the drain; empty if it would.
func (in *fateInput) blocks() string {
	switch in.maintenance.Keeps(in.pod) {
	case v1alpha1.BlockEmptyDirData:
		return "be kept, and block the drain: emptyDir data (see --delete-emptydir-data)"
	case v1alpha1.BlockUnmanagedPod:
		return "be kept, and block the drain: no controller (see --force)"
	}
	if in.pod.Spec.SchedulingGroup != nil {
		return "block the drain: it belongs to a Workload/PodGroup, which cannot be evicted"
	}
	if er := in.request; er != nil {
		canceled := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCanceled)
		if requester.Observe(er).State == v1alpha1.StateCanceled && canceled != nil && canceled.Reason == v1alpha1.ReasonValidationFailed {
			return "block the drain: its eviction was refused: " + text.Clean(canceled.Message)
		}
	}
	return ""
}

// going is what happens to a pod that would be evacuated.
func (in *fateInput) going() string {
	if in.request != nil || turns.Runs(in.eviction) {
		u := turns.Observe(in.request, in.eviction)
		switch {
		case u.State == v1alpha1.StateCanceled || u.State == v1alpha1.StateEvicted:
			// A new one begins.
		case u.Interceptor == v1alpha1.ImperativeEvictionInterceptor:
			return "be evicted, as is requested already" + in.refusal()
		case u.Interceptor != "":
			return fmt.Sprintf("be evicted, as is requested already: waiting for %s (%d of %d)%s", listing.WithResponders(u.Interceptor, in.pod), u.Position, u.Total, in.refusal())
		default:
			return "be evicted, as is requested already" + in.refusal()
		}
	}
	switch {
	case in.unsure != nil:
		return "be evicted after " + strings.Join(append(in.named(), "interceptors that are not known: "+in.unsure.Error()), ", then ")
	case len(in.interceptors) > 0:
		return "be evicted after " + strings.Join(in.named(), ", then ") + in.refusal()
	default:
		return in.plain()
	}
}

// named are the interceptors, with the names of native responders.
func (in *fateInput) named() (names []string) {
	for _, name := range in.interceptors {
		names = append(names, listing.WithResponders(name, in.pod))
	}
	return names
}

// plain is what happens to a pod without interceptors.
func (in *fateInput) plain() string {
	for _, c := range in.pod.Status.Conditions {
		if c.Type != v1alpha1.PodEvacuationInitiated || c.Reason == v1alpha1.PodReasonInterceptorStarted {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			return "be left to its owner, who says that it moves it" + in.refusal()
		}
		return "be evicted at once" + in.refusal()
	}
	switch {
	case in.wait == nil:
		return "be evicted, after maintenance.evacuationWait, which could not be read" + in.refusal()
	case *in.wait > 0:
		return fmt.Sprintf("be left to its owner for %s (maintenance.evacuationWait), then be evicted%s", *in.wait, in.refusal())
	default:
		return "be evicted at once" + in.refusal()
	}
}

// refusal is what blocks the eviction now; interceptors may change that.
func (in *fateInput) refusal() string {
	var names, refusing []string
	never := ""
	for _, b := range in.budgets {
		if b.Guard {
			continue // It opens when the interceptors are done.
		}
		names = append(names, b.Name)
		if !b.Allows {
			refusing = append(refusing, b.Name)
		}
		if b.Never != "" {
			never = "budget " + b.Name + " " + b.Never
		}
	}
	switch {
	case in.unwritten != nil:
		return fmt.Sprintf("; currently it cannot be requested: %s refuses it: %s", in.unwritten.Cause.Who(in.pod.Namespace), text.Clean(in.unwritten.Words))
	case len(names) > 1:
		return fmt.Sprintf("; currently it is refused: %d budgets select it (%s), and the eviction API supports one", len(names), strings.Join(names, ", "))
	case never != "":
		return "; " + never
	case len(refusing) > 0:
		return "; currently budget " + refusing[0] + " refuses it"
	case in.foretold() != "":
		return "; currently it is refused: " + text.Clean(in.foretold())
	case in.dryRun == nil || in.dryRun.Result == translate.ResultEvicted || in.guarded():
		return ""
	case in.dryRun.Result == translate.ResultForbidden:
		return ""
	default:
		return "; currently it is refused: " + text.Clean(in.dryRun.Detail)
	}
}

// refused reports whether a budget of a user's refuses the eviction now.
func (in *fateInput) refused() bool {
	return slices.ContainsFunc(in.budgets, func(b why.Budget) bool { return !b.Guard && !b.Allows })
}

// foretold is why the webhook would refuse a call, unless the reason is only the pod's
// interceptors, which the drain waits for anyway. In the last stage nothing is left to
// wait for but what the answer names.
func (in *fateInput) foretold() string {
	if in.dryRun == nil {
		return ""
	}
	answer, _ := translate.DryRunAnswer(in.dryRun.Warnings)
	answer = strings.TrimPrefix(answer, "429: ")
	rest, ours := strings.CutPrefix(answer, translate.EvacuationTriggered+": ")
	last := in.request != nil && slices.Contains(in.request.Status.ActiveInterceptors, v1alpha1.ImperativeEvictionInterceptor)
	switch {
	case ours && last:
		return rest
	case ours, strings.HasPrefix(answer, translate.NotCoordinated), strings.HasPrefix(answer, translate.NotStarted):
		return "" // The webhook's own, which a maintenance does not call.
	default:
		return answer
	}
}

func (in *fateInput) guarded() bool {
	for _, b := range in.budgets {
		if b.Guard {
			return true
		}
	}
	return false
}
