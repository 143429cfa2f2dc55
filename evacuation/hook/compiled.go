package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/hook/httpcall"
	"github.com/drawbridge-dev/drawbridge/internal/cel"
)

// Variables of a hook's expressions.
const (
	varPod      = "pod"
	varRequest  = "request"
	varWorkload = "workload"
)

// environments are made once: that takes some milliseconds.
var (
	actionEnv = sync.OnceValues(func() (*cel.Env, error) {
		return cel.NewEnv([]cel.Variable{{Name: varPod}, {Name: varRequest}})
	})
	workloadEnv = sync.OnceValues(func() (*cel.Env, error) {
		return cel.NewEnv([]cel.Variable{{Name: varPod}, {Name: varRequest}, {Name: varWorkload}})
	})
)

// compiled is one generation of a hook, compiled. It never changes.
type compiled struct {
	hook  *v1alpha1.EvacuationHook
	rules rules
	// do is what the hook does, and undo what it does when the eviction is canceled,
	// nil if nothing.
	do   *recipe
	undo *recipe
	// noReturn: what has begun is finished.
	noReturn bool
	// problem is what is wrong with it; its pods are held, or go on, for that reason.
	problem *problemError
	// shortened is the deadline that was asked for, if it is longer than allowed.
	shortened time.Duration
}

// problemError is the reason and message of the condition Accepted=False.
type problemError struct {
	reason string
	err    error
}

func (p *problemError) Error() string { return p.err.Error() }

// recipe is one action, compiled. Exactly one of its fields is set.
type recipe struct {
	job  *jobRecipe
	exec *v1alpha1.HookExec
	http *httpRecipe
	wait *waitRecipe
}

// name of the action, a value of a metric.
func (r *recipe) name() string {
	switch {
	case r.job != nil:
		return "job"
	case r.exec != nil:
		return "exec"
	case r.http != nil:
		return "http"
	default:
		return "wait"
	}
}

type jobRecipe struct {
	template   *cel.Template
	literal    bool // It has no expressions.
	onSameNode bool
}

type httpRecipe struct {
	v1alpha1.HookHTTP
	url, body *cel.Template
}

type waitRecipe struct {
	workload *v1alpha1.WorkloadReference
	name     cel.Expression
	until    cel.Expression
}

// Bounds are what the administrator allows.
type Bounds struct {
	// MaxTotal is the longest time that all attempts together may take.
	MaxTotal time.Duration
	// Exec and HTTP allow these actions.
	Exec, HTTP bool
}

// compile compiles a hook.
func compile(hook *v1alpha1.EvacuationHook, bounds Bounds) *compiled {
	p := &compiled{hook: hook, noReturn: hook.Spec.PointOfNoReturn}
	p.rules = rules{Generation: hook.Generation, Deadline: 30 * time.Minute, Retries: 2, Continue: hook.Spec.OnFailure == v1alpha1.HookContinue}
	if hook.Spec.Deadline != nil {
		p.rules.Deadline = hook.Spec.Deadline.Duration
	}
	if hook.Spec.Retries != nil {
		p.rules.Retries = *hook.Spec.Retries
	}
	if share := bounds.MaxTotal / time.Duration(p.rules.Retries+1); bounds.MaxTotal > 0 && p.rules.Deadline > share {
		p.shortened, p.rules.Deadline = p.rules.Deadline, share
	}
	c := compiler{bounds: bounds, namespace: hook.Namespace}
	p.do = c.recipe("spec", actions{hook.Spec.Job, hook.Spec.Exec, hook.Spec.HTTP, hook.Spec.Wait})
	if u := hook.Spec.Undo; u != nil {
		p.undo = c.recipe("spec.undo", actions{u.Job, u.Exec, u.HTTP, nil})
	}
	p.problem = c.problem()
	return p
}

type actions struct {
	job  *v1alpha1.HookJob
	exec *v1alpha1.HookExec
	http *v1alpha1.HookHTTP
	wait *v1alpha1.HookWait
}

type compiler struct {
	bounds    Bounds
	namespace string
	reason    string
	errs      []error
}

func (c *compiler) refuse(reason string, err error) {
	if err == nil {
		return
	}
	if c.reason == "" {
		c.reason = reason
	}
	c.errs = append(c.errs, err)
}

func (c *compiler) problem() *problemError {
	if len(c.errs) == 0 {
		return nil
	}
	return &problemError{reason: c.reason, err: errors.Join(c.errs...)}
}

func (c *compiler) recipe(field string, a actions) *recipe {
	r := &recipe{}
	switch {
	case a.job != nil:
		r.job = c.job(field+".job", a.job)
	case a.exec != nil:
		r.exec = a.exec
		if !c.bounds.Exec {
			c.refuse(v1alpha1.ReasonExecDisabled, fmt.Errorf("%s.exec: the administrator has not switched on commands in pods (chart value hooks.exec.enabled)", field))
		}
	case a.http != nil:
		r.http = c.http(field+".http", a.http)
		if !c.bounds.HTTP {
			c.refuse(v1alpha1.ReasonHTTPDisabled, fmt.Errorf("%s.http: the administrator has switched off requests (chart value hooks.http.enabled)", field))
		}
	case a.wait != nil:
		r.wait = c.wait(field+".wait", a.wait)
	default:
		c.refuse(v1alpha1.ReasonInvalidTemplate, fmt.Errorf("%s: exactly one of job, exec, http and wait must be given", field))
	}
	return r
}

func (c *compiler) env(of func() (*cel.Env, error)) *cel.Env {
	env, err := of()
	c.refuse(v1alpha1.ReasonInvalidExpression, err)
	return env
}

func (c *compiler) job(field string, from *v1alpha1.HookJob) *jobRecipe {
	r := &jobRecipe{onSameNode: from.OnSameNode}
	var raw map[string]any
	if err := json.Unmarshal(from.Template.Raw, &raw); err != nil {
		c.refuse(v1alpha1.ReasonInvalidTemplate, fmt.Errorf("%s.template: must be a JobTemplateSpec: %w", field, err))
		return r
	}
	env := c.env(actionEnv)
	if env == nil {
		return r
	}
	var err error
	r.template, err = env.Template(field+".template", raw)
	c.refuse(v1alpha1.ReasonInvalidExpression, err)
	r.literal = true
	for _, e := range r.template.Expressions() {
		r.literal = r.literal && !e.Given()
	}
	if r.literal {
		_, err := decodeTemplate(raw)
		if err != nil {
			c.refuse(v1alpha1.ReasonInvalidTemplate, fmt.Errorf("%s.template: %w", field, err))
		}
	}
	return r
}

// decodeTemplate is strict: a field that does not exist is a mistake.
func decodeTemplate(from any) (*batchv1.JobTemplateSpec, error) {
	raw, err := json.Marshal(from)
	if err != nil {
		return nil, fmt.Errorf("encode the template: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	template := &batchv1.JobTemplateSpec{}
	if err := decoder.Decode(template); err != nil {
		return nil, fmt.Errorf("is no JobTemplateSpec of batch/v1: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return template, nil
}

func (c *compiler) http(field string, from *v1alpha1.HookHTTP) *httpRecipe {
	r := &httpRecipe{HookHTTP: *from}
	env := c.env(actionEnv)
	if env == nil {
		return r
	}
	var err error
	r.url, err = env.Template(field+".url", from.URL)
	c.refuse(v1alpha1.ReasonInvalidExpression, err)
	if !strings.HasPrefix(from.URL, "${") {
		if err := httpcall.CheckURL(from.URL); err != nil {
			c.refuse(v1alpha1.ReasonInvalidTemplate, fmt.Errorf("%s.url: %w", field, err))
		}
	}
	r.body, err = env.Template(field+".body", from.Body)
	c.refuse(v1alpha1.ReasonInvalidExpression, err)
	return r
}

func (c *compiler) wait(field string, from *v1alpha1.HookWait) *waitRecipe {
	r := &waitRecipe{workload: from.Workload}
	of := actionEnv
	if from.Workload != nil {
		of = workloadEnv
	}
	env, names := c.env(of), c.env(actionEnv)
	if env == nil || names == nil {
		return r
	}
	var err error
	r.until, err = env.Expression(field+".until", from.Until, cel.BoolType)
	c.refuse(v1alpha1.ReasonInvalidExpression, err)
	if from.Workload != nil {
		r.name, err = names.Expression(field+".workload.name", from.Workload.Name, cel.StringType)
		c.refuse(v1alpha1.ReasonInvalidExpression, err)
	}
	return r
}

// text renders a template that was a string: a string as it is, anything else as JSON.
func renderText(ctx context.Context, t *cel.Template, vars map[string]any) (string, error) {
	value, err := t.Render(ctx, vars)
	if err != nil {
		return "", err
	}
	if s, ok := value.(string); ok {
		return s, nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encode the value: %w", err)
	}
	return string(raw), nil
}

// compiledHooks keeps the newest generation of each hook, compiled.
type compiledHooks struct {
	bounds Bounds
	mu     sync.Mutex
	of     map[types.NamespacedName]*compiled
}

// get compiles a generation once.
func (p *compiledHooks) get(hook *v1alpha1.EvacuationHook) *compiled {
	key := types.NamespacedName{Namespace: hook.Namespace, Name: hook.Name}
	p.mu.Lock()
	known := p.of[key]
	p.mu.Unlock()
	if known != nil && known.hook.UID == hook.UID && known.hook.Generation == hook.Generation {
		return known
	}
	made := compile(hook, p.bounds)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[types.NamespacedName]*compiled{}
	}
	p.of[key] = made
	return made
}

func (p *compiledHooks) forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, key)
}
