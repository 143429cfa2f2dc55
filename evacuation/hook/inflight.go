package hook

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/hook/execcall"
	"github.com/drawbridge-dev/drawbridge/evacuation/hook/httpcall"
)

// inflight are the attempts that this process itself carries out: commands and requests.
// Nobody knows how one ended whose process is gone.
type inflight struct {
	clock clock.Clock
	wake  func(request types.NamespacedName)

	mu sync.Mutex
	// life ends with the process; calls outlive the reconciliation that begins them.
	life context.Context //nolint:containedctx // See above.
	wait sync.WaitGroup
	of   map[string]*call
}

type call struct {
	cancel context.CancelFunc
	now    work
}

// run lets calls begin, until the context ends; then it waits for their end.
func (c *inflight) run(ctx context.Context) error {
	c.mu.Lock()
	c.life = ctx
	c.mu.Unlock()
	<-ctx.Done()
	c.wait.Wait()
	return nil
}

// begin begins a call if it is fresh, and says how far it is.
func (c *inflight) begin(key string, fresh bool, deadline time.Time, request types.NamespacedName, do func(ctx context.Context, tell func(message string)) work) work {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.of[key]; known != nil {
		return known.now
	}
	switch {
	case !fresh:
		return work{State: stateLost}
	case c.life == nil || c.life.Err() != nil:
		return work{State: stateRunning, Message: "the manager stops", CheckAfter: time.Second}
	}
	left := deadline.Sub(c.clock.Now())
	// The clock may be a test's, so that it decides; the context is for what hangs.
	ctx, cancel := context.WithTimeout(c.life, left+soon)
	timer := c.clock.NewTimer(left)
	made := &call{cancel: cancel, now: work{State: stateRunning}}
	if c.of == nil {
		c.of = map[string]*call{}
	}
	c.of[key] = made
	c.wait.Go(func() {
		defer cancel()
		defer timer.Stop()
		ended := make(chan work, 1)
		c.wait.Go(func() {
			ended <- do(ctx, func(message string) {
				c.mu.Lock()
				defer c.mu.Unlock()
				made.now.Message = message
			})
		})
		select {
		case w := <-ended:
			c.mu.Lock()
			made.now = w
			c.mu.Unlock()
			c.wake(request)
		case <-timer.C(): // The step finds that it is late.
			c.wake(request)
		case <-ctx.Done():
		}
	})
	return made.now
}

// end stops a call and forgets it.
func (c *inflight) end(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.of[key]; known != nil {
		known.cancel()
		delete(c.of, key)
	}
}

// beginExec begins a command in a container of the pod.
func (a *hookInterceptor) beginExec(ctx context.Context, t *attempt, e *v1alpha1.HookExec) (work, error) {
	fresh := a.fresh.take(t.key()) && !t.late && !t.changed
	if fresh {
		if err := a.look(ctx, t); err != nil {
			a.fresh.add(t.key())
			return work{}, err
		}
		if t.pod == nil {
			return work{State: stateFailed, Message: "the pod is gone", Final: true}, nil
		}
	}
	do := func(ctx context.Context, _ func(string)) work {
		answer, err := a.exec.Run(ctx, execcall.Call{Namespace: t.target.Pod.Namespace, Pod: t.target.Pod.Name, Container: containerOf(t.pod, e), Command: e.Command})
		switch {
		case err != nil:
			return work{State: stateFailed, Message: "the command could not be run: " + oneLine(err)}
		case answer.ExitCode != 0:
			return work{State: stateFailed, Message: withOutput(fmt.Sprintf("the command has ended with exit code %d", answer.ExitCode), answer.Output)}
		}
		return work{State: stateDone, Message: withOutput("the command has ended", answer.Output)}
	}
	w := a.inflight.begin(t.key(), fresh, t.deadline(), podKey(t.target), do)
	if w.State == stateRunning && w.Message == "" {
		w.Message = "the command runs"
	}
	return w, nil
}

func withOutput(message, output string) string {
	if output == "" {
		return message
	}
	return message + ": " + output
}

// containerOf is the container to run a command in.
func containerOf(pod *corev1.Pod, e *v1alpha1.HookExec) string {
	if e.Container != "" {
		return e.Container
	}
	if name := pod.Annotations["kubectl.kubernetes.io/default-container"]; name != "" {
		return name
	}
	return pod.Spec.Containers[0].Name
}

// beginHTTP begins a request, and asks again until it is done.
func (a *hookInterceptor) beginHTTP(ctx context.Context, t *attempt, r *httpRecipe) (work, error) {
	fresh := a.fresh.take(t.key()) && !t.late && !t.changed
	var c httpcall.Call
	if fresh {
		if err := a.look(ctx, t); err != nil {
			a.fresh.add(t.key())
			return work{}, err
		}
		var err error
		if c, err = a.httpCall(ctx, t, r); err != nil {
			return work{State: stateFailed, Message: err.Error()}, nil //nolint:nilerr // It is told.
		}
	}
	do := func(ctx context.Context, tell func(string)) work { return a.request(ctx, c, tell) }
	w := a.inflight.begin(t.key(), fresh, t.deadline(), podKey(t.target), do)
	if w.State == stateRunning && w.Message == "" {
		w.Message = "the request runs"
	}
	return w, nil
}

// request sends a request until it is done or refused.
func (a *hookInterceptor) request(ctx context.Context, c httpcall.Call, tell func(string)) work {
	for {
		answer, err := a.http.Do(ctx, c)
		switch {
		case err != nil:
			return work{State: stateFailed, Message: oneLine(err)}
		case answer.Done:
			return work{State: stateDone, Message: "the server answered " + answer.Message}
		case answer.Poll != "":
			if !httpcall.SameOrigin(c.URL, answer.Poll) {
				c.Header = nil // What is in the Secret is for the server of the hook only.
			}
			c.Method, c.URL, c.Body = http.MethodGet, answer.Poll, nil
		}
		tell("the server answered " + answer.Message)
		timer := a.clock.NewTimer(answer.RetryAfter)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return work{State: stateFailed, Message: "it was stopped"}
		}
	}
}

// httpCall gathers what a request needs.
func (a *hookInterceptor) httpCall(ctx context.Context, t *attempt, r *httpRecipe) (httpcall.Call, error) {
	namespace := t.target.Pod.Namespace
	c := httpcall.Call{Namespace: namespace, Header: http.Header{}}
	made, err := t.renderHTTP(ctx, r)
	if err != nil {
		return c, err
	}
	c.Method, c.URL, c.Body = made.Method, made.URL, []byte(made.Body)
	if t.pod != nil {
		for _, ip := range t.pod.Status.PodIPs {
			c.PodIPs = append(c.PodIPs, ip.IP)
		}
		for _, ip := range t.pod.Status.HostIPs {
			c.NodeIPs = append(c.NodeIPs, ip.IP)
		}
	}
	if from := r.HeadersFrom; from != nil {
		secret := &corev1.Secret{}
		if err := a.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: from.Name}, secret); err != nil {
			return c, a.unreadable("Secret "+from.Name, "hooks.http.secrets.enabled", err)
		}
		for name, value := range secret.Data {
			c.Header.Set(name, string(value))
		}
	}
	if from := r.CAFrom; from != nil {
		config := &corev1.ConfigMap{}
		if err := a.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: from.Name}, config); err != nil {
			return c, a.unreadable("ConfigMap "+from.Name, "hooks.http.enabled", err)
		}
		if config.Data["ca.crt"] == "" {
			return c, fmt.Errorf("ConfigMap %s has no key ca.crt", from.Name)
		}
		c.CA = []byte(config.Data["ca.crt"])
	}
	return c, nil
}

func (a *hookInterceptor) unreadable(what, value string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("the manager may not read %s: grant its service account get on it by a Role of this namespace, or set the chart value %s", what, value)
	}
	return fmt.Errorf("get %s: %w", what, err)
}
