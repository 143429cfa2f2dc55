package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/follow"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/story"
	"github.com/drawbridge-dev/drawbridge/evacuation/evictor/answer"
	"github.com/drawbridge-dev/drawbridge/test/builder"
)

var update = flag.Bool("update", false, "write the golden files anew")

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// testOptions print into the buffers.
func testOptions() (o *Options, out, errOut *bytes.Buffer) {
	o = DefaultOptions()
	out, errOut = &bytes.Buffer{}, &bytes.Buffer{}
	o.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: errOut}
	o.Clock = testingclock.NewFakeClock(now)
	o.Size = func() (int, int, bool) { return 0, 0, false }
	o.Escapes = func() bool { return true }
	o.Getenv = func(string) string { return "" }
	return o, out, errOut
}

func TestHowANodeIsReleased(t *testing.T) {
	byLabel := func(name string) *builder.NodeMaintenanceWrapper {
		return builder.NodeMaintenance(name).Term("pool", corev1.NodeSelectorOpIn, "blue")
	}
	noted := func(names string) *builder.NodeWrapper {
		return builder.Node("n1").Annotation(v1alpha1.MaintenancesAnnotation, names)
	}
	cases := map[string]struct {
		node  *builder.NodeWrapper
		all   []*builder.NodeMaintenanceWrapper
		whole bool
		want  []string
		err   string
	}{
		"nobody has it":                              {node: builder.Node("n1"), all: []*builder.NodeMaintenanceWrapper{builder.NodeMaintenance("other").Nodes("n2")}},
		"one for it alone is deleted":                {node: builder.Node("n1"), all: []*builder.NodeMaintenanceWrapper{builder.NodeMaintenance("m").Nodes("n1")}, want: []string{"m deleted"}},
		"one that names others goes on without it":   {node: builder.Node("n1"), all: []*builder.NodeMaintenanceWrapper{builder.NodeMaintenance("m").Nodes("n1", "n2")}, want: []string{"m goes on with [n2]"}},
		"or is deleted as a whole":                   {node: builder.Node("n1"), whole: true, all: []*builder.NodeMaintenanceWrapper{builder.NodeMaintenance("m").Nodes("n1", "n2")}, want: []string{"m deleted"}},
		"one that selects by labels needs the whole": {node: noted("m=Drain"), all: []*builder.NodeMaintenanceWrapper{byLabel("m")}, err: "selects node n1 by labels"},
		"and gets it":                                {node: noted("a=Cordon,m=Drain"), whole: true, all: []*builder.NodeMaintenanceWrapper{byLabel("m"), byLabel("x")}, want: []string{"m deleted"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var maintenances []v1alpha1.NodeMaintenance
			for _, w := range tc.all {
				maintenances = append(maintenances, *w.Obj())
			}
			all, err := releases(tc.node.Obj(), maintenances, tc.whole)
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("error %v, want %q", err, tc.err)
			}
			var got []string
			for _, r := range all {
				if r.selector == nil {
					got = append(got, r.maintenance.Name+" deleted")
					continue
				}
				rest := v1alpha1.NodeMaintenance{Spec: v1alpha1.NodeMaintenanceSpec{NodeSelector: *r.selector}}
				got = append(got, fmt.Sprintf("%s goes on with %v", r.maintenance.Name, namedNodes(&rest)))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("releases (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatCanBeSkipped(t *testing.T) {
	const a, b = "a.example.com", "b.example.com"
	er := builder.EvictionRequest("shop", "db-0", "uid-1").Interceptors(a, b)
	cases := map[string]struct {
		er   *builder.EvictionRequestWrapper
		name string
		want string
	}{
		"the one whose turn it is": {er.Clone().Active(a, now), a, ""},
		"one whose turn comes":     {er.Clone().Active(a, now), b, "it is not the turn of b.example.com but of a.example.com"},
		"one who is not there":     {er.Clone().Active(a, now), "x.example.com", "does not intercept this pod; those who do are a.example.com, b.example.com"},
		"the last one":             {er.Clone().Processed(a, b).Active(v1alpha1.ImperativeEvictionInterceptor, now), v1alpha1.ImperativeEvictionInterceptor, "cannot be skipped"},
		"after the end":            {er.Clone().Processed(a).Canceled(v1alpha1.ReasonNoRequesters, now), a, "it is nobody's turn: the request is canceled"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := skippable(tc.er.Obj(), tc.name); err != nil {
				got = err.Error()
			}
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("error %q, want %q", got, tc.want)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	forbidden := apierrors.NewForbidden(v1alpha1.Resource("evictionrequests"), "", errors.New(`User "bob" cannot list resource "evictionrequests"`))
	cases := map[string]struct {
		err  error
		want string
		code int
	}{
		"nothing":       {nil, "", 0},
		"^C":            {fmt.Errorf("wrapped: %w", errInterrupted), "", 130},
		"no permission": {fmt.Errorf("list: %w", forbidden), "error: no permission: evictionrequests.drawbridge.dev is forbidden: User \"bob\" cannot list resource \"evictionrequests\"\nThe ClusterRole drawbridge-operator", 1},
		"logged out":    {apierrors.NewUnauthorized("no"), "error: the API server does not know who you are", 1},
		"anything else": {errors.New("boom"), "error: boom", 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Explain(tc.err); !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
				t.Errorf("text %q, want %q", got, tc.want)
			}
			if got := ExitCode(tc.err); got != tc.code {
				t.Errorf("exit code %d, want %d", got, tc.code)
			}
		})
	}
}

// run runs a command against a server.
func run(t *testing.T, handler http.Handler, args ...string) (said string, code int) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	o, _, errOut := testOptions()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	command := NewCommand(o)
	command.SetArgs(append([]string{"--server=" + server.URL}, args...))
	err := command.ExecuteContext(context.Background())
	return errOut.String() + Explain(err), ExitCode(err)
}

// A cluster that was never told of Drawbridge.
func TestTheAPIIsNotInstalled(t *testing.T) {
	known := map[string]any{
		"/api":                                 metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
		"/apis":                                metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}},
		"/version":                             map[string]string{"gitVersion": "v1.37.1"},
		"/api/v1":                              metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "nodes", Kind: "Node"}, {Name: "pods", Kind: "Pod", Namespaced: true}}},
		"/api/v1/nodes/node-1":                 builder.Node("node-1").Obj(),
		"/api/v1/namespaces/default/pods/db-0": builder.Pod("default", "db-0").Obj(),
	}
	cluster := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := known[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	})
	for name, args := range map[string][]string{
		"status": {"status"}, "drain": {"drain", "node-1"}, "why": {"why", "db-0", "-n", "default"}, "uncordon": {"uncordon", "node-1"}, "interceptors": {"interceptors"},
	} {
		t.Run(name, func(t *testing.T) {
			said, code := run(t, cluster, args...)
			if diff := cmp.Diff(notInstalled, said); diff != "" || code != 1 {
				t.Errorf("exit code %d, text (-want +got):\n%s", code, diff)
			}
		})
	}
	if said, code := run(t, cluster, "version"); code != 0 {
		t.Errorf("version fails with %d: %s", code, said)
	}
}

func TestTheServersTimeCounts(t *testing.T) {
	clock := &serverClock{local: testingclock.NewFakePassiveClock(now)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", now.Add(time.Minute).Format(http.TimeFormat))
	}))
	t.Cleanup(server.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := clock.wrap(http.DefaultTransport).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(now.Add(time.Minute), clock.now()); diff != "" {
		t.Errorf("the server's time (-want +got):\n%s", diff)
	}
}

func TestTheCharacterSet(t *testing.T) {
	for name, tc := range map[string]struct {
		env   map[string]string
		ascii bool
	}{
		"nothing is said":    {nil, false},
		"UTF-8":              {map[string]string{"LANG": "en_US.UTF-8"}, false},
		"C":                  {map[string]string{"LANG": "C"}, true},
		"LC_ALL comes first": {map[string]string{"LC_ALL": "C.utf8", "LANG": "C"}, false},
	} {
		o := &Options{Getenv: func(key string) string { return tc.env[key] }}
		if o.asciiOnly() != tc.ascii {
			t.Errorf("%s: ascii %t, want %t", name, o.asciiOnly(), tc.ascii)
		}
	}
}

// state is a cluster in which something is going on.
func state() ([]v1alpha1.NodeMaintenance, []v1alpha1.EvictionRequest) {
	const a, b = "a.example.com", "b.example.com"
	m := builder.NodeMaintenance("drain-node-1").Nodes("node-1").Obj()
	m.CreationTimestamp.Time = ago(5 * time.Minute)
	m.Spec.Cordon, m.Spec.Drain, m.Spec.Reason = true, true, "kernel update"
	m.Status.Stage = v1alpha1.StageDrain
	m.Status.Progress = v1alpha1.MaintenanceProgress{Nodes: 1, NodesCordoned: 1, NodesDraining: 1, PodsPendingEvacuation: 2, PodsEvacuating: 1, PodsBlocking: 1, PodsEvacuated: 7}
	m.Status.Nodes = []v1alpha1.MaintenanceNodeStatus{{
		Name: "node-1", Stage: v1alpha1.StageDrain, PodsPendingEvacuation: 2, PodsBlocking: 1,
		BlockingPods: []v1alpha1.BlockingPod{{Namespace: "shop", Name: "queue-0", Reason: v1alpha1.BlockEvictionRefused, Message: "budget queue allows none"}},
	}}
	lost := builder.NodeMaintenance("lost").Term("pool", corev1.NodeSelectorOpIn, "gone").Obj()
	lost.CreationTimestamp.Time = ago(time.Hour)
	lost.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionNodesSelected, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoMatchingNodes, Message: "no node matches the selector"}}
	request := func(pod, uid string) *builder.EvictionRequestWrapper {
		return builder.EvictionRequest("shop", pod, types.UID("uid-"+uid)).Created(ago(4 * time.Minute)).NodeName("node-1").Requesters(m.RequesterName())
	}
	working := request("db-0", "1").Interceptors(a, b).Active(a, ago(time.Minute)).Report(a, func(s *v1alpha1.InterceptorStatus) {
		s.Message, s.ExpectedFinishTime = "42 %", &metav1.Time{Time: now.Add(90 * time.Second)}
	})
	blocked := request("queue-0", "2").Interceptors().Active(v1alpha1.ImperativeEvictionInterceptor, ago(time.Minute)).Refused(3, "queue")
	elsewhere := request("web-0", "3").NodeName("node-2").Requesters("alice.users.drawbridge.dev").Interceptors(b).Active(b, ago(time.Minute))
	over := request("old-0", "4").Interceptors().Evicted(v1alpha1.ReasonPodDeleted, ago(time.Minute))
	return []v1alpha1.NodeMaintenance{*m, *lost}, []v1alpha1.EvictionRequest{*working.Obj(), *blocked.Obj(), *elsewhere.Obj(), *over.Obj()}
}

func TestStatusIsPrinted(t *testing.T) {
	maintenances, requests := state()
	node := builder.Node("node-1").Cordoned().Annotation(v1alpha1.MaintenancesAnnotation, "drain-node-1=Drain").
		Annotation(v1alpha1.MaintenancePhaseAnnotation, "Drain").Annotation(v1alpha1.CordonAnnotation, v1alpha1.CordonOther).Obj()
	cases := map[string]struct {
		node         *corev1.Node
		format       string
		maintenances []v1alpha1.NodeMaintenance
		requests     []v1alpha1.EvictionRequest
	}{
		"all":     {nil, "", maintenances, requests},
		"wide":    {nil, formatWide, maintenances, requests},
		"node":    {node, "", maintenances, requests},
		"nothing": {builder.Node("node-9").Obj(), "", maintenances, requests},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, out, _ := testOptions()
			o.output = tc.format
			if err := o.printStatus(statusOf(tc.node, tc.maintenances, tc.requests), now); err != nil {
				t.Fatal(err)
			}
			golden(t, "status-"+name+".golden.txt", out.String())
		})
	}
	o, out, _ := testOptions()
	o.output = formatJSON
	if err := o.printValue(statusOf(nil, maintenances, requests)); err != nil {
		t.Fatal(err)
	}
	golden(t, "status.golden.json", out.String())
}

func TestInterceptorsArePrinted(t *testing.T) {
	_, requests := state()
	a := builder.EvictionInterceptor("a.example.com").Priority(20000).ActedBy("ops", "a").Guard(v1alpha1.GuardAlways).Obj()
	pods := int32(12)
	a.Status.MatchingPods = &pods
	a.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue}}
	c := builder.EvictionInterceptor("c.example.com").Obj()
	c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Message: "matchConditions[0] does not compile"}}
	o, out, _ := testOptions()
	o.output = formatWide
	if err := o.printInterceptors(registeredOf([]v1alpha1.EvictionInterceptor{*c, *a}, requests)); err != nil {
		t.Fatal(err)
	}
	golden(t, "interceptors.golden.txt", out.String())
}

func TestThePlanIsPrinted(t *testing.T) {
	o, out, _ := testOptions()
	d := &drainOptions{Options: o}
	d.printPlan([]string{"node-1"}, []fate{
		{namespace: "shop", pod: "web", node: "node-1", would: "be evicted at once"},
		{namespace: "shop", pod: "db-0", node: "node-1", would: "be evicted after a.example.com, then b.example.com"},
		{namespace: "kube-system", pod: "agent", node: "node-1", stays: true, would: "stay: DaemonSet agent"},
	})
	golden(t, "plan.golden.txt", out.String())
}

// golden compares with a file, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestWhereAViewCannotBeDrawnLinesArePrinted(t *testing.T) {
	m := builder.NodeMaintenance("kernel").Drain().Obj()
	m.Status.Nodes = []v1alpha1.MaintenanceNodeStatus{{Name: "node-1", Stage: v1alpha1.StageDrain, PodsPendingEvacuation: 2}}
	const lines, view, color = "node/node-1 draining, 2 pods to go\n", "\x1b[2K", "\x1b[31m"
	cases := map[string]struct {
		env     map[string]string
		nowhere bool // Not on a terminal.
		escapes bool
		want    string
		not     string
	}{
		"a terminal":                        {escapes: true, want: color},
		"a terminal, without colours":       {env: map[string]string{"NO_COLOR": "1"}, escapes: true, want: view, not: color},
		"a dumb terminal":                   {env: map[string]string{"TERM": "dumb"}, escapes: true, want: lines, not: "\x1b"},
		"a console that prints the escapes": {want: lines, not: "\x1b"},
		"a file":                            {nowhere: true, escapes: true, want: lines, not: "\x1b"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, out, _ := testOptions()
			o.Size = func() (int, int, bool) { return 80, 24, !tc.nowhere }
			o.Escapes = func() bool { return tc.escapes }
			o.Getenv = func(name string) string { return tc.env[name] }
			f := &follower{Options: o, terminal: o.terminal()}
			if err := f.show(follow.Snapshot{Maintenance: m, Trouble: "nobody works"}); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); !strings.Contains(got, tc.want) || tc.not != "" && strings.Contains(got, tc.not) {
				t.Errorf("printed %q, want %q in it and not %q", got, tc.want, tc.not)
			}
		})
	}
}

func TestFates(t *testing.T) {
	owned := builder.Pod("shop", "web").Node("node-1").OwnedBy("ReplicaSet", "web").Ready().Obj()
	three, none := 3*time.Minute, time.Duration(0)
	warned := func(by string) *story.DryRun {
		return &story.DryRun{Result: answer.ResultEvicted, Warnings: []string{"drawbridge: a real eviction of pod shop/web would be answered " + by}}
	}
	last := builder.EvictionRequest("shop", "web", "uid").Requesters("r.example.com").Interceptors("a.example.com").Processed("a.example.com").
		Active(v1alpha1.ImperativeEvictionInterceptor, now).Obj()
	refused := builder.EvictionRequest("shop", "web", "uid").Canceled(v1alpha1.ReasonValidationFailed, time.Time{}).Obj()
	cases := map[string]struct {
		in   fateInput
		want string
	}{
		"at once":                       {fateInput{pod: owned, wait: &none}, "be evicted at once"},
		"left to its owner":             {fateInput{pod: owned, wait: &three}, "be left to its owner for 3m0s (maintenance.evacuationWait), then be evicted"},
		"nobody knows for how long":     {fateInput{pod: owned}, "be evicted, after maintenance.evacuationWait, which could not be read"},
		"intercepted":                   {fateInput{pod: owned, interceptors: []string{"a.example.com", "b.example.com"}}, "be evicted after a.example.com, then b.example.com"},
		"a budget refuses":              {fateInput{pod: owned, wait: &none, budgets: []story.Budget{{Name: "web"}}}, "be evicted at once; as things are budget web refuses it"},
		"the guard is ours":             {fateInput{pod: owned, interceptors: []string{"a.example.com"}, budgets: []story.Budget{{Name: "guard", Guard: true}}}, "be evicted after a.example.com"},
		"two budgets":                   {fateInput{pod: owned, wait: &none, budgets: []story.Budget{{Name: "a", Allows: true}, {Name: "b", Allows: true}}}, "be evicted at once; as things are it is refused: 2 budgets select it (a, b), and the eviction API supports one"},
		"an interceptor would refuse":   {fateInput{pod: owned, interceptors: []string{"a.example.com"}, dryRun: warned("429: its disks are local")}, "be evicted after a.example.com; as things are it is refused: its disks are local"},
		"interceptors come first":       {fateInput{pod: owned, interceptors: []string{"a.example.com"}, dryRun: warned("429: Eviction triggered evacuation: accepted, the pod's interceptors come first")}, "be evicted after a.example.com"},
		"too many begin":                {fateInput{pod: owned, interceptors: []string{"a.example.com"}, dryRun: warned("429: Eviction could not be started yet: too many")}, "be evicted after a.example.com"},
		"it is held in the last stage":  {fateInput{pod: owned, request: last, dryRun: warned("429: Eviction triggered evacuation: the guard of the pod is closed")}, "be evicted, as is requested already; as things are it is refused: the guard of the pod is closed"},
		"something else refuses":        {fateInput{pod: owned, wait: &none, dryRun: &story.DryRun{Result: answer.ResultWebhook, Detail: "no"}}, "be evicted at once; as things are it is refused: no"},
		"its request was refused":       {fateInput{pod: owned, request: refused}, "block the drain: its eviction was refused: "},
		"a pod of a DaemonSet":          {fateInput{pod: builder.Pod("shop", "web").DaemonSet("agent").Obj()}, "stay: DaemonSet agent"},
		"nobody would make it again":    {fateInput{pod: builder.Pod("shop", "web").Obj(), maintenance: builder.NodeMaintenance("m").Keeps().Obj()}, "be kept, and block the drain: no controller (see --force)"},
		"interceptors may not be known": {fateInput{pod: owned, unsure: errors.New("forbidden")}, "be evicted after interceptors that are not known: forbidden"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.in.maintenance == nil {
				tc.in.maintenance = builder.NodeMaintenance("m").Obj()
			}
			if got := fateOf(tc.in).would; got != tc.want {
				t.Errorf("would %q, want %q", got, tc.want)
			}
		})
	}
}
