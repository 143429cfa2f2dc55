package conformance

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// F6 Labels, of requests that a legacy call creates: the webhook copies them.
func TestConformance_F6_Webhook(t *testing.T) {
	w := newWorld(t, startManager(t, manager.Options{}))
	evictions := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}}
	callers := map[string]client.Client{}
	for _, user := range []string{"erin", "frank"} {
		if err := grant(t.Context(), w.admin, w.ns, user, evictions); err != nil {
			t.Fatal(err)
		}
		callers[user] = as(t, user)
	}
	// call evicts until the caller is a requester.
	call := func(t *testing.T, user string, pod *corev1.Pod) {
		t.Helper()
		await(t, user+" to be a requester", func(ctx context.Context) error {
			if err := callers[user].SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{}); !apierrors.IsTooManyRequests(err) {
				return fmt.Errorf("the answer is not 429: %w", err)
			}
			er := &v1alpha1.EvictionRequest{}
			if err := w.admin.Get(ctx, keyOf(pod), er); err != nil {
				return err
			}
			for _, name := range requestersOf(er) {
				if name == user+".users.drawbridge.dev" {
					return nil
				}
			}
			return fmt.Errorf("requesters %v", requestersOf(er))
		})
	}
	follows := func(t *testing.T, pod *corev1.Pod, want labels) {
		t.Helper()
		w.until(t, keyOf(pod), fmt.Sprintf("the labels %v", want), func(er *v1alpha1.EvictionRequest) bool { return maps.Equal(er.Labels, want) })
	}

	t.Run("57 it has the pod's labels without a write for them", func(t *testing.T) {
		pod := w.createPod(t, builder.Pod(w.ns, "new").Interceptors(interceptorA).Label("app", "web").Obj())
		call(t, "erin", pod)
		er := w.untilActive(t, keyOf(pod), interceptorA)
		if diff := cmp.Diff(labels{"app": "web"}, er.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		writes := w.asked(t, func(r cluster.Request) bool {
			return r.Resource == "evictionrequests" && r.Subresource == "" && r.Name == er.Name && r.Verb == "patch"
		})
		if len(writes) != 1 {
			t.Errorf("%d writes besides the status, want the one that created it: %v", len(writes), writes)
		}
	})
	t.Run("60 what the pod gets, changes and loses follows, whoever calls again", func(t *testing.T) {
		pod := w.createPod(t, builder.Pod(w.ns, "changing").Interceptors(interceptorA).Label("app", "web").Label("old", "yes").Obj())
		call(t, "erin", pod)
		w.untilActive(t, keyOf(pod), interceptorA)
		follows(t, pod, labels{"app": "web", "old": "yes"})
		w.updatePod(t, pod, func(p *corev1.Pod) { p.Labels = labels{"app": "db", "new": "yes"} })
		follows(t, pod, labels{"app": "db", "new": "yes"})
		call(t, "frank", pod)
		w.sync(t, keyOf(pod))
		follows(t, pod, labels{"app": "db", "new": "yes"})
		w.updatePod(t, pod, func(p *corev1.Pod) { p.Labels = nil })
		follows(t, pod, nil)
	})
	t.Run("59, 60 a label that the request had, too, stays", func(t *testing.T) {
		pod := w.createPod(t, builder.Pod(w.ns, "both").Interceptors(interceptorA).Label("app", "web").Obj())
		w.request(t, pod, func(er *v1alpha1.EvictionRequest) { er.Labels = labels{"app": "web", "team": "a"} })
		call(t, "erin", pod)
		w.untilActive(t, keyOf(pod), interceptorA)
		w.updatePod(t, pod, func(p *corev1.Pod) { p.Labels = labels{"new": "yes"} })
		follows(t, pod, labels{"app": "web", "team": "a", "new": "yes"})
		if diff := cmp.Diff(labels{"app": "web", "team": "a", "new": "yes"}, w.sync(t, keyOf(pod)).Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
	})
	t.Run("57 labels that a policy refuses hold up no eviction", func(t *testing.T) {
		refuseLabel(t, w, "secret")
		pod := w.createPod(t, builder.Pod(w.ns, "refused").Interceptors(interceptorA).Label("secret", "yes").Obj())
		call(t, "erin", pod)
		w.untilActive(t, keyOf(pod), interceptorA)
		call(t, "frank", pod)
		w.report(t, keyOf(pod), completes(interceptorA, w.now()))
		w.untilActive(t, keyOf(pod), imperative)
		if diff := cmp.Diff(labels(nil), w.sync(t, keyOf(pod)).Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
	})
}

// refuseLabel lets no request of the namespace have the label, as somebody's policy may.
func refuseLabel(t *testing.T, w *world, label string) {
	t.Helper()
	name := "refuse-" + label + "." + w.ns
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: metav1.SetAsLabelSelector(labels{corev1.LabelMetadataName: w.ns}),
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{v1alpha1.GroupName}, APIVersions: []string{"*"}, Resources: []string{"evictionrequests"}},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{{
				Expression: fmt.Sprintf("!(%q in object.metadata.?labels.orValue({}))", label), Message: "the label is ours",
			}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	for _, object := range []client.Object{policy, binding} {
		if err := w.admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := w.admin.Delete(context.WithoutCancel(t.Context()), object); err != nil {
				t.Error(err)
			}
		})
	}
	probe := builder.EvictionRequest(w.ns, "probe", uuid.NewUUID()).Requesters("probe.example.com").Obj()
	probe.Labels = labels{label: "yes"}
	await(t, "the policy to be in force", func(ctx context.Context) error {
		if err := w.admin.Create(ctx, probe.DeepCopy(), client.DryRunAll); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "is ours") {
			return fmt.Errorf("the label is not refused: %w", err)
		}
		return nil
	})
}
