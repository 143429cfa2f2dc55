package certs

import (
	"context"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
)

// planToken gathers the input of decideToken, and calls it.
func (r *Rotator) planToken(ctx context.Context, data map[string][]byte, conf *admissionregistrationv1.ValidatingWebhookConfiguration, now time.Time) tokenPlan {
	known := readTokens(data)
	in := tokenInput{Data: data, Ready: true, Now: now, Settle: r.settle()}
	if conf != nil {
		in.Marked = conf.Annotations[TokenAnnotation] == TokenInPath
		for i := range conf.Webhooks {
			c := &conf.Webhooks[i].ClientConfig
			in.Called = in.Called || len(c.CABundle) > 0
			if path, ok := r.pathOf(&conf.Webhooks[i]); ok {
				in.InPaths = append(in.InPaths, known.behind(path))
			}
		}
	}
	if r.Replicas != nil && in.Marked {
		if err := r.Replicas(ctx); err != nil {
			in.Ready = false
			ctrl.LoggerFrom(ctx).V(1).Info("The token of the webhook has to wait", "reason", err.Error())
		}
	}
	in.CurrentSince = r.noteToken(known.current, in.InPaths, now)
	return decideToken(in)
}

// behind returns the token of a path as it is in the Secret.
func (t tokens) behind(path string) string {
	base, token := splitToken(path)
	there := t.in(base)
	switch {
	case token == "":
		return ""
	case token == there.current:
		return t.current
	case t.hasBefore && token == there.before:
		return t.before
	default:
		return token
	}
}

// noteToken returns since when the paths have only this token; zero if they have not.
func (r *Rotator) noteToken(current string, inPaths []string, now time.Time) time.Time {
	everywhere := current != "" && len(inPaths) > 0
	for _, token := range inPaths {
		everywhere = everywhere && token == current
	}
	switch {
	case !everywhere:
		r.tokenSeen, r.tokenSince = "", time.Time{}
	case r.tokenSeen != current:
		r.tokenSeen, r.tokenSince = current, now
	}
	return r.tokenSince
}

// pathOf is the path of a webhook, or its URL, which ends with it. The path of a Service
// may be missing: whoever applies the chart then leaves it to us. False if there is none
// that we know.
func (r *Rotator) pathOf(w *admissionregistrationv1.ValidatingWebhook) (string, bool) {
	switch c := &w.ClientConfig; {
	case c.URL != nil:
		return *c.URL, true
	case c.Service == nil:
		return "", false
	case c.Service.Path != nil:
		return *c.Service.Path, true
	}
	path, ok := r.Paths[w.Name]
	return path, ok
}

// setPath writes what pathOf reads.
func setPath(w *admissionregistrationv1.ValidatingWebhook, path string) {
	if c := &w.ClientConfig; c.URL != nil {
		c.URL = &path
	} else {
		c.Service.Path = &path
	}
}
