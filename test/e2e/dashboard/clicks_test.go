//go:build unix

package dashboard

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/browser"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// small is a node with the one pod of a StatefulSet, for which an interceptor works.
type small struct {
	namespace, node string
	pod             *corev1.Pod
	worker          *worker
}

// newSmall prepares a namespace of the test's own.
func newSmall(t *testing.T, work, says string) small {
	t.Helper()
	namespace := kube.Namespace(t)
	node := must(kube.AddNodes(t.Context(), 1, func(n *corev1.Node) { n.Labels[poolLabel] = namespace }))(t)[0]
	workers := play(t, namespace, clock.RealClock{}, map[string]string{migrate: says})
	create(t, builder.StatefulSet(namespace, "db").Replicas(1).Pods(func(w *builder.PodWrapper) {
		working(w.NodeSelector(poolLabel, namespace), map[string]string{migrate: work})
	}).Obj())
	s := small{namespace: namespace, node: node, worker: workers[migrate], pod: &corev1.Pod{}}
	eventually(t, "pod db-0 to run", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "db-0"}, s.pod); err != nil {
			return err
		}
		if s.pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("phase %s", s.pod.Status.Phase)
		}
		return nil
	})
	// The dashboard plans a drain of the StatefulSet's pod only when its owner counts it.
	eventually(t, "the StatefulSet to be ready", func(ctx context.Context) error {
		set := &appsv1.StatefulSet{}
		if err := admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "db"}, set); err != nil {
			return err
		}
		if set.Status.ReadyReplicas != 1 {
			return fmt.Errorf("%d are ready", set.Status.ReadyReplicas)
		}
		return nil
	})
	return s
}

func (s small) nodePage() string { return "/nodes/" + s.node }

func (s small) podPage() string { return "/pods/" + s.namespace + "/" + s.pod.Name }

// act selects what leads to the page that confirms an action.
func act(verb, with string) string {
	return fmt.Sprintf(`main a[href*="/act/%[1]s?"][href*="%[2]s"]`, verb, url.QueryEscape(with))
}

// confirm selects the button that does it.
const confirm = `main form[method="post"] button[type="submit"]`

// here is set on a page, to see later that it was not loaded again.
func stay(tab *browser.Tab) { browser.Eval[bool](tab, "window.stayed = true") }

func stayed(t *testing.T, tab *browser.Tab) {
	t.Helper()
	if !browser.Eval[bool](tab, "window.stayed === true") {
		t.Error("the page was loaded again")
	}
}

// A person drains a node, sees what it waits for, skips that with a reason, and gives the
// node back; all with the mouse.
func TestDrainWaitSkipUncordon(t *testing.T) {
	shareManager(t)
	s := newSmall(t, never, "copying memory")
	d := startDashboard(t, olga(t))
	tab := newTab(t)
	tab.Open(d.first)
	if strings.Contains(tab.Address(), "token") {
		t.Errorf("the token stays in the address: %s", tab.Address())
	}
	tab.Open(d.at(s.nodePage()))

	tab.Follow(act("drain", s.node))
	tab.Shows("main", "db-0")
	tab.Shows("main", migrate)
	tab.Shows("main .command", "kubectl drawbridge drain "+s.node)
	cordoned(t, s.node, false) // Nothing was done yet.
	tab.Follow(confirm)
	cordoned(t, s.node, true)

	tab.Open(d.at(s.nodePage()))
	stay(tab)
	tab.Shows("main", "db-0")
	tab.Shows("main", "copying memory") // It came by itself: the interceptor began after the page was loaded, or long ago.
	stayed(t, tab)

	tab.Open(d.at(s.podPage()))
	tab.Shows("main", migrate)
	tab.Follow(act("skip", migrate))
	tab.Shows("main .command", "kubectl drawbridge skip")
	tab.Type(`main form [name="reason"]`, "the source is gone & <done>")
	tab.Follow(confirm)
	gone(t, s.pod)
	er := waitRequest(t, s.pod, "evicted", evicted)
	report := v1alpha1.ReportOf(er, migrate)
	if diff := cmp.Diff([]string{"olga", "Skipped by olga: the source is gone & <done>"}, []string{report.SkippedBy, report.Message}); diff != "" {
		t.Errorf("who skipped, and the message (-want +got):\n%s", diff)
	}

	tab.Open(d.at(s.nodePage()))
	tab.Follow(act("uncordon", s.node))
	tab.Shows("main .command", "kubectl drawbridge uncordon "+s.node)
	tab.Follow(confirm)
	cordoned(t, s.node, false)
}

// What happens in the cluster comes to the page without loading it again, in all tabs.
func TestTwoTabsSeeWhatHappens(t *testing.T) {
	shareManager(t)
	s := newSmall(t, never, "copying memory")
	d := startDashboard(t, olga(t))
	first := newTab(t)
	first.Open(d.first)
	second := first.Beside()
	first.Open(d.at(s.nodePage()))
	second.Open(d.at("/"))
	for _, tab := range []*browser.Tab{first, second} {
		stay(tab)
	}
	create(t, builder.NodeMaintenance("m-"+s.namespace).Nodes(s.node).Drain().Reason("two tabs").Obj())
	for _, tab := range []*browser.Tab{first, second} {
		tab.Shows("main", s.node)
		tab.Shows("main", "draining")
	}
	first.Shows("main", "copying memory")
	s.worker.release(types.NamespacedName{Namespace: s.namespace, Name: s.pod.Name})
	second.Shows("main", "drained")
	for _, tab := range []*browser.Tab{first, second} {
		stayed(t, tab)
	}
	first.Follow(act("uncordon", s.node))
	first.Follow(confirm)
	cordoned(t, s.node, false)
	stayed(t, second)
}

// A drain is canceled.
func TestCancel(t *testing.T) {
	shareManager(t)
	s := newSmall(t, never, "copying memory")
	create(t, builder.NodeMaintenance("m-"+s.namespace).Nodes(s.node).Drain().Obj())
	waitRequest(t, s.pod, "in progress", reports(migrate))
	d := startDashboard(t, olga(t))
	tab := newTab(t)
	tab.Open(d.first)
	tab.Open(d.at(s.nodePage()))
	tab.Follow(act("cancel", s.node))
	tab.Shows("main .command", "kubectl drawbridge cancel "+s.node)
	tab.Follow(confirm)
	waitRequest(t, s.pod, "without requesters", func(er *v1alpha1.EvictionRequest) bool { return len(er.Spec.Requesters) == 0 })
}

// A drain with the keyboard alone.
func TestTheKeyboardAlone(t *testing.T) {
	shareManager(t)
	s := newSmall(t, never, "copying memory")
	d := startDashboard(t, olga(t))
	tab := newTab(t)
	tab.Open(d.first)
	tab.Open(d.at(s.nodePage()))
	tab.TabTo(act("drain", s.node), 60)
	tab.FollowKey(browser.KeyEnter)
	tab.TabTo(confirm, 60)
	tab.FollowKey(browser.KeyEnter)
	cordoned(t, s.node, true)
}

// With --read-only no page offers an action, and its address does nothing.
func TestReadOnly(t *testing.T) {
	shareManager(t)
	s := newSmall(t, never, "copying memory")
	d := startDashboard(t, olga(t), "--read-only")
	tab := newTab(t)
	tab.Open(d.first)
	for _, path := range []string{"/", s.nodePage(), s.podPage(), "/interceptors", "/budgets", "/forecast?node=" + s.node} {
		tab.Open(d.at(path))
		tab.Visible("main")
		if n := browser.Eval[int](tab, `document.querySelectorAll('a[href*="/act/"], form[action*="/act/"], form[method="post"]').length`); n != 0 {
			t.Errorf("%s offers %d actions", path, n)
		}
	}
	tab.Expect("40[0-9]") // It is refused.
	tab.Open(d.at("/act/drain?node=" + s.node))
	tab.Gone(confirm)
	cordoned(t, s.node, false)
}
