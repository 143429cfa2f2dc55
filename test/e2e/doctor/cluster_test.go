//go:build unix

package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/doctor"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// What the cluster's users can do wrong, while the manager runs as it should.
func TestFindingsInTheCluster(t *testing.T) {
	inst.ForTest(t, manager.Options{})
	healthy(t)

	cases := []struct {
		name string
		make func(t *testing.T)
		want wanted
		// ahead is how far the person's clock is ahead, for what takes time.
		ahead time.Duration
		// do is a part of what is to be done.
		do string
	}{
		{
			name: "two budgets select a pod", make: twoBudgets,
			want: wanted{"several-budgets", doctor.Warn, "pod/", "budgets one, two select it"}, do: "Change a selector",
		},
		{
			name: "a budget allows nothing, of a Deployment", make: blockingBudgetOfDeployment,
			want: wanted{"blocking-budgets", doctor.Warn, "poddisruptionbudget/", "maxUnavailable is 0"}, do: "drawbridge.dev/surge=enabled",
		},
		{
			name: "a budget allows nothing, of a pod", make: blockingBudgetOfPod,
			want: wanted{"blocking-budgets", doctor.Warn, "poddisruptionbudget/", "minAvailable is 1 of 1 pod"}, do: "write an interceptor",
		},
		{
			name: "a pod's annotation is malformed", make: malformedAnnotation,
			want: wanted{"annotations", doctor.Warn, "pod/", `"Not A Name" is not a fully qualified domain name`}, do: "pod template",
		},
		{
			name: "nobody understands a label",
			make: func(t *testing.T) {
				t.Helper()
				label := map[string]string{"drawbridge.dev/aggregate-to-budgets": "yes"}
				passing(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "odd", Labels: label}})
			},
			want: wanted{"keys", doctor.Warn, "clusterrole/odd", `"yes" is not understood`}, do: "docs/reference/labels-and-annotations.md",
		},
		{
			name: "a registration does not compile",
			make: func(t *testing.T) {
				t.Helper()
				passing(t, builder.EvictionInterceptor("broken.example.com").Generation(0).When("object.spec.nope == 1").Obj())
			},
			want: wanted{"registrations", doctor.Warn, "evictioninterceptor/broken.example.com", "it is not accepted"}, do: "kubectl edit",
		},
		{
			name: "a policy's platform is not installed",
			make: func(t *testing.T) {
				t.Helper()
				passing(t, preset(t, "kubevirt"))
			},
			want: wanted{"evacuation-policies", doctor.Warn, "evacuationpolicy/kubevirt", "it is not ready"}, do: "Install the platform",
		},
		{
			name: "an interceptor says nothing", make: silentInterceptor, ahead: 5 * time.Minute,
			want: wanted{"silent-interceptors", doctor.Warn, "evictionrequest/", "interceptor silent.example.com has not reported: 1 request waits"}, do: "kubectl drawbridge skip db-0 silent.example.com",
		},
		{
			name: "Strimzi's Drain Cleaner answers evictions",
			make: func(t *testing.T) {
				t.Helper()
				passing(t, evictionWebhook(t, "strimzi-drain-cleaner", "strimzi-drain-cleaner.strimzi.io"))
			},
			want: wanted{"other-webhooks", doctor.Warn, "validatingwebhookconfiguration/strimzi-drain-cleaner", "Strimzi Drain Cleaner"}, do: "vm.strimzi.enabled=true",
		},
		{
			name: "KubeVirt's webhook is there beside the preset",
			make: func(t *testing.T) {
				t.Helper()
				passing(t, preset(t, "kubevirt"))
				passing(t, evictionWebhook(t, "virt-api-validator", "virt-launcher-eviction-interceptor.kubevirt.io"))
			},
			want: wanted{"other-webhooks", doctor.Warn, "validatingwebhookconfiguration/virt-api-validator", "KubeVirt"}, do: "docs/guides/kubevirt.md",
		},
		{
			name: "an unknown product answers evictions",
			make: func(t *testing.T) {
				t.Helper()
				passing(t, evictionWebhook(t, "gate", "gate.example.com"))
			},
			want: wanted{"other-webhooks", doctor.Warn, "validatingwebhookconfiguration/gate", "unknown (webhook gate.example.com)"}, do: "429",
		},
		{
			name: "a descheduler does not know of evictions in the background", make: blindDescheduler,
			want: wanted{"drain-tools", doctor.Warn, "deployment/", "EvictionsInBackground"}, do: "docs/guides/descheduler.md",
		},
		{
			name: "Karpenter leaves an interceptor less time than it needs", make: hastyKarpenter,
			want: wanted{"drain-tools", doctor.Warn, "nodepool/spot", "Karpenter waits 2m0s"}, do: "spec.minimum",
		},
		{
			name: "somebody else's policy is Ignore where Fail is wanted, and stays",
			make: func(t *testing.T) {
				t.Helper()
				// The manager repairs its own policy at once, so what is wanted is what changes.
				changed(t, named[*admissionregistrationv1.ValidatingWebhookConfiguration](inst.Release), func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
					delete(c.Annotations, "drawbridge.dev/failure-policy")
				})
			},
			want: wanted{"webhook", doctor.Warn, "validatingwebhookconfiguration/" + inst.Release, "nobody keeps the failure policy"}, do: "helm upgrade",
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			tc.make(t)
			r := recognisedBeside(t, tc.ahead, tc.want, doctor.Warn)
			if f := r.find(tc.want); !strings.Contains(f.Do, tc.do) {
				t.Errorf("what to do: %q lacks %q", f.Do, tc.do)
			}
			if r.code != 0 {
				t.Errorf("exit code %d: no warning is a failure (%s)", r.code, r.stderr)
			}
		})
	}
	t.Run("a pod has lost the label that its budget selects", budgetWithoutPods)
	t.Run("nobody may read anything", nothingMayBeRead)
	t.Run("the role for it is enough", theRoleIsEnough)
}

// named is an object of a name, to get.
func named[T client.Object](name string) T {
	var object any
	switch any(*new(T)).(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		object = &admissionregistrationv1.ValidatingWebhookConfiguration{}
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		object = &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		object = &admissionregistrationv1.ValidatingAdmissionPolicy{}
	case *rbacv1.ClusterRoleBinding:
		object = &rbacv1.ClusterRoleBinding{}
	case *corev1.Node:
		object = &corev1.Node{}
	}
	o := object.(T)
	o.SetName(name)
	return o
}

func twoBudgets(t *testing.T) {
	t.Helper()
	namespace := kube.Namespace(t)
	passing(t, builder.Pod(namespace, "db-0").Label("app", "db").Obj())
	for _, name := range []string{"one", "two"} {
		passing(t, builder.Budget(namespace, name).Generation(0).Selects("app", "db").MinAvailable("0").Obj())
	}
}

func blockingBudgetOfDeployment(t *testing.T) {
	t.Helper()
	namespace := kube.Namespace(t)
	passing(t, builder.Deployment(namespace, "web").Obj())
	waitBudget(t, builder.Budget(namespace, "web").Generation(0).Selects(builder.AppLabel, "web").MaxUnavailable("0").Obj())
}

func blockingBudgetOfPod(t *testing.T) {
	t.Helper()
	namespace := kube.Namespace(t)
	passing(t, builder.Pod(namespace, "db-0").Label("app", "db").Obj())
	waitBudget(t, builder.Budget(namespace, "db").Generation(0).Selects("app", "db").MinAvailable("1").Obj())
}

// budgetWithoutPods: Kubernetes does not look at the budget again, and it blocks nobody.
func budgetWithoutPods(t *testing.T) {
	namespace := kube.Namespace(t)
	pod := builder.Pod(namespace, "db-0").Label("role", "primary").Obj()
	passing(t, pod)
	budget := builder.Budget(namespace, "primary").Generation(0).Selects("role", "primary").MinAvailable("1").Obj()
	waitBudget(t, budget)
	// It is counted again for each change of its pod, also when the pod turns Ready.
	cluster.Eventually(t, "the budget has counted the pod as healthy", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(budget), budget); err != nil {
			return err
		}
		if budget.Status.CurrentHealthy != 1 {
			return fmt.Errorf("its status is %+v", budget.Status)
		}
		return nil
	})
	w := wanted{"blocking-budgets", doctor.Warn, "poddisruptionbudget/" + namespace + "/primary", "minAvailable is 1 of 1 pod"}
	recognised(t, 0, w)
	if err := admin.Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"role":"replica"}}}`))); err != nil {
		t.Fatal(err)
	}
	r := consult(t, asAdmin, 0)
	if f := r.find(w); f != nil {
		t.Errorf("it finds %+v", f)
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(budget), budget); err != nil {
		t.Fatal(err)
	}
	if budget.Status.ExpectedPods != 1 {
		t.Errorf("Kubernetes counts again by itself: %+v", budget.Status)
	}
}

// waitBudget creates a budget and waits until it has counted its pods.
func waitBudget(t *testing.T, budget *policyv1.PodDisruptionBudget) {
	t.Helper()
	passing(t, budget)
	cluster.Eventually(t, "the budget has counted its pods", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(budget), budget); err != nil {
			return err
		}
		if budget.Status.ExpectedPods == 0 {
			return fmt.Errorf("its status is %+v", budget.Status)
		}
		return nil
	})
}

// malformedAnnotation takes the admission policy away for a moment, as it was before
// Drawbridge was installed.
func malformedAnnotation(t *testing.T) {
	t.Helper()
	namespace := kube.Namespace(t)
	t.Run("while the policy is away", func(t *testing.T) {
		removed(t, named[*admissionregistrationv1.ValidatingAdmissionPolicyBinding]("pod-interceptors.drawbridge.dev"))
		cluster.Eventually(t, "the policy is not enforced", func(ctx context.Context) error {
			pod := builder.Pod(namespace, "old-0").Obj()
			pod.Annotations = map[string]string{v1alpha1.InterceptorsAnnotation: "a.example.com,Not A Name"}
			return admin.Create(ctx, pod)
		})
	})
}

func preset(t *testing.T, name string) *v1alpha1.EvacuationPolicy {
	t.Helper()
	chart, err := install.Chart(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	policy, err := install.PresetPolicy(chart, name)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

func silentInterceptor(t *testing.T) {
	t.Helper()
	namespace := kube.Namespace(t)
	pod := builder.Pod(namespace, "db-0").Interceptors("silent.example.com").Obj()
	passing(t, pod)
	pod = cluster.ReadyPod(t, admin, pod.Namespace, pod.Name)
	cluster.Eventually(t, "the eviction waits for the interceptor", func(ctx context.Context) error {
		err := admin.SubResource("eviction").Create(ctx, pod.DeepCopy(), &policyv1.Eviction{})
		if err == nil || !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "silent.example.com") {
			return fmt.Errorf("the answer is %w", errors.Join(err, errors.New("not the one")))
		}
		return nil
	})
}

// evictionWebhook is that of another product, which is never called: no namespace has
// the label.
func evictionWebhook(t *testing.T, name, webhook string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	t.Helper()
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    webhook,
			AdmissionReviewVersions: []string{"v1"},
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: name}},
			FailurePolicy:           ptr.To(admissionregistrationv1.Ignore),
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"nobody": "has-it"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/eviction"}},
			}},
		}},
	}
}

// Whoever may read nothing is told which permission each check needs.
// What could not be looked at is not healthy: the exit code says so.
func nothingMayBeRead(t *testing.T) {
	r := consult(t, []string{"strangers"}, 0)
	if r.code != 1 || !strings.Contains(r.stderr, "nothing is known of the installation") {
		t.Errorf("exit code %d, %q", r.code, r.stderr)
	}
	for _, c := range r.Checks {
		switch c.Check {
		case "kubernetes", "native-api", "cert-manager": // Discovery is open to all, the last not asked for.
			continue
		}
		if c.Severity != doctor.Warn || len(c.Findings) == 0 || !strings.Contains(c.Findings[0].Do, "Ask for") {
			t.Errorf("%s: %s, %+v", c.Check, c.Severity, c.Findings)
		}
	}
	if w := (wanted{"several-budgets", doctor.Warn, "", "cannot list resource \"poddisruptionbudgets\""}); r.find(w) == nil {
		t.Errorf("no %+v among %s", w, strings.Join(r.findings(), "\n"))
	}
}

// The chart's role is for all checks but that of the Secret.
func theRoleIsEnough(t *testing.T) {
	passing(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "doctors"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: inst.Release + "-doctor"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "doctors"}},
	})
	cluster.Eventually(t, "only the Secret is not looked at", func(context.Context) error {
		r := consult(t, []string{"doctors"}, 0)
		all := r.findings()
		if len(all) != 1 || r.find(wanted{"certificate", doctor.Warn, "", "secrets"}) == nil {
			return fmt.Errorf("it finds %s", strings.Join(all, "\n"))
		}
		return nil
	})
}
