package hook

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/hook/httpcall"
	"github.com/drawbridge-dev/drawbridge/internal/podcache"
)

// Rendered is what a hook would do for a pod. One of its fields is set.
type Rendered struct {
	Job  *batchv1.Job
	Exec *RenderedExec
	HTTP *RenderedHTTP
	Wait *RenderedWait
}

// RenderedExec is a command in a container of the pod.
type RenderedExec struct {
	Container string
	Command   []string
}

// RenderedHTTP is a request, without what is in its Secret.
type RenderedHTTP struct {
	Method, URL, Body string
	// HeadersFrom and CAFrom are the names of the Secret and of the ConfigMap, empty if
	// there is none.
	HeadersFrom, CAFrom string
}

// RenderedWait is a condition and its value now.
type RenderedWait struct {
	Until string
	Met   bool
	// Failure is why the condition has no value, empty if it has one.
	Failure string
	// Workload is the object that it reads, with its namespace; empty if there is none.
	// Found: it exists.
	Workload string
	Found    bool
}

// Workload reads the object that the condition of a wait refers to. It returns nil if
// there is none.
type Workload func(ctx context.Context, apiVersion, kind, namespace, name string) (map[string]any, error)

// RenderedRequest is the UID of the EvictionRequest in what Render makes.
const RenderedRequest = "00000000-0000-0000-0000-000000000000"

// Render returns what the first attempt of a hook would do for a pod, and what its undo
// would, nil if it has none. It does nothing of it. The request is made up: a Job's name,
// owner and DEADLINE differ from those of a run. The administrator's limits are not known
// to it.
func Render(ctx context.Context, hook *v1alpha1.EvacuationHook, pod *corev1.Pod, requesters []string, now time.Time, workload Workload) (do, undo *Rendered, err error) {
	p := compile(hook, Bounds{Exec: true, HTTP: true})
	if p.problem != nil {
		return nil, nil, p.problem
	}
	t := &attempt{compiled: p, run: v1alpha1.HookRun{Attempt: 1, FirstAttempt: 1, StartTime: stamp(now)}}
	t.target.Pod, t.target.PodUID = client.ObjectKeyFromObject(pod), pod.UID
	t.target.Labels, t.target.NodeName, t.target.Requesters = pod.Labels, pod.Spec.NodeName, requesters
	t.target.Request, t.target.RequestUID = v1alpha1.RequestKey(pod), RenderedRequest
	if err := t.sees(pod); err != nil {
		return nil, nil, err
	}
	if do, err = t.rendered(ctx, p.do, workload); err != nil {
		return nil, nil, err
	}
	if p.undo != nil {
		t.undo = true
		if undo, err = t.rendered(ctx, p.undo, workload); err != nil {
			return nil, nil, fmt.Errorf("the undo: %w", err)
		}
	}
	return do, undo, nil
}

func (t *attempt) rendered(ctx context.Context, r *recipe, workload Workload) (*Rendered, error) {
	switch {
	case r.job != nil:
		job, err := t.render(ctx, r.job)
		if err != nil {
			return nil, err
		}
		return &Rendered{Job: job}, nil
	case r.exec != nil:
		return &Rendered{Exec: &RenderedExec{Container: containerOf(t.pod, r.exec), Command: r.exec.Command}}, nil
	case r.http != nil:
		made, err := t.renderHTTP(ctx, r.http)
		if err != nil {
			return nil, err
		}
		if err := httpcall.CheckURL(made.URL); err != nil {
			return nil, fmt.Errorf("url %q: %w", made.URL, err)
		}
		return &Rendered{HTTP: made}, nil
	default:
		made, err := t.renderWait(ctx, r.wait, workload)
		if err != nil {
			return nil, err
		}
		return &Rendered{Wait: made}, nil
	}
}

func (t *attempt) renderHTTP(ctx context.Context, r *httpRecipe) (*RenderedHTTP, error) {
	made := &RenderedHTTP{Method: cmp.Or(r.Method, http.MethodPost)}
	var err error
	if made.URL, err = renderText(ctx, r.url, t.vars()); err != nil {
		return nil, err
	}
	if made.Body, err = renderText(ctx, r.body, t.vars()); err != nil {
		return nil, err
	}
	if r.HeadersFrom != nil {
		made.HeadersFrom = r.HeadersFrom.Name
	}
	if r.CAFrom != nil {
		made.CAFrom = r.CAFrom.Name
	}
	return made, nil
}

// renderWait evaluates the condition over what the manager's cache has of the pod.
func (t *attempt) renderWait(ctx context.Context, r *waitRecipe, workload Workload) (*RenderedWait, error) {
	made := &RenderedWait{Until: t.compiled.hook.Spec.Wait.Until}
	vars := t.vars()
	object, err := podcache.Object(t.pod)
	if err != nil {
		return nil, fmt.Errorf("convert pod %s: %w", t.target.Pod, err)
	}
	vars[varPod] = object
	if r.workload != nil {
		ref, err := r.ref(ctx, t.pod, vars)
		if err != nil {
			made.Failure = oneLine(err)
			return made, nil
		}
		made.Workload = ref.String()
		found, err := workload(ctx, ref.APIVersion, ref.Kind, ref.Namespace, ref.Name)
		if err != nil {
			return nil, fmt.Errorf("get %s: %w", ref, err)
		}
		vars[varWorkload], made.Found = nil, found != nil
		if found != nil {
			vars[varWorkload] = found
		}
	}
	if made.Met, err = r.until.Bool(ctx, vars, false); err != nil {
		made.Failure = oneLine(err)
	}
	return made, nil
}
