//go:build unix

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/golden"
)

// answer is what the API server says, byte for byte.
type rawAnswer struct {
	code   int
	header http.Header
	body   []byte
}

// evict posts an Eviction as a user of a plain HTTP client: nothing is retried and
// nothing hidden.
func evict(t *testing.T, user string, pod *corev1.Pod, body any) rawAnswer {
	t.Helper()
	code, header, got := kube.PostEviction(t, pod, body, user, drainers)
	return rawAnswer{code: code, header: header, body: got}
}

// eviction of a pod as kubectl drain sends it: by name.
var eviction = cluster.Eviction

// status of an answer.
func (a rawAnswer) status(t *testing.T) metav1.Status {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal(a.body, &status); err != nil {
		t.Fatalf("the answer is no Status: %v:\n%s", err, a.body)
	}
	return status
}

// evictUntil calls until the answer has this text, as a drainer does.
func evictUntil(t *testing.T, user string, pod *corev1.Pod, text string) rawAnswer {
	t.Helper()
	var got rawAnswer
	eventually(t, "the answer to say: "+text, func(context.Context) error {
		if got = evict(t, user, pod, eviction(pod)); !strings.Contains(string(got.body), text) {
			return fmt.Errorf("it is %d %s", got.code, got.body)
		}
		return nil
	})
	return got
}

// What a caller sees, to the last byte: a change of these files is a change for
// everybody who drains.
func TestDenialsMatchTheGoldenFiles(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors("failover.db.example.com", "flush.db.example.com").Obj())

	tests := []struct {
		name, file string
		call       func() rawAnswer
	}{
		{"the first call is accepted as a wish", "accepted.golden.json", func() rawAnswer {
			return evict(t, "grace", pod, eviction(pod))
		}},
		{"later ones wait for the interceptor", "waiting.golden.json", func() rawAnswer {
			return evictUntil(t, "grace", pod, "waiting for interceptor")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.call()
			if got.code != http.StatusTooManyRequests {
				t.Errorf("HTTP status: want 429, got %d", got.code)
			}
			// One second of it makes client-go sleep inside the call, up to ten times.
			if values, ok := got.header["Retry-After"]; ok || strings.Contains(string(got.body), "retryAfterSeconds") {
				t.Errorf("want no Retry-After, got header %v and body %s", values, got.body)
			}
			if warnings := got.header.Values("Warning"); len(warnings) > 0 {
				t.Errorf("want no warnings on a denial, got %v", warnings)
			}
			var pretty bytes.Buffer
			if err := json.Indent(&pretty, bytes.TrimSpace(got.body), "", "  "); err != nil {
				t.Fatalf("%v in %s", err, got.body)
			}
			text := strings.ReplaceAll(pretty.String()+"\n", string(pod.UID), "THE-UID-OF-THE-POD")
			golden.Equal(t, tt.file, text)
		})
	}
	lives(t, pod)
}

// Cluster Autoscaler and Gardener still send policy/v1beta1.
func TestTheOlderVersionOfEvictionIsServed(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	held := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors("failover.example.com").Obj())
	plain := createPod(t, builder.Pod(namespace, "web-0").Node(node).Obj())
	older := func(pod *corev1.Pod) *policyv1.Eviction {
		e := eviction(pod)
		e.APIVersion = "policy/v1beta1"
		return e
	}

	if got := evict(t, "heidi", plain, older(plain)); got.code != http.StatusCreated {
		t.Errorf("a plain pod: want 201, got %d %s", got.code, got.body)
	}
	gone(t, plain)
	got := evict(t, "heidi", held, older(held))
	if status := got.status(t); got.code != http.StatusTooManyRequests || status.Reason != metav1.StatusReasonTooManyRequests {
		t.Errorf("a pod with an interceptor: want 429, got %d %s", got.code, got.body)
	}
	er := waitRequest(t, held, "in progress", activeIs("failover.example.com"))
	if diff := cmp.Diff([]string{"heidi.users.drawbridge.dev"}, requesters(er)); diff != "" {
		t.Errorf("requesters (-want +got):\n%s", diff)
	}
	lives(t, held)
}

// A call for another pod of that name is none for this one: the registry says so,
// and nothing is requested.
func TestPreconditionsOfACall(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	tests := map[string]struct {
		preconditions func(*corev1.Pod) *metav1.Preconditions
		wantCode      int
		wantRequest   bool
	}{
		"the UID of another pod is a conflict": {
			preconditions: func(*corev1.Pod) *metav1.Preconditions {
				return metav1.NewUIDPreconditions("00000000-0000-4000-8000-00000000dead")
			},
			wantCode: http.StatusConflict,
		},
		"another resource version is a conflict": {
			preconditions: func(*corev1.Pod) *metav1.Preconditions {
				return &metav1.Preconditions{ResourceVersion: new("1")}
			},
			wantCode: http.StatusConflict,
		},
		"the pod's own UID is a call like any other": {
			preconditions: func(pod *corev1.Pod) *metav1.Preconditions { return &metav1.Preconditions{UID: new(pod.UID)} },
			wantCode:      http.StatusTooManyRequests,
			wantRequest:   true,
		},
	}
	number := 0
	for name, tt := range tests {
		number++
		pod := createPod(t, builder.Pod(namespace, fmt.Sprintf("db-%d", number)).Node(node).Interceptors("failover.example.com").Obj())
		t.Run(name, func(t *testing.T) {
			call := eviction(pod)
			call.DeleteOptions.Preconditions = tt.preconditions(pod)
			got := evict(t, "ivan", pod, call)
			if got.code != tt.wantCode {
				t.Errorf("want %d, got %d %s", tt.wantCode, got.code, got.body)
			}
			if tt.wantRequest {
				waitRequest(t, pod, "in progress", activeIs("failover.example.com"))
			} else {
				noRequest(t, pod)
			}
			lives(t, pod)
		})
	}
}

// Where pods are that were created before the policies of the chart were there.
const (
	oldNamespace   = "older-than-drawbridge"
	oldNode        = "older-than-drawbridge"
	oldInterceptor = "flush.example.com"
	oldAnnotation  = oldInterceptor + ",Not_A_Name, " + oldInterceptor + ",imperative-eviction.k8s.io"
)

// createOldPods creates pods whose annotation the policy would refuse.
func createOldPods(ctx context.Context) error {
	if err := kube.AddNode(ctx, oldNode); err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: oldNamespace}}
	if err := admin.Create(ctx, namespace); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	for name, annotation := range map[string]string{"typo-0": oldAnnotation, "nonsense-0": ",,no name at all"} {
		pod := builder.Pod(oldNamespace, name).Node(oldNode).Annotation(v1alpha1.InterceptorsAnnotation, annotation).Obj()
		// Refused until the namespace has its service account.
		err := cluster.Wait(ctx, "pod "+name+" to be created", func(ctx context.Context) error { return admin.Create(ctx, pod.DeepCopy()) })
		if err != nil {
			return err
		}
	}
	return nil
}

// drainedOld is set when the old pods are used up.
var drainedOld atomic.Bool

func TestAMalformedAnnotationBlocksNothing(t *testing.T) {
	shareManager(t)
	if drainedOld.Swap(true) {
		t.Skip("with -count, only the first run finds pods that are older than the policy")
	}
	startInterceptor(t, oldNamespace, oldInterceptor, time.Second)
	typo, nonsense := readyPod(t, oldNamespace, "typo-0"), readyPod(t, oldNamespace, "nonsense-0")

	result := finishWell(t, startDrain(t, "judy", oldNode))
	saysAll(t, "standard output", result.Stdout, "pod/nonsense-0 evicted", "node/"+oldNode+" drained")
	gone(t, typo)
	gone(t, nonsense)

	er := waitRequest(t, typo, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	if diff := cmp.Diff([]string{oldInterceptor, v1alpha1.ImperativeEvictionInterceptor}, er.Status.ProcessedInterceptors); diff != "" {
		t.Errorf("what could be read was not used (-want +got):\n%s", diff)
	}
	noRequest(t, nonsense)
	saysAll(t, "the event", waitEvent(t, typo, "InvalidInterceptors").Note,
		`"Not_A_Name" is not a fully qualified domain name`, `"flush.example.com" is there twice`, `"imperative-eviction.k8s.io" cannot be registered`)
	saysAll(t, "the event", waitEvent(t, nonsense, "InvalidInterceptors").Note, "an entry is empty", `"no name at all"`)

	// The policy stops new ones.
	again := builder.Pod(oldNamespace, "typo-1").Node(oldNode).Annotation(v1alpha1.InterceptorsAnnotation, oldAnnotation).Obj()
	if err := admin.Create(t.Context(), again); err == nil || !strings.Contains(err.Error(), "pod-interceptors.drawbridge.dev") {
		t.Errorf("a new pod like that: want it to be refused by the policy, got %v", err)
	}
}
