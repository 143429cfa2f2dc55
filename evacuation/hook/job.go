package hook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/internal/text"
)

const (
	// jobLook is after how long a Job is looked at again while none of its pods is ready,
	// and jobPatience when the reason is first looked for.
	jobLook     = 10 * time.Second
	jobPatience = 5 * time.Second
	// jobSlack is how much later than its attempt a Job ends by itself.
	jobSlack = 30 * time.Second
	// undoKept is how long the Job of an undo is kept, as its request may be gone.
	undoKept = time.Hour
)

// beginJob makes sure that the Job of an attempt exists, and says how far it is.
func (a *hookInterceptor) beginJob(ctx context.Context, t *attempt, r *jobRecipe) (work, error) {
	job, err := a.findJob(ctx, t)
	switch {
	case err != nil:
		return work{}, err
	case job != nil:
		if owner := job.Labels[v1alpha1.HookRequestLabel]; owner != string(t.target.RequestUID) {
			return work{State: stateFailed, Message: fmt.Sprintf("Job %s exists and is not this hook's", job.Name)}, nil
		}
		a.jobs.add(job.Name)
		return a.observeJob(ctx, job)
	case a.jobs.has(t.jobName()):
		return work{State: stateFailed, Message: fmt.Sprintf("Job %s was deleted", t.jobName())}, nil
	case t.changed:
		return work{State: stateLost}, nil
	case t.late:
		return work{State: stateRunning, Message: fmt.Sprintf("Job %s was never created", t.jobName())}, nil
	}
	if err := a.look(ctx, t); err != nil {
		return work{}, err
	}
	made, err := t.render(ctx, r)
	if err != nil {
		return work{State: stateFailed, Message: err.Error(), Final: true}, nil //nolint:nilerr // It is told.
	}
	if a.asked.take(string(t.target.RequestUID)) {
		ctx = refused.AtOnce(ctx)
	}
	err = a.client.Create(ctx, made, client.FieldOwner(fieldOwner))
	switch {
	case apierrors.IsAlreadyExists(err):
		return work{State: stateRunning, Message: "Job " + made.Name + " runs", CheckAfter: time.Second}, nil
	case t.undo && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// For a turn, the end of the pod decides. An undo has nobody to wait for.
		return work{State: stateFailed, Final: true, Message: fmt.Sprintf("Job %s cannot be created: the namespace is being deleted", made.Name)}, nil
	case err != nil:
		return a.notCreated(made.Name, err)
	}
	a.jobs.add(made.Name)
	return work{State: stateRunning, Message: "Job " + made.Name + " was created", CheckAfter: jobPatience}, nil
}

// notCreated tells a refusal of the Job, which somebody may end, from a fault of the
// template, which only a change of the hook can.
func (a *hookInterceptor) notCreated(job string, err error) (work, error) {
	switch cause, _ := refused.Of(err); cause {
	case "":
		return work{}, fmt.Errorf("create Job %s: %w", job, err)
	case refused.Invalid, refused.TooLarge:
		return work{State: stateFailed, Final: true, Message: fmt.Sprintf("the API server refuses the Job: %s", oneLine(err))}, nil
	}
	w := work{State: stateRefused, Message: fmt.Sprintf("Job %s cannot be created: %s", job, oneLine(err)), RetryAt: a.clock.Now().Add(troubleRetry)}
	var refusal *refused.Error
	if errors.As(err, &refusal) {
		w.RetryAt = refusal.RetryAt()
	}
	w.CheckAfter = max(w.RetryAt.Sub(a.clock.Now()), time.Second)
	return w, nil
}

// findJob returns the Job of an attempt, nil if there is none. The cache may not have
// seen it yet, so that only the API server's word counts for one that is missing.
func (a *hookInterceptor) findJob(ctx context.Context, t *attempt) (*batchv1.Job, error) {
	key := types.NamespacedName{Namespace: t.target.Pod.Namespace, Name: t.jobName()}
	for _, reader := range []client.Reader{a.client, a.live} {
		job := &batchv1.Job{}
		switch err := reader.Get(ctx, key, job); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("get Job %s: %w", key, err)
		}
		return job, nil
	}
	return nil, nil
}

// jobName is the name of an attempt's Job.
func (t *attempt) jobName() string {
	if t.undo {
		return v1alpha1.HookJobName(t.compiled.hook.Name+"-undo", t.target.RequestUID, t.run.Attempt)
	}
	return v1alpha1.HookJobName(t.compiled.hook.Name, t.target.RequestUID, t.run.Attempt)
}

// observeJob says how far a Job is.
func (a *hookInterceptor) observeJob(ctx context.Context, job *batchv1.Job) (work, error) {
	w := work{State: stateRunning, Message: "Job " + job.Name + " runs"}
	if eta, err := time.Parse(time.RFC3339, job.Annotations[v1alpha1.HookETAAnnotation]); err == nil {
		w.ETA = eta
	}
	for _, c := range job.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobComplete:
			w.State, w.Message = stateDone, "Job "+job.Name+" has completed"
		case batchv1.JobFailed:
			w.State, w.Message = stateFailed, strings.TrimSuffix(fmt.Sprintf("Job %s has failed: %s", job.Name, text.OneLine(c.Message, maxFailure)), ".")
		case batchv1.JobSuspended:
			w.Message = "Job " + job.Name + " is suspended"
		}
	}
	if !job.DeletionTimestamp.IsZero() && w.State == stateRunning {
		w.Message = "Job " + job.Name + " is being deleted"
		return w, nil
	}
	ready := job.Status.Ready != nil && *job.Status.Ready > 0
	if w.State == stateRunning {
		if ready {
			return w, nil
		}
		w.CheckAfter = jobLook
		if left := jobPatience - a.clock.Since(job.CreationTimestamp.Time); left > 0 {
			w.CheckAfter = left
			return w, nil
		}
	}
	said, err := a.jobSays(ctx, job)
	switch {
	case err != nil && w.State == stateRunning:
		return w, err
	case said != "":
		w.Message += ": " + said
	}
	return w, nil
}

// jobSays is what the newest pod of a Job says, or why there is none. It is asked of the
// API server, because the cache keeps nothing of a pod's containers.
func (a *hookInterceptor) jobSays(ctx context.Context, job *batchv1.Job) (string, error) {
	var pods corev1.PodList
	if err := a.live.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
		return "", fmt.Errorf("list the pods of Job %s: %w", job.Name, err)
	}
	if len(pods.Items) > 0 {
		newest := slices.MaxFunc(pods.Items, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
		return podSays(&newest), nil
	}
	var list corev1.EventList
	if err := a.live.List(ctx, &list, client.InNamespace(job.Namespace), client.MatchingFields{"involvedObject.uid": string(job.UID), "reason": "FailedCreate"}); err != nil {
		return "", fmt.Errorf("list the events of Job %s: %w", job.Name, err)
	}
	if len(list.Items) == 0 {
		return "", nil
	}
	newest := slices.MaxFunc(list.Items, func(a, b corev1.Event) int { return lastSeen(a).Compare(lastSeen(b)) })
	return "its pod cannot be created: " + text.OneLine(newest.Message, maxFailure), nil
}

func lastSeen(e corev1.Event) time.Time {
	if at := e.LastTimestamp.Time; !at.IsZero() {
		return at
	}
	return e.CreationTimestamp.Time
}

// podSays is the last line of a termination message, or why the pod does not run.
func podSays(pod *corev1.Pod) string {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for _, s := range statuses {
			if ended := s.State.Terminated; ended != nil && strings.TrimSpace(ended.Message) != "" {
				lines := strings.Split(strings.TrimSpace(ended.Message), "\n")
				return text.OneLine(lines[len(lines)-1], maxFailure)
			}
			if waits := s.State.Waiting; waits != nil && waits.Reason != "" && waits.Reason != "ContainerCreating" && waits.Reason != "PodInitializing" {
				return text.OneLine(strings.TrimSuffix("container "+s.Name+" waits: "+waits.Reason+": "+waits.Message, ": "), maxFailure)
			}
			if ended := s.State.Terminated; ended != nil && ended.ExitCode != 0 {
				return fmt.Sprintf("container %s has ended with exit code %d", s.Name, ended.ExitCode)
			}
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return text.OneLine("its pod is not scheduled: "+c.Message, maxFailure)
		}
	}
	return ""
}

// stopJob deletes the Job of an attempt with its pods and reports whether it is gone.
func (a *hookInterceptor) stopJob(ctx context.Context, t *attempt) (gone bool, err error) {
	job, err := a.findJob(ctx, t)
	switch {
	case err != nil:
		return false, err
	case job == nil || job.Labels[v1alpha1.HookRequestLabel] != string(t.target.RequestUID):
		return true, nil
	case !job.DeletionTimestamp.IsZero():
		return false, nil
	}
	err = a.client.Delete(ctx, job, client.Preconditions{UID: &job.UID}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return false, fmt.Errorf("delete Job %s: %w", job.Name, err)
	}
	return false, nil // It is gone when its pods are.
}

// render makes the Job of an attempt.
func (t *attempt) render(ctx context.Context, r *jobRecipe) (*batchv1.Job, error) {
	value, err := r.template.Render(ctx, t.vars())
	if err != nil {
		return nil, err
	}
	template, err := decodeTemplate(value)
	if err != nil {
		return nil, fmt.Errorf("the template %w", err)
	}
	hook := t.compiled.hook
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: hook.Namespace, Name: t.jobName(), Labels: maps.Clone(template.Labels), Annotations: template.Annotations,
		OwnerReferences: []metav1.OwnerReference{t.owner()},
	}, Spec: template.Spec}
	own := map[string]string{v1alpha1.HookLabel: hook.Name, v1alpha1.HookRequestLabel: string(t.target.RequestUID)}
	job.Labels = with(job.Labels, own)
	// With the label on its pods as well, no hook covers them: one could never end.
	job.Spec.Template.Labels = with(job.Spec.Template.Labels, own)
	if job.Spec.BackoffLimit == nil {
		job.Spec.BackoffLimit = new(int32) // An attempt is one pod.
	}
	if job.Spec.Template.Spec.RestartPolicy == "" {
		job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	job.Spec.TTLSecondsAfterFinished = nil // It is the record of the attempt.
	if t.undo {
		job.Spec.TTLSecondsAfterFinished = new(int32(undoKept.Seconds()))
	}
	// If no manager runs, it ends all the same; if one does, that is first and says why.
	if left := int64((t.compiled.rules.Deadline + jobSlack).Seconds()); job.Spec.ActiveDeadlineSeconds == nil || *job.Spec.ActiveDeadlineSeconds > left {
		job.Spec.ActiveDeadlineSeconds = &left
	}
	pod := &job.Spec.Template.Spec
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			containers[i].Env = t.env(containers[i].Env)
		}
	}
	if node := t.target.NodeName; node != "" {
		place(pod, node, r.onSameNode)
	}
	return job, nil
}

// owner of a Job is the request, with which it is deleted. That of an undo is the hook,
// because the request may be gone.
func (t *attempt) owner() metav1.OwnerReference {
	if t.undo {
		hook := t.compiled.hook
		return metav1.OwnerReference{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "EvacuationHook", Name: hook.Name, UID: hook.UID}
	}
	request := requestReference(t.target)
	return metav1.OwnerReference{APIVersion: request.APIVersion, Kind: request.Kind, Name: request.Name, UID: request.UID}
}

func with(labels, more map[string]string) map[string]string {
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, more)
	return labels
}

// env adds our variables to those of a container, which has the last word.
func (t *attempt) env(own []corev1.EnvVar) []corev1.EnvVar {
	var added []corev1.EnvVar
	for _, v := range []corev1.EnvVar{
		{Name: "POD_NAME", Value: t.target.Pod.Name},
		{Name: "POD_UID", Value: string(t.target.PodUID)},
		{Name: "POD_IP", Value: t.podIP()},
		{Name: "NODE_NAME", Value: t.target.NodeName},
		{Name: "REQUESTERS", Value: strings.Join(t.target.Requesters, ",")},
		{Name: "DEADLINE", Value: t.toldDeadline()},
		{Name: "ATTEMPT", Value: strconv.Itoa(int(t.run.Attempt))},
	} {
		if !slices.ContainsFunc(own, func(o corev1.EnvVar) bool { return o.Name == v.Name }) {
			added = append(added, v)
		}
	}
	// First, so that the container's own may refer to them.
	return append(added, own...)
}

// place puts a pod on a node that is cordoned, or anywhere else.
func place(pod *corev1.PodSpec, node string, same bool) {
	requirement := corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node}}
	if same {
		requirement.Operator = corev1.NodeSelectorOpIn
		pod.Tolerations = append(pod.Tolerations, corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	if pod.Affinity == nil {
		pod.Affinity = &corev1.Affinity{}
	}
	if pod.Affinity.NodeAffinity == nil {
		pod.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	affinity := pod.Affinity.NodeAffinity
	if affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil || len(affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms) == 0 {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	// One of the terms must be true, so each of them gets the requirement.
	for i := range affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		term := &affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[i]
		term.MatchFields = append(term.MatchFields, requirement)
	}
}

// problemOf checks a literal template with the API server, without creating anything.
func (a *hookInterceptor) problemOf(ctx context.Context, p *compiled) (*problemError, error) {
	for _, r := range []*recipe{p.do, p.undo} {
		if p.problem != nil || r == nil || r.job == nil || !r.job.literal {
			continue
		}
		t := &attempt{compiled: p, undo: true, run: v1alpha1.HookRun{Attempt: 1, StartTime: stamp(a.clock.Now())}}
		t.target.Pod = types.NamespacedName{Namespace: p.hook.Namespace, Name: "example"}
		t.target.RequestUID = "dry-run"
		job, err := t.render(ctx, r.job)
		if err != nil {
			return &problemError{v1alpha1.ReasonInvalidTemplate, err}, nil
		}
		err = a.client.Create(ctx, job, client.DryRunAll, client.FieldOwner(fieldOwner))
		switch cause, refusal := refused.Of(err); {
		case cause == refused.Invalid, cause == refused.TooLarge:
			return &problemError{v1alpha1.ReasonInvalidTemplate, fmt.Errorf("the API server refuses the Job: %w", err)}, nil
		case refusal: // A quota, for example. It says nothing about the template.
		case err != nil && !apierrors.IsAlreadyExists(err):
			return nil, errors.Join(errDryRun, err)
		}
	}
	return nil, nil
}

var errDryRun = errors.New("ask the API server about the template of a Job")
