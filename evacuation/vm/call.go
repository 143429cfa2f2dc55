package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/internal/cel"
	"github.com/drawbridge-dev/drawbridge/internal/events"
)

// call is spec.cancel, compiled.
type call struct {
	version               schema.GroupVersion
	resource, subresource string
	body                  *cel.Template
	when                  cel.Expression
}

func (c *call) expressions() []cel.Expression {
	if c == nil {
		return nil
	}
	return append(c.body.Expressions(), c.when)
}

// path of the subresource of an object.
func (c *call) path(namespace, name string) string {
	return fmt.Sprintf("/apis/%s/namespaces/%s/%s/%s/%s", c.version, namespace, c.resource, name, c.subresource)
}

// short is the path for people.
func (c *call) short() string { return c.resource + "/" + c.subresource + " of " + c.version.String() }

func (c *compiling) call(field string, from *v1alpha1.SubresourceCall) *call {
	if from == nil {
		return nil
	}
	version, err := schema.ParseGroupVersion(from.APIVersion)
	if err != nil {
		c.add(fmt.Errorf("%s.apiVersion: %w", field, err))
	}
	made := &call{
		version: version, resource: from.Resource, subresource: from.Subresource,
		when: c.expression(field+".when", from.When, writeScope, cel.BoolType),
	}
	object := map[string]any{}
	if from.Body != nil && len(from.Body.Raw) > 0 {
		if err := json.Unmarshal(from.Body.Raw, &object); err != nil {
			c.add(fmt.Errorf("%s.body: %w", field, err))
		}
	}
	made.body = c.template(field+".body", object)
	return made
}

// constantStrategy refuses a strategy that is a constant and none of the four: it
// would fail for every pod.
func constantStrategy(e cel.Expression) error {
	value, ok := e.Constant()
	if !ok {
		return nil
	}
	switch value {
	case v1alpha1.StrategyNone, v1alpha1.StrategyLiveMigrate, v1alpha1.StrategyLiveMigrateIfPossible, v1alpha1.StrategyExternal:
		return nil
	}
	return fmt.Errorf("%s: %q is none of None, LiveMigrate, LiveMigrateIfPossible and External, and it would be the same for every pod: write one of them", e.Field, value)
}

// errKept says that the platform keeps its mark, because it has no way to remove it.
var errKept = errors.New("the platform has no way to take its own mark back")

// askToUnmark asks the platform to remove its mark, if possible, and reports whether it
// did.
func (e *evacuation) askToUnmark(ctx context.Context, sub *subject) (asked bool, err error) {
	c := e.policy.cancel
	if c == nil {
		return false, nil
	}
	vars, err := e.writeVars(ctx, sub)
	if err != nil {
		return false, err
	}
	wanted, err := c.when.Bool(ctx, vars, true)
	if err == nil && !wanted {
		return false, nil
	}
	var body any
	if err == nil {
		body, err = c.body.Render(ctx, vars)
	}
	if err != nil {
		e.note(e.policy, e.pod, err)
		return false, err
	}
	data, err := json.Marshal(body)
	if err != nil {
		return false, fmt.Errorf("encode the body of %s: %w", c.short(), err)
	}
	if err := e.writes.begin(e.writeKey(sub, "cancel")); err != nil {
		return false, err
	}
	switch err = e.Put(ctx, c.path(sub.pod.Namespace, sub.name), data); {
	case err == nil:
		return true, nil
	case !apierrors.IsNotFound(err) || sub.workload == nil:
		return false, fmt.Errorf("call %s: %w", c.short(), err)
	}
	// Either the workload is gone or the platform is too old.
	if _, f, _, observeErr := e.observe(ctx, e.policy, e.pod, e.turn(), true); observeErr != nil || !f.Exists {
		return false, fmt.Errorf("call %s: %w", c.short(), err)
	}
	if e.ends.add(e.target.Request, e.name+"/kept", e.target.RequestUID) {
		e.emit(events.MarkKept(e.policy.kindName(), sub.name, c.short()))
	}
	return false, errKept
}

// rejectedError is the API server's refusal of a mark.
type rejectedError struct{ err error }

func (e *rejectedError) Error() string { return e.err.Error() }

func (e *rejectedError) Unwrap() error { return e.err }

// afterMark handles a mark that was not written.
func (e *evacuation) afterMark(sub *subject, f facts, err error) (interceptor.Progress, error) {
	var limited *limitedError
	var discarded *discardedError
	if errors.As(err, &limited) || errors.As(err, &discarded) {
		return e.stumbled(sub, f, err), nil
	}
	return interceptor.Progress{}, err
}

// stumbled keeps sending heartbeats while a mark has no effect.
func (e *evacuation) stumbled(sub *subject, f facts, err error) interceptor.Progress {
	what := e.describe(sub.pod.Namespace, sub.name)
	e.lost(sub, err)
	message := fmt.Sprintf("%s was marked several times and is not marked; the next try waits.", what)
	if count, first := e.unheardOf(); count {
		message = "The evacuation waits: " + first.text
	}
	p := e.following(message, f)
	wait := writeLimit.Longest
	if until, ok := e.writes.until(e.writeKey(sub, writeMark)); ok {
		wait = until.Sub(e.Clock.Now())
	}
	if p.CheckAfter == 0 || wait < p.CheckAfter {
		p.CheckAfter = max(wait, soon)
	}
	return p
}

// unheardOf is what is known about this request's failed marks.
func (e *evacuation) unheardOf() (known bool, _ setback) {
	e.unheard.mu.Lock()
	defer e.unheard.mu.Unlock()
	what, known := e.unheard.of[e.policy.name][e.target.RequestUID]
	return known, what
}

// lost notes a write without effect and reports whether err is one: discarded, refused,
// kept by the platform, or not sent because earlier ones failed.
func (e *evacuation) lost(sub *subject, err error) bool {
	var limited *limitedError
	var discarded *discardedError
	var rejected *rejectedError
	var what setback
	workload := e.describe(sub.pod.Namespace, sub.name)
	switch {
	case errors.As(err, &limited), errors.Is(err, errKept):
		return true
	case errors.As(err, &discarded):
		what = setback{v1alpha1.ReasonDiscarded, fmt.Sprintf("What is written to %s of %s does not last: somebody puts it back.", discarded.path, workload)}
	case errors.As(err, &rejected):
		what = setback{v1alpha1.ReasonRejected, fmt.Sprintf("The mark of %s is refused: %s.", workload, oneLine(rejected.err.Error()))}
	default:
		return false
	}
	if what.reason == v1alpha1.ReasonDiscarded {
		e.metrics.Untaken(e.policy.name, "discarded")
	} else {
		e.metrics.Untaken(e.policy.name, "rejected")
	}
	if e.unheard.add(e.policy.name, e.target.RequestUID, what) {
		event := events.MarkRejected(e.policy.name, what.text)
		if what.reason == v1alpha1.ReasonDiscarded {
			event = events.MarkDiscarded(e.policy.name, what.text)
		}
		e.emit(event)
		e.policyChanged(e.policy.name)
	}
	return true
}
