package hook

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
)

func attemptWith(t *testing.T, template string, same bool) *attempt {
	t.Helper()
	hook := &v1alpha1.EvacuationHook{Spec: v1alpha1.EvacuationHookSpec{Job: &v1alpha1.HookJob{Template: runtime.RawExtension{Raw: []byte(template)}, OnSameNode: same}}}
	hook.Namespace, hook.Name, hook.UID = "shop", "dump", "hook-uid"
	p := compile(hook, Bounds{MaxTotal: 24 * time.Hour})
	if p.problem != nil {
		t.Fatal(p.problem)
	}
	a := &attempt{compiled: p, run: v1alpha1.HookRun{Attempt: 2, StartTime: at(0)}}
	a.target = interceptor.Target{
		Request: types.NamespacedName{Namespace: "shop", Name: "pod-uid"}, RequestUID: "request-uid",
		Pod: types.NamespacedName{Namespace: "shop", Name: "ledger-0"}, PodUID: "pod-uid", NodeName: "node-1", Requesters: []string{"alice", "bob"},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "ledger-0", Labels: map[string]string{"app": "ledger"}}, Status: corev1.PodStatus{PodIP: "10.1.2.3"}}
	if err := a.sees(pod); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestTheJobOfAnAttempt(t *testing.T) {
	a := attemptWith(t, `{"metadata": {"labels": {"team": "db"}}, "spec": {"parallelism": "${size(pod.metadata.labels)}", "ttlSecondsAfterFinished": 5, "template": {"spec": {
		"containers": [{"name": "dump", "image": "${'dump:' + request.nodeName}", "env": [{"name": "POD_IP", "value": "mine"}]}]}}}}`, false)
	got, err := a.render(t.Context(), a.compiled.do.job)
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{v1alpha1.HookLabel: "dump", v1alpha1.HookRequestLabel: "request-uid"}
	want := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: v1alpha1.HookJobName("dump", "request-uid", 2),
			Labels:          map[string]string{"team": "db", v1alpha1.HookLabel: "dump", v1alpha1.HookRequestLabel: "request-uid"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "drawbridge.dev/v1alpha1", Kind: "EvictionRequest", Name: "pod-uid", UID: "request-uid"}},
		},
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(1)), BackoffLimit: new(int32), ActiveDeadlineSeconds: new(int64(1830)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers: []corev1.Container{{Name: "dump", Image: "dump:node-1", Env: []corev1.EnvVar{
						{Name: "POD_NAME", Value: "ledger-0"}, {Name: "POD_UID", Value: "pod-uid"}, {Name: "NODE_NAME", Value: "node-1"},
						{Name: "REQUESTERS", Value: "alice,bob"}, {Name: "DEADLINE", Value: "2026-11-23T12:30:00Z"}, {Name: "ATTEMPT", Value: "2"},
						{Name: "POD_IP", Value: "mine"},
					}}},
					Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
						NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"node-1"}}}}},
					}}},
				},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Job (-want +got):\n%s", diff)
	}
}

// On the same node, the Job tolerates the cordon, and every term of its own affinity gets
// the node: one of them is enough for the scheduler.
func TestAJobOnTheSameNode(t *testing.T) {
	a := attemptWith(t, `{"spec": {"template": {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
		{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}}}, "containers": [{"name": "c", "image": "i"}]}}}}`, true)
	job, err := a.render(t.Context(), a.compiled.do.job)
	if err != nil {
		t.Fatal(err)
	}
	node := []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-1"}}}
	for i, term := range job.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if diff := cmp.Diff(node, term.MatchFields); diff != "" {
			t.Errorf("term %d (-want +got):\n%s", i, diff)
		}
	}
	want := []corev1.Toleration{{Key: "node.kubernetes.io/unschedulable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	if diff := cmp.Diff(want, job.Spec.Template.Spec.Tolerations); diff != "" {
		t.Errorf("tolerations (-want +got):\n%s", diff)
	}
}

// A hook is told the earlier of its attempt's deadline and that of the request, in the
// environment and in expressions. An undo has only the former.
func TestTheDeadlineThatAHookIsTold(t *testing.T) {
	ofAttempt, earlier := "2026-11-23T12:30:00Z", "2026-11-23T12:01:00Z"
	cases := map[string]struct {
		request time.Time
		undo    bool
		want    string
	}{
		"the request has none":       {time.Time{}, false, ofAttempt},
		"the request's is earlier":   {at(1 * time.Minute).Time, false, earlier},
		"the request's is later":     {at(31 * time.Minute).Time, false, ofAttempt},
		"the request's, in the undo": {at(1 * time.Minute).Time, true, ofAttempt},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := attemptWith(t, `{"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "${request.deadline}"}]}}}}`, false)
			a.target.Deadline, a.undo = tc.request, tc.undo
			job, err := a.render(t.Context(), a.compiled.do.job)
			if err != nil {
				t.Fatal(err)
			}
			container := job.Spec.Template.Spec.Containers[0]
			i := slices.IndexFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == "DEADLINE" })
			if diff := cmp.Diff([]string{tc.want, tc.want}, []string{container.Env[i].Value, container.Image}); diff != "" {
				t.Errorf("environment and expression (-want +got):\n%s", diff)
			}
		})
	}
}

// The Job of an undo is the hook's: the request may be gone.
func TestTheJobOfAnUndo(t *testing.T) {
	a := attemptWith(t, `{"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}`, false)
	a.undo = true
	job, err := a.render(t.Context(), a.compiled.do.job)
	if err != nil {
		t.Fatal(err)
	}
	want := []metav1.OwnerReference{{APIVersion: "drawbridge.dev/v1alpha1", Kind: "EvacuationHook", Name: "dump", UID: "hook-uid"}}
	if diff := cmp.Diff(want, job.OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	if ttl := job.Spec.TTLSecondsAfterFinished; ttl == nil || *ttl != 3600 {
		t.Errorf("it is kept for %v, want an hour", ttl)
	}
}

func TestWhatIsWrongWithAHook(t *testing.T) {
	job := func(template string) v1alpha1.EvacuationHookSpec {
		return v1alpha1.EvacuationHookSpec{Job: &v1alpha1.HookJob{Template: runtime.RawExtension{Raw: []byte(template)}}}
	}
	cases := map[string]struct {
		spec       v1alpha1.EvacuationHookSpec
		wantReason string
		want       string
	}{
		"a template with a field that does not exist": {
			job(`{"spec": {"podTemplate": {}}}`), v1alpha1.ReasonInvalidTemplate, `spec.job.template: is no JobTemplateSpec of batch/v1: unknown field "podTemplate"`,
		},
		"an expression that does not compile": {
			job(`{"spec": {"template": {"spec": {"nodeName": "${pod.}"}}}}`), v1alpha1.ReasonInvalidExpression, "spec.job.template.spec.template.spec.nodeName does not compile",
		},
		"a variable that only a wait with a workload has": {
			v1alpha1.EvacuationHookSpec{Wait: &v1alpha1.HookWait{Until: "workload.status.ready"}}, v1alpha1.ReasonInvalidExpression, "spec.wait.until does not compile",
		},
		"a condition that is no bool": {
			v1alpha1.EvacuationHookSpec{Wait: &v1alpha1.HookWait{Until: "'yes'"}}, v1alpha1.ReasonInvalidExpression, "spec.wait.until",
		},
		"a command without the administrator's word": {
			v1alpha1.EvacuationHookSpec{Exec: &v1alpha1.HookExec{Command: []string{"sync"}}}, v1alpha1.ReasonExecDisabled, "hooks.exec.enabled",
		},
		"a request without it": {
			v1alpha1.EvacuationHookSpec{HTTP: &v1alpha1.HookHTTP{URL: "https://example.com/"}}, v1alpha1.ReasonHTTPDisabled, "hooks.http.enabled",
		},
		"an undo": {
			v1alpha1.EvacuationHookSpec{Wait: &v1alpha1.HookWait{Until: "true"}, Undo: &v1alpha1.HookUndo{Job: &v1alpha1.HookJob{Template: runtime.RawExtension{Raw: []byte(`[]`)}}}},
			v1alpha1.ReasonInvalidTemplate, "spec.undo.job.template: must be a JobTemplateSpec",
		},
		"no action": {v1alpha1.EvacuationHookSpec{}, v1alpha1.ReasonInvalidTemplate, "exactly one of job, exec, http and wait"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := compile(&v1alpha1.EvacuationHook{Spec: tc.spec}, Bounds{MaxTotal: time.Hour})
			if p.problem == nil {
				t.Fatal("it is accepted")
			}
			if p.problem.reason != tc.wantReason || !strings.Contains(p.problem.Error(), tc.want) {
				t.Errorf("got %s: %s\nwant %s: ... %s ...", p.problem.reason, p.problem, tc.wantReason, tc.want)
			}
		})
	}
}

// The Job's own container may say when it expects to be done, and how far it is.
func TestHowFarAJobIs(t *testing.T) {
	eta := noon.Add(time.Hour)
	ready := func(c ...batchv1.JobCondition) *batchv1.Job {
		return &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "dump-1", Annotations: map[string]string{v1alpha1.HookETAAnnotation: eta.Format(time.RFC3339)}},
			Status:     batchv1.JobStatus{Ready: new(int32(1)), Conditions: c},
		}
	}
	condition := func(kind batchv1.JobConditionType) batchv1.JobCondition {
		return batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, Message: "as the test says."}
	}
	cases := map[string]struct {
		job  *batchv1.Job
		want work
	}{
		"it runs":          {ready(), work{State: stateRunning, Message: "Job dump-1 runs", ETA: eta}},
		"it is suspended":  {ready(condition(batchv1.JobSuspended)), work{State: stateRunning, Message: "Job dump-1 is suspended", ETA: eta}},
		"it has completed": {ready(condition(batchv1.JobComplete)), work{State: stateDone, Message: "Job dump-1 has completed", ETA: eta}},
		"it has failed":    {ready(condition(batchv1.JobFailed)), work{State: stateFailed, Message: "Job dump-1 has failed: as the test says", ETA: eta}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, jobHook())
			got, err := w.born().observeJob(t.Context(), tc.job)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("work (-want +got):\n%s", diff)
			}
		})
	}
}

// All attempts together have at most the time that the administrator allows.
func TestTheDeadlineIsBounded(t *testing.T) {
	hook := &v1alpha1.EvacuationHook{Spec: v1alpha1.EvacuationHookSpec{
		Wait: &v1alpha1.HookWait{Until: "true"}, Deadline: &metav1.Duration{Duration: 2 * time.Hour}, Retries: new(int32(2)),
	}}
	p := compile(hook, Bounds{MaxTotal: 3 * time.Hour})
	if p.rules.Deadline != time.Hour || p.shortened != 2*time.Hour {
		t.Errorf("deadline %s of %s, want 1h of 2h", p.rules.Deadline, p.shortened)
	}
	if p = compile(hook, Bounds{MaxTotal: 6 * time.Hour}); p.rules.Deadline != 2*time.Hour || p.shortened != 0 {
		t.Errorf("deadline %s, want 2h", p.rules.Deadline)
	}
}

func TestWhatAPodOfAJobSays(t *testing.T) {
	status := func(s corev1.ContainerState) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: s}}}}
	}
	cases := map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"the last line of its termination message": {status(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "begun\n42 tables dumped\n"}}), "42 tables dumped"},
		"its exit code, without a message":         {status(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}), "container c has ended with exit code 3"},
		"an image that is not there":               {status(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}}), "container c waits: ImagePullBackOff: not found"},
		"nothing while it starts":                  {status(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}), ""},
		"that it has no node": {
			&corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes"}}}},
			"its pod is not scheduled: 0/3 nodes",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, podSays(tc.pod)); diff != "" {
				t.Errorf("it says (-want +got):\n%s", diff)
			}
		})
	}
}
