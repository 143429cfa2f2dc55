//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// hookPolicy decides who may write hooks.
const hookPolicy = "evacuationhook-authorization.drawbridge.dev"

// Specs of hooks.
const (
	waits      = `{"wait":{"until":"true"}}`
	runsJob    = `{"job":{"template":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"dump","image":"dump:1"}]}}}}}}`
	execs      = `{"exec":{"command":["flush"]}}`
	sends      = `{"http":{"url":"https://backup.example.com/"}}`
	sendsToken = `{"http":{"url":"https://backup.example.com/","headersFrom":{"name":"token"}}}`
)

// hookOf is a hook with that spec, in JSON.
func hookOf(t *testing.T, namespace, name, spec string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("EvacuationHook"))
	u.SetNamespace(namespace)
	u.SetName(name)
	var content map[string]any
	if err := json.Unmarshal([]byte(spec), &content); err != nil {
		t.Fatalf("%v: %s", err, spec)
	}
	u.Object["spec"] = content
	return u
}

// after is a spec that does something only when the eviction is canceled.
func after(action string) string {
	return `{"wait":{"until":"true"},"undo":` + action + `}`
}

// mayWriteHooks lets an account write hooks, which is what the built-in role edit has.
func mayWriteHooks() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"evacuationhooks"}, Verbs: []string{"get", "create", "update", "patch"}}
}

func may(verb, group, resource string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}, ResourceNames: names}
}

// answerTo repeats a call until RBAC has seen the roles of the test, and returns its error.
func answerTo(t *testing.T, call func(context.Context) error) (refused error) {
	t.Helper()
	eventually(t, "an answer", func(ctx context.Context) error {
		refused = call(ctx)
		if apierrors.IsConflict(refused) || (apierrors.IsForbidden(refused) && !strings.Contains(refused.Error(), "ValidatingAdmissionPolicy")) {
			return refused
		}
		return nil
	})
	return refused
}

// allowed waits until a call succeeds: the policy may see a role after RBAC has let the call
// through.
func allowed(t *testing.T, what string, call func(context.Context) error) {
	t.Helper()
	eventually(t, what+" to be allowed", call)
}

// writesOf are all ways to a hook with that spec: objects that are new, and one that does
// something harmless so far. Nothing is stored.
func writesOf(t *testing.T, who client.Client, existing *unstructured.Unstructured, spec string) map[string]func(context.Context) error {
	t.Helper()
	namespace := existing.GetNamespace()
	patch := func(kind types.PatchType, name, data string, more ...client.PatchOption) func(context.Context) error {
		return func(ctx context.Context) error {
			return who.Patch(ctx, hookOf(t, namespace, name, waits), client.RawPatch(kind, []byte(data)), append(more, client.DryRunAll)...)
		}
	}
	applied := func(name string) string {
		return `{"apiVersion":"drawbridge.dev/v1alpha1","kind":"EvacuationHook","metadata":{"name":"` + name + `"},"spec":` + spec + `}`
	}
	// Without it, there would be two actions.
	merged := strings.Replace(spec, "{", `{"wait":null,`, 1)
	if strings.Contains(spec, "undo") {
		merged = spec
	}
	return map[string]func(context.Context) error{
		"POST": func(ctx context.Context) error {
			return who.Create(ctx, hookOf(t, namespace, "new", spec), client.DryRunAll)
		},
		"PUT": func(ctx context.Context) error {
			now := existing.DeepCopy()
			if err := admin.Get(ctx, client.ObjectKeyFromObject(existing), now); err != nil {
				return err
			}
			now.Object["spec"] = hookOf(t, namespace, "new", spec).Object["spec"]
			return who.Update(ctx, now, client.DryRunAll)
		},
		"a merge patch":    patch(types.MergePatchType, existing.GetName(), `{"spec":`+merged+`}`),
		"a JSON patch":     patch(types.JSONPatchType, existing.GetName(), `[{"op":"replace","path":"/spec","value":`+spec+`}]`),
		"an apply, of new": patch(types.ApplyPatchType, "new", applied("new"), client.FieldOwner("test")),
		"an apply":         patch(types.ApplyPatchType, existing.GetName(), applied(existing.GetName()), client.FieldOwner("creator"), client.ForceOwnership),
	}
}

// Whoever may write hooks may not do by them what he may not do himself, whichever way he
// writes, and whether it is done before the eviction or when that is canceled.
func TestAHookTakesThePermissionOfWhatItDoes(t *testing.T) {
	t.Parallel()
	namespace := kube.Namespace(t)
	// Applied, or a later apply would leave its wait beside the new action.
	existing := hookOf(t, namespace, "existing", waits)
	applied := must(json.Marshal(existing))(t)
	if err := admin.Patch(t.Context(), existing, client.RawPatch(types.ApplyPatchType, applied), client.FieldOwner("creator")); err != nil {
		t.Fatal(err)
	}
	writer := newAccount(t, namespace, "writer", mayWriteHooks())
	for name, tc := range map[string]struct {
		spec    string
		refused string
		rule    rbacv1.PolicyRule
	}{
		"a job":            {runsJob, `the verb "create" on resource "jobs" in API group "batch"`, may("create", "batch", "jobs")},
		"a job as undo":    {after(runsJob), `the verb "create" on resource "jobs" in API group "batch"`, may("create", "batch", "jobs")},
		"exec":             {execs, `the verb "create" on resource "pods/exec" in API group ""`, may("create", "", "pods/exec")},
		"exec as undo":     {after(execs), `the verb "create" on resource "pods/exec" in API group ""`, may("create", "", "pods/exec")},
		"a Secret":         {sendsToken, `the verb "get" on resource "secrets" in API group "", of the name "token"`, may("get", "", "secrets")},
		"a Secret as undo": {after(sendsToken), `the verb "get" on resource "secrets" in API group "", of the name "token"`, may("get", "", "secrets", "token")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			account := strings.ToLower(strings.ReplaceAll(name, " ", "-"))
			able := newAccount(t, namespace, account, mayWriteHooks(), tc.rule)
			for way, write := range writesOf(t, writer.status, existing, tc.spec) {
				err := answerTo(t, write)
				mustDeny(t, err, hookPolicy, tc.refused, `user "`+serviceAccount(namespace, "writer")+`" cannot write this hook`, `in the namespace "`+namespace+`" is needed`)
				if !apierrors.IsForbidden(err) {
					t.Errorf("%s: want a reason of Forbidden, got %v", way, err)
				}
			}
			for way, write := range writesOf(t, able.status, existing, tc.spec) {
				allowed(t, way, write)
			}
		})
	}
	for name, spec := range map[string]string{"a wait": waits, "a request": sends, "a request as undo": after(sends)} {
		for way, write := range writesOf(t, writer.status, existing, spec) {
			if err := answerTo(t, write); err != nil {
				t.Errorf("%s by %s: %v", name, way, err)
			}
		}
	}
}

// Other pods are another spec; labels and annotations are everybody's who may write hooks,
// as the spec was allowed before.
func TestAnybodysHookMayGetLabelsButNotOtherPods(t *testing.T) {
	t.Parallel()
	namespace := kube.Namespace(t)
	existing := hookOf(t, namespace, "dump", runsJob)
	create(t, existing)
	writer := newAccount(t, namespace, "writer", mayWriteHooks())
	patch := func(data string) error {
		return answerTo(t, func(ctx context.Context) error {
			return writer.status.Patch(ctx, existing.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(data)))
		})
	}
	if err := patch(`{"metadata":{"labels":{"team":"db"},"annotations":{"a":"b"}}}`); err != nil {
		t.Errorf("a label: %v", err)
	}
	mustDeny(t, patch(`{"spec":{"podSelector":{"matchLabels":{"app":"other"}}}}`), hookPolicy, "it creates Jobs")
	mustDeny(t, patch(`{"spec":{"retries":10}}`), hookPolicy, "it creates Jobs")
	// What takes no permission any more takes none.
	if err := patch(`{"spec":{"job":null,"wait":{"until":"true"}}}`); err != nil {
		t.Errorf("another action: %v", err)
	}
}

// A permission for one Secret is one for that Secret, in that namespace.
func TestAHooksSecretIsTheOneThatItsAuthorMayGet(t *testing.T) {
	t.Parallel()
	namespace, other := kube.Namespace(t), kube.Namespace(t)
	writer := newAccount(t, namespace, "writer", mayWriteHooks(), may("get", "", "secrets", "token"))
	write := func(secrets ...string) func(context.Context) error {
		spec := strings.Replace(sendsToken, "token", secrets[0], 1)
		if len(secrets) > 1 {
			spec = strings.TrimSuffix(spec, "}") + `,"undo":` + strings.Replace(sendsToken, "token", secrets[1], 1) + "}"
		}
		return func(ctx context.Context) error {
			return writer.status.Create(ctx, hookOf(t, namespace, "new", spec), client.DryRunAll)
		}
	}
	allowed(t, "his Secret", write("token"))
	allowed(t, "his Secret, twice", write("token", "token"))
	mustDeny(t, answerTo(t, write("password")), hookPolicy, `of the name "password"`)
	mustDeny(t, answerTo(t, write("token", "password")), hookPolicy, `of the name "token" and "password"`)

	// What he may do elsewhere counts there.
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "writer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "writer"}},
	})
	allowed(t, "all as edit", func(ctx context.Context) error {
		return errors.Join(
			writer.status.Create(ctx, hookOf(t, other, "a", runsJob), client.DryRunAll),
			writer.status.Create(ctx, hookOf(t, other, "b", execs), client.DryRunAll),
			writer.status.Create(ctx, hookOf(t, other, "c", strings.Replace(sendsToken, "token", "password", 1)), client.DryRunAll),
		)
	})
	mustDeny(t, answerTo(t, func(ctx context.Context) error {
		return writer.status.Create(ctx, hookOf(t, namespace, "new", runsJob), client.DryRunAll)
	}), hookPolicy, "it creates Jobs", namespace)
}

// Not even an administrator writes what reaches beyond the namespace.
func TestAHookStaysInItsNamespace(t *testing.T) {
	t.Parallel()
	namespace := kube.Namespace(t)
	template := func(text string) string { return `{"job":{"template":` + text + `}}` }
	for name, tc := range map[string]struct {
		spec string
		want string
	}{
		"the Job's namespace":       {template(`{"metadata":{"namespace":"kube-system"}}`), `must not name a namespace other than "` + namespace + `"`},
		"its pod's namespace":       {template(`{"spec":{"template":{"metadata":{"namespace":"kube-system"}}}}`), "must not name a namespace other than"},
		"a computed namespace":      {template(`{"metadata":{"namespace":"${'kube-' + 'system'}"}}`), "must not name a namespace other than"},
		"that of an undo":           {after(template(`{"metadata":{"namespace":"kube-system"}}`)), "must not name a namespace other than"},
		"an owner":                  {template(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}}`), "must have no name, generateName and ownerReferences"},
		"an owner of the pod":       {template(`{"spec":{"template":{"metadata":{"ownerReferences":[]}}}}`), "must have no name, generateName and ownerReferences"},
		"a name":                    {template(`{"metadata":{"name":"backup"}}`), "must have no name, generateName and ownerReferences"},
		"a name to be completed":    {template(`{"metadata":{"generateName":"backup-"}}`), "must have no name, generateName and ownerReferences"},
		"computed metadata":         {template(`{"metadata":"${{'namespace': 'kube-system'}}"}`), "an expression may not make them"},
		"a computed spec":           {template(`{"spec":"${{}}"}`), "an expression may not make them"},
		"a computed pod":            {template(`{"spec":{"template":"${{}}"}}`), "an expression may not make them"},
		"a pod's computed metadata": {template(`{"spec":{"template":{"metadata":"${{}}"}}}`), "an expression may not make them"},
		"a Secret's content":        {`{"wait":{"until":"true","workload":{"apiVersion":"v1","kind":"Secret","name":"'a'"}}}`, "must not wait for a Secret"},
		"a Service of others":       {`{"http":{"url":"http://db.kube-system.svc:80/"}}`, `it is in "` + namespace + `", and the Service in "kube-system"`},
		"one that is undone":        {after(`{"http":{"url":"http://DB.KUBE-SYSTEM.SVC/"}}`), `and the Service in "kube-system"`},
	} {
		t.Run(name, func(t *testing.T) {
			mustDeny(t, admin.Create(t.Context(), hookOf(t, namespace, "new", tc.spec), client.DryRunAll), hookPolicy, tc.want)
		})
	}
	for name, spec := range map[string]string{
		"labels":             template(`{"metadata":{"namespace":"` + namespace + `","labels":{"a":"b"}},"spec":{"template":{"metadata":{"annotations":{"a":"${pod.metadata.name}"}}}}}`),
		"computed values":    template(`{"spec":{"backoffLimit":"${1 + 1}","template":{"spec":{"containers":"${[]}"}}}}`),
		"its own Service":    `{"http":{"url":"http://db.` + namespace + `.svc:80/"}}`,
		"a Service by name":  `{"http":{"url":"http://db:80/"}}`,
		"the pod":            `{"http":{"url":"${'http://' + pod.status.podIP + ':80/'}"}}`,
		"another workload":   `{"wait":{"until":"true","workload":{"apiVersion":"apps/v1","kind":"StatefulSet"}}}`,
		"a Secret elsewhere": `{"wait":{"until":"true","workload":{"apiVersion":"vault.example.com/v1","kind":"Secret"}}}`,
	} {
		if err := admin.Create(t.Context(), hookOf(t, namespace, "new", spec), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// enforceHere enforces the policy for hooks that the chart has with these values, in one
// namespace, under a name of its own, which is returned.
func enforceHere(t *testing.T, namespace string, values map[string]any) string {
	t.Helper()
	name := namespace + "." + hookPolicy
	objects := must(install.Render(t.Context(), install.Options{Values: values}))(t)
	for _, object := range objects {
		if object.GetName() != hookPolicy {
			continue
		}
		object.SetName(name)
		if object.GetKind() == "ValidatingAdmissionPolicyBinding" {
			binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, binding); err != nil {
				t.Fatal(err)
			}
			binding.Spec.PolicyName = name
			binding.Spec.MatchResources = &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
			}
			create(t, binding)
		} else {
			create(t, object)
		}
		t.Cleanup(func() {
			// The test's own context has ended by now.
			if err := admin.Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		})
	}
	return name
}

// What is switched off is refused, and the answer says by which value.
func TestActionsThatAreSwitchedOffAreRefused(t *testing.T) {
	t.Parallel()
	off := map[string]any{"enabled": false}
	for name, tc := range map[string]struct {
		values map[string]any
		specs  []string
		want   string
	}{
		"exec, as it is by default": {nil, []string{execs, after(execs)}, "hooks.exec.enabled"},
		"http":                      {map[string]any{"hooks": map[string]any{"http": off}}, []string{sends, sendsToken, after(sends)}, "hooks.http.enabled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := kube.Namespace(t)
			policy := enforceHere(t, namespace, tc.values)
			for _, spec := range tc.specs {
				var err error
				eventually(t, "the policy to be in force", func(ctx context.Context) error {
					if err = admin.Create(ctx, hookOf(t, namespace, "new", spec), client.DryRunAll); err == nil {
						return fmt.Errorf("%s is accepted", spec)
					}
					return nil
				})
				mustDeny(t, err, policy, "are switched off", tc.want)
			}
			if err := admin.Create(t.Context(), hookOf(t, namespace, "new", runsJob), client.DryRunAll); err != nil {
				t.Errorf("a job: %v", err)
			}
		})
	}
}
