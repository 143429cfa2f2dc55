package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/golden"
)

const longNode = "ip-10-0-12-34.eu-central-1.compute.internal"

// crowded is a cluster in which more is in progress: long names, a pod that is stuck without a
// request, many finished pods, and nodes where nothing happens.
func crowded() statusFacts {
	const a, b = "a.example.com", "b.example.com"
	maintenances, requests := state()
	m := &maintenances[0]
	m.Status.Progress.Nodes, m.Status.Progress.NodesDrained, m.Status.Progress.PodsBlocking = 4, 1, 2
	m.Status.Nodes[0].StartTime = &metav1.Time{Time: ago(5 * time.Minute)}
	m.Status.Nodes = append(
		m.Status.Nodes,
		v1alpha1.MaintenanceNodeStatus{Name: "node-3", Stage: v1alpha1.StageCordon, PodsPendingEvacuation: 3},
		v1alpha1.MaintenanceNodeStatus{Name: "node-4", Stage: v1alpha1.StageDrainComplete, PodsEvacuated: 9, CompletionTime: &metav1.Time{Time: ago(2 * time.Minute)}},
		v1alpha1.MaintenanceNodeStatus{
			Name: "node-5", Stage: v1alpha1.StageDrain, StartTime: &metav1.Time{Time: ago(time.Minute)}, PodsPendingEvacuation: 3, PodsBlocking: 1, PodsWaiting: 1, PodsInLaterWaves: 1, Wave: "web",
			BlockingPods: []v1alpha1.BlockingPod{{Namespace: "shop", Name: "bare", Reason: v1alpha1.BlockUnmanagedPod, Message: "no controller would recreate it"}},
		},
	)
	long := builder.EvictionRequest("payments-production", "settlement-reconciliation-worker-7d9c5b6f4d-x2z9q", "uid-9").Created(ago(10*time.Minute)).NodeName(longNode).
		Requesters("alice.users.drawbridge.dev").Interceptors(a, b).Completed(a, ago(3*time.Minute)).Processed(a).Active(b, ago(3*time.Minute)).
		Deadline("alice.users.drawbridge.dev", now.Add(25*time.Second)).
		Report(b, func(s *v1alpha1.InterceptorStatus) {
			s.Message, s.ExpectedFinishTime = "handing over 4 of 16 partitions\x1b[2J to the other workers of the pool", &metav1.Time{Time: now.Add(40 * time.Second)}
		})
	requests = append(requests, *long.Obj())
	for i := range 11 {
		request := builder.EvictionRequest("shop", fmt.Sprintf("gone-%02d", i), types.UID(fmt.Sprintf("uid-gone-%d", i))).Created(ago(9 * time.Minute)).NodeName("node-1").Interceptors()
		if i == 0 {
			requests = append(requests, *request.Canceled(v1alpha1.ReasonNoRequesters, ago(8*time.Minute)).Obj())
			continue
		}
		requests = append(requests, *request.Evicted(v1alpha1.ReasonPodDeleted, ago(8*time.Minute)).Obj())
	}
	return statusFacts{maintenances: maintenances, evictions: evictionsOf(requests, nil)}
}

func TestTheTreeOfTheStatus(t *testing.T) {
	cordoned := builder.Node("node-1").Cordoned().Obj()
	node := crowded()
	node.node = cordoned
	nothing := statusFacts{node: builder.Node("node-9").Obj()}
	unix, latin := map[string]string{"LANG": "en_US.UTF-8"}, map[string]string{"LANG": "C"}
	cases := map[string]struct {
		facts  statusFacts
		width  int // 0 is a pipe.
		format string
		all    bool
		env    map[string]string
	}{
		"80":      {crowded(), 80, "", false, unix},
		"120":     {crowded(), 120, "", false, unix},
		"pipe":    {crowded(), 0, "", false, unix},
		"wide":    {crowded(), 80, cli.FormatWide, false, unix},
		"all":     {crowded(), 120, "", true, unix},
		"ascii":   {crowded(), 80, "", false, latin},
		"node":    {node, 80, "", false, unix},
		"nothing": {nothing, 80, "", false, unix},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, out, _ := testOptions()
			c.Output = tc.format
			c.Size = func() (int, int, bool) { return tc.width, 24, tc.width > 0 }
			c.Getenv = func(key string) string {
				if key == "NO_COLOR" {
					return "1"
				}
				return tc.env[key]
			}
			o := &statusCommand{commands: c, tree: true, all: tc.all}
			if err := o.print(tc.facts, now); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				line = strings.TrimSuffix(line, "\n")
				whole := tc.width == 0 || tc.format == cli.FormatWide
				if !whole && !strings.HasPrefix(line, "Node ") && text.Cells(line) > tc.width {
					t.Errorf("%q takes %d columns", line, text.Cells(line))
				}
				if whole && strings.Contains(line, "…") {
					t.Errorf("%q is cut", line)
				}
				if strings.Contains(line, "\x1b") {
					t.Errorf("%q moves the cursor", line)
				}
			}
			golden.Equal(t, "status-tree-"+name+".golden.txt", out.String())
		})
	}
}

func TestTheTreeIsInColors(t *testing.T) {
	cases := map[string]struct {
		env   map[string]string
		pipe  bool
		color bool
	}{
		"a terminal":          {color: true},
		"without colors":      {env: map[string]string{"NO_COLOR": "1"}},
		"a terminal is dumb":  {env: map[string]string{"TERM": "dumb"}},
		"a pipe has no color": {pipe: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, out, _ := testOptions()
			c.Size = func() (int, int, bool) { return 120, 24, !tc.pipe }
			c.Getenv = func(key string) string { return tc.env[key] }
			if err := (&statusCommand{commands: c, tree: true}).print(crowded(), now); err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(out.String(), "\x1b["); got != tc.color {
				t.Errorf("in colors: %t, want %t:\n%s", got, tc.color, out)
			}
			// What is red says so in words.
			for line := range strings.Lines(out.String()) {
				words := strings.ToLower(line)
				said := slices.ContainsFunc([]string{"blocked", "waiting for budget", "no node matches", "drain-node-1 "}, func(word string) bool { return strings.Contains(words, word) })
				if strings.Contains(line, "\x1b[31m") && !said { // A maintenance has a column for it.
					t.Errorf("only the color of this line says that something is wrong: %q", line)
				}
			}
		})
	}
}

// names are those of branches and of what is below them, with a mark for each level.
func names(all []branch, mark string) (found []string) {
	for _, b := range all {
		found = append(found, mark+b.name)
		found = append(found, names(b.below, mark+"-")...)
	}
	return found
}

func TestBlockedComesFirstAndFinishedIsFolded(t *testing.T) {
	last := "--" + v1alpha1.ImperativeEvictionInterceptor
	wantNodes := []string{
		"node-1", "-shop/queue-0", "-shop/db-0", "--a.example.com", "--b.example.com", last, "-... and 12 finished pods",
		"node-5", "-shop/bare",
		longNode, "-payments-production/settlement-reconciliation-worker-7d9c5b6f4d-x2z9q", "--a.example.com", "--b.example.com", last,
		"node-2", "-shop/web-0", "--b.example.com", last,
	}
	nodes, hidden := treeOf(crowded(), false)
	if diff := cmp.Diff(wantNodes, names(nodes, "")); diff != "" || hidden != 2 {
		t.Errorf("%d nodes are hidden; tree (-want +got):\n%s", hidden, diff)
	}
	f := crowded()
	f.namespace = "vms"
	nodes, _ = treeOf(f, false)
	if slices.Contains(names(nodes, ""), "-shop/bare") {
		t.Errorf("a stuck pod of another namespace is in the tree: %q", names(nodes, ""))
	}
	nodes, hidden = treeOf(crowded(), true)
	all := names(nodes, "")
	for _, want := range []string{"node-3", "node-4", "-shop/gone-00", "-shop/gone-10", "-shop/old-0"} {
		if !slices.Contains(all, want) {
			t.Errorf("%s is not in %q", want, all)
		}
	}
	if hidden != 0 || slices.ContainsFunc(all, func(name string) bool { return strings.Contains(name, "... and") }) {
		t.Errorf("%d nodes are hidden of %q", hidden, all)
	}
}

// Native responders are turns as interceptors are, and a pod of an unknown node has a place.
func TestNativeRespondersInTheTree(t *testing.T) {
	const a, b = "a.example.com/a", "b.example.com/b"
	eviction := builder.NativeEviction("shop", "db-1", "uid-1").Created(ago(3*time.Minute)).Requesters("acme.example.com/scale").Responders(b, a).
		State(a, lifecyclev1alpha1.ResponderStateActive, ago(time.Minute)).Report(a, func(s *lifecyclev1alpha1.ResponderStatus) {
		s.Message = new("copying, 42 %")
	}).Obj()
	nodes, _ := treeOf(statusFacts{evictions: evictionsOf(nil, []lifecyclev1alpha1.Eviction{*eviction})}, false)
	want := []string{"node not known", "-shop/db-1", "--" + a, "--" + b, "--" + lifecyclev1alpha1.EvictionResponderImperativeEviction}
	if diff := cmp.Diff(want, names(nodes, "")); diff != "" {
		t.Fatalf("tree (-want +got):\n%s", diff)
	}
	turn := nodes[0].below[0].below[0]
	if diff := cmp.Diff([]string{"active", "copying, 42 %"}, []string{turn.state, turn.message}); diff != "" || !turn.since.Equal(ago(time.Minute)) {
		t.Errorf("since %s, state and message (-want +got):\n%s", turn.since, diff)
	}
}
