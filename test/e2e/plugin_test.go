//go:build unix

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/test/builder"
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

// storyOf is the story of a pod as an operator hears it, some time ahead.
func storyOf(t *testing.T, pod *corev1.Pod, ahead time.Duration) why.Story {
	t.Helper()
	p := &pluginCall{user: "olga", group: operators, clock: testingclock.NewFakeClock(time.Now().Add(ahead))}
	if code, said := p.run(t.Context(), t, "why", pod.Name, "-n", pod.Namespace, "-o", "json"); code != 0 {
		t.Fatalf("exit code %d: %s", code, said)
	}
	var told why.Story
	if err := json.Unmarshal([]byte(p.printed()), &told); err != nil {
		t.Fatal(err)
	}
	// Registrations that are not in force are told of for every pod; those are of other tests.
	told.Notes = slices.DeleteFunc(told.Notes, func(note string) bool {
		return strings.HasPrefix(note, "EvictionInterceptor ") && !strings.Contains(note, nameIn(pod.Namespace, ""))
	})
	if len(told.Notes) > 0 {
		t.Logf("notes: %q", told.Notes)
	}
	return told
}

func TestWhyTellsWhatBlocksAPod(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	on := func(name string) *builder.PodWrapper {
		return builder.Pod(namespace, name).NodeSelector(testLabel, namespace).Label("app", name)
	}
	silent := nameIn(namespace, "silent")
	plain := createPod(t, on("plain").Obj())
	budgeted := createPod(t, on("budgeted").Obj())
	create(t, builder.Budget(namespace, "keep").Selects("app", "budgeted").MinAvailable("1").Obj())
	waiting := createPod(t, on("waiting").Interceptors(silent).Obj())

	eventually(t, "the budget to be counted", func(context.Context) error {
		return wantVerdict(storyOf(t, budgeted, 0), why.VerdictBudgetBlocks)
	})
	told := storyOf(t, budgeted, 0)
	if diff := cmp.Diff([]why.Budget{{Name: "keep", Why: "allows none now; 1 of 1 pods healthy, 1 needed"}}, told.Budgets); diff != "" {
		t.Errorf("budgets (-want +got):\n%s", diff)
	}
	if told.Answer.Evicts || !strings.HasPrefix(told.Answer.Text, "refused (budget): ") {
		t.Errorf("answer %+v", told.Answer)
	}

	told = storyOf(t, plain, 0)
	if diff := cmp.Diff([]any{why.VerdictNothingBlocks, true, 0}, []any{told.Verdict, told.Answer.Evicts, len(told.Notes)}); diff != "" {
		t.Errorf("verdict, whether it would be evicted and notes (-want +got):\n%s", diff)
	}
	lives(t, plain) // A dry run evicts nobody.

	told = storyOf(t, waiting, 0)
	if diff := cmp.Diff([]any{why.VerdictWouldIntercept, 0, "annotation of the pod"}, []any{told.Verdict, len(told.Notes), told.Interceptors[0].Source}); diff != "" {
		t.Errorf("verdict, notes and source (-want +got):\n%s", diff)
	}
	noRequest(t, waiting)

	startDrain(t, "carol", node, "--pod-selector=app=waiting")
	waitRequest(t, waiting, "intercepted", activeIs(silent))
	told = storyOf(t, waiting, 10*time.Minute)
	if err := wantVerdict(told, why.VerdictInterceptorSilent); err != nil {
		t.Error(err)
	}
	wantAnswer := `429: Eviction triggered evacuation: waiting for interceptor "` + silent + `" (1 of 2)`
	if diff := cmp.Diff(wantAnswer, told.Answer.Text); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if len(told.Requesters) != 1 || told.Requesters[0].Name != "carol.users.drawbridge.dev" {
		t.Errorf("requesters %+v", told.Requesters)
	}
	kubectl(t, "carol", "uncordon", node)
}

type wrongVerdictError struct{ told why.Story }

func (w wrongVerdictError) Error() string { return string(w.told.Verdict) + ": " + w.told.Headline }

func wantVerdict(told why.Story, want why.Verdict) error {
	if told.Verdict != want {
		return wrongVerdictError{told}
	}
	return nil
}

// A person ends the turn of an interceptor that belongs to somebody else, and that is
// on record.
func TestSkip(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	stuck := nameIn(namespace, "stuck")
	register(t, builder.EvictionInterceptor(stuck).InNamespace(namespace).ActedBy(namespace, "nobody"))
	pod := createPod(t, builder.Pod(namespace, "db-0").NodeSelector(testLabel, namespace).Obj())
	drain := startDrain(t, "dora", node)
	waitRequest(t, pod, "intercepted", activeIs(stuck))

	// Whoever may only drain has no permission, and hears which one is missing.
	p := &pluginCall{user: "dora", group: drainers}
	code, said := p.run(t.Context(), t, "skip", pod.Name, stuck, "-n", namespace, "--reason=it hangs")
	if code != 1 || !strings.Contains(said, `no permission: `) || !strings.Contains(said, `cannot get resource "evictionrequests"`) {
		t.Errorf("exit code %d, %q", code, said)
	}
	// The permission to write the status is not enough.
	create(t, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "reporters"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"evictionrequests", "evictionrequests/status"}, Verbs: []string{"get", "patch"}},
	}})
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "reporters"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reporters"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "dora"}},
	})
	eventually(t, "dora's skip to be refused for want of the verb", func(ctx context.Context) error {
		p := &pluginCall{user: "dora", group: drainers}
		_, said := p.run(ctx, t, "skip", pod.Name, stuck, "-n", namespace, "--reason=it hangs")
		if !strings.Contains(said, `user "dora" cannot skip an interceptor: the verb "skip" on resource "evictionrequests"`) {
			return textError(said)
		}
		return nil
	})
	lives(t, pod)

	plugin(t, "skip", pod.Name, stuck, "-n", namespace, "--reason=it hangs")
	er := waitRequest(t, pod, "evicted", isTrue(v1alpha1.ConditionEvicted))
	report := er.Status.Interceptors[0]
	if diff := cmp.Diff([]string{stuck, "olga", "Skipped by olga: it hangs"}, []string{report.Name, report.SkippedBy, report.Message}); diff != "" {
		t.Errorf("name, skippedBy and message of the report (-want +got):\n%s", diff)
	}
	event := waitEvent(t, er, events.ReasonInterceptorSkipped)
	if want := "olga skipped interceptor " + stuck + ", which had not completed: Skipped by olga: it hangs"; event.Note != want {
		t.Errorf("event %q, want %q", event.Note, want)
	}
	finishWell(t, drain)
	told := storyOf(t, pod, 0)
	if err := wantVerdict(told, why.VerdictGone); err != nil {
		t.Error(err)
	}
}

type textError string

func (e textError) Error() string { return string(e) }

// The plugin drains nodes through a maintenance, follows it, and gives them back.
func TestDrainWithThePlugin(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	worker := nameIn(namespace, "worker")
	startInterceptor(t, namespace, worker, time.Second)
	plain := createPod(t, builder.Pod(namespace, "plain").NodeSelector(testLabel, namespace).Obj())
	moved := createPod(t, builder.Pod(namespace, "moved").NodeSelector(testLabel, namespace).Interceptors(worker).Obj())

	planned := plugin(t, "drain", "-l", testLabel+"="+namespace, "--force", "--dry-run=server")
	for _, want := range []string{"be evicted after " + worker, "be evicted, after maintenance.evacuationWait, which could not be read", "2 nodes would be cordoned, 2 pods would have to go"} {
		if !strings.Contains(planned, want) {
			t.Errorf("want %q in the plan:\n%s", want, planned)
		}
	}
	lives(t, plain)

	printed := plugin(t, "drain", "-l", testLabel+"="+namespace, "--force", "--reason=test", "--timeout=2m")
	gone(t, plain)
	gone(t, moved)
	for _, want := range []string{
		"node/" + nodes[0] + " cordoned", "node/" + nodes[0] + " drained", "node/" + nodes[1] + " drained",
		"pod " + namespace + "/moved waits for " + worker + " 1/2", "pod " + namespace + "/plain evicted",
	} {
		if !strings.Contains(printed, want+"\n") && !strings.Contains(printed, want+":") {
			t.Errorf("want %q in:\n%s", want, printed)
		}
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
	if code, said := p.run(t.Context(), t, "uncordon", nodes[0]); code != 1 || !strings.Contains(said, "selects node "+nodes[0]+" by labels, with others") {
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
	wantSaid("^C", 130, code, "to call it off: kubectl drawbridge cancel "+node, said)
	waitRequest(t, pod, "intercepted still", activeIs(silent))

	if text := plugin(t, "status", node); !strings.Contains(text, silent+" 1/2") || !strings.Contains(text, "is cordoned") {
		t.Errorf("status:\n%s", text)
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

func TestBadInputOfThePlugin(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	lonely := createPod(t, builder.Pod(namespace, "lonely").Obj())
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
