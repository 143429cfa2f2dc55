package webhook

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/evacuation/preflight"
)

// asksFirst reports whether an interceptor has a Preflight.
func (h *EvictionHandler) asksFirst(names []string) bool {
	for _, name := range names {
		if h.Preflights(name) != nil {
			return true
		}
	}
	return false
}

// ask asks the interceptors that have a Preflight, in their order, until one
// denies. Calls for the same pod share one attempt, so that an interceptor which
// never answers holds up one goroutine and not one per call.
func (h *EvictionHandler) ask(ctx context.Context, in *gathered) error {
	pod, names := in.Pod, in.Interceptors
	key := string(pod.UID)
	if in.PodSource == Live {
		key += "/live"
	}
	asked, err := h.asking.do(ctx, key, func(ctx context.Context) ([]Asked, error) {
		answers := []Asked{}
		for _, name := range names {
			ask := h.Preflights(name)
			if ask == nil {
				continue
			}
			verdict, err := askOne(ctx, ask, pod)
			if ctx.Err() != nil {
				return nil, fmt.Errorf("ask interceptor %s about pod %s/%s: %w", name, pod.Namespace, pod.Name, ctx.Err())
			}
			if err != nil {
				logr.FromContextOrDiscard(ctx).Error(err, "Ask an interceptor before an eviction", "interceptor", name, "namespace", pod.Namespace, "pod", pod.Name)
			}
			answers = append(answers, Asked{Interceptor: name, Verdict: verdict, Failed: err != nil})
			if err == nil && verdict.Outcome == preflight.Deny {
				break
			}
		}
		return answers, nil
	})
	in.Preflights = asked
	return err
}

// askOne asks one interceptor. Its panic is an error of its own.
func askOne(ctx context.Context, ask preflight.Interceptor, pod *corev1.Pod) (verdict preflight.Verdict, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	verdict, err = ask.Preflight(ctx, pod)
	switch {
	case err != nil:
		return preflight.Verdict{}, err
	case verdict.Outcome < preflight.Proceed || verdict.Outcome > preflight.Deny:
		return preflight.Verdict{}, fmt.Errorf("unknown outcome %d", int(verdict.Outcome))
	}
	return verdict, nil
}
