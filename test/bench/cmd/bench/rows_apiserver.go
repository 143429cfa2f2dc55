//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/webhook"
)

// admissionDuration is the API server's own histogram of its calls of webhooks.
const admissionDuration = "apiserver_admission_webhook_admission_duration_seconds"

// Names of the webhooks in their configurations.
const (
	trivialWebhook = "trivial.bench.drawbridge.dev"
	bareWebhook    = "bare.bench.drawbridge.dev"
	ourWebhook     = "eviction-requests.drawbridge.dev"
)

// apiServerCPU is what kube-apiserver has used so far. It is a process of its own: etcd
// and the controllers are not in it.
func (e *env) apiServerCPU() (time.Duration, error) {
	return cpuOf(e.cluster.Component(cluster.APIServer).PID())
}

// admission is how long the API server has waited for a webhook so far.
func (e *env) admission(ctx context.Context, name string) (histogram, error) {
	content, err := e.kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return histogram{}, fmt.Errorf("read metrics of the API server: %w", err)
	}
	return readHistogram(string(content), admissionDuration, fmt.Sprintf("name=%q", name))
}

// measureAdmission: the latency that a webhook adds to an eviction, as the API server
// sees it. All rounds count as one.
func measureAdmission(ctx context.Context, e *env) error {
	if err := e.startManager(ctx); err != nil {
		return err
	}
	n := e.size(300, 100)
	for _, workers := range []int{1, callers} {
		side := func(namespace, name string) func(context.Context) (histogram, error) {
			return func(ctx context.Context) (histogram, error) {
				pods, err := e.makePods(ctx, namespace, "node-1", n)
				if err != nil {
					return histogram{}, err
				}
				before, err := e.admission(ctx, name)
				if err != nil {
					return histogram{}, err
				}
				if _, err := e.evictAll(ctx, pods, workers); err != nil {
					return histogram{}, err
				}
				after, err := e.admission(ctx, name)
				if err != nil {
					return histogram{}, err
				}
				got := after.since(before)
				if int(got.count) < n {
					return histogram{}, fmt.Errorf("the API server counts %.0f calls of %s for %d evictions", got.count, name, n)
				}
				return got, e.noPods(ctx, namespace)
			}
		}
		got, err := alternate(ctx, e.rounds, side(trivialNamespace, trivialWebhook), side(ourNamespace, ourWebhook))
		if err != nil {
			return err
		}
		e.table.add(admissionLine(workers, together(got[0]), together(got[1])))
	}
	return nil
}

// admissionLine compares what the API server's histogram says of the trivial webhook and of ours.
func admissionLine(workers int, trivial, ours histogram) line {
	what := fmt.Sprintf("webhook in the API server's metrics, %d callers: p50, p99, mean", workers)
	if workers == 1 {
		what = "webhook in the API server's metrics, 1 caller: p50, p99, mean"
	}
	p99, theirs := ours.quantile(0.99), trivial.quantile(0.99)
	return line{
		what: what, ours: quantiles(ours), theirs: quantiles(trivial) + " trivial webhook", ratio: ratioOf(p99, theirs),
		goal: "p99 <= 1.1", met: new(p99 <= 1.1*theirs),
	}
}

func quantiles(h histogram) string {
	return fmt.Sprintf("%.2f, %.2f, %.2f ms", 1e3*h.quantile(0.5), 1e3*h.quantile(0.99), 1e3*h.mean())
}

// measureRepeated: our denial of a repeated call against one that reads live.
func measureRepeated(ctx context.Context, e *env) (err error) {
	if err := e.startManager(ctx); err != nil {
		return err
	}
	pod, _, err := e.denied(ctx, "repeated")
	if err != nil {
		return err
	}
	body, err := reviewFor(pod)
	if err != nil {
		return err
	}
	ourURL, err := e.inst.WebhookURL(ctx, webhook.EvictionPath)
	if err != nil {
		return err
	}
	liveURL, err := newURL(ctx)
	if err != nil {
		return err
	}
	// Nobody but us calls it.
	_, stop, err := e.serveForUser(ctx, liveRole, liveURL)
	if err != nil {
		return err
	}
	defer stop()
	span := time.Duration(e.size(5, 2)) * time.Second
	got, err := alternate(ctx, e.rounds,
		func(ctx context.Context) (float64, error) {
			return hammer(ctx, liveURL, body, liveAnswer, callers, span)
		},
		func(ctx context.Context) (float64, error) {
			return hammer(ctx, ourURL, body, silentInterceptor, callers, span)
		})
	if err != nil {
		return err
	}
	reading, ours := median(got[0]), median(got[1])
	e.table.add(line{
		what: fmt.Sprintf("repeated denied call, %d callers", callers), ours: spread(got[1], perSecond) + ", no API request",
		theirs: spread(got[0], perSecond) + " stand-in with KubeVirt's 2 live reads", ratio: ratioOf(ours, reading),
	})
	return errors.Join(e.deletePod(ctx, pod), e.noPods(ctx, pod.Namespace))
}
