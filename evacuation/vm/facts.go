package vm

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/cel"
	"github.com/drawbridge-dev/drawbridge/internal/podcache"
)

// podView is a pod as expressions see it: with the fields that the cache keeps, no matter
// where it was read.
type podView struct {
	*corev1.Pod
	object map[string]any
}

func viewOf(pod *corev1.Pod) *podView { return &podView{Pod: pod} }

func (p *podView) asObject() (map[string]any, error) {
	if p.object != nil {
		return p.object, nil
	}
	object, err := podcache.Object(p.Pod)
	if err != nil {
		return nil, err
	}
	p.object = object
	return object, nil
}

func (p *podView) vars() (map[string]any, error) {
	object, err := p.asObject()
	if err != nil {
		return nil, err
	}
	return map[string]any{varPod: object}, nil
}

// asWorkload is the pod as an object to patch.
func (p *podView) asWorkload() (*unstructured.Unstructured, error) {
	object, err := p.asObject()
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetAPIVersion("v1")
	u.SetKind("Pod")
	return u, nil
}

// subject is a pod with the objects behind it.
type subject struct {
	policy *policy
	pod    *podView
	// name of the workload, and the UID it must have; empty for any.
	name string
	uid  types.UID
	// workload is nil if there is none.
	workload *unstructured.Unstructured
	// config is nil if there is none.
	config *unstructured.Unstructured
	// migrations of the workload.
	migrations []migrationFacts
}

// vars are the variables of the expressions.
func (s *subject) vars() (map[string]any, error) {
	vars, err := s.pod.vars()
	if err != nil {
		return nil, err
	}
	vars[varWorkload], vars[varConfig] = map[string]any{}, map[string]any{}
	if s.workload != nil {
		vars[varWorkload] = s.workload.Object
	}
	if s.config != nil {
		vars[varConfig] = s.config.Object
	}
	return vars, nil
}

// owner is the pod's owner of that group and kind.
func owner(pod *corev1.Pod, kind schema.GroupVersionKind) *metav1.OwnerReference {
	for i := range pod.OwnerReferences {
		ref := &pod.OwnerReferences[i]
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if err == nil && gv.Group == kind.Group && ref.Kind == kind.Kind {
			return ref
		}
	}
	return nil
}

// identify finds the pod's workload.
func (s *subject) identify(ctx context.Context) error {
	if s.policy.workload.Empty() {
		s.name, s.uid = s.pod.Name, s.pod.UID
		return nil
	}
	ref := owner(s.pod.Pod, s.policy.workload)
	if ref != nil {
		s.name, s.uid = ref.Name, ref.UID
	}
	if s.policy.workloadName.Given() {
		vars, err := s.pod.vars()
		if err != nil {
			return err
		}
		name, err := s.policy.workloadName.Text(ctx, vars)
		if err != nil {
			return err
		}
		if ref != nil && name != ref.Name {
			s.uid = "" // Another object of that kind.
		}
		s.name = name
	}
	return nil
}

// facts evaluates the policy's expressions. soft are failures of expressions that are only
// informative.
func (s *subject) facts(ctx context.Context, since time.Time) (f facts, soft error, err error) {
	p := s.policy
	if s.workload == nil || (s.uid != "" && s.workload.GetUID() != s.uid) {
		return facts{}, nil, nil
	}
	vars, err := s.vars()
	if err != nil {
		return facts{}, nil, err
	}
	f.Exists = true
	if f.Strategy, err = p.strategy.Text(ctx, vars); err != nil {
		return f, nil, err
	}
	switch f.Strategy {
	case v1alpha1.StrategyNone:
		// The strategy may have changed during the evacuation: then the mark is removed.
		var err error
		f.Evacuating, err = p.evacuating.Bool(ctx, vars, false)
		return f, err, nil
	case v1alpha1.StrategyLiveMigrate, v1alpha1.StrategyLiveMigrateIfPossible, v1alpha1.StrategyExternal:
	default:
		return f, nil, &cel.EvaluationError{Field: p.strategy.Field, Err: fmt.Errorf("%q is none of None, LiveMigrate, LiveMigrateIfPossible and External", f.Strategy)}
	}
	var errs [6]error
	f.Migratable, errs[0] = p.isMigratable(ctx, vars)
	f.Evacuating, errs[1] = p.evacuating.Bool(ctx, vars, false)
	f.Done, errs[2] = p.done.Bool(ctx, vars, false)
	f.Failed, errs[3] = p.failed.Bool(ctx, vars, false)
	f.Wait, errs[4] = p.wait.Text(ctx, vars)
	f.NoReturn, errs[5] = p.noReturn.Bool(ctx, vars, false)
	if err := errors.Join(errs[:]...); err != nil {
		return f, nil, err
	}
	for _, m := range s.migrations {
		if !m.Ours {
			continue
		}
		switch {
		case !m.Finished:
			f.Unfinished++
		case m.Failed && !m.Created.Before(since.Truncate(time.Second)):
			f.Failures++
		}
	}
	eta, etaErr := p.eta.Time(ctx, vars)
	message, messageErr := p.message.Text(ctx, vars)
	f.ETA, f.Message = eta, oneLine(message)
	return f, errors.Join(etaErr, messageErr), nil
}

// isMigratable: null means unknown, and so does a missing workload.
func (p *policy) isMigratable(ctx context.Context, vars map[string]any) (ternary, error) {
	if !p.migratable.Given() {
		return yes, nil
	}
	migratable, err := p.migratable.BoolOrNull(ctx, vars)
	switch {
	case err != nil || migratable == nil:
		return unknown, err
	case *migratable:
		return yes, nil
	default:
		return no, nil
	}
}

// migrationFacts are what the expressions say of one migration.
type migrationFacts struct {
	Namespace, Name  string
	UID              types.UID
	Workload         string
	Ours             bool
	Finished, Failed bool
	// Created is when it was created, FinishedAt when it ended or, if unknown, the same.
	Created, FinishedAt time.Time
	// Request is the UID of the pod it was created for, if we did.
	Request string
	Attempt string
}

// factsOf evaluates the expressions over a migration.
func (m *migration) factsOf(ctx context.Context, object *unstructured.Unstructured) (migrationFacts, error) {
	vars := map[string]any{varMigration: object.Object}
	labels := object.GetLabels()
	f := migrationFacts{
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
		Created: object.GetCreationTimestamp().Time,
		Request: labels[v1alpha1.MigrationRequestLabel], Attempt: labels[v1alpha1.MigrationAttemptLabel],
	}
	var errs [5]error
	f.Workload, errs[0] = m.workloadName.Text(ctx, vars)
	f.Finished, errs[1] = m.finished.Bool(ctx, vars, false)
	f.Failed, errs[2] = m.failed.Bool(ctx, vars, false)
	f.FinishedAt, errs[3] = m.finishedAt.Time(ctx, vars)
	f.Ours, errs[4] = m.ours.Bool(ctx, vars, f.Request != "")
	if f.FinishedAt.IsZero() {
		f.FinishedAt = f.Created
	}
	return f, errors.Join(errs[:]...)
}
