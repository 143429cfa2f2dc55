package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// condition returns the message of a condition, and whether it has that status.
func condition(conditions []metav1.Condition, kind string, status metav1.ConditionStatus) (message string, ok bool) {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil || c.Status != status {
		return "", false
	}
	return c.Message, true
}

// unjudged is how long the manager may take to process a new object.
const unjudged = 2 * time.Minute

func registrations(f *Facts) verdict {
	var v verdict
	var findings []Finding
	for i := range f.Registrations {
		r := &f.Registrations[i]
		object := "evictioninterceptor/" + r.Name
		message, refused := condition(r.Status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionFalse)
		failure, failed := condition(r.Status.Conditions, v1alpha1.ConditionEvaluated, metav1.ConditionFalse)
		switch {
		case r.Status.ObservedGeneration != r.Generation && f.Now.Sub(r.CreationTimestamp.Time) > unjudged:
			findings = append(findings, Finding{Severity: Warn, Object: object,
				What: "the manager has not observed its current version",
				Do:   "Wait a moment. If it stays, no replica leads: see \"replicas\"."})
		case refused:
			findings = append(findings, Finding{Severity: Warn, Object: object,
				What: "it is not accepted, so it intercepts no pod: " + message,
				Do:   "Correct it: kubectl edit evictioninterceptor " + r.Name})
		case failed:
			findings = append(findings, Finding{Severity: Warn, Object: object,
				What: "an expression fails for a pod: " + failure,
				Do:   "Correct matchConditions: ask with has() before a field that may be missing. kubectl edit evictioninterceptor " + r.Name})
		case selectsAll(r):
			findings = append(findings, Finding{Severity: Warn, Object: object,
				What: "it has neither a selector nor matchConditions: it intercepts every pod outside of kube-system",
				Do:   "Say which pods it means by podSelector, namespaceSelector or matchConditions: kubectl edit evictioninterceptor " + r.Name})
		}
	}
	v.summary = text.Counted(len(f.Registrations), "registration")
	v.findings = bounded(findings, "registrations are not in order")
	return v
}

// selectsAll reports whether a registration selects every pod.
func selectsAll(r *v1alpha1.EvictionInterceptor) bool {
	empty := func(s *metav1.LabelSelector) bool {
		return s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
	}
	return empty(r.Spec.PodSelector) && empty(r.Spec.NamespaceSelector) && len(r.Spec.MatchConditions) == 0
}

func evacuationPolicies(f *Facts) verdict {
	var v verdict
	var findings []Finding
	for i := range f.EvacuationPolicies {
		p := &f.EvacuationPolicies[i]
		for _, kind := range []struct{ condition, what, do string }{
			{v1alpha1.ConditionAccepted, "it is not accepted", "Correct it: kubectl edit evacuationpolicy " + p.Name},
			{v1alpha1.ConditionReady, "it is not ready", "Install the platform, or switch the preset off; give permissions that are missing by policies.rules (docs/reference/evacuationpolicy.md)."},
			{v1alpha1.ConditionEvaluated, "an expression fails", "Correct it: kubectl edit evacuationpolicy " + p.Name},
			{v1alpha1.ConditionExclusive, "another policy covers one of its pods", "Change a selector so that each pod has one policy."},
			{v1alpha1.ConditionMarking, "its marks have no effect", "Let it write where the platform lets others write (docs/runbooks/mark-discarded.md)."},
			{v1alpha1.ConditionProgressing, "an evacuation was given up", "See the event of its pod: kubectl drawbridge why POD -n NAMESPACE"},
		} {
			if message, no := condition(p.Status.Conditions, kind.condition, metav1.ConditionFalse); no {
				findings = append(findings, Finding{Severity: Warn, Object: "evacuationpolicy/" + p.Name, What: kind.what + ": " + message, Do: kind.do})
				break // The others follow from it.
			}
		}
	}
	v.summary = text.Counted(len(f.EvacuationPolicies), "policy")
	if len(f.EvacuationPolicies) != 1 {
		v.summary = fmt.Sprintf("%d policies", len(f.EvacuationPolicies))
	}
	v.findings = bounded(findings, "policies are not in order")
	return v
}

// silence is how long an interceptor may have its turn without a report before that is
// worth a finding. Drawbridge itself waits for --heartbeat-deadline.
const silence = 3 * time.Minute

// waiting are the requests that wait for one interceptor.
type waiting struct {
	name     string
	requests int
	example  *v1alpha1.EvictionRequest
}

func silentInterceptors(f *Facts) verdict {
	var v verdict
	byName := map[string]*waiting{}
	for i := range f.Requests {
		er := &f.Requests[i]
		name := unheard(er, f.Now)
		if name == "" {
			continue
		}
		w := byName[name]
		if w == nil {
			w = &waiting{name: name, example: er}
			byName[name] = w
		}
		w.requests++
		if er.Status.ActivationTime.Before(w.example.Status.ActivationTime) {
			w.example = er
		}
	}
	all := make([]*waiting, 0, len(byName))
	for _, w := range byName {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b *waiting) int {
		return cmp.Or(a.example.Status.ActivationTime.Compare(b.example.Status.ActivationTime.Time), strings.Compare(a.name, b.name))
	})
	findings := make([]Finding, 0, len(all))
	for _, w := range all {
		pod := w.example.Spec.Target.Pod.Name
		findings = append(findings, Finding{
			Severity: Warn, Object: fmt.Sprintf("evictionrequest/%s/%s", w.example.Namespace, w.example.Name),
			What: fmt.Sprintf("interceptor %s has not reported: %s for it, the longest for %s (pod %s)", w.name, wait(w.requests), duration.HumanDuration(f.Now.Sub(w.example.Status.ActivationTime.Time)), pod),
			Do: fmt.Sprintf("Is its program running, and may it write evictionrequests/status? kubectl drawbridge why %s -n %s; docs/runbooks/interceptor-silent.md. To continue without it: kubectl drawbridge skip %s %s -n %s",
				pod, w.example.Namespace, pod, w.name, w.example.Namespace),
		})
	}
	v.summary = text.Counted(len(f.Requests), "request") + " in progress"
	v.findings = bounded(findings, "interceptors are silent")
	return v
}

func wait(n int) string {
	if n == 1 {
		return "1 request waits"
	}
	return fmt.Sprintf("%d requests wait", n)
}

// unheard returns the active interceptor of the request if it has had its turn for a
// while and never reported.
func unheard(er *v1alpha1.EvictionRequest, now time.Time) string {
	activated := er.Status.ActivationTime
	if len(er.Status.ActiveInterceptors) == 0 || activated == nil || now.Sub(activated.Time) < silence || er.Spec.Target.Pod == nil {
		return ""
	}
	name := er.Status.ActiveInterceptors[0]
	if name == v1alpha1.ImperativeEvictionInterceptor {
		return ""
	}
	if report := v1alpha1.ReportOf(er, name); report.StartTime != nil || report.HeartbeatTime != nil {
		return ""
	}
	return name
}

func leftoverNodes(f *Facts) verdict {
	var v verdict
	var findings []Finding
	for i := range f.Nodes {
		node := &f.Nodes[i]
		var gone []string
		for item := range strings.SplitSeq(node.Annotations[v1alpha1.MaintenancesAnnotation], ",") {
			name, _, _ := strings.Cut(item, "=") // Its stage follows.
			if name != "" && !hasMaintenance(f, name) {
				gone = append(gone, name)
			}
		}
		object := "node/" + node.Name
		_, cordoned := node.Annotations[v1alpha1.CordonAnnotation]
		switch {
		case len(gone) > 0:
			findings = append(findings, Finding{Severity: Warn, Object: object,
				What: fmt.Sprintf("it is marked by a NodeMaintenance that is gone (%s)%s", list(gone), stillCordoned(node)), Do: release(node)})
		case cordoned && node.Annotations[v1alpha1.MaintenancesAnnotation] == "":
			findings = append(findings, Finding{Severity: Warn, Object: object,
				What: "it has the annotation " + v1alpha1.CordonAnnotation + " of a maintenance, and is under none" + stillCordoned(node), Do: release(node)})
		case tainted(node) && node.Annotations[v1alpha1.MaintenancesAnnotation] == "":
			findings = append(findings, Finding{Severity: Warn, Object: object,
				What: "it has the taint " + v1alpha1.MaintenanceTaint + " of a maintenance, and is under none", Do: release(node)})
		}
	}
	v.summary = fmt.Sprintf("%s under maintenance", text.Counted(len(f.Nodes), "node"))
	v.findings = bounded(findings, "nodes are left over")
	return v
}

func hasMaintenance(f *Facts, name string) bool {
	return slices.ContainsFunc(f.Maintenances, func(m v1alpha1.NodeMaintenance) bool { return m.Name == name })
}

func stillCordoned(node *corev1.Node) string {
	if node.Spec.Unschedulable {
		return ", and still cordoned"
	}
	return ""
}

// tainted reports whether the node has the taint of a maintenance.
func tainted(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.MaintenanceTaint })
}

// release says how to free a node. A node that was cordoned before stays cordoned.
func release(node *corev1.Node) string {
	clean := fmt.Sprintf("kubectl annotate node %s %s- %s- %s- %s-", node.Name, v1alpha1.MaintenancesAnnotation, v1alpha1.CordonAnnotation, v1alpha1.MaintenancePhaseAnnotation, v1alpha1.MaintenanceWavesAnnotation)
	if tainted(node) {
		clean += fmt.Sprintf(" && kubectl taint node %s %s-", node.Name, v1alpha1.MaintenanceTaint)
	}
	if node.Spec.Unschedulable && node.Annotations[v1alpha1.CordonAnnotation] != v1alpha1.CordonOther {
		return fmt.Sprintf("If nobody works on it: kubectl uncordon %s && %s", node.Name, clean)
	}
	return "If nobody works on it: " + clean
}
