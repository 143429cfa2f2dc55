//go:build unix

package kubevirt

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// evictionOf a pod as kubectl drain sends it: by name.
var evictionOf = cluster.Eviction

// answer is what the API server says.
type answer struct {
	code          int
	warning, body string
}

// evict posts an Eviction as a drainer.
func evict(t *testing.T, pod *corev1.Pod, body *policyv1.Eviction) answer {
	t.Helper()
	code, header, got := kube.PostEviction(t, pod, body, "alice", drainers)
	return answer{code: code, warning: header.Get("Warning"), body: string(got)}
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
