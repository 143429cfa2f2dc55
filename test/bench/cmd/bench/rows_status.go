//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// statusSides are what a write of a request's status is compared with: copies of its definition in
// groups that no admission policy of ours is about, less what change takes from the schema.
var statusSides = []struct {
	group, without string
	change         func(schema map[string]any)
}{
	{v1alpha1.GroupName, "", nil},
	{"policies.bench.example.com", "our admission policies", func(map[string]any) {}},
	{"rules.bench.example.com", "them and CEL rules", dropRules},
	{"schema.bench.example.com", "them and a schema", func(schema map[string]any) {
		clear(schema)
		schema["type"], schema["x-kubernetes-preserve-unknown-fields"] = "object", true
	}},
}

// dropRules takes all CEL rules from a schema.
func dropRules(schema map[string]any) {
	delete(schema, "x-kubernetes-validations")
	for _, value := range schema {
		switch value := value.(type) {
		case map[string]any:
			dropRules(value)
		case []any:
			for _, item := range value {
				if item, ok := item.(map[string]any); ok {
					dropRules(item)
				}
			}
		}
	}
}

// statusCost is the CPU of the API server for each write: the first turn, and the outcome.
type statusCost struct{ turn, outcome time.Duration }

// measureStatus: what parts of a write of a request's status cost the API server. One account writes
// the same to all sides, and no manager runs.
func measureStatus(ctx context.Context, e *env) error {
	if err := e.stopManager(ctx); err != nil {
		return err
	}
	config, err := e.cluster.ConfigForServiceAccount(ctx, e.inst.Namespace, e.inst.ServiceAccount)
	if err != nil {
		return err
	}
	writer, err := client.New(unlimited(config), client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if err := e.copyDefinitions(ctx); err != nil {
		return err
	}
	n := e.size(300, 100)
	var sides []func(context.Context) (statusCost, error)
	for _, side := range statusSides {
		sides = append(sides, func(ctx context.Context) (statusCost, error) { return e.writeStatuses(ctx, writer, side.group, n) })
	}
	got, err := alternate(ctx, e.rounds, sides...)
	if err != nil {
		return err
	}
	for _, part := range []struct {
		what string
		of   func(statusCost) time.Duration
	}{{"the first turn", func(c statusCost) time.Duration { return c.turn }}, {"the outcome", func(c statusCost) time.Duration { return c.outcome }}} {
		each := func(all []statusCost) (found []time.Duration) {
			for _, c := range all {
				found = append(found, part.of(c))
			}
			return found
		}
		for i, side := range statusSides[1:] {
			ours, theirs := each(got[0]), each(got[i+1])
			e.table.add(line{
				what: "CPU of kube-apiserver for a status: " + part.what, ours: spread(ours, hundredths),
				theirs: spread(theirs, hundredths) + " without " + side.without, ratio: ratioOf(median(ours).Seconds(), median(theirs).Seconds()),
			})
		}
	}
	return nil
}

// copyDefinitions makes the copies, and lets the manager's account write them.
func (e *env) copyDefinitions(ctx context.Context) error {
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := e.crs.Get(ctx, client.ObjectKey{Name: "evictionrequests." + v1alpha1.GroupName}, definition); err != nil {
		return fmt.Errorf("get the definition of requests: %w", err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "bench-status"}}
	for _, side := range statusSides {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{side.group}, Resources: []string{"evictionrequests", "evictionrequests/status"}, Verbs: []string{"*"}})
		if side.change == nil {
			continue
		}
		other := definition.DeepCopy()
		versions, _, err := unstructured.NestedSlice(other.Object, "spec", "versions")
		if err != nil {
			return fmt.Errorf("read the definition of requests: %w", err)
		}
		for _, version := range versions {
			of, _, err := unstructured.NestedMap(version.(map[string]any), "schema", "openAPIV3Schema") //nolint:forcetypeassert // The API server checks definitions.
			if err != nil {
				return fmt.Errorf("read the schema of requests: %w", err)
			}
			side.change(of)
			version.(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": of} //nolint:forcetypeassert // As above.
		}
		spec, _, err := unstructured.NestedMap(other.Object, "spec")
		if err != nil {
			return fmt.Errorf("read the definition of requests: %w", err)
		}
		spec["versions"], spec["group"] = versions, side.group
		other.Object = map[string]any{
			"apiVersion": other.GetAPIVersion(), "kind": other.GetKind(), "spec": spec,
			"metadata": map[string]any{"name": "evictionrequests." + side.group},
		}
		if err := e.crs.Create(ctx, other); err != nil {
			return fmt.Errorf("copy the definition of requests: %w", err)
		}
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: e.inst.Namespace, Name: e.inst.ServiceAccount}},
	}
	if err := errors.Join(e.crs.Create(ctx, role), e.crs.Create(ctx, binding)); err != nil {
		return fmt.Errorf("let the manager's account write: %w", err)
	}
	for _, side := range statusSides { // A definition is served a moment after it was made.
		err := eventually(ctx, side.group+" to be served", func(ctx context.Context) (bool, error) {
			return e.crs.List(ctx, requestsOf(side.group), client.InNamespace(ourNamespace)) == nil, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func requestsOf(group string) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: v1alpha1.SchemeGroupVersion.Version, Kind: "EvictionRequestList"})
	return list
}

// writeStatuses makes n requests of a group and writes two statuses to each, as the manager does.
func (e *env) writeStatuses(ctx context.Context, writer client.Client, group string, n int) (cost statusCost, err error) {
	objects := make([]*unstructured.Unstructured, n)
	err = inParallel(ctx, n, callers, func(ctx context.Context, i int) error {
		uid := uuid.NewUUID()
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(builder.EvictionRequest(ourNamespace, "web-7c6f6d9b5d-x2x4z", uid).Requesters("bench.example.com").Label("app", "web").Obj())
		if err != nil {
			return fmt.Errorf("convert request: %w", err)
		}
		delete(content, "status")
		objects[i] = &unstructured.Unstructured{Object: content}
		objects[i].SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: v1alpha1.SchemeGroupVersion.Version, Kind: "EvictionRequest"})
		return writer.Create(ctx, objects[i])
	})
	if err != nil {
		return cost, fmt.Errorf("create requests: %w", err)
	}
	for _, step := range []struct {
		status func(at metav1.Time) v1alpha1.EvictionRequestStatus
		cost   *time.Duration
	}{{firstTurn, &cost.turn}, {anOutcome, &cost.outcome}} {
		used, err := e.spending(func() error {
			return inParallel(ctx, n, callers, func(ctx context.Context, i int) error { return writeStatus(ctx, writer, objects[i], step.status) })
		})
		if err != nil {
			return cost, fmt.Errorf("write a status: %w", err)
		}
		*step.cost = used.api / time.Duration(n)
	}
	everything := requestsOf(group)
	if err := e.crs.List(ctx, everything, client.InNamespace(ourNamespace)); err != nil {
		return cost, fmt.Errorf("list requests: %w", err)
	}
	return cost, inParallel(ctx, len(everything.Items), callers, func(ctx context.Context, i int) error {
		return client.IgnoreNotFound(e.crs.Delete(ctx, &everything.Items[i]))
	})
}

// writeStatus patches what differs, for the version that is known.
func writeStatus(ctx context.Context, writer client.Client, object *unstructured.Unstructured, status func(metav1.Time) v1alpha1.EvictionRequestStatus) error {
	before, at := object.DeepCopy(), object.GetCreationTimestamp()
	wanted := status(at)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&wanted)
	if err != nil {
		return fmt.Errorf("convert status: %w", err)
	}
	object.Object["status"] = content
	return writer.Status().Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.GroupName))
}

// firstTurn is the status that gives an interceptor its turn.
func firstTurn(at metav1.Time) v1alpha1.EvictionRequestStatus {
	plan := []v1alpha1.Interceptor{{Name: "a.example.com"}, {Name: v1alpha1.ImperativeEvictionInterceptor}}
	return v1alpha1.EvictionRequestStatus{
		ObservedGeneration: 1, NodeName: "node-1", TargetInterceptors: plan, ActiveInterceptors: []string{plan[0].Name}, ActivationTime: &at,
		Interceptors: []v1alpha1.InterceptorStatus{{Name: plan[0].Name}, {Name: plan[1].Name}},
		Summary:      &v1alpha1.EvictionRequestSummary{State: v1alpha1.StateIntercepting, Interceptor: plan[0].Name, Requesters: 1},
	}
}

// anOutcome is the status with which it ends.
func anOutcome(at metav1.Time) v1alpha1.EvictionRequestStatus {
	status := firstTurn(at)
	status.ActiveInterceptors, status.ProcessedInterceptors = nil, []string{status.TargetInterceptors[0].Name}
	status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionCanceled, Status: metav1.ConditionTrue, Reason: "NoRequesters", Message: "Nobody wants the eviction any more.",
		LastTransitionTime: at, ObservedGeneration: 1,
	}}
	status.Summary = &v1alpha1.EvictionRequestSummary{State: v1alpha1.StateCanceled, Requesters: 1}
	return status
}
