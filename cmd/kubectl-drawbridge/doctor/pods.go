package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/internal/disruption"
	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// budget is a user's budget with its selector.
type budget struct {
	*policyv1.PodDisruptionBudget
	selector labels.Selector
}

// userBudgets returns the budgets that are not Drawbridge's own, by namespace.
func userBudgets(f *Facts) map[string][]budget {
	byNamespace := map[string][]budget{}
	for i := range f.Budgets {
		b := &f.Budgets[i]
		if isGuard(b) {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			continue // The API server admits none.
		}
		byNamespace[b.Namespace] = append(byNamespace[b.Namespace], budget{b, selector})
	}
	return byNamespace
}

func isGuard(b *policyv1.PodDisruptionBudget) bool {
	return b.Labels[v1alpha1.GuardBudgetLabel] == "true"
}

// resolver returns the resolver of the interceptors of pods, as far as the registrations
// could be read.
func resolver(f *Facts) *registration.Registry {
	options := registration.Options{Namespace: f.Namespace, AllowedReserved: allowedReserved(f), Native: func() bool { return f.Native }}
	known := registration.Known{Registrations: f.Registrations, Hooks: f.Hooks, Namespaces: f.Namespaces}
	if s := f.settings(); s.budgets || !s.known {
		known.Budgets = f.EvictionBudgets
	}
	return registration.Static(options, known)
}

// interceptors of the pod. One may be missing if a namespace was not read; then the
// findings about the pod are only less precise.
func interceptorsOf(registry *registration.Registry, pod *corev1.Pod) []string {
	names, err := registry.Resolve(pod)
	if err != nil {
		return nil
	}
	return names
}

// allowedReserved are the reserved names that pods may use: those of the values and those
// of accepted registrations.
func allowedReserved(f *Facts) []string {
	names := f.settings().allowedReserved
	for i := range f.Registrations {
		if _, accepted := condition(f.Registrations[i].Status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionTrue); accepted {
			names = append(names, f.Registrations[i].Name)
		}
	}
	return names
}

// podObject is how findings name a pod.
func podObject(pod *corev1.Pod) string { return fmt.Sprintf("pod/%s/%s", pod.Namespace, pod.Name) }

// crowd is a set of pods that the same budgets select.
type crowd struct {
	example     *corev1.Pod
	budgets     []string
	pods        int
	intercepted int
}

func severalBudgets(f *Facts) verdict {
	var v verdict
	budgets := userBudgets(f)
	registry := resolver(f)
	crowds := map[string]*crowd{}
	for i := range f.Pods {
		pod := &f.Pods[i]
		var names []string
		for _, b := range budgets[pod.Namespace] {
			if b.selector.Matches(labels.Set(pod.Labels)) {
				names = append(names, b.Name)
			}
		}
		if len(names) < 2 {
			continue
		}
		slices.Sort(names)
		key := pod.Namespace + "/" + strings.Join(names, ",")
		c := crowds[key]
		if c == nil {
			c = &crowd{example: pod, budgets: names}
			crowds[key] = c
		}
		c.pods++
		if len(interceptorsOf(registry, pod)) > 0 {
			if c.intercepted == 0 {
				c.example = pod
			}
			c.intercepted++
		}
	}
	v.summary = text.Counted(len(f.Budgets), "budget")
	v.findings = bounded(crowdFindings(crowds), "groups of pods have several budgets")
	return v
}

// crowdFindings returns the findings, those with intercepted pods first.
func crowdFindings(crowds map[string]*crowd) []Finding {
	sorted := make([]*crowd, 0, len(crowds))
	for _, c := range crowds {
		sorted = append(sorted, c)
	}
	slices.SortFunc(sorted, func(a, b *crowd) int {
		return cmp.Or(cmp.Compare(b.intercepted, a.intercepted), cmp.Compare(b.pods, a.pods),
			strings.Compare(a.example.Namespace+"/"+a.budgets[0], b.example.Namespace+"/"+b.budgets[0]))
	})
	findings := make([]Finding, 0, len(sorted))
	for _, c := range sorted {
		others := ""
		if c.pods > 1 {
			others = fmt.Sprintf(", as %s with it", text.Counted(c.pods-1, "other pod"))
		}
		if c.intercepted > 0 {
			others += fmt.Sprintf(" (%d with interceptors)", c.intercepted)
		}
		findings = append(findings, Finding{
			Severity: Warn, Object: podObject(c.example),
			What: fmt.Sprintf("%s select it%s: the API server answers every eviction with 500", "budgets "+list(c.budgets), others),
			Do:   fmt.Sprintf("Change a selector, or delete a budget, so that one is left: kubectl -n %s get poddisruptionbudgets", c.example.Namespace),
		})
	}
	return findings
}

// notCounted says why the disruption controller cannot count the budget's pods and
// therefore allows no disruption; empty if it can.
func notCounted(b *policyv1.PodDisruptionBudget, pod *corev1.Pod) string {
	c := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
	switch {
	case b.Status.DisruptionsAllowed > 0 || b.Status.ObservedGeneration != b.Generation:
		return ""
	case c != nil && c.Status == metav1.ConditionFalse && c.Reason == policyv1.SyncFailedReason:
		return "the disruption controller could not compute it: " + c.Message
	case b.Status.ExpectedPods == 0:
		return fmt.Sprintf("the disruption controller expects no pods, although it selects %s", pod.Name)
	default:
		return ""
	}
}

// excludedNamespaces finds pods whose interceptors no eviction call would ever start.
func excludedNamespaces(f *Facts) verdict {
	var v verdict
	configuration := f.configuration()
	if configuration == nil {
		v.summary = "there is no webhook"
		return v
	}
	webhook := webhookNamed(configuration, failurepolicy.EvictionWebhook)
	if webhook == nil || webhook.NamespaceSelector == nil {
		v.summary = "none is left out"
		return v
	}
	selector, err := metav1.LabelSelectorAsSelector(webhook.NamespaceSelector)
	if err != nil {
		v.warn("validatingwebhookconfiguration/"+configuration.Name, "its namespaceSelector cannot be read: "+err.Error(), upgrade)
		return v
	}
	registry := resolver(f)
	excluded := map[string]bool{}
	for i := range f.Namespaces {
		if n := &f.Namespaces[i]; n.Name != f.Namespace && !selector.Matches(labels.Set(n.Labels)) {
			excluded[n.Name] = true
		}
	}
	var findings []Finding
	pods := byNamespace(f.Pods)
	for _, namespace := range slices.Sorted(maps.Keys(excluded)) {
		var held []*corev1.Pod
		for _, pod := range pods[namespace] {
			if len(interceptorsOf(registry, pod)) > 0 {
				held = append(held, pod)
			}
		}
		if len(held) > 0 {
			findings = append(findings, Finding{
				Severity: Warn, Object: "namespace/" + namespace,
				What: fmt.Sprintf("%s with interceptors, such as %s, in a namespace that the webhook leaves out: evictions bypass the interceptors", text.Counted(len(held), "pod"), held[0].Name),
				Do:   "Take the namespace out of webhook.excludedNamespaces, or drain its nodes by a NodeMaintenance, which waits for the interceptors anyway.",
			})
		}
	}
	v.summary = fmt.Sprintf("%s left out, without such pods", text.Counted(len(excluded), "namespace"))
	v.findings = bounded(findings, "namespaces have pods whose interceptors are bypassed")
	return v
}

func blockingBudgets(f *Facts) verdict {
	var v verdict
	registry := resolver(f)
	surged := 0
	var findings []Finding
	budgets := userBudgets(f)
	namespaces := make([]string, 0, len(budgets))
	for namespace := range budgets {
		namespaces = append(namespaces, namespace)
	}
	slices.Sort(namespaces)
	pods := byNamespace(f.Pods)
	for _, namespace := range namespaces {
		for _, b := range budgets[namespace] {
			selected := disruption.Selected(b.PodDisruptionBudget, pods[namespace])
			if len(selected) == 0 {
				continue // It holds nobody, whatever its status still says.
			}
			pod := selected[0]
			if why := notCounted(b.PodDisruptionBudget, pod); why != "" {
				findings = append(findings, Finding{
					Severity: Warn, Object: fmt.Sprintf("poddisruptionbudget/%s/%s", b.Namespace, b.Name),
					What: "it allows no disruption, because " + why,
					Do:   fmt.Sprintf("Give its pods a controller that has a scale, or write minAvailable as a number, not maxUnavailable or a percentage: kubectl -n %s describe poddisruptionbudget %s", b.Namespace, b.Name),
				})
				continue
			}
			never := disruption.Of(b.PodDisruptionBudget, selected).Says()
			if never == "" {
				continue
			}
			if slices.Contains(interceptorsOf(registry, pod), surge.Name) {
				surged++
				continue
			}
			findings = append(findings, Finding{
				Severity: Warn, Object: fmt.Sprintf("poddisruptionbudget/%s/%s", b.Namespace, b.Name),
				What: fmt.Sprintf("it %s: no drain of a node with its pods ends", never),
				Do:   unblock(f, b, pod),
			})
		}
	}
	v.summary = "none blocks forever"
	if surged > 0 {
		v.summary = fmt.Sprintf("%s would block, but the pods get replacements first (surge)", text.Counted(surged, "budget"))
	}
	v.findings = bounded(findings, "budgets can never allow a disruption")
	return v
}

func byNamespace(pods []corev1.Pod) map[string][]*corev1.Pod {
	m := map[string][]*corev1.Pod{}
	for i := range pods {
		m[pods[i].Namespace] = append(m[pods[i].Namespace], &pods[i])
	}
	return m
}

// unblock says what to do about a budget that never allows a disruption.
func unblock(f *Facts, b budget, pod *corev1.Pod) string {
	relax := fmt.Sprintf("Relax it (maxUnavailable: 1), run more replicas, write an interceptor that moves the pods, or let an EvictionBudget have them deleted in spite of it (spec.exhausted): kubectl -n %s edit poddisruptionbudget %s", b.Namespace, b.Name)
	owner := ""
	if c := metav1.GetControllerOf(pod); c != nil {
		owner = c.Kind
	}
	if owner != "ReplicaSet" && owner != "Deployment" {
		return relax
	}
	first := ""
	if s := f.settings(); s.known && !s.surge {
		first = "set surge.enabled=true, and "
	}
	return fmt.Sprintf("Let Drawbridge start a replacement first: %slabel the namespace or the pod template %s=enabled (docs/guides/surge.md). Or: %s",
		first, surge.OptInLabel, strings.ToLower(relax[:1])+relax[1:])
}

func annotations(f *Facts) verdict {
	var v verdict
	allowed := allowedReserved(f)
	type group struct {
		example  *corev1.Pod
		pods     int
		problems []string
	}
	groups := map[string]*group{}
	var order []*group
	named := 0
	for i := range f.Pods {
		pod := &f.Pods[i]
		value, ok := pod.Annotations[v1alpha1.InterceptorsAnnotation]
		if !ok {
			continue
		}
		named++
		_, wrong := translate.ParseInterceptors(value, allowed...)
		if len(wrong) == 0 {
			continue
		}
		owner := pod.Name
		if c := metav1.GetControllerOf(pod); c != nil {
			owner = c.Kind + "/" + c.Name
		}
		key := pod.Namespace + "/" + owner + "/" + value
		g := groups[key]
		if g == nil {
			g = &group{example: pod, problems: wrong}
			groups[key] = g
			order = append(order, g)
		}
		g.pods++
	}
	findings := make([]Finding, 0, len(order))
	for _, g := range order {
		others := ""
		if g.pods > 1 {
			others = fmt.Sprintf(" (and %s of the same owner)", text.Counted(g.pods-1, "more pod"))
		}
		findings = append(findings, Finding{
			Severity: Warn, Object: podObject(g.example),
			What: fmt.Sprintf("its annotation %s is malformed%s: %s; such entries are ignored", v1alpha1.InterceptorsAnnotation, others, list(g.problems)),
			Do:   "Repair it in the pod template and let the pods be replaced: the annotation of a pod cannot be changed. The pods are older than the admission policy, or it was away.",
		})
	}
	slices.SortFunc(findings, func(a, b Finding) int { return strings.Compare(a.Object, b.Object) })
	v.summary = text.Counted(named, "pod") + " with the annotation"
	v.findings = bounded(findings, "groups of pods have malformed annotations")
	return v
}
