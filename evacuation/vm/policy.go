package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/cel"
)

// policy is one generation of an EvacuationPolicy, compiled. It never changes.
type policy struct {
	name        string
	uid         types.UID
	generation  int64
	interceptor string
	priority    int32
	// refused says why the policy is not accepted; nil if it is. The covered pods are
	// known nevertheless, unless broken.
	refused error
	// broken: even the covered pods are unknown.
	broken bool

	selector   labels.Selector
	conditions []cel.Expression

	// workload is the kind of the workload; empty means the pod itself.
	workload     schema.GroupVersionKind
	workloadName cel.Expression
	config       *v1alpha1.ConfigReference
	configKind   schema.GroupVersionKind

	strategy, migratable, wait                       cel.Expression
	evacuating, done, failed, noReturn, eta, message cel.Expression
	mark, unmark                                     *patch
	cancel                                           *call
	notMigratable                                    string
	deadline                                         time.Duration
	onFailure                                        v1alpha1.OnFailure
	migration                                        *migration
	workloadFields, configFields, migrationKept      tree
	// needs are the kinds whose objects the policy reads.
	needs map[schema.GroupVersionKind]need
}

// migration is spec.migration, compiled.
type migration struct {
	kind                                             schema.GroupVersionKind
	workloadName, finished, failed, finishedAt, ours cel.Expression
	sourceNode, createWhen                           cel.Expression
	template                                         *cel.Template
	perCluster, perNode, retryLimit                  int
	deleteOnCancel                                   bool
}

func (p *policy) accepted() bool { return p.refused == nil }

// Text of a refusal of the eviction, if the policy has none.
const defaultNotMigratable = "the workload is to be migrated, but it is not migratable"

// compilePolicy compiles a policy. It reports all errors at once.
func compilePolicy(from *v1alpha1.EvacuationPolicy) *policy {
	spec := &from.Spec
	p := &policy{
		name: from.Name, uid: from.UID, generation: from.Generation,
		interceptor: spec.Interceptor, priority: spec.Priority, selector: labels.Everything(),
		config: spec.Config, onFailure: spec.OnFailure, notMigratable: spec.NotMigratableText,
	}
	if p.notMigratable == "" {
		p.notMigratable = defaultNotMigratable
	}
	if spec.Deadline != nil {
		p.deadline = spec.Deadline.Duration
	}
	if err := p.compileCovered(spec.Pods); err != nil {
		p.broken, p.refused = true, err
		return p
	}
	c := compiling{}
	c.add(p.compileKinds(spec))
	c.add(checkAllowedWrites(spec))
	p.workloadName = c.expression("spec.workload.name", workloadNameOf(spec), podScope, cel.StringType)
	p.strategy = c.expression("spec.strategy", spec.Strategy, workloadScope, cel.StringType)
	p.migratable = c.expression("spec.migratable", spec.Migratable, workloadScope, cel.BoolType, cel.NullType)
	p.wait = c.expression("spec.wait", spec.Wait, workloadScope, cel.StringType)
	p.evacuating = c.expression("spec.evacuating", spec.Evacuating, workloadScope, cel.BoolType)
	p.done = c.expression("spec.done", spec.Done, workloadScope, cel.BoolType)
	p.failed = c.expression("spec.failed", spec.Failed, workloadScope, cel.BoolType)
	p.noReturn = c.expression("spec.pointOfNoReturn", spec.PointOfNoReturn, workloadScope, cel.BoolType)
	p.eta = c.expression("spec.eta", spec.ETA, workloadScope, cel.TimestampType, cel.StringType, cel.NullType)
	p.message = c.expression("spec.message", spec.Message, workloadScope, cel.StringType)
	p.mark = c.patch("spec.mark", spec.Mark)
	p.unmark = c.patch("spec.unmark", spec.Unmark)
	p.cancel = c.call("spec.cancel", spec.Cancel)
	c.add(constantStrategy(p.strategy))
	c.add(cel.NoTemplate("spec.notMigratableText", spec.NotMigratableText, "the text is told as it is"))
	if spec.Migration != nil {
		p.migration = c.migration(spec.Migration)
	}
	p.refused = errors.Join(c.errs...)
	if p.refused == nil {
		p.findFields()
	}
	return p
}

func workloadNameOf(spec *v1alpha1.EvacuationPolicySpec) string {
	if spec.Workload == nil {
		return ""
	}
	return spec.Workload.Name
}

func (p *policy) compileCovered(covered v1alpha1.CoveredPods) error {
	if covered.Selector != nil {
		selector, err := metav1.LabelSelectorAsSelector(covered.Selector)
		if err != nil {
			return fmt.Errorf("spec.pods.selector cannot be read: %w", err)
		}
		p.selector = selector
	}
	for i, c := range covered.MatchConditions {
		compiled, err := compile(fmt.Sprintf("spec.pods.matchConditions[%d]", i), c.Expression, podScope, cel.BoolType)
		if err != nil {
			return err
		}
		p.conditions = append(p.conditions, compiled)
	}
	return nil
}

func (p *policy) compileKinds(spec *v1alpha1.EvacuationPolicySpec) error {
	var errs []error
	kind := func(field, apiVersion, kind string) schema.GroupVersionKind {
		gv, err := schema.ParseGroupVersion(apiVersion)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, err))
		}
		return gv.WithKind(kind)
	}
	if spec.Workload != nil {
		p.workload = kind("spec.workload.apiVersion", spec.Workload.APIVersion, spec.Workload.Kind)
		if p.workload == corev1.SchemeGroupVersion.WithKind("Pod") && spec.Workload.Name == "" {
			errs = append(errs, errors.New("spec.workload.name: which pod? Leave workload out for the pod itself"))
		}
	}
	if spec.Config != nil {
		p.configKind = kind("spec.config.apiVersion", spec.Config.APIVersion, spec.Config.Kind)
	}
	return errors.Join(errs...)
}

// findFields finds the fields that are read, so that the informers keep nothing else.
func (p *policy) findFields() {
	expressions := []cel.Expression{p.strategy, p.migratable, p.wait, p.evacuating, p.done, p.failed, p.noReturn, p.eta, p.message}
	expressions = append(expressions, p.mark.expressions()...)
	expressions = append(expressions, p.unmark.expressions()...)
	expressions = append(expressions, p.cancel.expressions()...)
	var migrations []cel.Expression
	if m := p.migration; m != nil {
		migrations = []cel.Expression{m.workloadName, m.finished, m.failed, m.finishedAt, m.ours}
		expressions = append(expressions, m.sourceNode, m.createWhen)
		expressions = append(expressions, m.template.Expressions()...)
	}
	p.workloadFields = fieldsRead(varWorkload, expressions)
	p.configFields = fieldsRead(varConfig, expressions)
	p.migrationKept = fieldsRead(varMigration, migrations)
	p.findNeeds()
}

func fieldsRead(variable string, by []cel.Expression) tree {
	kept := alwaysKept()
	for _, e := range by {
		paths, whole := e.Reads(variable)
		if whole {
			return nil
		}
		for _, path := range paths {
			kept.add(path)
		}
	}
	return kept
}

// covers reports whether the policy applies to a pod, if no other does.
func (p *policy) covers(ctx context.Context, pod *podView) (bool, error) {
	if p.broken || !p.selector.Matches(labels.Set(pod.Labels)) {
		return false, nil
	}
	for _, c := range p.conditions {
		vars, err := pod.vars()
		if err != nil {
			return false, err
		}
		match, err := c.Bool(ctx, vars, true)
		if err != nil || !match {
			return false, err
		}
	}
	return true, nil
}

// hold reports whether a final failure keeps the pod, for a strategy.
func (p *policy) hold(strategy string) bool {
	switch p.onFailure {
	case v1alpha1.OnFailureHold:
		return true
	case v1alpha1.OnFailureEvict:
		return false
	default:
		return strategy == v1alpha1.StrategyLiveMigrate || strategy == v1alpha1.StrategyExternal
	}
}

// findNeeds says which kinds the policy reads, and what of them.
func (p *policy) findNeeds() {
	kinds := map[schema.GroupVersionKind]tree{}
	add := func(kind schema.GroupVersionKind, fields tree) {
		if kind.Empty() {
			return
		}
		if known, ok := kinds[kind]; ok {
			fields = merge(known, fields)
		}
		kinds[kind] = fields
	}
	add(p.workload, p.workloadFields)
	add(p.configKind, p.configFields)
	if p.migration != nil {
		add(p.migration.kind, p.migrationKept)
	}
	p.needs = map[schema.GroupVersionKind]need{}
	for kind, fields := range kinds {
		p.needs[kind] = need{kind, fields, fields.String()}
	}
}

// compiling collects what is wrong.
type compiling struct{ errs []error }

func (c *compiling) add(err error) {
	if err != nil {
		c.errs = append(c.errs, err)
	}
}

func (c *compiling) expression(field, source string, s scope, want ...*cel.Type) cel.Expression {
	compiled, err := compile(field, source, s, want...)
	c.add(err)
	return compiled
}

// template compiles an object that is written.
func (c *compiling) template(field string, object map[string]any) *cel.Template {
	e, err := env(writeScope)
	if err != nil {
		c.add(err)
		return nil
	}
	made, err := e.Template(field, object)
	c.add(err)
	return made
}

func (c *compiling) patch(field string, from *v1alpha1.WorkloadPatch) *patch {
	if from == nil {
		return nil
	}
	made := &patch{subresource: from.Subresource}
	for i, op := range from.Operations {
		at := fmt.Sprintf("%s.operations[%d]", field, i)
		made.operations = append(made.operations, operation{
			op: op.Op, path: op.Path,
			value: c.expression(at+".value", op.Value, writeScope),
			when:  c.expression(at+".when", op.When, writeScope, cel.BoolType),
		})
		c.add(cel.NoTemplate(at+".path", op.Path, "a path is fixed, so write one operation for each with its own when"))
		if strings.HasPrefix(op.Path, "/metadata/uid") || op.Path == "/metadata" {
			c.add(fmt.Errorf("%s.path: %s cannot be patched", at, op.Path))
		}
	}
	return made
}

func (c *compiling) migration(from *v1alpha1.MigrationSpec) *migration {
	gv, err := schema.ParseGroupVersion(from.APIVersion)
	if err != nil {
		c.add(fmt.Errorf("spec.migration.apiVersion: %w", err))
	}
	m := &migration{
		kind:           gv.WithKind(from.Kind),
		workloadName:   c.expression("spec.migration.workloadName", from.WorkloadName, migrationScope, cel.StringType),
		finished:       c.expression("spec.migration.finished", from.Finished, migrationScope, cel.BoolType),
		failed:         c.expression("spec.migration.failed", from.Failed, migrationScope, cel.BoolType),
		finishedAt:     c.expression("spec.migration.finishedAt", from.FinishedAt, migrationScope, cel.TimestampType, cel.StringType, cel.NullType),
		ours:           c.expression("spec.migration.ours", from.Ours, migrationScope, cel.BoolType),
		sourceNode:     c.expression("spec.migration.sourceNode", from.SourceNode, nodeScope, cel.StringType),
		createWhen:     c.expression("spec.migration.createWhen", from.CreateWhen, workloadScope, cel.BoolType),
		perCluster:     int(or(from.ParallelPerCluster, 5)),
		perNode:        int(or(from.ParallelOutboundPerNode, 2)),
		retryLimit:     int(or(from.RetryLimit, 5)),
		deleteOnCancel: from.OnCancel != v1alpha1.OnCancelKeep,
	}
	if from.Template == nil || len(from.Template.Raw) == 0 {
		return m
	}
	var object map[string]any
	if err := json.Unmarshal(from.Template.Raw, &object); err != nil {
		c.add(fmt.Errorf("spec.migration.template: %w", err))
		return m
	}
	m.template = c.template("spec.migration.template", object)
	return m
}

func or(value, fallback int32) int32 {
	if value == 0 {
		return fallback
	}
	return value
}
