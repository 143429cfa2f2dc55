package why

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/refusals"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// Facts are the input of a story. Everything but Now and Pod may be missing; Unread
// says what could not be read.
type Facts struct {
	// Now is the time; all times are printed in its location.
	Now time.Time
	// Pod is the pod, or nil if it is gone; then Request is the last one about it.
	Pod *corev1.Pod
	// Namespace of the pod, for registrations that select by it.
	Namespace *corev1.Namespace
	// Node is the pod's.
	Node *corev1.Node
	// Registrations are all there are.
	Registrations []v1alpha1.EvictionInterceptor
	// Hooks are those of the pod's namespace.
	Hooks []v1alpha1.EvacuationHook
	// Budgets are those of the pod's namespace.
	Budgets []policyv1.PodDisruptionBudget
	// Peers are the pods that the budgets of the pod select, it is one of them; none if they
	// could not be read.
	Peers []*corev1.Pod
	// EvictionBudgets are those of the pod's namespace.
	EvictionBudgets []v1alpha1.EvictionBudget
	// Unavailable are pods of the pod's EvictionBudgets that are not available, and Nodes
	// those that they are on, if a budget groups by nodes. They are only read while it is
	// the turn of the EvictionBudgets.
	Unavailable []corev1.Pod
	Nodes       []corev1.Node
	// BudgetsOff: the manager does not decide about EvictionBudgets, as far as is known.
	BudgetsOff bool
	// Native: native responders of the pod are interceptors.
	Native bool
	// Eviction is that of Kubernetes' own API that counts for the pod, nil if there is none.
	Eviction *lifecyclev1alpha1.Eviction
	// Class is the pod's PriorityClass.
	Class *schedulingv1.PriorityClass
	// Request is the EvictionRequest for this pod.
	Request *v1alpha1.EvictionRequest
	// Leases of the request's requesters, by the lease's name.
	Leases map[string]translate.LeaseRecord
	// Events are those about the pod and the request.
	Events []eventsv1.Event
	// DryRun is the answer to a dry run of an eviction; nil if none was made.
	DryRun *DryRun
	// Webhook says whether the API server calls Drawbridge for the pod; nil if not
	// checked, because the dry run says enough (see needsWebhook).
	Webhook *Webhook
	// Maintenances are those that the node says it is under.
	Maintenances []v1alpha1.NodeMaintenance
	// Wait is the manager's maintenance.evacuationWait; nil if it is not known.
	Wait *time.Duration
	// System is Drawbridge's own namespace, whose pods no registration selects.
	System string
	// RequestDryRun is why a dry run of the pod's request is refused; nil if it is not.
	// RequestTried: there was one.
	RequestDryRun *refusals.Refusal
	RequestTried  bool
	// Unread says what could not be read, and why.
	Unread []string
}

// DryRun is the API server's answer to the dry run of an eviction.
type DryRun struct {
	// Result is its class. translate.ResultEvicted means that it was let through.
	Result translate.Result
	// Detail is the server's own text.
	Detail string
	// Warnings that came along.
	Warnings []string
}

// Webhook is whether the API server calls Drawbridge for evictions of a pod.
type Webhook struct {
	// Problem is why it does not; empty if it does.
	Problem string
	// Unknown is why that could not be found out; empty if it could.
	Unknown string
}

// Story is the result.
type Story struct {
	// Namespace, Pod, UID and Node say which pod it is about.
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid,omitempty"`
	Node      string `json:"node,omitempty"`
	// Verdict in one word, of a closed set.
	Verdict Verdict `json:"verdict"`
	// Headline is the verdict as a sentence.
	Headline string `json:"headline"`
	// Interceptors in the order in which they run.
	Interceptors []Interceptor `json:"interceptors"`
	// Budgets that select the pod.
	Budgets []Budget `json:"budgets"`
	// EvictionBudgets that cover the pod, until they have let it go.
	EvictionBudgets []EvictionBudget `json:"evictionBudgets,omitempty"`
	// Request is the name of the EvictionRequest.
	Request string `json:"request,omitempty"`
	// Eviction is the name of the Eviction of Kubernetes' own API.
	Eviction string `json:"eviction,omitempty"`
	// Requesters want the eviction.
	Requesters []Requester `json:"requesters,omitempty"`
	// History in the order of time.
	History []Entry `json:"history,omitempty"`
	// Answer is the answer that an eviction call would get now.
	Answer Answer `json:"answer"`
	// Notes say what else is worth knowing.
	Notes []string `json:"notes,omitempty"`
	// Advice says what to do, the best option first.
	Advice []string `json:"advice,omitempty"`
}

// Interceptor is one interceptor of the pod.
type Interceptor struct {
	Name string `json:"name"`
	// Source says why it intercepts the pod.
	Source string `json:"source"`
	// State in a few words: would run, next, active, done, passed over, skipped.
	State string `json:"state"`
	// ServiceAccounts may act under the name, if a registration lists them.
	ServiceAccounts []string `json:"serviceAccounts,omitempty"`
	// Active since, and the times of its report; zero ones are left out.
	Since     *time.Time `json:"since,omitempty"`
	Started   *time.Time `json:"started,omitempty"`
	Heard     *time.Time `json:"heard,omitempty"`
	Expected  *time.Time `json:"expected,omitempty"`
	Completed *time.Time `json:"completed,omitempty"`
	Message   string     `json:"message,omitempty"`
	Retries   int32      `json:"retries,omitempty"`
	// Responders of the Eviction that have their turns as native.drawbridge.dev.
	Responders []turns.Turn `json:"responders,omitempty"`
}

// Budget is a PodDisruptionBudget that selects the pod.
type Budget struct {
	Name string `json:"name"`
	// Guard: it is Drawbridge's own.
	Guard bool `json:"guard,omitempty"`
	// Allows: it would allow this eviction now.
	Allows bool `json:"allows"`
	// Never says that it can never allow a disruption, and why, as what follows its name;
	// empty if it can, or if that is not certain.
	Never string `json:"never,omitempty"`
	// Why in words.
	Why string `json:"why"`
}

// EvictionBudget is one that covers the pod.
type EvictionBudget struct {
	Name string `json:"name"`
	// When it lets the pod go, in words, and Until, if the time is known.
	When  string     `json:"when"`
	Until *time.Time `json:"until,omitempty"`
	// Reason is why it does not now, as in its condition Granting.
	Reason string `json:"reason,omitempty"`
	// Groups that are in the way.
	Groups []string `json:"groups,omitempty"`
}

// Requester wants the eviction.
type Requester struct {
	Name string `json:"name"`
	// Who describes it to people; empty if nothing more is known.
	Who string `json:"who,omitempty"`
}

// Entry is something that happened.
type Entry struct {
	Time time.Time `json:"time"`
	Text string    `json:"text"`
}

// Answer is the answer that an eviction call would get now.
type Answer struct {
	// Evicts: the call would evict the pod.
	Evicts bool `json:"evicts"`
	// Text says it in words.
	Text string `json:"text"`
}

// Tell derives the story from the facts.
func Tell(f Facts) Story {
	s := Story{Interceptors: []Interceptor{}, Budgets: []Budget{}}
	switch {
	case f.Pod != nil:
		s.Namespace, s.Pod, s.UID, s.Node = f.Pod.Namespace, f.Pod.Name, string(f.Pod.UID), f.Pod.Spec.NodeName
	case f.Request != nil && f.Request.Spec.Target.Pod != nil:
		s.Namespace, s.Pod, s.UID, s.Node = f.Request.Namespace, f.Request.Spec.Target.Pod.Name, string(f.Request.Spec.Target.Pod.UID), f.Request.Status.NodeName
	}
	if f.Request != nil {
		s.Request = f.Request.Name
	}
	if f.Eviction != nil {
		s.Eviction = f.Eviction.Name
	}
	c := newCase(&f)
	s.Interceptors = append(s.Interceptors, c.interceptors...)
	s.Budgets = append(s.Budgets, c.budgets...)
	for _, o := range c.budgetStatuses {
		told := EvictionBudget{Name: o.Budget, When: o.Text, Reason: o.Reason, Groups: o.Groups}
		if !o.Until.IsZero() {
			told.Until = &o.Until
		}
		s.EvictionBudgets = append(s.EvictionBudgets, told)
	}
	s.Requesters = requesters(&f)
	s.History = history(&f)
	for _, v := range verdicts {
		if headline, advice, ok := v.check(c); ok {
			s.Verdict, s.Headline, s.Advice = v.name, headline, advice
			break
		}
	}
	s.Answer = answerOf(c)
	for _, note := range notes {
		s.Notes = append(s.Notes, note(c)...)
	}
	return s
}
