//go:build unix

package e2e

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// operators are those who have the role that the chart makes for people on call.
const operators = "operators"

var bindOperators = sync.OnceValue(func() error {
	return admin.Create(context.Background(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: operators},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: inst.Release + "-operator"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: operators}},
	})
})

// pluginCall is a call of kubectl-drawbridge by somebody.
type pluginCall struct {
	user  string
	group string
	// clock is what the plugin goes by; the real one when nil.
	clock clock.WithTicker

	mu       sync.Mutex
	out, err bytes.Buffer
}

// Write takes what is printed to standard output.
func (p *pluginCall) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(text)
}

func (p *pluginCall) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// run runs the plugin until it has ended or ctx ends, and returns its exit code and
// what it says last.
func (p *pluginCall) run(ctx context.Context, t *testing.T, args ...string) (int, string) {
	t.Helper()
	if err := bindOperators(); err != nil {
		t.Fatal(err)
	}
	options := cli.DefaultOptions()
	options.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(""), Out: p, ErrOut: &p.err}
	options.Size = func() (int, int, bool) { return 0, 0, false }
	options.System = inst.Namespace
	if p.clock != nil {
		options.Clock = p.clock
	}
	kubeconfig := must(kube.KubeconfigFile(p.user, p.group))(t)
	command := app.NewCommand(options)
	command.SetArgs(append([]string{"--kubeconfig=" + kubeconfig}, args...))
	err := command.ExecuteContext(ctx)
	return app.ExitCode(err), p.err.String() + app.Explain(err)
}

// plugin runs the plugin as an operator; it must succeed.
func plugin(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	p := &pluginCall{user: "olga", group: operators}
	if code, said := p.run(ctx, t, args...); code != 0 {
		t.Fatalf("%q: exit code %d: %s\n%s", args, code, said, p.printed())
	}
	return p.printed()
}

type textError string

func (e textError) Error() string { return string(e) }

func TestBadInputOfThePlugin(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	// On a node of its own, or a drain of another test may take it.
	lonely := createPod(t, builder.Pod(namespace, "lonely").Node(addNodes(t, namespace, 1)[0]).Obj())
	cases := map[string]struct {
		group string
		args  []string
		want  string
	}{
		"an unknown pod":                  {operators, []string{"why", "nobody", "-n", namespace}, `there is no pod "nobody" in namespace "` + namespace + `"`},
		"an unknown node":                 {operators, []string{"drain", "no-such-node"}, `there is no node "no-such-node"`},
		"status of an unknown node":       {operators, []string{"status", "no-such-node"}, `there is no node "no-such-node"`},
		"uncordon of an unknown node":     {operators, []string{"uncordon", "no-such-node"}, `there is no node "no-such-node"`},
		"cancel of neither":               {operators, []string{"cancel", "nobody", "-n", namespace}, `neither a node "nobody" nor a pod`},
		"cancel of a pod nobody evicts":   {operators, []string{"cancel", "pod/" + lonely.Name, "-n", namespace}, "nobody has requested the eviction of pod lonely"},
		"skip for a pod nobody evicts":    {operators, []string{"skip", lonely.Name, "a.example.com", "-n", namespace, "--reason=x"}, "nobody has requested the eviction of pod lonely"},
		"a selector that matches nothing": {operators, []string{"drain", "-l", "no=such-label"}, `no node has labels that match "no=such-label"`},
		"neither nodes nor a selector":    {operators, []string{"drain"}, "name the nodes to drain, or select them with -l"},
		"an unknown format":               {operators, []string{"status", "-o", "xml"}, `--output must be one of wide, json, yaml, name, not "xml"`},
		"no permission to drain":          {drainers, []string{"drain", kubeNode(t), "--force", "--ignore-daemonsets", "--delete-emptydir-data"}, `cannot create resource "nodemaintenances" in API group "drawbridge.dev" at the cluster scope`},
		"no permission to look":           {drainers, []string{"status"}, `cannot list resource "nodemaintenances" in API group "drawbridge.dev" at the cluster scope`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := &pluginCall{user: "pat", group: tc.group}
			code, said := p.run(t.Context(), t, tc.args...)
			if code != 1 || !strings.Contains(said, tc.want) {
				t.Errorf("exit code %d, want 1, and %q in:\n%s", code, tc.want, said)
			}
		})
	}
}

// kubeNode is a node that is there for all tests.
func kubeNode(t *testing.T) string {
	t.Helper()
	list := &corev1.NodeList{}
	if err := admin.List(t.Context(), list, client.Limit(1)); err != nil {
		t.Fatal(err)
	}
	return list.Items[0].Name
}

func TestTheOtherCommandsOfThePlugin(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	name := nameIn(namespace, "listed")
	register(t, builder.EvictionInterceptor(name).InNamespace(namespace))
	if text := plugin(t, "interceptors", "-o", "name"); !strings.Contains(text, "evictioninterceptor.drawbridge.dev/"+name+"\n") {
		t.Errorf("interceptors:\n%s", text)
	}
	if text := plugin(t, "version"); !strings.Contains(text, "API:        drawbridge.dev/v1alpha1") {
		t.Errorf("version:\n%s", text)
	}
}
