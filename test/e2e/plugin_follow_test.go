//go:build unix

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// The plugin drains nodes through a maintenance, follows it, and gives them back.
func TestDrainWithThePlugin(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	slices.Sort(nodes) // As they are drained.
	worker := nameIn(namespace, "worker")
	moved := createPod(t, builder.Pod(namespace, "moved").Node(nodes[0]).Interceptors(worker).Obj())
	plain := createPod(t, builder.Pod(namespace, "plain").Node(nodes[0]).Obj())

	planned := plugin(t, "drain", "-l", testLabel+"="+namespace, "--force", "--dry-run=server")
	for _, want := range []string{"be evicted after " + worker, "be evicted, after maintenance.evacuationWait, which could not be read", "2 nodes would be cordoned, 2 pods would have to go"} {
		if !strings.Contains(planned, want) {
			t.Errorf("want %q in the plan:\n%s", want, planned)
		}
	}
	lives(t, plain)

	follow := &pluginCall{user: "olga", group: operators}
	tells := func(texts ...string) error {
		printed := follow.printed()
		for _, want := range texts {
			if !strings.Contains(printed, want+"\n") && !strings.Contains(printed, want+":") {
				return fmt.Errorf("want %q in:\n%s", want, printed)
			}
		}
		return nil
	}
	var code int
	var said string
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		code, said = follow.run(t.Context(), t, "drain", "-l", testLabel+"="+namespace, "--force", "--reason=test", "--timeout=3m", "--max-parallel=1")
	}()
	// It tells only what it sees, so nothing passes before that is told.
	eventually(t, "the plugin to tell of the drain", func(context.Context) error {
		return tells("node/"+nodes[1]+" cordoned", "pod "+namespace+"/moved waits for "+worker+" 1/2", "pod "+namespace+"/plain evicted")
	})
	complete(t, moved, worker, time.Now)
	<-ended
	if code != 0 {
		t.Fatalf("exit code %d: %s\n%s", code, said, follow.printed())
	}
	gone(t, plain)
	gone(t, moved)
	if err := tells("node/"+nodes[0]+" drained", "node/"+nodes[1]+" drained"); err != nil {
		t.Error(err)
	}
	// The same again follows the same drain, which is over.
	plugin(t, "drain", "-l", testLabel+"="+namespace)
	list := &v1alpha1.NodeMaintenanceList{}
	if err := admin.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, m := range list.Items {
		if strings.Contains(fmt.Sprint(m.Spec.NodeSelector), namespace) {
			count++
		}
	}
	if count != 1 {
		t.Errorf("want one maintenance, have %d", count)
	}

	p := &pluginCall{user: "olga", group: operators}
	if code, said = p.run(t.Context(), t, "uncordon", nodes[0]); code != 1 || !strings.Contains(said, "selects node "+nodes[0]+" by labels, with others") {
		t.Errorf("exit code %d, %q", code, said)
	}
	plugin(t, "uncordon", nodes[0], "--whole")
	for _, name := range nodes {
		eventually(t, "node "+name+" to be schedulable", func(ctx context.Context) error {
			node := &corev1.Node{}
			if err := admin.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
				return err
			}
			if node.Spec.Unschedulable {
				return textError("it is cordoned")
			}
			return nil
		})
	}
}

// ^C leaves the drain running or stops it, and a maintenance that is deleted meanwhile
// is told of.
func TestADrainThatIsLeft(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	silent := nameIn(namespace, "silent")
	pod := createPod(t, builder.Pod(namespace, "db-0").NodeSelector(testLabel, namespace).Interceptors(silent).Obj())
	// leave drains until the interceptor has its turn, and then does something.
	leave := func(then func(interrupt func()), args ...string) (int, string) {
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		p := &pluginCall{user: "olga", group: operators}
		type end struct {
			code int
			said string
		}
		ended := make(chan end, 1)
		go func() {
			code, said := p.run(ctx, t, append([]string{"drain", node, "--force"}, args...)...)
			ended <- end{code, said}
		}()
		eventually(t, "the plugin to tell of "+silent, func(context.Context) error {
			if !strings.Contains(p.printed(), silent) {
				return textError(p.printed())
			}
			return nil
		})
		then(interrupt)
		select {
		case e := <-ended:
			return e.code, e.said
		case <-time.After(patience):
			t.Fatal("the plugin has not ended")
			return 0, ""
		}
	}
	wantSaid := func(what string, wantCode, code int, want, said string) {
		t.Helper()
		if code != wantCode || !strings.Contains(said, want) {
			t.Errorf("%s: want exit code %d and %q, have %d: %s", what, wantCode, want, code, said)
		}
	}

	code, said := leave(func(interrupt func()) { interrupt() })
	wantSaid("^C", 130, code, "to cancel it: kubectl drawbridge cancel "+node, said)
	waitRequest(t, pod, "intercepted still", activeIs(silent))

	tree := regexp.MustCompile(`(?s)Node ` + node + ` is cordoned.*\n` + node + ` +Drain .*\n[^\n]* ` + namespace + `/db-0 +Intercepting .*\n[^\n]* ` + regexp.QuoteMeta(silent) + ` +active .* imperative-eviction\.k8s\.io +waiting`)
	// The interceptor may be active before the maintenance writes its next status.
	eventually(t, "the status to match "+tree.String(), func(context.Context) error {
		if text := plugin(t, "status", node); !tree.MatchString(text) {
			return textError(text)
		}
		return nil
	})
	if text := plugin(t, "status", node, "--tree=false"); !strings.Contains(text, silent+" 1/2") || !strings.Contains(text, "is cordoned") {
		t.Errorf("status in lines:\n%s", text)
	}
	plugin(t, "cancel", node)
	waitRequest(t, pod, "canceled", isTrue(v1alpha1.ConditionCanceled))

	code, said = leave(func(interrupt func()) { interrupt() }, "--cancel-on-interrupt")
	wantSaid("^C that stops it", 130, code, "The drain is stopped", said)
	waitRequest(t, pod, "canceled again", isTrue(v1alpha1.ConditionCanceled))

	code, said = leave(func(func()) { plugin(t, "uncordon", node) })
	wantSaid("deleted", 1, code, "was deleted while it was followed", said)
	lives(t, pod)
}
