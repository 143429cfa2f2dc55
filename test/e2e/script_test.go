//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// scriptOfThePage is the script of docs/guides/interceptor-client-go.md, in a file.
func scriptOfThePage(t *testing.T) string {
	t.Helper()
	page := must(os.ReadFile(filepath.Join("..", "..", "docs", "guides", "interceptor-client-go.md")))(t)
	_, text, _ := strings.Cut(string(page), "\n```sh\n")
	script, _, found := strings.Cut(text, "\n```\n")
	if !found {
		t.Fatal("the page shows no script")
	}
	path := filepath.Join(t.TempDir(), "interceptor.sh")
	if err := os.WriteFile(path, []byte(script+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// bindInterceptor gives an account what the page says, in all namespaces.
func bindInterceptor(t *testing.T, namespace, name string) {
	t.Helper()
	pods := namespace + "-pods"
	create(t, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: pods},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}},
	})
	for _, role := range []string{pods, "drawbridge-interceptor"} {
		create(t, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
		})
	}
}

// The script of the page, word for word, is an interceptor: it starts, is heard, goes on
// after its own end, completes, and does nothing for the pods of others.
func TestAShellScriptIsAnInterceptor(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	const name, account = "script.example.com", "script"
	node := addNodes(t, namespace, 1)[0]
	bindInterceptor(t, namespace, account)
	script, done := scriptOfThePage(t), filepath.Join(t.TempDir(), "done")
	list := string(filepath.ListSeparator)
	env := append(os.Environ(),
		"KUBECONFIG="+must(kube.KubeconfigFileForServiceAccount(t.Context(), namespace, account))(t),
		"PATH="+filepath.Join(kube.Dir(), "bin")+list+os.Getenv("PATH"),
		// A heartbeat may come after a minute at the earliest.
		"HEARTBEAT=61", "DONE="+done)
	// The work ends when the test wants it to.
	start := func() *cluster.Program {
		program := must(kube.StartProgram(t.Context(), cluster.ProgramOptions{Env: env}, "/bin/sh", script, name,
			"/bin/sh", "-c", `echo "works for $1/$2"; until [ -e "$DONE" ]; do sleep 1; done`, "work"))(t)
		tellWhenFailed(t, "the script", program)
		return program
	}
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors(name).Obj())
	other := createPod(t, builder.Pod(namespace, "other").Node(node).Interceptors("nobody.example.com").Obj())

	first := start()
	drain := startDrain(t, "alice", node)
	waitLine(t, first, "works for "+namespace+"/db-0")
	begun := v1alpha1.ReportOf(must(getRequest(t.Context(), pod))(t), name)
	if begun.StartTime == nil || !begun.StartTime.Equal(begun.HeartbeatTime) || begun.Message != "" {
		t.Errorf("report at the start: %+v", begun)
	}
	endGroup(t, first)
	second := start()
	waitLine(t, second, "works for "+namespace+"/db-0")
	er := waitRequest(t, pod, "heard a second time", func(er *v1alpha1.EvictionRequest) bool {
		return !v1alpha1.ReportOf(er, name).HeartbeatTime.Equal(begun.HeartbeatTime)
	})
	if got := v1alpha1.ReportOf(er, name); !got.StartTime.Equal(begun.StartTime) || got.CompletionTime != nil {
		t.Errorf("report after a heartbeat: %+v, it began as %+v", got, begun)
	}
	lives(t, pod)
	if err := os.WriteFile(done, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	gone(t, pod)
	er = waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	if v1alpha1.ReportOf(er, name).CompletionTime == nil {
		t.Errorf("no completion: %+v", er.Status.Interceptors)
	}
	lives(t, other)
	if got := v1alpha1.ReportOf(must(getRequest(t.Context(), other))(t), "nobody.example.com"); got.StartTime != nil {
		t.Errorf("the script reported for another interceptor: %+v", got)
	}
	endGroup(t, second)
	killed(t, drain)
}

// endGroup ends a script and all that it has started, as the end of a container does.
func endGroup(t *testing.T, program *cluster.Program) {
	t.Helper()
	if err := syscall.Kill(-program.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	finish(t, program)
}
