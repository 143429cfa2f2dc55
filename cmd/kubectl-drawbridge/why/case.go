package why

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/budgetstatus"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/listing"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/refusals"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/disruption"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// silence is how long an interceptor may not report before that is worth mentioning.
// Reports come at most once a minute, and Drawbridge itself waits for 20 minutes, or as long
// as the registration of the interceptor says.
const silence = 3 * time.Minute

// podCase has the facts and what follows from them.
type podCase struct {
	*Facts
	interceptors []Interceptor
	budgets      []Budget
	// budgetStatuses are those of the EvictionBudgets that cover the pod, by name.
	budgetStatuses []budgetstatus.Status
	// unsure says why an interceptor may be missing; nil when none is.
	unsure error
	// refusals are the writes that the cluster refuses for the pod.
	refusals []refusals.Refusal
	// first are the interceptors that would run if a call began an evacuation now; none
	// while a request runs or is refused.
	first []string
	state v1alpha1.RequestState
	// active is the report of the active interceptor, if any, and position its
	// position, from 1.
	active   *Interceptor
	position int
}

func newCase(f *Facts) *podCase {
	c := &podCase{Facts: f}
	if f.Pod != nil {
		c.budgets = BudgetsOf(f.Pod, f.Budgets, f.Peers)
	}
	c.budgetStatuses = budgetStatusesOf(f)
	c.refusals = refusalsOf(f)
	if f.Request != nil {
		c.state = v1alpha1.Summarize(f.Request).State
	}
	c.interceptors, c.unsure = interceptors(f)
	c.addResponders()
	if condition := c.canceledBecause(); f.Pod != nil && (f.Request == nil || condition != nil && condition.Reason != v1alpha1.ReasonValidationFailed) {
		c.first, _ = resolve(f)
	}
	for i := range c.interceptors {
		if c.interceptors[i].State == stateActive {
			c.active, c.position = &c.interceptors[i], i+1
		}
	}
	return c
}

// States of an interceptor.
const (
	stateWould   = "would run"
	stateNext    = "waits for its turn"
	stateActive  = "has its turn"
	stateDone    = "done"
	statePassed  = "passed over"
	stateSkipped = "skipped by "
	stateNever   = "not needed"
)

// interceptors returns those of the request's plan, or, if there is none, those that
// would intercept the pod.
func interceptors(f *Facts) ([]Interceptor, error) {
	registrations := map[string]*v1alpha1.EvictionInterceptor{}
	for i := range f.Registrations {
		registrations[f.Registrations[i].Name] = &f.Registrations[i]
	}
	var annotated []string
	if f.Pod != nil {
		annotated, _ = translate.ParseInterceptors(f.Pod.Annotations[v1alpha1.InterceptorsAnnotation], reservedIn(f)...)
	}
	hooks := map[string]*v1alpha1.EvacuationHook{}
	for i := range f.Hooks {
		hooks[v1alpha1.HookInterceptor(client.ObjectKeyFromObject(&f.Hooks[i]))] = &f.Hooks[i]
	}
	line := func(name string) Interceptor {
		i := Interceptor{Name: name, State: stateWould}
		registration := registrations[name]
		switch {
		case name == v1alpha1.ImperativeEvictionInterceptor:
			i.Source = "always the last"
		case slices.Contains(annotated, name):
			i.Source = "annotation of the pod"
		case hooks[name] != nil:
			i.Source = fmt.Sprintf("hook %s, priority %d", hooks[name].Name, ptr.Deref(hooks[name].Spec.Priority, v1alpha1.DefaultInterceptorPriority))
		case name == v1alpha1.BudgetInterceptor:
			i.Source = budgetSource(f)
		case name == v1alpha1.NativeInterceptor:
			i.Source = nativeSource(f)
		case name == v1alpha1.OrderInterceptor:
			i.Source = "spec.after of the registrations"
		case registration != nil:
			i.Source = fmt.Sprintf("registration, priority %d", priority(registration))
		default:
			i.Source = "neither annotated nor registered now"
		}
		if registration != nil {
			for _, account := range registration.Spec.ServiceAccounts {
				i.ServiceAccounts = append(i.ServiceAccounts, account.Namespace+"/"+account.Name)
			}
		}
		return i
	}
	var lines []Interceptor
	if f.Request != nil && len(f.Request.Status.TargetInterceptors) > 0 {
		for _, target := range f.Request.Status.TargetInterceptors {
			i := line(target.Name)
			report(&i, f.Request)
			lines = append(lines, i)
		}
		return lines, nil
	}
	if f.Pod == nil {
		return nil, nil
	}
	names, err := resolve(f)
	for _, name := range names {
		lines = append(lines, line(name))
	}
	if len(lines) > 0 {
		lines = append(lines, line(v1alpha1.ImperativeEvictionInterceptor))
	}
	return lines, err
}

// addResponders says what the native responders do, whose turns are that of one interceptor.
func (c *podCase) addResponders() {
	i := slices.IndexFunc(c.interceptors, func(i Interceptor) bool { return i.Name == v1alpha1.NativeInterceptor })
	if i < 0 || c.Eviction == nil {
		return
	}
	native := &c.interceptors[i]
	for _, t := range turns.Of(c.Request, c.Eviction, c.Pod) {
		if !t.Native || t.Name == v1alpha1.NativeResponder || t.Name == lifecyclev1alpha1.EvictionResponderImperativeEviction {
			continue
		}
		native.Responders = append(native.Responders, t)
		if t.State == turns.Active && native.State == stateWould {
			native.State = stateActive // Somebody asked natively only.
		}
	}
	if len(native.Responders) > 0 {
		native.Source = "native responders, by Kubernetes' own API (Eviction " + c.Eviction.Name + ")"
	}
}

// nativeSource is where the interceptor of native responders comes from.
func nativeSource(f *Facts) string {
	if f.Pod == nil || !pods.HasNativeResponders(f.Pod) {
		return "built in"
	}
	return "native responders, by Kubernetes' own API: " + strings.Join(listing.Responders(f.Pod), ", ")
}

// errUnread says that the registrations could not be read.
var errUnread = errors.New("the registrations of interceptors could not be read")

func resolve(f *Facts) ([]string, error) {
	var namespaces []corev1.Namespace
	if f.Namespace != nil {
		namespaces = append(namespaces, *f.Namespace)
	}
	options := registration.Options{Namespace: f.System, AllowedReserved: reservedIn(f), Native: func() bool { return f.Native }}
	known := registration.Known{Registrations: f.Registrations, Hooks: f.Hooks, Namespaces: namespaces}
	if !f.BudgetsOff {
		known.Budgets = f.EvictionBudgets
	}
	names, err := registration.Static(options, known).Resolve(f.Pod)
	if err == nil && slices.ContainsFunc(f.Unread, func(what string) bool {
		return strings.HasPrefix(what, "evictioninterceptors") || strings.HasPrefix(what, "evacuationhooks") || strings.HasPrefix(what, "evictionbudgets")
	}) {
		err = errUnread
	}
	return names, err
}

// reservedIn are the reserved names that the administrator allows, as far as visible:
// their registrations are accepted.
func reservedIn(f *Facts) []string { return AllowedReserved(f.Registrations) }

// AllowedReserved are the names of those registrations that are accepted.
func AllowedReserved(registrations []v1alpha1.EvictionInterceptor) []string {
	var names []string
	for _, r := range registrations {
		if slices.ContainsFunc(r.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == v1alpha1.ConditionAccepted && c.Status == metav1.ConditionTrue
		}) {
			names = append(names, r.Name)
		}
	}
	return names
}

func priority(r *v1alpha1.EvictionInterceptor) int32 {
	if r.Spec.Priority == nil {
		return v1alpha1.DefaultInterceptorPriority
	}
	return *r.Spec.Priority
}

// report fills in what the request says about an interceptor.
func report(to *Interceptor, er *v1alpha1.EvictionRequest) {
	said := v1alpha1.ReportOf(er, to.Name)
	to.Started, to.Heard, to.Expected, to.Completed = at(said.StartTime), at(said.HeartbeatTime), at(said.ExpectedFinishTime), at(said.CompletionTime)
	to.Message, to.Retries = text.Clean(said.Message), said.Retries
	switch {
	case said.SkippedBy != "":
		to.State = stateSkipped + said.SkippedBy
	case said.CompletionTime != nil:
		to.State = stateDone
	case slices.Contains(er.Status.ActiveInterceptors, to.Name):
		to.State, to.Since = stateActive, at(er.Status.ActivationTime)
	case slices.Contains(er.Status.ProcessedInterceptors, to.Name):
		to.State = statePassed
	case v1alpha1.IsFinished(er):
		to.State = stateNever
	default:
		to.State = stateNext
	}
	if to.State == statePassed && to.Name == v1alpha1.ImperativeEvictionInterceptor {
		to.State = stateDone
	}
}

func at(t *metav1.Time) *time.Time {
	if t == nil {
		return nil
	}
	return &t.Time
}

// BudgetsOf returns the budgets that select the pod, by name, and whether each would
// allow the eviction. Peers are the pods that they select; without them, what the budgets
// count is read from their statuses.
func BudgetsOf(pod *corev1.Pod, all []policyv1.PodDisruptionBudget, peers []*corev1.Pod) []Budget {
	var found []Budget
	for i := range all {
		pdb := &all[i]
		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if pdb.Namespace != pod.Namespace || err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		b := Budget{Name: pdb.Name, Guard: pdb.Labels[v1alpha1.GuardBudgetLabel] == "true"}
		count := disruption.Count{Healthy: int(pdb.Status.CurrentHealthy), Expected: int(pdb.Status.ExpectedPods), Desired: int(pdb.Status.DesiredHealthy)}
		if len(peers) > 0 {
			count = disruption.Of(pdb, disruption.Selected(pdb, peers))
		}
		b.Allows, b.Why = allows(pdb, pod, count)
		if !b.Allows {
			b.Never = count.Says()
		}
		if b.Guard {
			b.Why = "Drawbridge's guard: it allows nothing until the interceptors are done"
		}
		found = append(found, b)
	}
	slices.SortFunc(found, func(a, b Budget) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// allows follows the eviction handler (kubernetes:
// pkg/registry/core/pod/storage/eviction.go).
func allows(pdb *policyv1.PodDisruptionBudget, pod *corev1.Pod, count disruption.Count) (bool, string) {
	status := pdb.Status
	counts := fmt.Sprintf("%d of %d pods healthy, %d needed", count.Healthy, count.Expected, count.Desired)
	policy := pdb.Spec.UnhealthyPodEvictionPolicy
	always := policy != nil && *policy == policyv1.AlwaysAllow
	switch {
	case pod.DeletionTimestamp != nil, pod.Status.Phase == corev1.PodPending, pods.HasEnded(pod):
		return true, "does not count for a pod that is " + strings.ToLower(podState(pod))
	case !pods.IsReady(pod) && (always || status.DesiredHealthy > 0 && status.CurrentHealthy >= status.DesiredHealthy):
		return true, "lets pods go that are not ready; " + counts
	case status.ObservedGeneration < pdb.Generation:
		return false, "the disruption controller has not processed it yet"
	case status.DisruptionsAllowed > 0:
		return true, fmt.Sprintf("allows %d more; %s", status.DisruptionsAllowed, counts)
	case count.Never != "":
		return false, count.Says() + "; " + counts
	default:
		return false, "allows none now; " + counts
	}
}

func podState(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "terminating"
	}
	return string(pod.Status.Phase)
}

// controller names the pod's owner, "StatefulSet/db".
func controller(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return owner.Kind + "/" + owner.Name
	}
	return ""
}

// refusing returns the names of the budgets that refuse, without the guard's.
func (c *podCase) refusing() (names []string, guard bool) {
	for _, b := range c.budgets {
		switch {
		case b.Allows:
		case b.Guard:
			guard = true
		default:
			names = append(names, b.Name)
		}
	}
	return names, guard
}

// never says which of the budgets that refuse can never allow the eviction, and why; empty
// if there is none.
func (c *podCase) never() (name, says string) {
	for _, b := range c.budgets {
		if b.Never != "" {
			return b.Name, "budget " + b.Name + " " + b.Never
		}
	}
	return "", ""
}

// intercepted reports whether any interceptor but the last one intercepts the pod.
func (c *podCase) intercepted() bool {
	return slices.ContainsFunc(c.interceptors, func(i Interceptor) bool { return i.Name != v1alpha1.ImperativeEvictionInterceptor })
}
