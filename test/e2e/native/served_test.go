//go:build unix

package native

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// The API comes and goes with the API server's flags, under a manager that runs on. Where it is not
// served, nobody asks for it but discovery, the log has no error, and responders that a pod names
// change nothing.
func TestTheAPIComesAndGoes(t *testing.T) {
	serve := func(yes bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), cluster.Patience)
		defer cancel()
		if err := kube.ServeNative(ctx, yes); err != nil {
			t.Fatal(err)
		}
	}
	serve(false)
	back := false
	t.Cleanup(func() {
		if !back {
			_ = kube.ServeNative(context.WithoutCancel(t.Context()), true)
		}
	})
	mark := kube.RequestLog().Mark()
	// How long the API server needs to come back depends on the machine.
	m := inst.ForTest(t, manager.Options{Change: func(o *app.Options) { o.LeaseDuration, o.RenewDeadline = 3*time.Minute, 2*time.Minute }})
	log := lastLog(t)
	namespace, node := placed(t)
	name, interceptor := in(namespace, migrate), in(namespace, ours)
	of := func(pod string) *builder.PodWrapper { return builder.Pod(namespace, pod).Node(node).Responders(name) }

	plain := createPod(t, of("web-0").Obj())
	joins(t, plain) // Our own API evicts it at once: nobody intercepts it.
	gone(t, plain)
	intercepted := createPod(t, of("db-0").Interceptors(interceptor).Obj())
	calls(t, intercepted)
	intercepts(t, intercepted, interceptor)
	gone(t, intercepted)
	er := cluster.WaitRequest(t, admin, intercepted, "evicted", v1alpha1.IsFinished)
	for _, i := range er.Status.TargetInterceptors {
		if i.Name == v1alpha1.NativeInterceptor {
			t.Errorf("it was to be asked natively: %+v", er.Status.TargetInterceptors)
		}
	}
	logged, err := kube.RequestLog().Since(t.Context(), mark)
	if err != nil {
		t.Fatal(err)
	}
	if asked := logged.By(account()).Where(func(r cluster.Request) bool {
		return strings.Contains(r.URI, lifecyclev1alpha1.GroupName) && r.URI != "/apis/"+lifecyclev1alpha1.SchemeGroupVersion.String()
	}); len(asked) > 0 {
		t.Errorf("requests for an API that is not served:\n%s", asked)
	}
	if lines := errorsIn(t, log); len(lines) > 0 {
		t.Errorf("errors in the log:\n%s", strings.Join(lines, "\n"))
	}

	serve(true)
	back = true
	looksAgain(m)
	// Two that will not end by themselves: one begun natively, one by a call.
	asked := createPod(t, of("db-1").Obj())
	wants(t, asked)
	waitEviction(t, asked, "in the hands of its responder", turnOf(name))
	called := createPod(t, of("db-2").Obj())
	calls(t, called)
	waitEviction(t, called, "in the hands of its responder", turnOf(name))

	serve(false)
	back = false
	// A request that is made before the manager knows is still asked natively, and waits.
	waiting.Eventually(t, "the manager to know that the API is gone", func(context.Context) error {
		text, err := os.ReadFile(log)
		if err == nil && !strings.Contains(string(text), "serves lifecycle.k8s.io/v1alpha1 no longer") {
			err = errors.New("its log does not say so")
		}
		return err
	})
	later := createPod(t, of("db-3").Interceptors(interceptor).Obj())
	calls(t, later)
	intercepts(t, later, interceptor)
	gone(t, later)
	lives(t, asked)
	lives(t, called)

	serve(true)
	back = true
	looksAgain(m)
	for _, pod := range []*corev1.Pod{asked, called} {
		responds(t, pod, name, func(r *lifecyclev1alpha1.ResponderStatus) { r.CompletionTime = new(metav1.Now()) })
		gone(t, pod)
	}
	select {
	case <-m.Done():
		t.Error("the manager has ended")
	default:
	}
}

// looksAgain has a manager look who serves and moves Evictions, which it does every 30 seconds. Its
// clock is right again at once, because the API server accepts no other times.
func looksAgain(m *manager.Manager) {
	m.Clock.Advance(31 * time.Second)
	m.Clock.Advance(-31 * time.Second)
}

// lastLog is the log of the manager that was started last.
func lastLog(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(kube.Dir(), "logs", "drawbridge-*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("logs: %v, error %v", files, err)
	}
	return slices.MaxFunc(files, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	})
}

// errorsIn are the lines of a log that are errors.
func errorsIn(t *testing.T, log string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "\tERROR\t") {
			lines = append(lines, line)
		}
	}
	return lines
}
