//go:build unix

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/webhook"
)

// forged is a made-up review: somebody else's eviction of a pod, with grace period 0.
func forged(t *testing.T, pod *corev1.Pod) []byte {
	t.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "forged", Kind: metav1.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"},
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, SubResource: "eviction",
			Namespace: pod.Namespace, Name: pod.Name, Operation: admissionv1.Create,
			UserInfo: authenticationv1.UserInfo{Username: "somebody-important"},
			Object: runtime.RawExtension{Raw: []byte(
				`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"` + pod.Name + `"},"deleteOptions":{"gracePeriodSeconds":0}}`)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// postForged posts it past the API server, as anybody may who reaches the port.
func postForged(t *testing.T, url string, body []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	// A stranger does not mind whom he talks to.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"?timeout=30s", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(response.Body).Decode(&review); err != nil || review.Response == nil {
		t.Fatalf("HTTP %s: %v", response.Status, err)
	}
	return review.Response
}

// Who reaches the webhook's port can make up a review. Without the token of the API
// servers nothing comes of it.
func TestAForgedReviewStartsNothing(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	pod := createPod(t, builder.Pod(namespace, "db-0").Interceptors("failover.example.com").Node(addNodes(t, namespace, 1)[0]).Obj())
	genuine := must(inst.WebhookURL(t.Context(), webhook.EvictionPath))(t)
	base := "https://" + net.JoinHostPort("localhost", strconv.Itoa(inst.WebhookPort)) + webhook.EvictionPath
	for what, url := range map[string]string{"without a token": base, "with a wrong one": base + "/" + strings.Repeat("0", 64)} {
		got := postForged(t, url, forged(t, pod))
		if got.Allowed || got.UID != "forged" || !strings.Contains(got.Result.Message, "does not know this API server") {
			t.Errorf("%s: %+v", what, got)
		}
	}
	noRequest(t, pod)
	lives(t, pod)

	// With the token it would be a call like any other: so the token is all that counts.
	if got := postForged(t, genuine, forged(t, pod)); got.Allowed || !strings.HasPrefix(got.Result.Message, "Eviction triggered evacuation") {
		t.Errorf("with the token: %+v", got)
	}
	waitRequest(t, pod, "in progress", activeIs("failover.example.com"))
}

var peakMemory = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// Four hundred connections send a mebibyte each to the manager's process and stall. It
// stays below half of what the chart lets it have, and evictions go on.
func TestStalledConnectionsDoNotFillTheManagersMemory(t *testing.T) {
	const strangers, mebibyte, limit = 400, 1 << 20, 256 << 10 // kB; the chart's limit is 512 Mi.
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	manager, err := inst.StartProcess(ctx, manager.ProcessOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := manager.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	namespace := kube.Namespace(t)
	pod := createPod(t, builder.Pod(namespace, "db-0").Interceptors("failover.example.com").Node(addNodes(t, namespace, 1)[0]).Obj())
	token := must(inst.WebhookURL(ctx, webhook.EvictionPath))(t)
	token = token[strings.LastIndexByte(token, '/'):]
	padding := bytes.Repeat([]byte("x"), mebibyte)
	// A stranger does not mind whom he talks to.
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	for _, path := range []string{webhook.EvictionPath, webhook.EvictionPath + token} {
		for i := range strangers {
			conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(inst.WebhookPort)))
			if err != nil {
				continue // Closed at once, to make room for others.
			}
			t.Cleanup(func() { _ = conn.Close() })
			if err := conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			// What is not taken is not sent.
			_, _ = fmt.Fprintf(conn, "POST %s?timeout=30s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n%s", path, `{"request":{"uid":"u","x":"`)
			_, _ = conn.Write(padding)
			if i%200 == 100 {
				got := evict(t, "judy", pod, eviction(pod))
				if got.code != http.StatusTooManyRequests || !strings.Contains(string(got.body), "Eviction triggered evacuation") {
					t.Errorf("an eviction while %d strangers stall: %d %s", i, got.code, got.body)
				}
			}
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", manager.PID()))
	if err != nil {
		t.Skipf("there is no /proc here: %v", err)
	}
	peak := peakMemory.FindSubmatch(status)
	if peak == nil {
		t.Fatalf("no peak in %s", status)
	}
	if kilobytes := must(strconv.Atoi(string(peak[1])))(t); kilobytes > limit {
		t.Errorf("the manager's memory grew to %d kB", kilobytes)
	} else {
		t.Logf("the manager's memory grew to %d kB", kilobytes)
	}
	lives(t, pod)
}
