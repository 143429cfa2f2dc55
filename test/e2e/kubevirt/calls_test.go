//go:build unix

package kubevirt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// evictionOf a pod as kubectl drain sends it: by name.
func evictionOf(pod *corev1.Pod) *policyv1.Eviction {
	return &policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{},
	}
}

// answer is what the API server says.
type answer struct {
	code          int
	warning, body string
}

// evict posts an Eviction as a drainer.
func evict(t *testing.T, pod *corev1.Pod, body *policyv1.Eviction) answer {
	t.Helper()
	config := must(kube.ConfigFor("alice", drainers))(t)
	caller := must(rest.HTTPClientFor(config))(t)
	content := must(json.Marshal(body))(t)
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s/eviction", config.Host, pod.Namespace, pod.Name)
	request := must(http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(content)))(t)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "kubectl/v1.37.1")
	response, err := caller.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return answer{code: response.StatusCode, warning: response.Header.Get("Warning"), body: string(got)}
}

// evictUntil evicts until the answer has this text.
func evictUntil(t *testing.T, pod *corev1.Pod, text string) answer {
	t.Helper()
	var got answer
	eventually(t, "the answer to say: "+text, func(context.Context) error {
		if got = evict(t, pod, evictionOf(pod)); !strings.Contains(got.body, text) {
			return fmt.Errorf("it is %d %s", got.code, got.body)
		}
		return nil
	})
	return got
}

// startDrain starts kubectl drain. Its output is told if the test fails.
func startDrain(t *testing.T, user, node string) *cluster.Program {
	t.Helper()
	drain := must(kube.StartKubectl(t.Context(), cluster.KubectlOptions{User: user, Groups: []string{drainers}},
		"drain", node, "--force", "--ignore-daemonsets", "--delete-emptydir-data"))(t)
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		var said strings.Builder
		for _, line := range drain.Lines() {
			fmt.Fprintf(&said, "%s %s\n", line.Time.Format(time.TimeOnly), line.Text)
		}
		t.Logf("%s's drain of %s said:\n%s", user, node, said.String())
	})
	return drain
}

// finishWell waits until a drain is over, and successful.
func finishWell(t *testing.T, drain *cluster.Program, within time.Duration) {
	t.Helper()
	select {
	case <-drain.Done():
	case <-time.After(within):
		t.Fatalf("the drain has not ended within %s", within)
	}
	if err := must(drain.Wait())(t).Err(); err != nil {
		t.Fatal(err)
	}
}

// callOff ends a drain, and takes its cordon back.
func callOff(t *testing.T, drain *cluster.Program, node string) {
	t.Helper()
	if err := drain.Kill(); err != nil {
		t.Fatal(err)
	}
	<-drain.Done()
	uncordon(t, node)
}

func uncordon(t *testing.T, node string) {
	t.Helper()
	kubectl(t, "uncordon", node)
}
func cordon(t *testing.T, node string) {
	t.Helper()
	kubectl(t, "cordon", node)
}

func kubectl(t *testing.T, args ...string) {
	t.Helper()
	result := must(kube.Kubectl(t.Context(), cluster.KubectlOptions{User: "alice", Groups: []string{drainers}}, args...))(t)
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
}
