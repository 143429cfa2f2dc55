//go:build unix

package e2e

import (
	"context"
	"errors"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// managersConfig is what a thief of the manager's token has.
func managersConfig(t *testing.T) *rest.Config {
	t.Helper()
	return must(kube.ConfigForServiceAccount(t.Context(), inst.Namespace, inst.ServiceAccount))(t)
}

// suspended is a Job that runs nothing.
func suspended(namespace, name string, change func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: batchv1.JobSpec{
			Suspend: new(true),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "main:1"}},
			}},
		},
	}
	change(job)
	return job
}

// ofAHook makes it the Job of a hook.
func ofAHook(kind string, owner client.Object) func(*batchv1.Job) {
	return func(job *batchv1.Job) {
		job.Labels = map[string]string{v1alpha1.HookLabel: "dump"}
		job.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind, Name: owner.GetName(), UID: owner.GetUID(),
		}}
	}
}

// Whoever has the manager's token creates and deletes Jobs of hooks, and changes none.
func TestTheManagerHasOnlyJobsOfHooks(t *testing.T) {
	t.Parallel()
	const policy = "manager-jobs.drawbridge.dev"
	namespace := kube.Namespace(t)
	thief := must(client.New(managersConfig(t), client.Options{}))(t)
	// No role of the chart lets it change Jobs. If one did, the policy would not.
	where := metav1.ObjectMeta{Namespace: namespace, Name: "changes-jobs"}
	create(t, &rbacv1.Role{ObjectMeta: where, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"batch"}, Resources: []string{"jobs", "jobs/status"}, Verbs: []string{"patch"}}}})
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: where, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: where.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: inst.Namespace, Name: inst.ServiceAccount}},
	})
	hook := hookOf(t, namespace, "dump", waits)
	create(t, hook)
	request := builder.EvictionRequest(namespace, "db-0", "00000000-0000-4000-8000-000000000001").Obj()
	request.UID = "00000000-0000-4000-8000-000000000002"
	labelled := func(job *batchv1.Job) { job.Labels = map[string]string{v1alpha1.HookLabel: "dump"} }
	strangers := func(job *batchv1.Job) {
		labelled(job)
		job.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "u"}}
	}
	unlabelled := func(job *batchv1.Job) {
		ofAHook("EvacuationHook", hook)(job)
		job.Labels = nil
	}
	anothers := suspended(namespace, "anothers", func(*batchv1.Job) {})
	create(t, anothers)
	own := suspended(namespace, "own", ofAHook("EvacuationHook", hook))
	create(t, own)

	made := func(change func(*batchv1.Job)) func(context.Context) error {
		return func(ctx context.Context) error {
			return thief.Create(ctx, suspended(namespace, "new", change), client.DryRunAll)
		}
	}
	change := func(job *batchv1.Job, data string, more ...client.SubResourcePatchOption) func(context.Context) error {
		raw := client.RawPatch(types.MergePatchType, []byte(data))
		return func(ctx context.Context) error {
			if len(more) > 0 {
				return thief.Status().Patch(ctx, job.DeepCopy(), raw, more...)
			}
			return thief.Patch(ctx, job.DeepCopy(), raw, client.DryRunAll)
		}
	}
	remove := func(job *batchv1.Job) func(context.Context) error {
		return func(ctx context.Context) error { return thief.Delete(ctx, job.DeepCopy(), client.DryRunAll) }
	}
	for name, tc := range map[string]struct {
		call func(context.Context) error
		want string
	}{
		"a Job of its own":               {made(func(*batchv1.Job) {}), "no Jobs but those of hooks"},
		"one with an owner but no label": {made(unlabelled), "no Jobs but those of hooks"},
		"one with a label but no owner":  {made(labelled), "must be owned by its EvictionRequest or its EvacuationHook"},
		"one in kube-system": {func(ctx context.Context) error {
			return thief.Create(ctx, suspended(metav1.NamespaceSystem, "new", ofAHook("EvacuationHook", hook)), client.DryRunAll)
		}, "in namespaces without evictions that it intercepts"},
		"one of another owner":               {made(strangers), "must be owned by its EvictionRequest or its EvacuationHook"},
		"the end of another's Job":           {remove(anothers), "no Jobs but those of hooks"},
		"the start of another's Job":         {change(anothers, `{"spec":{"suspend":false}}`), "changes no Job"},
		"a change of a hook's Job":           {change(own, `{"spec":{"suspend":false}}`), "changes no Job"},
		"a label, which makes it a hook's":   {change(anothers, `{"metadata":{"labels":{"drawbridge.dev/hook":"a"}}}`), "changes no Job"},
		"the success of a Job that does not": {change(own, `{"status":{"succeeded":1}}`, client.DryRunAll), "changes no Job"},
	} {
		t.Run(name, func(t *testing.T) { mustDeny(t, answerTo(t, tc.call), policy, tc.want) })
	}
	for name, call := range map[string]func(context.Context) error{
		"a Job for a request": made(ofAHook("EvictionRequest", request)),
		"a Job as an undo":    made(ofAHook("EvacuationHook", hook)),
		"the end of its own":  remove(own),
		"the list of the Jobs": func(ctx context.Context) error {
			return thief.List(ctx, &batchv1.JobList{}, client.InNamespace(namespace))
		},
	} {
		if err := answerTo(t, call); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := admin.Create(t.Context(), suspended(namespace, "new", func(*batchv1.Job) {}), client.DryRunAll); err != nil {
		t.Errorf("a Job of somebody else: %v", err)
	}
}

// Whoever has the manager's token runs commands, but gets no shell, and nothing in
// namespaces of the system.
func TestTheManagerRunsCommandsOnly(t *testing.T) {
	t.Parallel()
	const policy = "manager-exec.drawbridge.dev"
	namespace := kube.Namespace(t)
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(addNodes(t, namespace, 1)[0]).Obj())
	clients := must(kubernetes.NewForConfig(managersConfig(t)))(t)
	run := func(namespace string, options corev1.PodExecOptions) error {
		options.Command = []string{"true"}
		options.Stdout = true
		call := func(verb string) error {
			return clients.CoreV1().RESTClient().Verb(verb).Namespace(namespace).Resource("pods").Name(pod.Name).SubResource("exec").
				VersionedParams(&options, clientgoscheme.ParameterCodec).Do(t.Context()).Error()
		}
		return errors.Join(call("GET"), call("POST"))
	}
	for name, tc := range map[string]struct {
		namespace string
		options   corev1.PodExecOptions
		want      string
	}{
		"an input":             {namespace, corev1.PodExecOptions{Stdin: true}, "without input and without a terminal"},
		"a terminal":           {namespace, corev1.PodExecOptions{TTY: true}, "without input and without a terminal"},
		"in kube-system":       {metav1.NamespaceSystem, corev1.PodExecOptions{}, "no commands in kube-system"},
		"in its own namespace": {inst.Namespace, corev1.PodExecOptions{}, "no commands in kube-system and in its own namespace"},
	} {
		t.Run(name, func(t *testing.T) { mustDeny(t, run(tc.namespace, tc.options), policy, tc.want) })
	}
	// Admitted, it fails because it is no WebSocket.
	if err := run(namespace, corev1.PodExecOptions{Stderr: true}); err == nil || apierrors.IsForbidden(err) {
		t.Errorf("a command: %v", err)
	}
}

// Nobody registers an interceptor under the name of a hook's, the manager neither.
func TestNobodyRegistersAHooksInterceptor(t *testing.T) {
	t.Parallel()
	const policy = "interceptor-names.drawbridge.dev"
	thief := must(client.New(managersConfig(t), client.Options{Scheme: admin.Scheme()}))(t)
	for who, c := range map[string]client.Client{"an administrator": admin, "the manager": thief} {
		for _, name := range []string{"dump.shop.hooks.drawbridge.dev", "a.hooks.drawbridge.dev"} {
			t.Run(name+" by "+who, func(t *testing.T) {
				err := c.Create(t.Context(), builder.EvictionInterceptor(name).Obj(), client.DryRunAll)
				mustDeny(t, err, policy, "these are the interceptors of EvacuationHooks")
			})
		}
	}
	for _, name := range []string{"myhooks.drawbridge.dev.example.com", "a.webhooks.drawbridge.dev"} {
		if err := admin.Create(t.Context(), builder.EvictionInterceptor(name).Obj(), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
