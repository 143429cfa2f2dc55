//go:build unix

package karpenter

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/gocommand"
)

// responder is the native one of these pods: a program in plain client-go.
const responder = "db.example.com/failover"

// A node with pods of all kinds, emptied by kubectl and by Karpenter. Who intercepts a pod makes
// no difference to them.
func TestPodsOfAllKinds(t *testing.T) {
	together(t)
	startResponder(t)
	for drainer, drain := range map[string]func(*testing.T, *corev1.Pod){
		"kubectl drain": func(t *testing.T, pod *corev1.Pod) {
			result, err := kube.Kubectl(t.Context(), cluster.KubectlOptions{User: "alice", Groups: []string{"system:masters"}},
				"drain", pod.Spec.NodeName, "--ignore-daemonsets", "--force", "--timeout=3m")
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("$ kubectl drain %s\n%s%s", pod.Spec.NodeName, result.Stdout, result.Stderr)
			if err := admin.Delete(t.Context(), claimOf(t, pod)); err != nil {
				t.Fatal(err)
			}
		},
		"Karpenter": func(t *testing.T, pod *corev1.Pod) { onItsNode(t, pod).deleteClaim(t) },
	} {
		t.Run(drainer, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, "")
			pods := map[string]*corev1.Pod{
				"plain":       p.pod(t, "plain"),
				"intercepted": p.pod(t, "intercepted", func(w *builder.PodWrapper) { w.Interceptors(preparer) }),
				"responds":    p.pod(t, "responds", func(w *builder.PodWrapper) { w.Responders(responder) }),
				"both":        p.pod(t, "both", func(w *builder.PodWrapper) { w.Responders(responder).Interceptors(preparer) }),
			}
			victims := map[string]*victim{}
			for name, pod := range pods {
				if pod.Spec.NodeName != pods["plain"].Spec.NodeName {
					t.Fatalf("pod %s is on node %s, and not on %s", name, pod.Spec.NodeName, pods["plain"].Spec.NodeName)
				}
				victims[name] = onItsNode(t, pod)
			}
			drain(t, pods["plain"])
			turns := map[string]string{}
			for name, v := range victims {
				v.waitGone(t)
				turns[name] = strings.Join(turnsOf(t, v.pod), ", ")
				transcript(t, v)
			}
			want := map[string]string{
				"plain": "", "intercepted": preparer, "responds": responder, "both": responder + ", " + preparer,
			}
			if diff := cmp.Diff(want, turns); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
		})
	}
}

// startResponder runs the program until the test ends.
func startResponder(t *testing.T) {
	t.Helper()
	program := kube.Dir() + "/responder"
	if _, err := gocommand.Output(t.Context(), "", "build", "-o", program, "github.com/drawbridge-dev/drawbridge/test/e2e/native/responder"); err != nil {
		t.Fatal(err)
	}
	kubeconfig := must(kube.KubeconfigFile("failover", "system:masters"))(t)
	run := must(kube.StartProgram(t.Context(), cluster.ProgramOptions{}, program, "--kubeconfig="+kubeconfig, "--name="+responder, "--work=2s"))(t)
	t.Cleanup(func() { _ = run.Kill(); _, _ = run.Wait() })
}

// turnsOf are who has completed its turn for a pod before it was evicted, in their order.
func turnsOf(t *testing.T, pod *corev1.Pod) (names []string) {
	t.Helper()
	type turn struct {
		name string
		end  time.Time
	}
	var turns []turn
	evictions := &lifecyclev1alpha1.EvictionList{}
	if err := admin.List(t.Context(), evictions, client.InNamespace(pod.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, e := range evictions.Items {
		for _, r := range e.Status.Responders {
			if e.Spec.Target.Pod.UID == pod.UID && r.CompletionTime != nil {
				turns = append(turns, turn{r.Name, r.CompletionTime.Time})
			}
		}
	}
	if er, err := cluster.RequestFor(t.Context(), admin, pod); err == nil {
		for _, i := range er.Status.Interceptors {
			if i.CompletionTime != nil {
				turns = append(turns, turn{i.Name, i.CompletionTime.Time})
			}
		}
	} else if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return a.end.Compare(b.end) })
	for _, turn := range turns {
		if turn.name == responder || turn.name == preparer {
			names = append(names, turn.name)
		}
	}
	return names
}

// transcript logs the calls about a pod and their answers.
func transcript(t *testing.T, v *victim) {
	t.Helper()
	var said strings.Builder
	var began time.Time
	for _, r := range v.calls(t) {
		if began.IsZero() {
			began = r.Time
		}
		who, _, _ := strings.Cut(r.UserAgent, "/")
		fmt.Fprintf(&said, "%5.1f s  %s: %s %s/%s -> %d %s\n", r.Time.Sub(began).Seconds(), who, r.Verb, r.Resource, r.Subresource, r.Code, http.StatusText(r.Code))
	}
	t.Logf("%s:\n%s", v.pod.Name, said.String())
}
