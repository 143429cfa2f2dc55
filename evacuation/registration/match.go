package registration

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/text"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// entry is one generation of an EvictionInterceptor or EvacuationHook, compiled. It never
// changes.
type entry struct {
	Info
	// key of the object: NAME, or NAMESPACE/NAME of a hook.
	key string
	// hook is empty for an EvictionInterceptor.
	hook       types.NamespacedName
	uid        types.UID
	generation int64
	// refused says why the registration is not accepted, nil if it is. One that is
	// not accepted selects nothing and names no accounts.
	refused *refusal

	pods       labels.Selector
	namespaces labels.Selector
	conditions []condition
	// seesNamespace: the answer depends on the pod's namespace, by its labels or by
	// an expression.
	seesNamespace bool
	// nativeKey is its name among the responders of pods, empty for none.
	nativeKey string
	// id is another one for each entry, for the memo.
	id uint64
	// reads is what the conditions look at.
	reads parts
}

// refusal is the reason and message of the condition Accepted=False.
type refusal struct{ reason, message string }

// condition is a compiled matchCondition.
type condition struct {
	expression
	name     string
	position int
}

func (c condition) String() string {
	return fmt.Sprintf("matchConditions[%d] %q", c.position, c.name)
}

// compileEntry compiles a registration.
func compileEntry(from *v1alpha1.EvictionInterceptor, allowReserved []string) *entry {
	e := newEntry(from)
	name := func(from *v1alpha1.EvictionInterceptor) *refusal { return checkName(from.Name, allowReserved) }
	e.compile(from, name, e.compileSelectors, e.compileConditions, e.compileAfter)
	return e
}

func newEntry(from *v1alpha1.EvictionInterceptor) *entry {
	return &entry{
		id: entryIDs.Add(1), key: from.Name, uid: from.UID, generation: from.Generation, Info: infoOf(from),
		pods: labels.Nothing(), namespaces: labels.Nothing(), nativeKey: from.Spec.NativeKey,
	}
}

// compile goes through the steps until one refuses.
func (e *entry) compile(from *v1alpha1.EvictionInterceptor, steps ...func(*v1alpha1.EvictionInterceptor) *refusal) {
	for _, step := range steps {
		if e.refused = step(from); e.refused != nil {
			e.pods, e.namespaces, e.conditions = labels.Nothing(), labels.Nothing(), nil
			return
		}
	}
}

func infoOf(from *v1alpha1.EvictionInterceptor) Info {
	r := Info{
		Name:     from.Name,
		Priority: v1alpha1.DefaultInterceptorPriority,
		Evicts:   from.Spec.Evicts,
		Guard:    from.Spec.Guard,
		Planned: v1alpha1.Interceptor{
			HeartbeatDeadline: from.Spec.HeartbeatDeadline, Minimum: from.Spec.Minimum, OnShortNotice: from.Spec.OnShortNotice,
			OnNodeLost: from.Spec.OnNodeLost,
		},
	}
	if from.Spec.Priority != nil {
		r.Priority = *from.Spec.Priority
	}
	if r.Guard == "" {
		r.Guard = v1alpha1.GuardWhileEvacuating
	}
	for _, account := range from.Spec.ServiceAccounts {
		r.Usernames = append(r.Usernames, "system:serviceaccount:"+account.Namespace+":"+account.Name)
	}
	return r
}

// checkName applies the rules of a name in a pod's annotation. The schema has
// refused what is malformed; which reserved names are allowed it cannot know.
func checkName(name string, allowReserved []string) *refusal {
	if name == v1alpha1.BudgetInterceptor {
		return &refusal{v1alpha1.ReasonReservedName, fmt.Sprintf("metadata.name %q is not allowed: it is the interceptor of EvictionBudgets; "+
			"choose another name. The registration selects no pods.", name)}
	}
	if name == v1alpha1.OrderInterceptor {
		return &refusal{v1alpha1.ReasonReservedName, fmt.Sprintf("metadata.name %q is not allowed: it is the interceptor of spec.after of all registrations; "+
			"choose another name, which may end in %s. The registration selects no pods.", name, v1alpha1.OrderInterceptorSuffix)}
	}
	if name == v1alpha1.NativeInterceptor {
		return &refusal{v1alpha1.ReasonReservedName, fmt.Sprintf("metadata.name %q is not allowed: it is the interceptor of pods' own spec.evictionResponders; "+
			"choose another name. The registration selects no pods.", name)}
	}
	if isHookName(name) {
		return &refusal{v1alpha1.ReasonReservedName, fmt.Sprintf("metadata.name %q is not allowed: names under %s are those of EvacuationHooks; "+
			"choose another name. The registration selects no pods.", name, v1alpha1.HookInterceptorSuffix[1:])}
	}
	if names, _ := translate.ParseInterceptors(name, allowReserved...); len(names) == 1 && names[0] == name {
		return nil
	}
	return &refusal{v1alpha1.ReasonReservedName, fmt.Sprintf("metadata.name %q is not allowed: names under k8s.io and kubernetes.io are reserved for Kubernetes; "+
		"choose another name, or allow this one by the chart value interceptors.allowedReservedNames. The registration selects no pods.", name)}
}

func (e *entry) compileSelectors(from *v1alpha1.EvictionInterceptor) *refusal {
	selectors, err := translate.CompileSelectors(from.Spec.PodSelector, from.Spec.NamespaceSelector)
	if err != nil {
		return &refusal{v1alpha1.ReasonInvalidSelector, "spec." + oneLine(err) + ". " + e.selectsNothing()}
	}
	e.pods, e.namespaces = selectors.Pods, selectors.Namespaces
	e.seesNamespace = !e.namespaces.Empty()
	return nil
}

func (e *entry) compileConditions(from *v1alpha1.EvictionInterceptor) *refusal {
	if len(from.Spec.MatchConditions) == 0 {
		return nil
	}
	compiler, err := theExpressions()
	if e.isHook() {
		compiler, err = theHookExpressions()
	}
	if err != nil {
		return &refusal{v1alpha1.ReasonInvalidExpression, oneLine(err)}
	}
	for i, c := range from.Spec.MatchConditions {
		compiled := condition{name: c.Name, position: i}
		if compiled.expression, err = compiler.compile(c.Expression); err != nil {
			return &refusal{v1alpha1.ReasonInvalidExpression, fmt.Sprintf("spec.%s does not compile: %s. "+
				"Expressions can read what Drawbridge keeps of a pod (%s) and the namespace's name, labels and annotations (variable namespaceObject), nothing else. %s",
				compiled, oneLine(err), e.podVariables(), e.selectsNothing())}
		}
		e.conditions = append(e.conditions, compiled)
		e.seesNamespace = e.seesNamespace || compiled.namespace
		e.reads.add(compiled.program)
	}
	return nil
}

// podVariables are the names that expressions have for the pod, for people.
func (e *entry) podVariables() string {
	if e.isHook() {
		return "variable " + hookPodVariable + " or " + podVariable
	}
	return "variable " + podVariable
}

// selectsNothing is the end of every message of a refusal.
func (e *entry) selectsNothing() string {
	if e.isHook() {
		return "The hook covers no pods."
	}
	return "The registration selects no pods."
}

// maxProblem is how much of a compiler's text a condition repeats.
const maxProblem = 1000

// oneLine makes a text of one line that is not too long.
func oneLine(err error) string { return text.OneLine(err.Error(), maxProblem) }

// matchConditions evaluates the conditions for a pod whose labels and namespace
// match. An expression that fails counts as false; err says which. As in a
// ValidatingAdmissionPolicy it does not matter if another condition is false: so a
// condition can guard another.
func (e *entry) matchConditions(in *celInput) (match bool, err error) {
	budget := int64(podBudget)
	var failure error
	for _, c := range e.conditions {
		match, cost, err := c.evaluate(in)
		budget -= cost
		switch {
		case err == nil && !match:
			return false, nil
		case err != nil && failure == nil:
			failure = fmt.Errorf("%s: %w", c, err)
		}
		if budget < 0 {
			return false, fmt.Errorf("%s: the conditions together cost more than the %d allowed for one pod", c, podBudget)
		}
	}
	return failure == nil, failure
}

// matchNamespace reports whether the registration looks at pods of a namespace
// with these labels.
func (e *entry) matchNamespace(namespace *corev1.Namespace) bool {
	return e.namespaces.Matches(labels.Set(namespace.Labels))
}
