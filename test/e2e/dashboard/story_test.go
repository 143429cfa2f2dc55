//go:build unix

package dashboard

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	plugin "github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/clock"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// The interceptors of the story.
const (
	checkpoint = "checkpoint.example.com"
	handover   = "handover.example.com"
	migrate    = "migrate.example.com"
	license    = "license.example.com"
)

// story is a cluster in which one node was drained some minutes ago, two are being drained,
// and things are in the way. Its minutes pass within seconds, but not for pictures (pass).
type story struct {
	namespace string
	clock     *clock.Clock
	workers   map[string]*worker
	pods      map[string]*corev1.Pod
	// owner stands for the controllers of all pods. Nobody makes them again, so that a node
	// that was drained stays as it is.
	owner metav1.OwnerReference
	// terminal is what the drain of worker-a1 draws.
	terminal *screen
}

// shop is the namespace of the story. It has a name that is nice in pictures.
const shop = "shop"

// tell lets the story happen.
func tell(t *testing.T) *story {
	t.Helper()
	m := startManager(t)
	s := &story{namespace: shop, clock: m.Clock, pods: map[string]*corev1.Pod{}}
	namespaceNamed(t, shop)
	for name, zone := range map[string]string{"worker-a1": "a", "worker-a2": "a", "worker-b1": "b", "worker-c1": "c"} {
		addNode(t, shop, name, zone)
	}
	s.workers = play(t, shop, s.clock, map[string]string{
		checkpoint: "writing checkpoint", handover: "handing over to a peer", migrate: "copying memory", license: "waiting for the licence server",
	})
	create(t,
		builder.EvictionInterceptor(migrate).InNamespace(shop).Pods("kind", "vm").Priority(20000).Obj(),
		builder.EvictionBudget(shop, "db", builder.AppLabel, "db").ByNodeLabel(corev1.LabelTopologyZone, 1).Obj(),
		builder.Budget(shop, "queue").Selects(builder.AppLabel, "queue").MinAvailable("2").Obj(),
		hookJob(shop, "dump", "archive", "1h"),
		hookJob(shop, "flush", "cache", "1s"),
	)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "apps"}}
	create(t, owner)
	s.owner = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: new(true)}
	s.yesterday(t)
	s.begin(t)
	return s
}

// on creates a pod of an application on a node, with the work of its interceptors.
func (s *story) on(t *testing.T, node, app, name string, work map[string]string) {
	t.Helper()
	w := builder.Pod(s.namespace, name).Node(node).Label(builder.AppLabel, app).CPU("500m").Owner(s.owner)
	if vm, ok := work[migrate]; ok && len(work) == 1 {
		w.Label("kind", "vm").Label(workLabel(migrate), vm)
	} else if len(work) > 0 {
		working(w, work)
	}
	s.pods[name] = createPod(t, w)
}

// yesterday is a drain that has ended: its turns are what durations are known from.
func (s *story) yesterday(t *testing.T) {
	t.Helper()
	const node = "worker-c1"
	for name, work := range map[string]string{"vm-build-1": "80s", "vm-build-2": "2m", "vm-build-3": "130s", "vm-build-4": "170s"} {
		s.on(t, node, "build", name, map[string]string{migrate: work})
	}
	for name, work := range map[string]string{"ledger-7": "40s", "ledger-8": "1m"} {
		s.on(t, node, "ledger", name, map[string]string{checkpoint: work, handover: "100s"})
	}
	s.on(t, node, "cache", "cache-0", nil)
	maintenance := builder.NodeMaintenance("firmware-c1").Nodes(node).Drain().Reason("new firmware").Obj()
	create(t, maintenance)
	cordoned(t, node, true)
	// A turn that begins only after these minutes lasts as long as a wait for its end may.
	for _, pod := range s.pods {
		waitRequest(t, pod, "in progress", func(er *v1alpha1.EvictionRequest) bool { return len(er.Status.ActiveInterceptors) > 0 || evicted(er) })
	}
	pass(t, s.clock, s.namespace, 3*time.Minute, 20*time.Second)
	for _, pod := range s.pods {
		gone(t, pod)
	}
	if err := admin.Delete(t.Context(), maintenance); err != nil {
		t.Fatal(err)
	}
	cordoned(t, node, false)
	s.on(t, node, "db", "db-2", nil)
}

// begin drains two nodes: one with the plugin, one with kubectl.
func (s *story) begin(t *testing.T) {
	t.Helper()
	const a, b = "worker-a1", "worker-b1"
	for _, name := range []string{"web-1", "web-2", "web-3"} {
		s.on(t, a, "web", name, nil)
	}
	s.on(t, a, "db", "db-0", map[string]string{checkpoint: "40s"})
	// What the pages show must still go on when a slow machine gets to them: the clock flows, too.
	s.on(t, a, "mail", "vm-mail", map[string]string{migrate: "25m"})
	s.on(t, a, "wiki", "vm-wiki", map[string]string{migrate: "150s"})
	s.on(t, a, "ledger", "ledger-0", map[string]string{checkpoint: "1m", handover: "30m"})
	s.on(t, a, "queue", "queue-0", map[string]string{checkpoint: "30s"})
	s.on(t, a, "archive", "archive-0", nil)
	s.on(t, a, "render", "render-0", map[string]string{license: never})
	s.on(t, b, "db", "db-1", nil)
	s.on(t, b, "web", "web-4", nil)
	s.on(t, b, "ledger", "ledger-1", map[string]string{checkpoint: "100s", handover: "20m"})
	// worker-a2 is what a forecast is asked for.
	s.on(t, "worker-a2", "web", "web-5", nil)
	s.on(t, "worker-a2", "shop", "vm-shop", map[string]string{migrate: "3m"})
	s.on(t, "worker-a2", "ledger", "ledger-2", map[string]string{checkpoint: "1m", handover: "2m"})
	s.on(t, "worker-a2", "queue", "queue-1", map[string]string{checkpoint: "30s"})

	s.terminal = &screen{width: 80, height: 24}
	s.terminal.run(t, s.clock, "drain", a, "--reason=kernel update")
	for _, name := range []string{"vm-mail", "ledger-0", "queue-0"} {
		waitRequest(t, s.pods[name], "in progress", func(er *v1alpha1.EvictionRequest) bool { return len(er.Status.ActiveInterceptors) > 0 })
	}
	waitRequest(t, s.pods["render-0"], "with "+license, reports(license))
	pass(t, s.clock, s.namespace, time.Minute, 20*time.Second)
	// Its place stays empty, so that the budget lets db-1 wait.
	waitRequest(t, s.pods["db-0"], "evicted", evicted)
	gone(t, s.pods["db-0"])

	must(kube.StartKubectl(t.Context(), cluster.KubectlOptions{User: "alice", Groups: []string{"system:masters"}}, "drain", b))(t)
	waitRequest(t, s.pods["ledger-1"], "with "+checkpoint, reports(checkpoint))
	waitRequest(t, s.pods["db-1"], "waiting for its budget", func(er *v1alpha1.EvictionRequest) bool {
		return activeIs(v1alpha1.BudgetInterceptor)(er)
	})
	pass(t, s.clock, s.namespace, 150*time.Second, 15*time.Second)
}

// screen is a terminal that the plugin draws on.
type screen struct {
	width, height int

	mu  sync.Mutex
	all strings.Builder
}

// Write takes what is drawn.
func (s *screen) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(text)
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// run runs a command of the plugin on the terminal until the end of the test.
func (s *screen) run(t *testing.T, c *clock.Clock, args ...string) {
	t.Helper()
	o := cli.DefaultOptions()
	o.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(""), Out: s, ErrOut: s}
	o.Clock = c
	o.Size = func() (int, int, bool) { return s.width, s.height, true }
	o.Escapes = func() bool { return true }
	o.Getenv = func(name string) string { return map[string]string{"LANG": "C.UTF-8", "TERM": "xterm"}[name] }
	command := plugin.NewCommand(o)
	command.SetArgs(append(args, "--kubeconfig="+olga(t), "--drawbridge-namespace="+inst.Namespace))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- command.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, cli.ErrInterrupted) {
			t.Errorf("%v: %s", args, plugin.Explain(err))
		}
	})
}
