//go:build unix

package native

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// operators have the role that the chart makes for people on call.
const operators = "operators"

// printed is what a command prints, while it runs.
type printed struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (p *printed) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all.Write(text)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all.String()
}

// run runs the plugin as a member of that group, to its end.
func run(ctx context.Context, t *testing.T, group string, out *printed, args ...string) error {
	t.Helper()
	kubeconfig, err := kube.KubeconfigFile("olga-of-"+group, group)
	if err != nil {
		t.Fatal(err)
	}
	options := cli.DefaultOptions()
	options.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: out}
	options.Size = func() (int, int, bool) { return 0, 0, false }
	options.System = inst.Namespace
	command := app.NewCommand(options)
	command.SetArgs(append([]string{"--kubeconfig=" + kubeconfig}, args...))
	return command.ExecuteContext(ctx)
}

// prints runs the plugin, and wants all of this in what it prints.
func prints(t *testing.T, wanted []string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cluster.Patience)
	defer cancel()
	var out printed
	if err := run(ctx, t, operators, &out, args...); err != nil {
		t.Errorf("%q: %v", args, err)
	}
	for _, want := range wanted {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q does not say %q:\n%s", args, want, out.String())
		}
	}
}

// A drain of a pod with native responders and an interceptor is one story in all commands, and so is
// an Eviction that only Kubernetes' own API was asked for.
func TestThePluginTellsOneStory(t *testing.T) {
	shareManager(t)
	namespace, node := placed(t)
	first, second, third := in(namespace, migrate), in(namespace, save), in(namespace, ours)
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(first, second).Interceptors(third).Obj())

	ctx, cancel := context.WithTimeout(t.Context(), 2*cluster.Patience)
	defer cancel()
	prints(t, []string{fmt.Sprintf("native.drawbridge.dev (%s, %s), then %s", first, second, third)}, "drain", node, "--force", "--dry-run=client")
	prints(t, []string{fmt.Sprintf("native.drawbridge.dev (%s, %s), %s\n", first, second, third)}, "forecast", node, "--force")
	var drain printed
	drained := make(chan error, 1)
	go func() { drained <- run(ctx, t, operators, &drain, "drain", node, "--force") }()
	says := func(line string) {
		t.Helper()
		waiting.Eventually(t, "the drain to say "+line, func(context.Context) error {
			if strings.Contains(drain.String(), line) {
				return nil
			}
			return fmt.Errorf("it says:\n%s", drain.String())
		})
	}
	waitEviction(t, pod, "in the hands of its responder", turnOf(first))
	responds(t, pod, first, func(r *lifecyclev1alpha1.ResponderStatus) {
		// It is told in hours, so it stays the same however long the commands take.
		r.HeartbeatTime, r.Message, r.ExpectedCompletionTime = new(metav1.Now()), new("copying 42 %"), new(metav1.NewTime(time.Now().Add(11*time.Hour)))
	})
	says("pod " + namespace + "/db-0 waits for " + first + " 1/4: copying 42 %\n")
	prints(t, []string{first, "active", "10h", "copying 42 %", second, third, "waiting"}, "status", node, "-o", "wide")
	prints(t, []string{first + " 1/4", "10h", "copying 42 %"}, "status", node, "--tree=false", "-o", "wide")
	prints(t, []string{"- " + first + " has its turn", "done in 10h, \"copying 42 %\"", "- " + second + " waits for its turn", third}, "why", "db-0", "-n", namespace)
	prints(t, []string{fmt.Sprintf("native.drawbridge.dev (%s, %s), %s\n", first, second, third)}, "forecast", node, "--force")

	only := createPod(t, builder.Pod(namespace, "web-0").Responders(second).Obj())
	wants(t, only)
	waitEviction(t, only, "in the hands of its responder", turnOf(second))
	prints(t, []string{"web-0", second, "drain.example.com/me"}, "status", "-n", namespace, "-o", "wide")
	prints(t, []string{"eviction.lifecycle.k8s.io/pod-1-web-0\n", "evictionrequest.drawbridge.dev/" + string(pod.UID) + "\n"}, "status", "-n", namespace, "-o", "name")
	prints(t, []string{"Native responder " + second + " (1 of 2) has its turn.", "drain.example.com/me  by Kubernetes' own API"}, "why", "web-0", "-n", namespace)
	prints(t, []string{"Native API: lifecycle.k8s.io/v1alpha1, in charge: Drawbridge\n"}, "version")

	completes(t, pod, first)
	says("pod " + namespace + "/db-0 waits for " + second + " 2/4\n")
	completes(t, pod, second)
	says("pod " + namespace + "/db-0 waits for " + third + " 3/4\n")
	intercepts(t, pod, third)
	if err := <-drained; err != nil {
		t.Errorf("the drain: %v\n%s", err, drain.String())
	}
	gone(t, pod)
	completes(t, only, second)
	gone(t, only)
}

// What was asked for natively can be canceled by the same command, alone or with a request.
func TestThePluginCallsOffWhatWasAskedForNatively(t *testing.T) {
	shareManager(t)
	namespace, node := placed(t)
	alone := createPod(t, builder.Pod(namespace, "web-0").Node(node).Responders(in(namespace, migrate)).Obj())
	wants(t, alone)
	waitEviction(t, alone, "in the hands of its responder", turnOf(in(namespace, migrate)))
	var out printed
	if err := run(t.Context(), t, readers, &out, "cancel", "pod/web-0", "-n", namespace); err == nil || !strings.Contains(out.String(), "Warning: native EvictionRequests are left out:") {
		t.Errorf("who may not read them: %v\n%s", err, out.String())
	}
	prints(t, []string{"kubectl drawbridge cancel pod/web-0 -n " + namespace}, "why", "web-0", "-n", namespace)
	prints(t, []string{"the eviction of pod web-0 is canceled\n"}, "cancel", "pod/web-0", "-n", namespace)
	waitEviction(t, alone, "canceled", isCanceled)
	lives(t, alone)

	both := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(in(namespace, migrate)).Interceptors(in(namespace, ours)).Obj())
	wants(t, both)
	joins(t, both)
	completes(t, both, in(namespace, migrate))
	cluster.WaitRequest(t, admin, both, "in the hands of ours", cluster.ActiveIs(in(namespace, ours)))
	prints(t, []string{"the eviction of pod db-0 is canceled\n"}, "cancel", "pod/db-0", "-n", namespace)
	waitEviction(t, both, "canceled", isCanceled)
	cluster.WaitRequest(t, admin, both, "canceled", v1alpha1.IsFinished)
	lives(t, both)
	out = printed{}
	if err := run(t.Context(), t, operators, &out, "cancel", "pod/db-0", "-n", namespace); err == nil || !strings.Contains(err.Error(), "there is nothing to cancel: the eviction of pod db-0 is canceled already") {
		t.Errorf("canceled once more: %v\n%s", err, out.String())
	}
}

// Who may not read native Evictions, as with a role from before, is told so and sees the rest.
func TestThePluginWithoutTheRightToReadEvictions(t *testing.T) {
	shareManager(t)
	namespace, node := placed(t)
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(in(namespace, migrate)).Obj())
	joins(t, pod)
	waitEviction(t, pod, "in the hands of its responder", turnOf(in(namespace, migrate)))
	for _, args := range [][]string{{"status", node}, {"why", "db-0", "-n", namespace}} {
		var out printed
		if err := run(t.Context(), t, readers, &out, args...); err != nil {
			t.Errorf("%q: %v", args, err)
		}
		if !strings.Contains(out.String(), "native.drawbridge.dev") || !strings.Contains(strings.ToLower(out.String()), "native evictions") || !strings.Contains(out.String(), "forbidden") {
			t.Errorf("%q says:\n%s", args, out.String())
		}
	}
	completes(t, pod, in(namespace, migrate))
	gone(t, pod)
}
