//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// What keeps a Job from running is said, instead of waited for in silence.
func TestHookSaysWhyItsJobDoesNotRun(t *testing.T) {
	shareManager(t)
	t.Run("a quota has no room for it", func(t *testing.T) {
		t.Parallel()
		h := newHooked(t)
		pod := h.pod(t, "ledger-0")
		hook := h.hook(t, "dump", 1, v1alpha1.EvacuationHookSpec{Job: h.job()})
		jobs := corev1.ResourceName("count/jobs.batch")
		quota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "no-jobs"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{jobs: resource.MustParse("0")}},
		}
		create(t, quota)
		eventually(t, "the quota to be in force", func(ctx context.Context) error {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
				return err
			}
			if _, ok := quota.Status.Hard[jobs]; !ok {
				return fmt.Errorf("status %+v", quota.Status)
			}
			return nil
		})

		drain := startDrain(t, "alice", h.node)
		waitHookSays(t, pod, hook, "cannot be created", "exceeded quota: no-jobs")
		lives(t, pod)
		patch(t, quota, func() { quota.Spec.Hard[jobs] = resource.MustParse("1") })
		er := evicted(t, drain, pod)
		if diff := cmp.Diff(attemptsOf(hook, er, 1), h.seen.created(t)); diff != "" {
			t.Errorf("Jobs (-want +got):\n%s", diff)
		}
	})
	t.Run("Pod Security refuses its pod", func(t *testing.T) {
		t.Parallel()
		h := newHooked(t)
		pod := h.pod(t, "ledger-0")
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.namespace}}
		patch(t, namespace, func() { namespace.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "restricted"} })
		hook := h.hook(t, "dump", 1, v1alpha1.EvacuationHookSpec{Job: h.job()})

		drain := startDrain(t, "alice", h.node)
		waitHookSays(t, pod, hook, "its pod cannot be created", `violates PodSecurity "restricted`)
		lives(t, pod)
		drainGoesOn(t, drain)
	})
	t.Run("no node takes its pod", func(t *testing.T) {
		t.Parallel()
		h := newHooked(t)
		pod := h.pod(t, "ledger-0")
		nowhere := *h
		nowhere.namespace = "nowhere"
		hook := h.hook(t, "dump", 1, v1alpha1.EvacuationHookSpec{Job: nowhere.job()})

		drain := startDrain(t, "alice", h.node)
		waitHookSays(t, pod, hook, "its pod is not scheduled", "nodes are available")
		lives(t, pod)
		drainGoesOn(t, drain)
	})
}

// The pod goes when another object is as wanted, which is watched and not asked for.
func TestHookWaitsForAWorkload(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	pod := h.pod(t, "ledger-0")
	create(t, builder.StatefulSet(h.namespace, "quorum").Replicas(1).Pods(onNodesOf(h.namespace, func(w *builder.PodWrapper) {
		w.NodeSelector(corev1.LabelHostname, h.other).Annotation(cluster.ReadyAnnotation, "false")
	})).Obj())
	hook := h.hook(t, "in-sync", 1, v1alpha1.EvacuationHookSpec{Wait: &v1alpha1.HookWait{
		Workload: &v1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "'quorum'"},
		Until:    "workload != null && has(workload.status.readyReplicas) && workload.status.readyReplicas == workload.spec.replicas",
	}})
	other := &corev1.Pod{}
	eventually(t, "the other pod to run", func(ctx context.Context) error {
		err := admin.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: "quorum-0"}, other)
		if err == nil && other.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("phase %s", other.Status.Phase)
		}
		return err
	})

	mark := kube.RequestLog().Mark()
	drain := startDrain(t, "alice", h.node)
	waitHookSays(t, pod, hook, "the condition on StatefulSet quorum is not true yet")
	lives(t, pod)
	// kubectl asks again twice, and nobody reads the StatefulSet meanwhile.
	const line = `waiting for interceptor "in-sync.`
	eventually(t, "three refusals", func(context.Context) error {
		n := 0
		for _, l := range drain.Lines() {
			if strings.Contains(l.Text, line) {
				n++
			}
		}
		if n < 3 {
			return fmt.Errorf("%d so far", n)
		}
		return nil
	})
	patch(t, other, func() { delete(other.Annotations, cluster.ReadyAnnotation) })
	// The next heartbeat, before which the condition is looked at in any case, is later.
	cluster.Eventually(t, "the hook to be done", func(ctx context.Context) error {
		er, err := getRequest(ctx, pod)
		if err == nil && v1alpha1.ReportOf(er, actsAs(hook)).CompletionTime == nil {
			err = fmt.Errorf("it reports %+v", v1alpha1.ReportOf(er, actsAs(hook)))
		}
		return err
	})
	er := evicted(t, drain, pod)
	saysAll(t, "the report", v1alpha1.ReportOf(er, actsAs(hook)).Message, "it is done: the condition is true")
	asked := since(t, mark).By(drawbridge()).Where(func(r cluster.Request) bool {
		// Older API servers refuse to list by a watch; client-go asks once, and lists.
		return r.Resource == "statefulsets" && r.Namespace == h.namespace && r.Code != http.StatusUnprocessableEntity
	})
	if len(asked) > 4 { // A probe and an informer, which list and watch.
		t.Errorf("the StatefulSet was asked for %d times:\n%s", len(asked), asked)
	}
}

// What is skipped ends: the Job of a hook that works, and the wait of one that has not
// begun. Both leave their room to others.
func TestHookThatWorksCanBeSkipped(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	pods := make([]*corev1.Pod, 7)
	for i := range pods {
		pods[i] = h.pod(t, fmt.Sprintf("ledger-%d", i))
	}
	hook := h.hook(t, "dump", 7, v1alpha1.EvacuationHookSpec{
		Job: h.job(cluster.CompleteAfterAnnotation, "1h"), Undo: &v1alpha1.HookUndo{Job: h.job()},
	})
	requests := make([]*v1alpha1.EvictionRequest, len(pods))
	for i, pod := range pods {
		evict(t, "alice", pod, eviction(pod))
		said := "Job dump-"
		if i >= 5 {
			said = "it waits until others have ended"
		}
		requests[i] = waitHookSays(t, pod, hook, said)
	}
	skip := func(i int) {
		plugin(t, "skip", pods[i].Name, actsAs(hook), "-n", h.namespace, "--reason=no dump is needed")
		gone(t, pods[i])
	}

	skip(5) // The first one that waits.
	h.seen.waitJobs(t, 5)
	skip(0)
	h.seen.waitRemoved(t, attemptsOf(hook, requests[0], 1)[0])
	var want []string
	for _, i := range []int{0, 1, 2, 3, 4, 6} {
		want = append(want, attemptsOf(hook, requests[i], 1)...)
	}
	h.seen.waitJobs(t, 6)
	slices.Sort(want)
	if diff := cmp.Diff(want, h.seen.created(t)); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
	waitHook(t, hook, "without the run that was skipped", func(s v1alpha1.EvacuationHookStatus) bool { return len(s.Runs) == 5 })
}

// hookServer is a server that a hook asks.
type hookServer struct {
	*httptest.Server
	mu sync.Mutex
	// got are the requests: method, path, the header X-Token and the body.
	got []string
}

// startHookServer answers the requests with the answers, one after the other, the last
// one again and again.
func startHookServer(t *testing.T, answers ...func(http.ResponseWriter)) *hookServer {
	t.Helper()
	s := &hookServer{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.got = append(s.got, strings.TrimSpace(strings.Join([]string{r.Method, r.URL.Path, r.Header.Get("X-Token"), string(body)}, " ")))
		answer := answers[min(len(s.got), len(answers))-1]
		s.mu.Unlock()
		answer(w)
	}))
	t.Cleanup(s.Close)
	return s
}

func answersWith(code int, body string, header ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func TestHookSendsARequest(t *testing.T) {
	shareManager(t)
	cases := map[string]struct {
		answers []func(http.ResponseWriter)
		// url replaces the server's.
		url string
		// held is in the message of a hook that keeps the pod; empty if the pod goes.
		held string
		// done is in the message of one that does not.
		done string
		// paths are methods and paths of the requests.
		paths []string
	}{
		"202 and a Location are followed until the end": {
			answers: []func(http.ResponseWriter){
				answersWith(202, "", "Location", "/progress", "Retry-After", "1"), answersWith(202, "half", "Retry-After", "1"), answersWith(200, "all"),
			},
			done: "the server answered 200 OK: all", paths: []string{"POST /drain", "GET /progress", "GET /progress"},
		},
		"the address of a cloud's metadata is refused, however it was made": {
			url: "${'https://169.254.' + '169.254/'}", held: "link-local",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHooked(t)
			server := startHookServer(t, tc.answers...)
			certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "server-ca"}, Data: map[string]string{"ca.crt": string(certificate)}})
			create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "headers"}, StringData: map[string]string{"X-Token": "sesame"}})
			url := tc.url
			if url == "" {
				url = "${'" + server.URL + "/' + 'drain'}"
			}
			pod := h.pod(t, "ledger-0")
			hook := h.hook(t, "drain-queue", 1, v1alpha1.EvacuationHookSpec{Retries: new(int32), HTTP: &v1alpha1.HookHTTP{
				URL: url, Body: "${{'pod': pod.metadata.name, 'for': request.requesters}}",
				HeadersFrom: &v1alpha1.HookObject{Name: "headers"}, CAFrom: &v1alpha1.HookObject{Name: "server-ca"},
			}})

			drain := startDrain(t, "alice", h.node)
			if tc.held != "" {
				waitHookSays(t, pod, hook, "has failed and keeps the pod", tc.held)
				lives(t, pod)
				drainGoesOn(t, drain)
			} else {
				er := evicted(t, drain, pod)
				saysAll(t, "the report", v1alpha1.ReportOf(er, actsAs(hook)).Message, tc.done)
			}
			server.mu.Lock()
			defer server.mu.Unlock()
			body := string(must(json.Marshal(map[string]any{"pod": pod.Name, "for": []string{"alice.users.drawbridge.dev"}}))(t))
			var want []string
			for _, path := range tc.paths {
				line := path + " sesame"
				if strings.HasPrefix(path, http.MethodPost) {
					line += " " + body
				}
				want = append(want, line)
			}
			if diff := cmp.Diff(want, server.got); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}
