package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// Need is a permission that the manager needs.
type Need struct {
	// Group and Resource, with its subresource behind a slash.
	Group, Resource string
	// Verbs are checked one by one; in a Permission there is one.
	Verbs []string
	// Name of the object, if the permission may be for one only.
	Name string
	// Here: only in the manager's own namespace.
	Here bool
	// For says what it is needed for.
	For string
}

// Needs returns the permissions that the manager needs, which depend on the facts up to
// the Deployment.
func Needs(f *Facts) []Need {
	s := f.settings()
	needs := []Need{
		{Resource: "pods/eviction", Verbs: []string{"create"}, For: "evicting"},
		{Resource: "pods", Verbs: []string{"get", "list", "watch"}, For: "knowing pods"},
		{Resource: "nodes", Verbs: []string{"get", "list", "watch"}, For: "seeing who drains"},
		{Resource: "namespaces", Verbs: []string{"list", "watch"}, For: "registrations that select by namespaces"},
		{Group: "policy", Resource: "poddisruptionbudgets", Verbs: []string{"list", "watch"}, For: "waking up when a budget allows"},
		{Group: v1alpha1.GroupName, Resource: "evictionrequests", Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}, For: "requests"},
		{Group: v1alpha1.GroupName, Resource: "evictionrequests/status", Verbs: []string{"patch"}, For: "requests"},
		{Group: v1alpha1.GroupName, Resource: "evictioninterceptors", Verbs: []string{"list", "watch"}, For: "registrations"},
		{Group: v1alpha1.GroupName, Resource: "evictioninterceptors/status", Verbs: []string{"patch"}, For: "registrations"},
		{Group: v1alpha1.GroupName, Resource: "evacuationpolicies", Verbs: []string{"list", "watch"}, For: "policies"},
		{Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Verbs: []string{"create"}, For: "learning who may skip an interceptor"},
		{Group: "events.k8s.io", Resource: "events", Verbs: []string{"create", "patch"}, For: "events"},
		{Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"get", "list", "watch", "create", "update"}, Here: true, For: "leading, and following callers"},
	}
	if c := f.configuration(); c != nil {
		needs = append(needs, Need{
			Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Verbs: []string{"get", "update"},
			Name: c.Name, For: "being trusted by the API server",
		})
	}
	if name := f.secretName(); name != "" {
		verbs := []string{"list", "watch"}
		if s.certManager == "" {
			verbs = append(verbs, "update")
		}
		needs = append(needs, Need{Resource: "secrets", Verbs: verbs, Name: name, Here: true, For: "the webhook's certificate"})
	}
	if s.guard {
		needs = append(needs,
			Need{Resource: "pods", Verbs: []string{"patch"}, For: "the guard"},
			Need{Group: "apps", Resource: "replicasets", Verbs: []string{"get"}, For: "the guard"},
			Need{Group: "apps", Resource: "statefulsets", Verbs: []string{"get"}, For: "the guard"},
			Need{Group: "policy", Resource: "poddisruptionbudgets", Verbs: []string{"create"}, For: "the guard"},
			Need{Group: "policy", Resource: "poddisruptionbudgets", Verbs: []string{"update", "delete"}, Name: v1alpha1.GuardBudgetName, For: "the guard"},
		)
	}
	if s.surge {
		needs = append(needs,
			Need{Group: "apps", Resource: "deployments", Verbs: []string{"get", "list", "watch"}, For: "surge"},
			Need{Group: "apps", Resource: "replicasets", Verbs: []string{"get", "list", "watch"}, For: "surge"},
			Need{Resource: "pods", Verbs: []string{"patch"}, For: "surge"},
			Need{Resource: "persistentvolumeclaims", Verbs: []string{"get"}, For: "surge"},
			Need{Resource: "services", Verbs: []string{"list"}, For: "surge"},
		)
	}
	if s.maintenance {
		needs = append(needs,
			Need{Group: v1alpha1.GroupName, Resource: "nodemaintenances", Verbs: []string{"list", "watch", "patch"}, For: "maintenances"},
			Need{Group: v1alpha1.GroupName, Resource: "nodemaintenances/status", Verbs: []string{"update"}, For: "maintenances"},
			Need{Resource: "nodes", Verbs: []string{"patch"}, For: "maintenances"},
			Need{Resource: "pods/status", Verbs: []string{"patch"}, For: "maintenances"},
		)
	}
	if s.hooks {
		needs = append(needs,
			Need{Group: v1alpha1.GroupName, Resource: "evacuationhooks", Verbs: []string{"list", "watch"}, For: "hooks"},
			Need{Group: v1alpha1.GroupName, Resource: "evacuationhooks/status", Verbs: []string{"update"}, For: "hooks"},
			Need{Group: "batch", Resource: "jobs", Verbs: []string{"get", "list", "watch", "create", "delete"}, For: "hooks"},
		)
	}
	if s.hooks && s.hooksExec {
		needs = append(needs, Need{Resource: "pods/exec", Verbs: []string{"get", "create"}, For: "hooks"})
	}
	if s.budgets {
		needs = append(needs,
			Need{Group: v1alpha1.GroupName, Resource: "evictionbudgets", Verbs: []string{"get", "list", "watch"}, For: "EvictionBudgets"},
			Need{Group: v1alpha1.GroupName, Resource: "evictionbudgets/status", Verbs: []string{"update"}, For: "EvictionBudgets"},
			Need{Group: "apps", Resource: "statefulsets", Verbs: []string{"list", "watch"}, For: "EvictionBudgets"},
			Need{Group: "apps", Resource: "deployments", Verbs: []string{"list", "watch"}, For: "EvictionBudgets"},
			Need{Group: "apps", Resource: "replicasets", Verbs: []string{"list", "watch"}, For: "EvictionBudgets"},
			Need{Resource: "replicationcontrollers", Verbs: []string{"list", "watch"}, For: "EvictionBudgets"},
		)
	}
	if f.Native {
		needs = append(needs, nativeNeeds(s)...)
	}
	if s.descheduler {
		needs = append(needs, Need{Resource: "pods", Verbs: []string{"patch"}, For: "the marks for the descheduler"})
	}
	if s.protected {
		needs = append(needs, Need{Group: "authentication.k8s.io", Resource: "tokenreviews", Verbs: []string{"create"}, For: "protecting the metrics"})
	}
	if s.logConfig != "" {
		needs = append(needs, Need{Resource: "configmaps", Verbs: []string{"list", "watch"}, Name: s.logConfig, Here: true, For: "the log level"})
	}
	for _, name := range s.presets {
		if name != "" {
			needs = append(needs, Need{Resource: "configmaps", Verbs: []string{"get"}, Name: name, Here: true, For: "settings"})
		}
	}
	return needs
}

// of is the need without its verbs, for comparison.
func (n Need) of() string { return strings.Join([]string{n.Group, n.Resource, n.Name, n.For}, "|") }

// parts are the resource and its subresource.
func (n Need) parts() (resource, subresource string) {
	resource, subresource, _ = strings.Cut(n.Resource, "/")
	return resource, subresource
}

// text is the permission as people write it.
func (n Need) text(namespace string) string {
	resource, subresource := n.parts()
	if n.Group != "" {
		resource += "." + n.Group
	}
	if subresource != "" {
		resource += "/" + subresource
	}
	text := fmt.Sprintf("%q on %s", strings.Join(n.Verbs, ", "), resource)
	if n.Name != "" {
		text += fmt.Sprintf(" %q", n.Name)
	}
	if n.Here {
		text += " in the namespace " + namespace
	}
	return text
}

func permissions(f *Facts) verdict {
	var v verdict
	v.summary = text.Counted(len(f.Permissions), "permission")
	if f.ServiceAccount == "" {
		v.fail("serviceaccount/"+f.Namespace, "there is no service account of Drawbridge", "Install the chart.")
		return v
	}
	object := fmt.Sprintf("serviceaccount/%s/%s", f.Namespace, f.ServiceAccount)
	var missing []Need
	for _, p := range f.Permissions {
		if p.Allowed {
			continue
		}
		last := len(missing) - 1
		if last >= 0 && missing[last].of() == p.of() {
			missing[last].Verbs = append(slices.Clip(missing[last].Verbs), p.Verbs...)
			continue
		}
		missing = append(missing, p.Need)
	}
	findings := make([]Finding, 0, len(missing))
	for _, need := range missing {
		findings = append(findings, Finding{
			Severity: Fail, Object: object,
			What: fmt.Sprintf("the manager may not %s: needed for %s", need.text(f.Namespace), need.For),
			Do:   "Run helm upgrade with the values of the installation; look whether somebody changed its roles or their bindings.",
		})
	}
	v.findings = bounded(findings, "permissions are missing")
	return v
}
