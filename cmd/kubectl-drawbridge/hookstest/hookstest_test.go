package hookstest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/golden"
)

// triedPod is db-0, which runs.
func triedPod() *builder.PodWrapper {
	return builder.Pod("shop", "db-0").UID("uid-db-0").Label("app", "db").Node("node-1").Phase(corev1.PodRunning)
}

// triedHook is accepted and covers db-0.
func triedHook() *v1alpha1.EvacuationHook {
	hook := builder.EvacuationHook("shop", "dump").UID("uid-dump").Pods("app", "db").Job(`{"spec": {"template": {"spec": {"containers": [
		{"name": "dump", "image": "${'dump:' + pod.metadata.labels['app']}"}]}}}}`).Obj()
	hook.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, ObservedGeneration: 1}}
	return hook
}

func TestWhatCannotBeTried(t *testing.T) {
	refused := triedHook()
	refused.Status.Conditions[0].Status, refused.Status.Conditions[0].Message = metav1.ConditionFalse, "spec.job.template: no\x1b[31m such field"
	stale := triedHook()
	stale.Generation = 2
	first := builder.EvictionInterceptor("first.example.com").Obj()
	first.Spec.Priority = new(int32(50000))
	last := builder.EvictionInterceptor("last.example.com").Obj()
	last.Spec.Priority = new(int32(1))
	request := builder.EvictionRequest("shop", "db-0", "uid-db-0").Requesters("drain.example.com")
	cases := map[string]struct {
		hook *v1alpha1.EvacuationHook
		pod  *builder.PodWrapper
		more []client.Object
		want string
	}{
		"nothing is in the way":            {},
		"one that comes after":             {more: []client.Object{last}},
		"an earlier trial":                 {more: []client.Object{request.Clone().Canceled(v1alpha1.ReasonNoRequesters, now).Obj()}},
		"no hook of that name":             {hook: builder.EvacuationHook("shop", "other").Obj(), want: `there is no EvacuationHook "dump" in namespace "shop"; those there are: other`},
		"no hook at all":                   {hook: builder.EvacuationHook("depot", "dump").Obj(), want: `there is no EvacuationHook in namespace "shop"`},
		"no pod of that name":              {pod: builder.Pod("shop", "db-1"), want: `there is no pod "db-0" in namespace "shop"`},
		"a pod that has ended":             {pod: triedPod().Phase(corev1.PodSucceeded), want: "pod db-0 has ended (Succeeded)"},
		"a pod that does not run":          {pod: triedPod().Phase(corev1.PodPending), want: "pod db-0 does not run yet (Pending)"},
		"a pod that is deleted":            {pod: triedPod().Finalizer("a.example.com/b").Deleting(now), want: "pod db-0 is being deleted"},
		"a hook that is refused":           {hook: refused, want: "hook dump is not accepted: spec.job.template: no[31m such field"},
		"a hook nobody has looked at":      {hook: builder.EvacuationHook("shop", "dump").Obj(), want: "the manager has not observed hook dump"},
		"a hook that was changed just now": {hook: stale, want: "the manager has not observed hook dump"},
		"a pod that nothing covers":        {pod: triedPod().Label("app", "web"), want: "hook dump does not cover pod db-0; nothing does"},
		"a pod that another one covers":    {pod: triedPod().Label("app", "web"), more: []client.Object{first}, want: "hook dump does not cover pod db-0; its interceptors are first.example.com."},
		"a pod that somebody evicts":       {more: []client.Object{request.Obj()}, want: "the eviction of pod db-0 is requested already: kubectl drawbridge why db-0 -n shop"},
		"one that comes before":            {more: []client.Object{first, last}, want: "interceptors of pod db-0 come before hook dump, and would run for real: first.example.com. "},
		"one that the pod names":           {pod: triedPod().Interceptors("a.example.com"), want: "would run for real: a.example.com. "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			hook, pod := tc.hook, tc.pod
			if hook == nil {
				hook = triedHook()
			}
			if pod == nil {
				pod = triedPod()
			}
			o, _, _ := testOptions()
			objects := append([]client.Object{hook, pod.Obj(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}, tc.more...)
			c := &cli.Connection{Namespace: "shop", Client: fake.NewClientBuilder().WithScheme(cli.Scheme).WithObjects(objects...).Build()}
			facts, err := (&options{Options: o}).gather(t.Context(), c, "dump", "db-0")
			if err == nil {
				err = refuse(facts)
			}
			got := ""
			if err != nil {
				got = err.Error()
			}
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("error %q, want %q", got, tc.want)
			}
		})
	}
}

func TestADryRunPrintsWhatWouldRun(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "token"}, Data: map[string][]byte{"Authorization": []byte("hunter2")}}
	cases := map[string]struct {
		change func(*v1alpha1.EvacuationHookSpec)
		file   string
	}{
		"a Job and an undo": {func(s *v1alpha1.EvacuationHookSpec) {
			s.Undo = &v1alpha1.HookUndo{Exec: &v1alpha1.HookExec{Command: []string{"sh", "-c", "rm /dump"}}}
		}, "job.golden.txt"},
		"a request": {func(s *v1alpha1.EvacuationHookSpec) {
			s.Job, s.HTTP = nil, &v1alpha1.HookHTTP{
				URL: "${'https://backup.example.com/' + pod.metadata.name}", Body: "${{'pod': pod.metadata.uid, 'for': request.requesters}}",
				HeadersFrom: &v1alpha1.HookObject{Name: "token"}, CAFrom: &v1alpha1.HookObject{Name: "ca"},
			}
		}, "http.golden.txt"},
		"a condition that is false": {func(s *v1alpha1.EvacuationHookSpec) {
			s.Job, s.Wait = nil, &v1alpha1.HookWait{
				Workload: &v1alpha1.WorkloadReference{APIVersion: "batch/v1", Kind: "Job", Name: "'sync'"},
				Until:    "workload != null && workload.spec.suspend == false",
			}
		}, "wait.golden.txt"},
		"a condition on what is not there": {func(s *v1alpha1.EvacuationHookSpec) {
			s.Job, s.Wait = nil, &v1alpha1.HookWait{Workload: &v1alpha1.WorkloadReference{APIVersion: "batch/v1", Kind: "Job", Name: "'none'"}, Until: "workload.spec.suspend"}
		}, "wait-none.golden.txt"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, out, errOut := testOptions()
			sync := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "sync"}, Spec: batchv1.JobSpec{Suspend: new(true)}}
			c := fake.NewClientBuilder().WithScheme(cli.Scheme).WithObjects(secret, sync).Build()
			hook := triedHook()
			tc.change(&hook.Spec)
			if err := (&options{Options: o}).plan(t.Context(), c, facts{Hook: hook, Pod: triedPod().Obj()}); err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, tc.file, out.String())
			if said := out.String() + errOut.String(); strings.Contains(said, "hunter2") {
				t.Errorf("it prints what is in the Secret:\n%s", said)
			}
			var jobs batchv1.JobList
			if err := c.List(t.Context(), &jobs); err != nil || len(jobs.Items) != 1 {
				t.Errorf("%d Jobs, error %v, want the one there was", len(jobs.Items), err)
			}
		})
	}
}

// A dry run says what would fail.
func TestADryRunFindsWhatFailsForAPod(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.EvacuationHookSpec){
		"no such key": func(s *v1alpha1.EvacuationHookSpec) {
			s.Job.Template.Raw = []byte(`{"spec": {"template": {"spec": {"nodeName": "${pod.metadata.labels['nothing']}"}}}}`)
		},
		"is no JobTemplateSpec": func(s *v1alpha1.EvacuationHookSpec) {
			s.Job.Template.Raw = []byte(`{"spec": {"template": {"spec": {"nodeName": "${1}"}}}}`)
		},
		"169.254.169.254": func(s *v1alpha1.EvacuationHookSpec) {
			s.Job, s.HTTP = nil, &v1alpha1.HookHTTP{URL: "${'https://169.254.169.' + '254/'}"}
		},
	} {
		t.Run(want, func(t *testing.T) {
			o, _, _ := testOptions()
			hook := triedHook()
			change(&hook.Spec)
			err := (&options{Options: o}).plan(t.Context(), fake.NewClientBuilder().WithScheme(cli.Scheme).Build(), facts{Hook: hook, Pod: triedPod().Obj()})
			if err == nil || !strings.Contains(err.Error(), "hook dump would fail for pod db-0: ") || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		})
	}
}

// step is a version of the hook or of the request, after that many seconds.
type step struct {
	at      int
	run     *v1alpha1.HookRun
	deleted bool
	request *builder.EvictionRequestWrapper
}

func hookRun(phase v1alpha1.HookPhase, attempt int32, message string) *v1alpha1.HookRun {
	return &v1alpha1.HookRun{RequestUID: "r1", Request: "uid-db-0", Pod: "db-0", Phase: phase, Attempt: attempt, FirstAttempt: 1, Message: message}
}

func TestWhatATestPrints(t *testing.T) {
	const name = "dump.shop.hooks.drawbridge.dev"
	asked := func(requesters ...string) *builder.EvictionRequestWrapper {
		return builder.EvictionRequest("shop", "db-0", "uid-db-0").UID("r1").Requesters(requesters...)
	}
	us := asked(v1alpha1.HookTestRequester)
	works := us.Clone().Interceptors(name).Active(name, now)
	canceled := asked().Interceptors(name).Canceled(v1alpha1.ReasonNoRequesters, now)
	undo := &v1alpha1.HookUndo{Exec: &v1alpha1.HookExec{Command: []string{"true"}}}
	job := v1alpha1.HookJobName("dump", "r1", 2)
	cases := map[string]struct {
		undo  *v1alpha1.HookUndo
		steps []step
		lines []string
		// open: it goes on.
		open    bool
		err     string
		summary string
	}{
		"it succeeds": {
			steps: []step{
				{request: us}, {request: works}, {at: 1, run: hookRun(v1alpha1.HookRunning, 1, "")},
				{at: 2, run: hookRun(v1alpha1.HookRetrying, 1, "Job x has\nfailed")}, {at: 12, run: hookRun(v1alpha1.HookRunning, 2, "")},
				{at: 20, run: hookRun(v1alpha1.HookSucceeded, 2, "Job y has completed")}, {at: 20, run: hookRun(v1alpha1.HookSucceeded, 2, "Job y has completed")}, {at: 21, request: canceled},
			},
			lines:   []string{"attempt 1 begins", "attempt 1 has failed, another one follows: Job x has failed", "attempt 2 begins", "the hook is done: Job y has completed"},
			summary: "Hook dump has succeeded for pod db-0, which was not evicted. What it did stays: it has no undo.",
		},
		"its Job is refused for a while": {
			steps: []step{{request: works}, {run: hookRun(v1alpha1.HookRunning, 1, "")}, {run: hookRun(v1alpha1.HookRefused, 1, "Job x cannot be created: exceeded quota")}, {at: 5, run: hookRun(v1alpha1.HookRunning, 1, "")}},
			lines: []string{"attempt 1 begins", "attempt 1 cannot begin, and continues by itself: Job x cannot be created: exceeded quota", "attempt 1 begins"}, open: true,
		},
		"it is done, and nobody has canceled the request yet": {
			steps: []step{{request: works}, {run: hookRun(v1alpha1.HookSucceeded, 1, "m")}, {at: 1, request: asked()}}, lines: []string{"the hook is done: m"}, open: true,
		},
		"the end of the request is seen first": {
			steps: []step{{request: works}, {run: hookRun(v1alpha1.HookRunning, 1, "")}, {at: 1, request: canceled}, {at: 5}}, lines: []string{"attempt 1 begins"}, open: true,
		},
		"and that of the hook is not": {
			steps: []step{{request: works}, {run: hookRun(v1alpha1.HookRunning, 1, "")}, {at: 1, request: canceled}, {at: 6}}, lines: []string{"attempt 1 begins"},
			err: "the test of hook dump was canceled before the hook had ended",
		},
		"its undo runs": {
			undo: undo, steps: []step{{request: works}, {run: hookRun(v1alpha1.HookSucceeded, 1, "m")}, {request: canceled}, {run: hookRun(v1alpha1.HookUndoing, 1, "")}, {at: 60}},
			lines: []string{"the hook is done: m", "the undo begins"}, open: true,
		},
		"it is undone": {
			undo:  undo,
			steps: []step{{request: works}, {run: hookRun(v1alpha1.HookSucceeded, 1, "m")}, {request: canceled}, {run: hookRun(v1alpha1.HookUndoing, 1, "")}, {run: hookRun(v1alpha1.HookUndone, 1, "the command has ended")}},
			lines: []string{"the hook is done: m", "the undo begins", "the undo has ended: the command has ended"}, summary: "Hook dump has succeeded for pod db-0, which was not evicted. What it did is undone.",
		},
		"it fails": {
			steps: []step{{request: works}, {run: hookRun(v1alpha1.HookHeld, 2, "exit code 1")}, {request: canceled}}, lines: []string{"the hook has failed: exit code 1"},
			err: "hook dump has failed for pod db-0: exit code 1\nTo see what the Job says: kubectl logs -n shop job/" + job,
		},
		"it fails, and the eviction would go on": {
			steps: []step{{request: works}, {run: hookRun(v1alpha1.HookContinued, 2, "exit code 1")}, {request: canceled}}, lines: []string{"the hook has failed: exit code 1"},
			err: "hook dump has failed for pod db-0: exit code 1\nTo see what the Job says: kubectl logs -n shop job/" + job,
		},
		"others want the eviction meanwhile": {
			undo: undo, steps: []step{{request: works}, {run: hookRun(v1alpha1.HookSucceeded, 1, "m")}, {request: asked("drain.example.com").Interceptors(name).Active(name, now)}},
			lines: []string{"the hook is done: m"}, summary: "Hook dump has succeeded for pod db-0. Others have requested the eviction in the meantime, and it continues.",
		},
		"somebody evicts the pod": {
			steps: []step{{request: works}, {request: us.Clone().Evicted(v1alpha1.ReasonPodDeleted, now)}}, err: "pod db-0 is evicted, and not by this test: ",
		},
		"it is not the hook's turn": {
			steps: []step{{request: us.Clone().Interceptors("a.example.com", name).Active("a.example.com", now)}}, err: "the test is canceled: it is the turn of a.example.com, not of hook dump",
		},
		"the request is refused": {
			steps: []step{{request: us.Clone().Canceled(v1alpha1.ReasonValidationFailed, now)}}, err: "the request for pod db-0 is refused: ",
		},
		"the hook is deleted after its end": {
			undo: undo, steps: []step{{request: works}, {run: hookRun(v1alpha1.HookSucceeded, 1, "m")}, {deleted: true}, {request: canceled}},
			lines: []string{"the hook is done: m"}, summary: "Hook dump has succeeded for pod db-0, which was not evicted. What it did stays: the hook was deleted.",
		},
		"the hook is deleted": {
			steps: []step{{request: works}, {run: hookRun(v1alpha1.HookRunning, 1, "")}, {deleted: true}, {request: canceled}}, lines: []string{"attempt 1 begins"}, err: "hook dump was deleted during the test",
		},
	}
	for label, tc := range cases {
		t.Run(label, func(t *testing.T) {
			hook := triedHook()
			hook.Spec.Undo = tc.undo
			seen := &progress{hook: hook, pod: "db-0", request: "r1"}
			var lines []string
			at := now
			for _, s := range tc.steps {
				if s.at > 0 {
					at = now.Add(time.Duration(s.at) * time.Second)
				}
				switch {
				case s.request != nil:
					lines = append(lines, seen.seesRequest(s.request.Obj(), at)...)
				case s.deleted:
					lines = append(lines, seen.seesHook(nil)...)
				case s.run != nil:
					version := triedHook()
					version.Status.Runs = []v1alpha1.HookRun{*s.run}
					lines = append(lines, seen.seesHook(version)...)
				}
			}
			if diff := cmp.Diff(tc.lines, lines); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
			over, err := seen.result(at)
			if over == tc.open {
				t.Errorf("over: %t, error %v", over, err)
			}
			got := ""
			if err != nil {
				got = err.Error()
			}
			if (got == "") != (tc.err == "") || !strings.Contains(got, tc.err) {
				t.Errorf("error %q, want %q", got, tc.err)
			}
			if tc.summary != "" && seen.summary() != tc.summary {
				t.Errorf("summary %q, want %q", seen.summary(), tc.summary)
			}
		})
	}
}

// Events come late, or not at all.
func TestWhetherAnUndoHasSucceededIsSaidOnlyIfItIsKnown(t *testing.T) {
	for name, tc := range map[string]struct {
		reasons       []string
		known, failed bool
		fate          string
	}{
		"no event yet":          {[]string{"EvacuationStarted"}, false, false, "Whether what it did is undone is not known."},
		"an event of the end":   {[]string{"EvacuationStarted", events.ReasonHookUndone}, true, false, "What it did is undone."},
		"an event of a failure": {[]string{"EvacuationStarted", events.ReasonHookUndoFailed}, true, true, ""},
		"no events at all":      {nil, false, false, "Whether what it did is undone is not known."},
	} {
		t.Run(name, func(t *testing.T) {
			var told []corev1.Event
			for _, reason := range tc.reasons {
				told = append(told, corev1.Event{Reason: reason})
			}
			known, failed := undoTold(told)
			if known != tc.known || failed != tc.failed {
				t.Errorf("known %t, failed %t", known, failed)
			}
			if failed {
				return
			}
			hook := triedHook()
			hook.Spec.Undo = &v1alpha1.HookUndo{}
			of := &progress{hook: hook, pod: "db-0", unknown: !known}
			want := "Hook dump has succeeded for pod db-0, which was not evicted. " + tc.fate
			if diff := cmp.Diff(want, of.summary()); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
		})
	}
}
