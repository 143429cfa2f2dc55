package app

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/listing"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/golden"
)

func hookRun(pod string, phase v1alpha1.HookPhase, attempt int32, message string) v1alpha1.HookRun {
	return v1alpha1.HookRun{
		RequestUID: "r-" + pod, Request: "uid-" + pod, Pod: pod, Phase: phase, Attempt: attempt, FirstAttempt: 1,
		StartTime: metav1.NewTime(ago(3 * time.Minute)), Message: message,
	}
}

// dumpHook runs for db-0, holds db-1, and is done with db-2.
func dumpHook() *v1alpha1.EvacuationHook {
	hook := builder.EvacuationHook("shop", "dump").Pods("app", "db").Priority(20000).Job(`{}`).
		Run(hookRun("db-0", v1alpha1.HookRunning, 2, "")).
		Run(hookRun("db-1", v1alpha1.HookHeld, 3, "the Job's pod ended with exit code 1\x1b[31m")).
		Run(hookRun("db-2", v1alpha1.HookSucceeded, 1, "")).Obj()
	hook.Spec.Deadline, hook.Spec.Retries = &metav1.Duration{Duration: 30 * time.Minute}, new(int32(2))
	hook.Status.MatchingPods = new(int32(4))
	hook.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted},
		{Type: v1alpha1.ConditionLastRun, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonFailed},
	}
	return hook
}

func badHook() *v1alpha1.EvacuationHook {
	bad := builder.EvacuationHook("depot", "flush").When("nonsense").Obj()
	bad.Spec.OnFailure = v1alpha1.HookContinue
	bad.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Message: "matchConditions[0] does not compile"}}
	return bad
}

func TestHooksArePrinted(t *testing.T) {
	unseen := builder.EvacuationHook("shop", "quorum").Obj()
	cases := map[string]struct {
		hooks             []v1alpha1.EvacuationHook
		format, namespace string
		file              string
	}{
		"none of a namespace": {namespace: "shop", file: "hooks-none.golden.txt"},
		"none at all":         {file: "hooks-none-anywhere.golden.txt"},
		"some":                {hooks: []v1alpha1.EvacuationHook{*unseen, *dumpHook(), *badHook()}, file: "hooks.golden.txt"},
		"some, wide":          {hooks: []v1alpha1.EvacuationHook{*unseen, *dumpHook(), *badHook()}, format: cli.FormatWide, file: "hooks-wide.golden.txt"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, out, _ := testOptions()
			o.Output = tc.format
			if err := o.printHooks(listing.Hooks(tc.hooks), tc.namespace); err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, tc.file, out.String())
		})
	}
}

func TestWhatAHookDoes(t *testing.T) {
	cases := map[string]v1alpha1.EvacuationHookSpec{
		"job":  {Job: &v1alpha1.HookJob{}},
		"exec": {Exec: &v1alpha1.HookExec{}},
		"http": {HTTP: &v1alpha1.HookHTTP{}},
		"wait": {Wait: &v1alpha1.HookWait{}},
		"":     {},
	}
	for want, spec := range cases {
		t.Run("action "+want, func(t *testing.T) {
			if got := listing.Action(&v1alpha1.EvacuationHook{Spec: spec}); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestPodsOfAHookArePrinted(t *testing.T) {
	var all []corev1.Pod
	for _, name := range []string{"db-3", "db-1", "db-0", "db-2"} {
		all = append(all, *builder.Pod("shop", name).UID(types.UID("uid-"+name)).Label("app", "db").Node("node-1").Obj())
	}
	// Not covered: another label, and a pod that has ended.
	all = append(all, *builder.Pod("shop", "web").Label("app", "web").Obj(), *builder.Pod("shop", "old").Label("app", "db").Phase(corev1.PodSucceeded).Obj())
	cases := map[string]struct {
		hook *v1alpha1.EvacuationHook
		pods []corev1.Pod
		file string
	}{
		"some":                   {dumpHook(), all, "hook-pods.golden.txt"},
		"none":                   {dumpHook(), nil, "hook-pods-none.golden.txt"},
		"a hook that is refused": {badHook(), []corev1.Pod{*builder.Pod("depot", "p").Obj()}, "hook-pods-refused.golden.txt"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, out, _ := testOptions()
			covered, err := hookPodsOf(tc.hook, nil, tc.pods, cli.DefaultNamespace)
			if err != nil {
				t.Fatal(err)
			}
			if err := o.printHookPods(tc.hook, covered); err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, tc.file, out.String())
		})
	}
}

func TestPodsOfAHookThatReadsItsNamespace(t *testing.T) {
	hook := builder.EvacuationHook("shop", "dump").When("namespaceObject.metadata.labels['tier'] == 'gold'").Obj()
	pod := *builder.Pod("shop", "db-0").Obj()
	gold := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"tier": "gold"}}}
	covered, err := hookPodsOf(hook, []corev1.Namespace{gold}, []corev1.Pod{pod}, cli.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]hookPod{{Pod: "db-0"}}, covered); diff != "" {
		t.Errorf("covered pods (-want +got):\n%s", diff)
	}
	if _, err := hookPodsOf(hook, nil, []corev1.Pod{pod}, cli.DefaultNamespace); err == nil || !strings.Contains(err.Error(), "namespace is not known") {
		t.Errorf("without the namespace: error %v, want that it is not known", err)
	}
}

func TestHooksAreInterceptors(t *testing.T) {
	o, out, _ := testOptions()
	o.Output = cli.FormatWide
	_, requests := state()
	a := builder.EvictionInterceptor("a.example.com").Obj()
	if err := o.printInterceptors(listing.Interceptors([]v1alpha1.EvictionInterceptor{*a}, []v1alpha1.EvacuationHook{*badHook(), *dumpHook()}, nil, requests)); err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "interceptors-hooks.golden.txt", out.String())
}
