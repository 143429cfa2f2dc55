//go:build unix

package native

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// refuses has a policy refuse what the manager writes to a resource of the native API, in one
// namespace, until the end of what it returns.
func refuses(t *testing.T, namespace, resource, only string) (end func()) {
	t.Helper()
	name := strings.ReplaceAll(resource, "/", "-") + "." + namespace + ".e2e.drawbridge.dev"
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	on := func(group, resource string) admissionregistrationv1.NamedRuleWithOperations {
		return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
		}}
	}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
		on(lifecyclev1alpha1.GroupName, resource), on("", "configmaps"),
	}}
	policy.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "manager", Expression: fmt.Sprintf(
		"request.resource.resource == 'configmaps' ? object.metadata.name == 'in-force' : request.userInfo.username == '%s' && (%s)", account(), only)}}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "false", Message: "not here"}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = name, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	binding.Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}}
	create(t, policy)
	create(t, binding)
	end = func() {
		for _, object := range []client.Object{binding, policy} {
			if err := admin.Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(end)
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "in-force"}}
	waiting.Eventually(t, "the policy to be in force", func(ctx context.Context) error {
		if err := admin.Create(ctx, probe.DeepCopy(), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "not here") {
			return fmt.Errorf("the answer is %w", err)
		}
		return nil
	})
	return end
}

// Each write of ours to the native API is refused for good, told on the pod, and goes on once the
// cause is gone.
func TestRefusedNativeWrites(t *testing.T) {
	shareManager(t)
	for what, tc := range map[refused.Write]struct{ resource, only string }{
		refused.NativeRequest:  {"evictionrequests", "true"},
		refused.NativeEviction: {"evictions", "true"},
		refused.NativeReport: {"evictions/status", fmt.Sprintf(
			"[object, oldObject].map(o, has(o.status) && has(o.status.responders) && o.status.responders.exists(r, r.name == '%s' && has(r.completionTime))) == [true, false]", v1alpha1.NativeResponder)},
	} {
		t.Run(string(what), func(t *testing.T) {
			t.Parallel()
			namespace, node := placed(t)
			pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(in(namespace, migrate)).Interceptors(in(namespace, ours)).Obj())
			end := refuses(t, namespace, tc.resource, tc.only)
			joins(t, pod)
			if what == refused.NativeReport {
				completes(t, pod, in(namespace, migrate))
				intercepts(t, pod, in(namespace, ours))
			}
			note := waitEvent(t, pod, events.ReasonRefusedBy+string(refused.Policy))
			if !strings.Contains(note, what.Doing()) || !strings.Contains(note, "not here") {
				t.Errorf("the event says: %s", note)
			}
			lives(t, pod)
			end()
			if what != refused.NativeReport {
				completes(t, pod, in(namespace, migrate))
				intercepts(t, pod, in(namespace, ours))
			}
			gone(t, pod)
		})
	}
}
