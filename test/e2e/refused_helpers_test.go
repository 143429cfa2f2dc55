//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// words are what the refusals of these tests say.
const words = "the tests refuse it"

// refusal refuses writes of the manager to objects of a resource, such as "jobs" or
// "evictionrequests/status", in a namespace.
type refusal struct {
	group, resource string
	// namespace of the objects; if they have none, that of the test, for the probe.
	namespace string
	// only is a condition in CEL, besides the manager's account.
	only string
	// reason is the answer's, Invalid if empty.
	reason metav1.StatusReason
}

// refuse makes a policy of a refusal, and returns how to take it away again. Both wait until
// the API server knows: the policy refuses a ConfigMap as well, in dry runs of the test.
func refuse(t *testing.T, r refusal) (end func()) {
	t.Helper()
	name := strings.ReplaceAll(r.resource, "/", "-") + "." + kube.Namespace(t) + ".e2e.drawbridge.dev"
	only := "true"
	if r.only != "" {
		only = r.only
	}
	resources := func(group, resource string) admissionregistrationv1.NamedRuleWithOperations {
		return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
		}}
	}
	validation := admissionregistrationv1.Validation{Expression: "request.resource.resource == 'configmaps' && object.metadata.name != 'in-force'", Message: words}
	if r.reason != "" {
		validation.Reason = &r.reason
	}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{resources(r.group, r.resource), resources("", "configmaps")}},
		MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "manager", Expression: fmt.Sprintf(
			"request.resource.resource == 'configmaps' && request.operation == 'CREATE' || request.userInfo.username == '%s' && (%s)", drawbridge(), only)}},
		Validations: []admissionregistrationv1.Validation{validation},
	}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: r.namespace}}},
	}}
	create(t, policy)
	create(t, binding)
	settle := func(what string, inForce bool) {
		probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "in-force"}}
		err := cluster.Wait(context.Background(), "the policy to be "+what, func(ctx context.Context) error {
			got := admin.Create(ctx, probe.DeepCopy(), client.DryRunAll)
			if (got != nil && strings.Contains(got.Error(), words)) != inForce {
				return fmt.Errorf("the answer is %v", got)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		// It ends after the test as well.
		for _, object := range []client.Object{binding, policy} {
			if err := admin.Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		}
		settle("gone", false)
	}
	t.Cleanup(end)
	settle("in force", true)
	return end
}

// wantRefused waits until a refusal is told as the table in docs/operations/observability.md
// says: an event on the object, and a metric.
func wantRefused(t *testing.T, m *manager.Manager, about client.Object, what refused.Write, cause refused.Cause, says string) {
	t.Helper()
	eventually(t, fmt.Sprintf("an event about the refusal of %s on %s", what, about.GetName()), func(ctx context.Context) error {
		list := &corev1.EventList{}
		if err := admin.List(ctx, list, client.MatchingFields{"involvedObject.uid": string(about.GetUID())}); err != nil {
			return err
		}
		var seen []string
		for _, e := range list.Items {
			if e.Reason == "RefusedBy"+string(cause) && e.Action == what.Action() && strings.Contains(e.Message, says) {
				return nil
			}
			seen = append(seen, e.Reason+" "+e.Action+": "+e.Message)
		}
		return fmt.Errorf("there are %q", seen)
	})
	if n := refusedMetric(t, m, what, cause); n == 0 {
		t.Errorf("drawbridge_writes_refused_total of %s by %s is 0", what, cause)
	}
}

// refusedMetric is a series of drawbridge_writes_refused_total.
func refusedMetric(t *testing.T, m *manager.Manager, what refused.Write, cause refused.Cause) int {
	t.Helper()
	for _, family := range must(m.Metrics.Gather())(t) {
		if family.GetName() != "drawbridge_writes_refused_total" {
			continue
		}
		for _, series := range family.GetMetric() {
			values := map[string]string{}
			for _, l := range series.GetLabel() {
				values[l.GetName()] = l.GetValue()
			}
			if values["what"] == string(what) && values["cause"] == string(cause) {
				return int(series.GetCounter().GetValue())
			}
		}
	}
	return 0
}

// wantNoLoop fails the test if the manager has sent a write that was refused, to one
// object, more often than its pauses allow in the time of a test.
func wantNoLoop(t *testing.T, mark cluster.Mark, namespace string) {
	t.Helper()
	counts := map[string]int{}
	for _, r := range since(t, mark).By(drawbridge()) {
		if r.Writes() && !r.DryRun && r.Namespace == namespace && (r.Code == http.StatusForbidden || r.Code == http.StatusUnprocessableEntity) {
			counts[fmt.Sprintf("%s %s/%s %s", r.Verb, r.Resource, r.Subresource, r.Name)]++
		}
	}
	for write, n := range counts {
		if n > maxRefused {
			t.Errorf("%s was sent %d times, and refused", write, n)
		}
	}
}

// maxRefused is how often a refused write may be sent in the first minutes.
const maxRefused = 12

// answered wants the text of an answer to an eviction.
func answered(t *testing.T, pod *corev1.Pod, want string) {
	t.Helper()
	eventually(t, "the eviction of "+pod.Name+" to be answered", func(context.Context) error {
		got := evict(t, "alice", pod, eviction(pod))
		status := metav1.Status{}
		if err := json.Unmarshal(got.body, &status); err != nil {
			return err
		}
		if !strings.Contains(status.Message, want) {
			return fmt.Errorf("%d %s", got.code, status.Message)
		}
		return nil
	})
}
