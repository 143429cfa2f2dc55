package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/internal/keys"
)

// keysOf remembers the keys of ours on an object, and in its pod template if it has one.
func (f *Facts) keysOf(object client.Object, kind string, template *corev1.PodTemplateSpec) {
	on := keys.Metadata{Place: keys.Place(kind), Labels: object.GetLabels(), Annotations: object.GetAnnotations()}
	var in *keys.Metadata
	if template != nil {
		in = &keys.Metadata{Place: keys.TemplateOf(kind), Labels: template.Labels, Annotations: template.Annotations}
	}
	name, owner := nameOf(kind, object.GetNamespace(), object.GetName()), ""
	if c := metav1.GetControllerOf(object); c != nil {
		owner = nameOf(c.Kind, object.GetNamespace(), c.Name)
	}
	for _, written := range keys.Of(on, in) {
		f.Keys = append(f.Keys, Key{Written: written, Object: name, Owner: owner})
	}
}

func nameOf(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return strings.ToLower(kind) + "/" + name
}

// workload remembers what a workload shows: keys of ours, and that it runs a program that evicts pods.
func (f *Facts) workload(object client.Object, kind string, template *corev1.PodTemplateSpec) {
	f.keysOf(object, kind, template)
	f.meetTool(kind, object, template)
}

// workloads reads the other objects on which users write keys. Nothing but the keys is kept, and what
// evicts pods.
func (g *Gatherer) workloads(ctx context.Context, f *Facts) {
	read(ctx, g, f, Workloads, func() *appsv1.DeploymentList { return &appsv1.DeploymentList{} },
		func(d *appsv1.Deployment) { f.workload(d, "Deployment", &d.Spec.Template) })
	read(ctx, g, f, Workloads, func() *appsv1.StatefulSetList { return &appsv1.StatefulSetList{} },
		func(s *appsv1.StatefulSet) { f.workload(s, "StatefulSet", &s.Spec.Template) })
	read(ctx, g, f, Workloads, func() *appsv1.DaemonSetList { return &appsv1.DaemonSetList{} },
		func(s *appsv1.DaemonSet) { f.workload(s, "DaemonSet", &s.Spec.Template) })
	read(ctx, g, f, Workloads, func() *batchv1.CronJobList { return &batchv1.CronJobList{} },
		func(c *batchv1.CronJob) { f.workload(c, "CronJob", &c.Spec.JobTemplate.Spec.Template) })
	read(ctx, g, f, Workloads, func() *batchv1.JobList { return &batchv1.JobList{} }, func(j *batchv1.Job) {
		if j.Status.CompletionTime == nil {
			f.keysOf(j, "Job", &j.Spec.Template)
		}
	})
	read(ctx, g, f, Workloads, func() *schedulingv1.PriorityClassList { return &schedulingv1.PriorityClassList{} },
		func(c *schedulingv1.PriorityClass) { f.keysOf(c, "PriorityClass", nil) })
	read(ctx, g, f, Workloads, func() *rbacv1.ClusterRoleList { return &rbacv1.ClusterRoleList{} },
		func(r *rbacv1.ClusterRole) { f.keysOf(r, "ClusterRole", nil) })
}

// off are the features that are switched off, as values of the chart.
func (s *settings) off() []string {
	var off []string
	for value, on := range map[string]bool{
		"surge.enabled": s.surge, "hooks.enabled": s.hooks, "budgets.enabled": s.budgets, "preemption.enabled": s.preemption,
	} {
		if s.known && !on {
			off = append(off, value)
		}
	}
	return off
}

// understoodKeys finds what does nothing where it stands. Who has written a key is not known.
func understoodKeys(f *Facts) verdict {
	var v verdict
	s := f.settings()
	off := s.off()
	pods := map[string]int{}
	findings := map[string]*Finding{}
	var order []string
	for _, key := range f.Keys {
		if key.Place == "Pod" && key.Key == v1alpha1.InterceptorsAnnotation && key.Form == keys.Annotation {
			continue // The check "annotations" looks at it, and knows more.
		}
		problem := key.Problem(off...)
		if problem == "" {
			continue
		}
		id := problem + "\n" + key.Owner
		if key.Owner == "" {
			id += key.Object
		}
		if findings[id] == nil {
			findings[id] = &Finding{Severity: Warn, Object: key.Object, What: problem, Do: repair(key)}
			order = append(order, id)
		}
		pods[id]++
	}
	all := make([]Finding, 0, len(order))
	for _, id := range order {
		finding := *findings[id]
		if n := pods[id]; n > 1 {
			finding.What += fmt.Sprintf(" (and on %s of the same owner)", text.Counted(n-1, "more pod"))
		}
		all = append(all, finding)
	}
	slices.SortFunc(all, func(a, b Finding) int { return strings.Compare(a.Object+a.What, b.Object+b.What) })
	v.summary = text.Counted(len(f.Keys), "key")
	v.findings = bounded(all, "labels and annotations do nothing")
	return v
}

// repair says what to do about a key.
func repair(key Key) string {
	what := "Correct or remove it"
	if key.Owner != "" {
		what += fmt.Sprintf(", also in the pod template of %s", key.Owner)
	}
	return what + ": " + keys.Page + " lists what is understood."
}
