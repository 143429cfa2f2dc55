package why

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const (
	dumpName    = "dump.shop.hooks.drawbridge.dev"
	hookRequest = "5e9a3a0c-6f0e-4c2b-9a51-1f4f3c1b2d3e"
)

// hookTurn is a request with a hook that has just got its turn.
func hookTurn() *builder.EvictionRequestWrapper {
	return evictionRequest().UID(hookRequest).Interceptors(dumpName).Active(dumpName, ago(time.Minute))
}

// withHook has that hook, and its run is in the phase.
func withHook(phase v1alpha1.HookPhase) func(*Facts) {
	return func(f *Facts) {
		hook := builder.EvacuationHook("shop", "dump").Run(v1alpha1.HookRun{
			RequestUID: hookRequest, Request: "uid-1", Pod: "db-0", Phase: phase, Attempt: 1, FirstAttempt: 1, StartTime: metav1.NewTime(ago(time.Minute)),
		})
		f.Hooks = append(f.Hooks, *hook.Obj())
	}
}

func TestVerdictsOfHooks(t *testing.T) {
	const (
		wait   = "Nothing: wait."
		cancel = "To cancel the eviction: kubectl drawbridge cancel pod/db-0 -n shop"
		skip   = "If you know that it has nothing to do, continue without it: kubectl drawbridge skip db-0 " + dumpName + " -n shop --reason=WHY"
		change = "Change the hook, and it tries again: kubectl edit evacuationhook dump -n shop"
		retry  = "If the cause is gone, let it try again: kubectl drawbridge hooks retry dump db-0 -n shop"
		logs2  = "To see what the Job says: kubectl logs -n shop job/dump-b41e2f0c68-2"
		logs3  = "To see what the Job says: kubectl logs -n shop job/dump-b41e2f0c68-3"
	)
	run := func(phase v1alpha1.HookPhase, attempt, first int32, message string) v1alpha1.HookRun {
		return v1alpha1.HookRun{
			RequestUID: hookRequest, Request: "uid-1", Pod: "db-0", Phase: phase,
			Attempt: attempt, FirstAttempt: first, StartTime: metav1.NewTime(ago(3 * time.Minute)), Message: message,
		}
	}
	job := func() *builder.EvacuationHookWrapper { return builder.EvacuationHook("shop", "dump").Job(`{}`) }
	acting := func(change func(*v1alpha1.EvacuationHookSpec)) *builder.EvacuationHookWrapper {
		w := builder.EvacuationHook("shop", "dump")
		w.Spec.Wait = nil
		change(&w.Spec)
		return w
	}
	cases := map[string]struct {
		hook     *builder.EvacuationHookWrapper // Nil if it could not be read.
		silent   bool
		expected time.Duration // Of the report, from now; 0 for none.
		want     Verdict
		headline string
		advice   []string
	}{
		"a job runs": {hook: job().Run(run(v1alpha1.HookRunning, 2, 1, "")), want: VerdictWaitsForHook,
			headline: "Hook dump (1 of 2) runs Job dump-b41e2f0c68-2: attempt 2 of 3, begun 3m ago, and it fails after 27m more.", advice: []string{wait, cancel, logs2}},
		"a job runs that says when it is done": {hook: job().Run(run(v1alpha1.HookRunning, 2, 1, "")), expected: 5 * time.Minute, want: VerdictWaitsForHook,
			headline: "Hook dump (1 of 2) runs Job dump-b41e2f0c68-2: attempt 2 of 3, begun 3m ago, and it fails after 27m more, but expects to be done in 5m.", advice: []string{wait, cancel, logs2}},
		"attempts of an older hook do not count": {hook: job().Run(run(v1alpha1.HookRunning, 3, 3, "")), want: VerdictWaitsForHook,
			headline: "Hook dump (1 of 2) runs Job dump-b41e2f0c68-3: attempt 1 of 3, begun 3m ago, and it fails after 27m more.", advice: []string{wait, cancel, logs3}},
		"a command runs for too long": {hook: acting(func(s *v1alpha1.EvacuationHookSpec) {
			s.Exec, s.Deadline, s.Retries = &v1alpha1.HookExec{}, &metav1.Duration{Duration: time.Minute}, new(int32)
		}).Run(run(v1alpha1.HookRunning, 1, 1, "")), want: VerdictWaitsForHook,
			headline: "Hook dump (1 of 2) runs a command in the pod: attempt 1 of 1, begun 3m ago, and its deadline has passed.", advice: []string{wait, cancel}},
		"a request is sent": {hook: acting(func(s *v1alpha1.EvacuationHookSpec) { s.HTTP = &v1alpha1.HookHTTP{} }).Run(run(v1alpha1.HookRunning, 1, 1, "")), want: VerdictWaitsForHook,
			headline: "Hook dump (1 of 2) sends its request: attempt 1 of 3, begun 3m ago, and it fails after 27m more.", advice: []string{wait, cancel}},
		"it waits": {hook: builder.EvacuationHook("shop", "dump").Run(run(v1alpha1.HookRunning, 1, 1, "")), want: VerdictWaitsForHook,
			headline: "Hook dump (1 of 2) waits for its condition: attempt 1 of 3, begun 3m ago, and it fails after 27m more.", advice: []string{wait, cancel}},
		"it has not begun": {hook: job(), want: VerdictWaitsForHook,
			headline: "Hook dump (1 of 2) has its turn and has not begun.", advice: []string{wait, cancel}},
		"only an older request has a run": {hook: job().Run(v1alpha1.HookRun{RequestUID: "old", Phase: v1alpha1.HookHeld, Attempt: 3, FirstAttempt: 1}), want: VerdictWaitsForHook,
			headline: "Hook dump (1 of 2) has its turn and has not begun.", advice: []string{wait, cancel}},
		"it will try again": {hook: job().Run(run(v1alpha1.HookRetrying, 2, 1, "exit code 1")), want: VerdictWaitsForHook,
			headline: "Hook dump (1 of 2) will try again: attempt 2 of 3 has failed: exit code 1.", advice: []string{wait, cancel, logs2}},
		"a job is refused": {hook: job().Run(run(v1alpha1.HookRefused, 1, 1, "Job dump-b41e2f0c68-1 cannot be created: exceeded quota: none")), want: VerdictWaitsForHook,
			headline: "Hook dump (1 of 2) waits and continues by itself: Job dump-b41e2f0c68-1 cannot be created: exceeded quota: none.",
			advice:   []string{"Nothing else: it is tried again, at least every five minutes.", "To try it now: kubectl drawbridge hooks retry dump db-0 -n shop", cancel}},
		"a job has failed": {hook: job().Run(run(v1alpha1.HookHeld, 3, 1, "exit code 1")), want: VerdictHeldByHook,
			headline: "Hook dump (1 of 2) keeps the pod, because its last attempt failed (attempt 3 of 3, Job dump-b41e2f0c68-3): exit code 1.", advice: []string{logs3, retry, change, skip}},
		"a wait has failed": {hook: builder.EvacuationHook("shop", "dump").Run(run(v1alpha1.HookHeld, 3, 1, "")), want: VerdictHeldByHook,
			headline: "Hook dump (1 of 2) keeps the pod, because its last attempt failed (attempt 3 of 3).", advice: []string{retry, change, skip}},
		"it is about to be done": {hook: job().Run(run(v1alpha1.HookSucceeded, 1, 1, "")), want: VerdictInterceptorWorks,
			headline: "Interceptor dump.shop.hooks.drawbridge.dev (1 of 2) has its turn.", advice: []string{wait, cancel}},
		"the hook cannot be read": {want: VerdictInterceptorWorks,
			headline: "Interceptor dump.shop.hooks.drawbridge.dev (1 of 2) has its turn.", advice: []string{wait, cancel}},
		"nobody runs it": {hook: job().Run(run(v1alpha1.HookRunning, 1, 1, "")), silent: true, want: VerdictInterceptorSilent,
			headline: "Interceptor dump.shop.hooks.drawbridge.dev (1 of 2) got its turn 5m ago and has never reported.",
			advice: []string{
				"See whether Drawbridge, which runs the hooks, runs, and whether it may patch evictionrequests/status.", skip,
				"Or wait: after 20 minutes of silence (--heartbeat-deadline) Drawbridge passes it over.",
			}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			since := time.Minute
			if tc.silent {
				since = 5 * time.Minute
			}
			er := hookTurn().Active(dumpName, ago(since))
			if tc.expected != 0 {
				er.Report(dumpName, func(s *v1alpha1.InterceptorStatus) { s.ExpectedFinishTime = new(metav1.NewTime(now.Add(tc.expected))) })
			}
			f := facts(pod(), with(er), answering(waits))
			if tc.hook != nil {
				f.Hooks = []v1alpha1.EvacuationHook{*builder.EvacuationHook("shop", "other").Obj(), *tc.hook.Obj()}
			}
			s := Tell(f)
			if s.Verdict != tc.want || s.Headline != tc.headline {
				t.Errorf("got %s: %s\nwant %s: %s", s.Verdict, s.Headline, tc.want, tc.headline)
			}
			if diff := cmp.Diff(tc.advice, s.Advice); diff != "" {
				t.Errorf("advice (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAHookIsNamedAsTheSource(t *testing.T) {
	f := facts(pod())
	f.Hooks = []v1alpha1.EvacuationHook{*builder.EvacuationHook("shop", "dump").Pods("app", "db").Priority(7).Obj()}
	found, err := interceptors(&f)
	if err != nil {
		t.Fatal(err)
	}
	want := []Interceptor{
		{Name: dumpName, Source: "hook dump, priority 7", State: stateWould},
		{Name: last, Source: "always the last", State: stateWould},
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("interceptors (-want +got):\n%s", diff)
	}
}
