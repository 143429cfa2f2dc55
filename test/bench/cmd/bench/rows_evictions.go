//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/webhook"
)

// interceptor is one that never answers.
const silentInterceptor = "silent.example.com"

// lives is what one round measures on one side.
type lives struct {
	// rate is how many pods were evicted in a second.
	rate float64
	// cpu is what the program that follows the pods used for each, from its creation until it was
	// gone; 0 if there is none.
	cpu time.Duration
}

// measureEvictions: pods nobody intercepts.
func measureEvictions(ctx context.Context, e *env) error {
	nothing := func(context.Context) (int, func(), error) { return 0, func() {}, nil }
	// The difference is small, so the median is of more rounds than elsewhere.
	got, err := alternate(ctx, max(e.rounds, e.size(7, 0)),
		e.evictions(plainNamespace, nothing),
		e.evictions(trivialNamespace, nothing),
		e.evictions(bareNamespace, func(ctx context.Context) (int, func(), error) { return e.serveForUser(ctx, bareRole, e.bareURL) }),
		e.evictions(ourNamespace, func(ctx context.Context) (int, func(), error) {
			if err := e.startManager(ctx); err != nil {
				return 0, nil, err
			}
			return e.manager.PID(), func() {}, nil // It is stopped by the next side, which may fail.
		}))
	if err != nil {
		return err
	}
	for _, l := range evictionLines(got[0], got[1], got[2], got[3]) {
		e.table.add(l)
	}
	return nil
}

// evictions is a side: a namespace, and how to start the program that follows its pods. The
// manager does not run on other sides than its own.
func (e *env) evictions(namespace string, start func(context.Context) (pid int, stop func(), err error)) func(context.Context) (lives, error) {
	n, first := e.size(1000, 300), e.size(500, 300)
	return func(ctx context.Context) (got lives, err error) {
		if err := e.stopManager(ctx); err != nil {
			return lives{}, err
		}
		pid, stop, err := start(ctx)
		if err != nil {
			return lives{}, err
		}
		defer stop()
		// The first evictions of a process pay for its connections and for memory that it keeps.
		if _, err := e.lifeOf(ctx, namespace, first); err != nil {
			return lives{}, err
		}
		if pid == 0 {
			got.rate, err = e.lifeOf(ctx, namespace, n)
			return got, err
		}
		before, err := cpuOf(pid)
		if err != nil {
			return lives{}, err
		}
		err = e.profiled(ctx, e.size(15, 5), func() error {
			got.rate, err = e.lifeOf(ctx, namespace, n)
			return err
		})
		if err != nil {
			return lives{}, err
		}
		after, err := cpuOf(pid)
		got.cpu = (after - before) / time.Duration(n)
		return got, err
	}
}

// lifeOf makes pods, evicts them when all run, waits until they are gone, and returns how many
// were evicted in a second.
func (e *env) lifeOf(ctx context.Context, namespace string, n int) (rate float64, err error) {
	pods, err := e.makePods(ctx, namespace, "node-1", n)
	if err != nil {
		return 0, err
	}
	took, err := e.evictAll(ctx, pods, callers)
	if err != nil {
		return 0, err
	}
	return float64(n) / took.Seconds(), e.noPods(ctx, namespace)
}

// evictionLines compares the sides.
func evictionLines(none, trivial, bare, ours []lives) []line {
	rates := func(side []lives) (all []float64) {
		for _, round := range side {
			all = append(all, round.rate)
		}
		return all
	}
	cpus := func(side []lives) (all []time.Duration) {
		for _, round := range side {
			all = append(all, round.cpu)
		}
		return all
	}
	against := func(what string, side []lives, name string) line {
		return line{
			what: what, ours: spread(rates(ours), perSecond), theirs: spread(rates(side), perSecond) + " " + name,
			ratio: ratioOf(median(rates(ours)), median(rates(side))),
		}
	}
	rate := against("evictions of pods nobody intercepts, 50 callers", bare, "least add-on")
	rate.goal, rate.met = ">= 0.97", new(median(rates(ours)) >= 0.97*median(rates(bare)))
	used, least := median(cpus(ours)), median(cpus(bare))
	return []line{
		rate,
		{
			what: "CPU of the manager for such a pod: made, run, evicted, gone", ours: spread(cpus(ours), hundredths),
			theirs: spread(cpus(bare), hundredths) + " least add-on", ratio: ratioOf(float64(used), float64(least)),
			goal: "<= 1.15", met: new(float64(used) <= 1.15*float64(least)),
		},
		against("evictions against the trivial webhook", trivial, "trivial webhook"),
		against("evictions against no webhook at all", none, "no webhook"),
	}
}

// denied makes a pod whose eviction is denied for as long as the cluster lives, by
// a first call of alice.
func (e *env) denied(ctx context.Context, name string) (*corev1.Pod, *kubernetes.Clientset, error) {
	config, err := e.cluster.ConfigFor("alice", "system:masters")
	if err != nil {
		return nil, nil, err
	}
	alice, err := kubernetes.NewForConfig(unlimited(config))
	if err != nil {
		return nil, nil, err
	}
	pods, err := e.makePods(ctx, ourNamespace, "node-2", 1, func(_ int, w *builder.PodWrapper) {
		w.Name = name
		w.Interceptors(silentInterceptor)
	})
	if err != nil {
		return nil, nil, err
	}
	return pods[0], alice, firstDenial(ctx, alice, pods[0])
}

// firstDenial calls until the answer names the interceptor.
func firstDenial(ctx context.Context, alice kubernetes.Interface, pod *corev1.Pod) error {
	return eventually(ctx, "the first denial that names the interceptor", func(ctx context.Context) (bool, error) {
		err := alice.PolicyV1().Evictions(pod.Namespace).Evict(ctx, evictionOf(pod))
		if !apierrors.IsTooManyRequests(err) {
			return false, fmt.Errorf("want a denial, got %w", errors.Join(err, errors.New("the call")))
		}
		return strings.Contains(err.Error(), silentInterceptor), nil
	})
}

func evictionOf(pod *corev1.Pod) *policyv1.Eviction {
	return &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
}

// reviewFor is what the API server sends about kubectl's eviction of a pod.
func reviewFor(pod *corev1.Pod) ([]byte, error) {
	body := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q,"creationTimestamp":"2026-03-01T12:00:00Z",`+
		`"managedFields":[{"manager":"kubectl","operation":"Update","apiVersion":"policy/v1","time":"2026-03-01T12:00:00Z","fieldsType":"FieldsV1",`+
		`"fieldsV1":{"f:deleteOptions":{}},"subresource":"eviction"}]},"deleteOptions":{}}`, pod.Name, pod.Namespace)
	return json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:                "705ab4f5-6393-11e8-b7cc-42010a800002",
			Kind:               metav1.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"},
			Resource:           metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			SubResource:        "eviction",
			RequestKind:        &metav1.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"},
			RequestResource:    &metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			RequestSubResource: "eviction",
			Name:               pod.Name, Namespace: pod.Namespace, Operation: admissionv1.Create,
			UserInfo: authenticationv1.UserInfo{
				Username: "alice", Groups: []string{"system:masters", "system:authenticated"},
				Extra: map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/credential-id": {"X509SHA256=5d1c0a1b6a9d2e6f43b5b0f8e1d9a7c2"}},
			},
			Object:  runtime.RawExtension{Raw: []byte(body)},
			DryRun:  new(false),
			Options: runtime.RawExtension{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`)},
		},
	})
}

// hammer posts the same review for some time and returns how many answers came per
// second. Each must contain want.
func hammer(ctx context.Context, url string, body []byte, want string, workers int, span time.Duration) (float64, error) {
	// As the API server does it: HTTP/1.1, connections that stay.
	transport := &http.Transport{MaxIdleConnsPerHost: workers, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	poster := &http.Client{Transport: transport}
	until := time.Now().Add(span)
	counts := make([]int, workers)
	begun := time.Now()
	err := inParallel(ctx, workers, workers, func(ctx context.Context, i int) error {
		for time.Now().Before(until) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"?timeout=10s", bytes.NewReader(body))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := poster.Do(req)
			if err != nil {
				return err
			}
			answer, err := io.ReadAll(resp.Body)
			if err := errors.Join(err, resp.Body.Close()); err != nil {
				return err
			}
			if !bytes.Contains(answer, []byte(want)) {
				return fmt.Errorf("want an answer with %q, got %s", want, answer)
			}
			counts[i]++
		}
		return nil
	})
	total := 0
	for _, c := range counts {
		total += c
	}
	return float64(total) / time.Since(begun).Seconds(), err
}

// measureDenials: the same call again and again while interceptors work.
func measureDenials(ctx context.Context, e *env) error {
	if err := e.startManager(ctx); err != nil {
		return err
	}
	pod, _, err := e.denied(ctx, "denied")
	if err != nil {
		return err
	}
	body, err := reviewFor(pod)
	if err != nil {
		return err
	}
	span := time.Duration(e.size(5, 2)) * time.Second
	ourURL, err := e.inst.WebhookURL(ctx, webhook.EvictionPath)
	if err != nil {
		return err
	}
	for _, workers := range []int{1, callers} {
		got, err := alternate(ctx, e.rounds,
			func(ctx context.Context) (float64, error) {
				return hammer(ctx, e.trivialURL, body, `"allowed":true`, workers, span)
			},
			func(ctx context.Context) (rate float64, err error) {
				err = e.profiled(ctx, int(span/time.Second), func() error {
					rate, err = hammer(ctx, ourURL, body, silentInterceptor, workers, span)
					return err
				})
				return rate, err
			})
		if err != nil {
			return err
		}
		trivial, ours := median(got[0]), median(got[1])
		what := fmt.Sprintf("repeated denied evictions over TLS, %d callers", workers)
		if workers == 1 {
			what = "repeated denied evictions over TLS, 1 caller"
		}
		e.table.add(line{
			what: what, ours: spread(got[1], perSecond), theirs: spread(got[0], perSecond) + " trivial webhook",
			ratio: ratioOf(ours, trivial), goal: ">= 0.5", met: new(ours/trivial >= 0.5),
		})
	}
	// Later rows wait until the namespace is empty.
	return errors.Join(e.deletePod(ctx, pod), e.noPods(ctx, pod.Namespace))
}

// deletePod deletes this very pod at once.
func (e *env) deletePod(ctx context.Context, pod *corev1.Pod) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	if err := e.kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, now); err != nil {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	return nil
}
