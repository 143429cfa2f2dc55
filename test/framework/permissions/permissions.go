// Package permissions compares what an account may do with what it has done, so that
// the chart grants neither too much nor too little.
package permissions

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// Permission is one verb on one resource, as a rule of a role grants it.
type Permission struct {
	// Role that grants it, for people.
	Role string
	// Namespace it is limited to; empty for all.
	Namespace string
	// Group, Resource (with its subresource, as in "pods/eviction") and Verb.
	Group, Resource, Verb string
	// Names it is limited to; empty for all.
	Names []string
}

// String is the permission in a line: `ROLE: VERB RESOURCE.GROUP NAMES in NAMESPACE`.
func (p Permission) String() string {
	s := p.Role + ": " + p.Verb + " " + p.Resource
	if p.Group != "" {
		s += "." + p.Group
	}
	if len(p.Names) > 0 {
		s += " " + strings.Join(p.Names, ",")
	}
	if p.Namespace != "" {
		s += " in " + p.Namespace
	}
	return s
}

// covers reports whether the permission allows the call. A call for a list has no name,
// but the server takes the name of a field selector for it.
func (p Permission) covers(call cluster.Request) bool {
	resource := call.Resource
	if call.Subresource != "" {
		resource += "/" + call.Subresource
	}
	if p.Group != call.Group || p.Resource != resource || p.Verb != call.Verb {
		return false
	}
	if p.Namespace != "" && p.Namespace != call.Namespace {
		return false
	}
	if len(p.Names) == 0 || slices.Contains(p.Names, call.Name) {
		return true
	}
	return slices.ContainsFunc(p.Names, func(name string) bool { return strings.Contains(call.URI, "fieldSelector=metadata.name%3D"+name) })
}

// Granted returns all that the service account has been granted by name, in order.
// What groups of all accounts may do is left out.
func Granted(ctx context.Context, client kubernetes.Interface, namespace, account string) ([]Permission, error) {
	is := func(subjects []rbacv1.Subject, here string) bool {
		return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.ServiceAccountKind && s.Name == account && cmp.Or(s.Namespace, here) == namespace
		})
	}
	var granted []Permission
	wide, err := client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list ClusterRoleBindings: %w", err)
	}
	for _, binding := range wide.Items {
		if !is(binding.Subjects, "") {
			continue
		}
		role, err := client.RbacV1().ClusterRoles().Get(ctx, binding.RoleRef.Name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("get ClusterRole: %w", err)
		}
		granted = append(granted, expand("ClusterRole "+role.Name, "", role.Rules)...)
	}
	narrow, err := client.RbacV1().RoleBindings(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list RoleBindings: %w", err)
	}
	for _, binding := range narrow.Items {
		if !is(binding.Subjects, binding.Namespace) || binding.RoleRef.Kind != "Role" {
			continue
		}
		role, err := client.RbacV1().Roles(binding.Namespace).Get(ctx, binding.RoleRef.Name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("get Role: %w", err)
		}
		granted = append(granted, expand("Role "+role.Name, binding.Namespace, role.Rules)...)
	}
	slices.SortFunc(granted, func(a, b Permission) int { return cmp.Compare(a.String(), b.String()) })
	return granted, nil
}

func expand(role, namespace string, rules []rbacv1.PolicyRule) []Permission {
	var all []Permission
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all = append(all, Permission{
						Role: role, Namespace: namespace, Group: group, Resource: resource, Verb: verb, Names: rule.ResourceNames,
					})
				}
			}
		}
	}
	return all
}

// Unused returns the permissions that none of the calls needed.
func Unused(granted []Permission, calls cluster.Requests) []Permission {
	var unused []Permission
	for _, permission := range granted {
		if !slices.ContainsFunc(calls, permission.covers) {
			unused = append(unused, permission)
		}
	}
	return unused
}

// decision is the key under which the API server notes what its authorizers said.
const decision = "authorization.k8s.io/decision"

// Missing returns the calls that were refused for want of a permission, each once. One
// that an admission plugin or policy refused is not among them, nor one that is granted:
// an API server that has just started refuses everything until it has read the roles.
func Missing(granted []Permission, calls cluster.Requests) []string {
	var missing []string
	for _, call := range calls {
		if call.Annotations[decision] != "forbid" || slices.ContainsFunc(granted, func(p Permission) bool { return p.covers(call) }) {
			continue
		}
		p := Permission{Role: "no role", Group: call.Group, Resource: call.Resource, Verb: call.Verb}
		if call.Subresource != "" {
			p.Resource += "/" + call.Subresource
		}
		if call.Resource == "" {
			p.Resource = call.URI
		}
		missing = append(missing, p.String())
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}
