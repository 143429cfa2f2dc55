//go:build unix

package dashboard

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/browser"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// everyPage are the paths of the pages, of a node and a pod.
func everyPage(node, namespace, pod string) map[string]string {
	return map[string]string{
		"drains":       "/",
		"node":         "/nodes/" + node,
		"pod":          "/pods/" + namespace + "/" + pod,
		"interceptors": "/interceptors",
		"budgets":      "/budgets",
		"forecast":     "/forecast?node=" + node,
	}
}

// The connection to the API server breaks: the page says so, keeps what it had, and
// recovers.
func TestAWatchThatBreaks(t *testing.T) {
	shareManager(t)
	s := newSmall(t, never, "copying memory")
	wire, kubeconfig := throughWire(t, olga(t))
	d := startDashboard(t, kubeconfig)
	tab := newTab(t)
	tab.Open(d.first)
	tab.Open(d.at(s.nodePage()))
	tab.Shows("main", "db-0")
	stay(tab)
	wire.setCut(true)
	tab.Visible(`[role="status"].notice, .notice[role="alert"]`)
	tab.Shows("main", "db-0") // What was known is still shown.
	wire.setCut(false)
	tab.Gone(".notice")
	create(t, builder.NodeMaintenance("m-"+s.namespace).Nodes(s.node).Drain().Obj())
	tab.Shows("main", "copying memory")
	stayed(t, tab)
}

// Whoever may read little sees little, and is told what is left out.
func TestAKubeconfigWithoutRights(t *testing.T) {
	shareManager(t)
	s := newSmall(t, never, "copying memory")
	create(t,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"}},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: s.namespace},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: "default"}},
		})
	d := startDashboard(t, must(kube.KubeconfigFileForServiceAccount(t.Context(), s.namespace, "default"))(t))
	tab := newTab(t)
	tab.Open(d.first)
	for name, path := range everyPage(s.node, s.namespace, s.pod.Name) {
		tab.Expect("40[0-9]") // A page of what may not be read need not be there.
		tab.Open(d.at(path))
		for _, resource := range []string{"nodes", "evictionrequests"} {
			tab.Shows("body", resource)
		}
		if text := tab.Text("body"); strings.Contains(text, "panic") {
			t.Errorf("%s: %s", name, text)
		}
	}
	tab.Open(d.at("/"))
	tab.Visible(".notice")
}

// A cluster without Drawbridge: the dashboard says that its kinds are not there.
func TestAClusterWithoutDrawbridge(t *testing.T) {
	needBrowser(t)
	t.Parallel()
	other := cluster.ForTest(t, cluster.Options{Nodes: 1})
	d := startDashboard(t, must(other.KubeconfigFile("pat", "system:masters"))(t))
	tab := newTab(t)
	tab.Open(d.first)
	tab.Visible(".notice")
	tab.Shows("body", "evictionrequests")
	for name, path := range everyPage("node-1", "default", "nobody") {
		if name == "pod" {
			tab.Expect("404")
		}
		tab.Open(d.at(path))
		tab.Visible("main")
	}
}

// Words of strangers are shown as what they are.
func TestHostileWords(t *testing.T) {
	shareManager(t)
	const script = `<script>window.pwned=1</script><img src=x onerror=window.pwned=2>"'&lt;`
	s := newSmall(t, never, script)
	eventually(t, "the pod to have hostile annotations", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(s.pod), s.pod); err != nil {
			return err
		}
		pod := s.pod.DeepCopy()
		pod.Annotations["example.com/note"] = script
		return admin.Patch(ctx, pod, client.MergeFrom(s.pod))
	})
	create(t,
		builder.NodeMaintenance("m-"+s.namespace).Nodes(s.node).Drain().Reason(script).Obj(),
		builder.EvictionInterceptor("hostile."+s.namespace+".example.com").InNamespace(s.namespace).When(`"`+strings.ReplaceAll(script, `"`, `\"`)+`" == ""`).Obj(),
		builder.EvictionBudget(s.namespace, "odd", builder.AppLabel, "db").ByPodLabel(builder.AppLabel, 1).Obj(),
	)
	waitRequest(t, s.pod, "in progress", reports(migrate))
	d := startDashboard(t, olga(t))
	tab := newTab(t)
	tab.Open(d.first)
	for name, path := range everyPage(s.node, s.namespace, s.pod.Name) {
		tab.Open(d.at(path))
		tab.Visible("main")
		if got := browser.Eval[string](tab, "typeof window.pwned"); got != "undefined" {
			t.Errorf("%s ran it: window.pwned is %s", name, got)
		}
		if n := browser.Eval[int](tab, `document.querySelectorAll('main script, main img').length`); n != 0 {
			t.Errorf("%s has %d elements of strangers", name, n)
		}
	}
	for _, path := range []string{s.nodePage(), s.podPage()} {
		tab.Open(d.at(path))
		tab.Shows("main", "<script>window.pwned=1</script>")
	}
	// As an address, too.
	for _, path := range []string{"/nodes/%3Cscript%3Ewindow.pwned=1%3C%2Fscript%3E", "/forecast?node=%3Cscript%3Ewindow.pwned=1%3C/script%3E", "/?filter=%22%3E%3Cscript%3Ewindow.pwned=1%3C/script%3E"} {
		tab.Expect("404|400")
		tab.Open(d.at(path))
		tab.Visible("body")
		if got := browser.Eval[string](tab, "typeof window.pwned"); got != "undefined" {
			t.Errorf("%s ran it: window.pwned is %s", path, got)
		}
	}
}

// The terminal ends the dashboard, and the page says that it is on its own.
func TestThePageSaysThatTheDashboardHasEnded(t *testing.T) {
	shareManager(t)
	d := startDashboard(t, olga(t))
	tab := newTab(t)
	tab.Open(d.first)
	tab.Visible("main")
	tab.Expect(`net::ERR|Failed to load resource|ERR_|\[object Event\]`) // The last is what htmx says of a stream that broke.
	if err := d.program.Interrupt(); err != nil {
		t.Fatal(err)
	}
	result := must(d.program.Wait())(t)
	if result.ExitCode != 0 && result.ExitCode != 130 {
		t.Errorf("exit code %d: %s", result.ExitCode, result.Stderr)
	}
	tab.Visible(".notice")
}

// A token that is wrong tells nothing.
func TestATokenThatIsWrong(t *testing.T) {
	shareManager(t)
	s := newSmall(t, never, "copying memory")
	d := startDashboard(t, olga(t))
	tab := newTab(t)
	tab.Expect("401")
	for _, path := range []string{s.nodePage(), "/", "/live?path=/", "/act/drain?node=" + s.node, strings.Replace(strings.TrimPrefix(d.first, d.at("")), "=", "=0", 1)} {
		tab.Open(d.at(path))
		if text := browser.Eval[string](tab, "document.body.innerText"); strings.Contains(text, s.node) || strings.Contains(text, "Drains") {
			t.Errorf("%s tells: %s", path, text)
		}
	}
	if !strings.Contains(strings.Join(tab.All(), "\n"), "401") {
		t.Errorf("no 401: %q", tab.All())
	}
}
