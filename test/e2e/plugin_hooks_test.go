//go:build unix

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// ofTest stands for the namespace of the test in the spec of a hook: see tried.
const ofTest = "NAMESPACE"

// jobThat is the action job whose pods end with that exit code; with stays, they run until
// they are deleted. They stay on the nodes of the test, or a drain of another one takes them.
func jobThat(exitCode string, more ...string) string {
	annotations := fmt.Sprintf(`%q:%q`, cluster.ExitCodeAnnotation, exitCode)
	for _, m := range more {
		annotations += "," + m
	}
	return fmt.Sprintf(`{"template":{"spec":{"template":{"metadata":{"annotations":{%s}},"spec":{"restartPolicy":"Never","nodeSelector":{%q:%q},"containers":[{"name":"dump","image":"dump:1"}]}}}}}`,
		annotations, testLabel, ofTest)
}

// stays keeps the pod of a Job running.
const stays = `"test.drawbridge.dev/complete-after":"1h"`

// tried is a pod with a hook that is accepted.
func tried(t *testing.T, spec string) *corev1.Pod {
	t.Helper()
	namespace := kube.Namespace(t)
	create(t, hookOf(t, namespace, "dump", strings.ReplaceAll(spec, ofTest, namespace)))
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(addNodes(t, namespace, 2)[0]).Obj())
	eventually(t, "the hook to be accepted", func(ctx context.Context) error {
		hook := &v1alpha1.EvacuationHook{}
		if err := admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "dump"}, hook); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(hook.Status.Conditions, v1alpha1.ConditionAccepted) {
			return fmt.Errorf("conditions %+v", hook.Status.Conditions)
		}
		return nil
	})
	return pod
}

// test runs hooks test for the pod.
func test(ctx context.Context, t *testing.T, p *pluginCall, pod *corev1.Pod, more ...string) (int, string) {
	t.Helper()
	return p.run(ctx, t, append([]string{"hooks", "test", "dump", "--pod", pod.Name, "-n", pod.Namespace}, more...)...)
}

// jobsOf are the prefixes of the names of the Jobs of the namespace.
func jobsOf(t *testing.T, namespace string) map[string]int {
	t.Helper()
	var jobs batchv1.JobList
	if err := admin.List(t.Context(), &jobs, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, job := range jobs.Items {
		kind := "dump"
		if strings.HasPrefix(job.Name, "dump-undo-") {
			kind = "undo"
		}
		found[kind]++
	}
	return found
}

func wantJobs(t *testing.T, namespace string, want map[string]int) {
	t.Helper()
	if diff := cmp.Diff(want, jobsOf(t, namespace)); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
}

func operator() *pluginCall { return &pluginCall{user: "olga", group: operators} }

// A trial does what the hook does, and evicts nothing.
func TestHooksTest(t *testing.T) {
	shareManager(t)
	pod := tried(t, `{"job":`+jobThat("0")+`}`)
	p := operator()
	code, said := test(t.Context(), t, p, pod)
	if code != 0 || !strings.Contains(p.printed(), "Hook dump has succeeded for pod db-0, which was not evicted. What it did stays: it has no undo.") {
		t.Fatalf("exit code %d: %s\n%s", code, said, p.printed())
	}
	lives(t, pod)
	er := waitRequest(t, pod, "canceled", isTrue(v1alpha1.ConditionCanceled))
	if reason := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCanceled).Reason; reason != v1alpha1.ReasonNoRequesters {
		t.Errorf("canceled because of %s", reason)
	}
	wantJobs(t, pod.Namespace, map[string]int{"dump": 1})
	// And again, with a request of its own.
	if code, said := test(t.Context(), t, operator(), pod); code != 0 {
		t.Errorf("again: exit code %d: %s", code, said)
	}
	lives(t, pod)
}

// The built-in role edit is enough, in the namespace alone. Then interceptors of the
// cluster are not known beforehand.
func TestHooksTestByAnEditor(t *testing.T) {
	shareManager(t)
	pod := tried(t, `{"job":`+jobThat("0")+`}`)
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "editors"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "edith"}},
	})
	for _, more := range [][]string{{"--dry-run"}, nil} {
		eventually(t, "edith to be allowed to try it", func(ctx context.Context) error {
			p := &pluginCall{user: "edith"}
			code, said := test(ctx, t, p, pod, more...)
			if code != 0 || !strings.Contains(said, "Warning: interceptors that are not hooks are not known") {
				return textError(fmt.Sprintf("%v: exit code %d: %s\n%s", more, code, said, p.printed()))
			}
			t.Log(p.printed())
			return nil
		})
	}
	lives(t, pod)
}

func TestHooksTestUndoes(t *testing.T) {
	shareManager(t)
	pod := tried(t, `{"job":`+jobThat("0")+`,"undo":{"job":`+jobThat("0")+`}}`)
	p := operator()
	code, said := test(t.Context(), t, p, pod)
	if code != 0 || !strings.Contains(p.printed(), "What it did is undone.") {
		t.Fatalf("exit code %d: %s\n%s", code, said, p.printed())
	}
	lives(t, pod)
	wantJobs(t, pod.Namespace, map[string]int{"dump": 1, "undo": 1})
}

func TestHooksTestOfAnUndoThatFails(t *testing.T) {
	shareManager(t)
	pod := tried(t, `{"job":`+jobThat("0")+`,"undo":{"job":`+jobThat("1")+`}}`)
	p := operator()
	code, said := test(t.Context(), t, p, pod)
	if code != 1 || !strings.Contains(said, "what hook dump did could not be undone: Job dump-undo-") {
		t.Errorf("exit code %d: %s\n%s", code, said, p.printed())
	}
	lives(t, pod)
}

func TestHooksTestOfAHookThatFails(t *testing.T) {
	shareManager(t)
	for _, then := range []string{"Hold", "Continue"} {
		t.Run(then, func(t *testing.T) {
			pod := tried(t, `{"retries":0,"onFailure":"`+then+`","job":`+jobThat("1")+`}`)
			p := operator()
			code, said := test(t.Context(), t, p, pod)
			er := waitRequest(t, pod, "canceled", isTrue(v1alpha1.ConditionCanceled))
			logs := fmt.Sprintf("kubectl logs -n %s job/%s", pod.Namespace, v1alpha1.HookJobName("dump", er.UID, 1))
			if code != 1 || !strings.Contains(said, "hook dump has failed for pod db-0: Job dump-") || !strings.Contains(said, logs) {
				t.Errorf("exit code %d, want 1 and %q: %s\n%s", code, logs, said, p.printed())
			}
			lives(t, pod)
		})
	}
}

// ^C and --timeout stop the Job, and the undo runs.
func TestHooksTestIsCalledOff(t *testing.T) {
	shareManager(t)
	for name, tc := range map[string]struct {
		more []string
		code int
		want string
	}{
		"by ^C":       {nil, 130, "the test is canceled; what runs is stopped, and then the undo runs"},
		"by its time": {[]string{"--timeout=1m"}, 1, "hook dump has not ended after 1m0s: the test is canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := tried(t, `{"job":`+jobThat("0", stays)+`,"undo":{"job":`+jobThat("0")+`}}`)
			ctx, interrupt := context.WithTimeout(t.Context(), patience)
			defer interrupt()
			// The time does not pass before the hook has begun, however long that takes.
			p, fake := operator(), testingclock.NewFakeClock(time.Now())
			p.clock = fake
			ended := make(chan struct{})
			var code int
			var said string
			go func() {
				defer close(ended)
				code, said = test(ctx, t, p, pod, tc.more...)
			}()
			eventually(t, "the hook to begin", func(context.Context) error {
				if !strings.Contains(p.printed(), "attempt 1 begins") {
					return textError(p.printed())
				}
				return nil
			})
			if tc.more == nil {
				interrupt()
			} else {
				fake.Step(time.Minute)
			}
			<-ended
			if code != tc.code || !strings.Contains(said, tc.want) {
				t.Errorf("exit code %d, want %d and %q: %s\n%s", code, tc.code, tc.want, said, p.printed())
			}
			waitRequest(t, pod, "canceled", isTrue(v1alpha1.ConditionCanceled))
			eventually(t, "the Job to be replaced by that of the undo", func(context.Context) error {
				if diff := cmp.Diff(map[string]int{"undo": 1}, jobsOf(t, pod.Namespace)); diff != "" {
					return textError(diff)
				}
				return nil
			})
			lives(t, pod)
		})
	}
}

// A dry run prints the Job of the API server, and makes nothing.
func TestHooksTestDryRun(t *testing.T) {
	shareManager(t)
	pod := tried(t, `{"job":`+jobThat("0")+`,"undo":{"http":{"url":"https://backup.example.com/"}}}`)
	p := &pluginCall{user: "adam", group: "system:masters"}
	code, said := test(t.Context(), t, p, pod, "--dry-run")
	if code != 0 {
		t.Fatalf("exit code %d: %s\n%s", code, said, p.printed())
	}
	// The second one is the server's.
	for _, want := range []string{"kind: Job\n", "completionMode: NonIndexed\n", "value: " + pod.Name + "\n", "url: https://backup.example.com/\n"} {
		if !strings.Contains(p.printed(), want) {
			t.Errorf("it does not print %q:\n%s", want, p.printed())
		}
	}
	if strings.Contains(p.printed(), "managedFields") {
		t.Errorf("it prints managedFields:\n%s", p.printed())
	}
	wantJobs(t, pod.Namespace, map[string]int{})
	noRequest(t, pod)
	// It runs by the permissions of who calls it.
	code, said = test(t.Context(), t, operator(), pod, "--dry-run")
	if code != 1 || !strings.Contains(said, `cannot create resource "jobs"`) {
		t.Errorf("without the permission: exit code %d: %s", code, said)
	}
}
