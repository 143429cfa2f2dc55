//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// budgetStatusPolicy decides who writes what was granted.
const budgetStatusPolicy = "evictionbudget-status.drawbridge.dev"

// Budgets are written by those who may write PodDisruptionBudgets, and read by those who may
// read these. What was granted is written by none of them.
func TestWhoMayWriteBudgets(t *testing.T) {
	t.Parallel()
	namespace := kube.Namespace(t)
	existing := budgetOf(t, namespace, "existing", `{}`)
	create(t, existing)
	clients := map[string]client.Client{}
	for _, role := range []string{"view", "edit"} {
		clients[role] = newAccount(t, namespace, role).status
		create(t, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role + "s"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: role}},
		})
		allowed(t, role+" reading", func(ctx context.Context) error {
			return clients[role].Get(ctx, client.ObjectKeyFromObject(existing), &v1alpha1.EvictionBudget{})
		})
	}
	allowed(t, "edit writing", func(ctx context.Context) error {
		return clients["edit"].Create(ctx, budgetOf(t, namespace, "new", `{}`), client.DryRunAll)
	})
	if err := clients["view"].Create(t.Context(), budgetOf(t, namespace, "new", `{}`), client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("view may write budgets: %v", err)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"grants":[]}}`))
	if err := clients["edit"].Status().Patch(t.Context(), existing.DeepCopy(), patch); !apierrors.IsForbidden(err) {
		t.Errorf("edit may write what is granted: %v", err)
	}
}

// Not even somebody with all permissions grants an eviction, or takes a grant back. No
// manager runs, or it would write, too.
func TestOnlyTheManagerWritesWhatIsGranted(t *testing.T) {
	namespace := kube.Namespace(t)
	existing := budgetOf(t, namespace, "existing", `{}`)
	create(t, existing)
	thief := must(client.New(managersConfig(t), client.Options{Scheme: admin.Scheme()}))(t)
	insider := newAccount(t, namespace, "insider", rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"evictionbudgets/status"}, Verbs: []string{"patch"}})
	write := func(who client.Client, status string) error {
		return answerTo(t, func(ctx context.Context) error {
			return who.Status().Patch(ctx, existing.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":`+status+`}`)))
		})
	}
	const grants = `{"grants":[{"podUID":"1","pod":"db-0","request":"2","time":"2026-01-02T03:04:05.000000Z"}]}`
	for name, who := range map[string]client.Client{"an administrator": admin, "an insider": insider.status} {
		mustDeny(t, write(who, grants), budgetStatusPolicy, "only Drawbridge writes the status of EvictionBudgets")
		if err := write(who, `{}`); err != nil {
			t.Errorf("%s changes nothing: %v", name, err)
		}
	}
	status := map[string]any{}
	if err := json.Unmarshal([]byte(grants), &status); err != nil {
		t.Fatal(err)
	}
	if err := answerTo(t, func(ctx context.Context) error { // The manager may update, and not patch.
		granted := existing.DeepCopy()
		if err := admin.Get(ctx, client.ObjectKeyFromObject(existing), granted); err != nil {
			return err
		}
		granted.Object["status"] = status
		return thief.Status().Update(ctx, granted)
	}); err != nil {
		t.Fatalf("the manager: %v", err)
	}
	for name, who := range map[string]client.Client{"an administrator": admin, "an insider": insider.status} {
		mustDeny(t, write(who, `{"grants":null}`), budgetStatusPolicy)
		mustDeny(t, write(who, `{"lastGrantTime":"2026-01-02T03:04:05Z"}`), budgetStatusPolicy)
		if err := write(who, grants); err != nil {
			t.Errorf("%s changes nothing: %v", name, err)
		}
	}
	// Everybody else's part is the spec.
	if err := admin.Patch(t.Context(), existing, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"maxUnavailable":2}}`))); err != nil {
		t.Errorf("the spec: %v", err)
	}
}

// The administrator lets the manager read more by a role with a label, and takes that back by
// deleting it.
func TestTheAdministratorAddsWhatBudgetsRead(t *testing.T) {
	t.Parallel()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "rings-of-budgets", Labels: map[string]string{"drawbridge.dev/aggregate-to-budgets": "true"}},
		Rules:      []rbacv1.PolicyRule{may("get", "rings.example.com", "rings"), may("get", "rings.example.com", "rings/scale")},
	}
	mayRead := func(want bool) {
		t.Helper()
		eventually(t, fmt.Sprintf("that the manager may read rings: %t", want), func(ctx context.Context) error {
			for _, subresource := range []string{"", "scale"} {
				review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: drawbridge(), ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: "shop", Verb: "get", Group: "rings.example.com", Resource: "rings", Subresource: subresource,
				}}}
				if err := admin.Create(ctx, review); err != nil {
					return err
				}
				if review.Status.Allowed != want {
					return fmt.Errorf("rings/%s: %t", subresource, review.Status.Allowed)
				}
			}
			return nil
		})
	}
	mayRead(false)
	create(t, role)
	mayRead(true)
	if err := admin.Delete(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	mayRead(false) // Also for the audit of permissions after all tests.
}

// A condition would tell, bit by bit, what is in a Secret.
func TestABudgetReadsNoSecret(t *testing.T) {
	t.Parallel()
	if err := letBudgetsReadConfigMaps(); err != nil {
		t.Fatal(err)
	}
	const policy = "evictionbudget-config.drawbridge.dev"
	namespace := kube.Namespace(t)
	spec := func(apiVersion, kind string) string {
		return `{"config":{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","name":"a"},"conditions":[{"name":"a","expression":"config.data.a == 'b'"}]}`
	}
	existing := budgetOf(t, namespace, "existing", spec("v1", "ConfigMap"))
	create(t, existing)
	const want = "a budget must not read a Secret"
	mustDeny(t, admin.Create(t.Context(), budgetOf(t, namespace, "new", spec("v1", "Secret")), client.DryRunAll), policy, want)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"config":{"kind":"Secret"}}}`))
	mustDeny(t, admin.Patch(t.Context(), existing.DeepCopy(), patch, client.DryRunAll), policy, want)
	for _, s := range []string{`{}`, spec("v1", "ConfigMap"), spec("vault.example.com/v1", "Secret")} {
		if err := admin.Create(t.Context(), budgetOf(t, namespace, "new", s), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestABudgetOfNothingIsWarnedOf(t *testing.T) {
	t.Parallel()
	namespace := kube.Namespace(t)
	config := kube.Config()
	heard := &warnings{}
	config.WarningHandler = heard
	c := must(client.New(config, client.Options{Scheme: scheme}))(t)
	for spec, want := range map[string]string{
		`{"maxUnavailable":0}`:    "has maxUnavailable 0: the eviction of a pod that it covers waits until somebody skips budgets.drawbridge.dev",
		`{"maxUnavailable":"0%"}`: "has maxUnavailable 0%: ",
		`{"maxUnavailable":10}`:   "",
		`{"maxUnavailable":"1%"}`: "",
		`{}`:                      "",
	} {
		heard.said = nil
		if err := c.Create(t.Context(), budgetOf(t, namespace, "new", spec), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
		if got := strings.Join(heard.said, " "); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: want the warning %q, got %q", spec, want, got)
		}
	}
}

// Nobody registers the interceptors of budgets, of native responders and of the order of a node's
// pods, the manager neither.
func TestNobodyRegistersTheInterceptorsOfDrawbridge(t *testing.T) {
	t.Parallel()
	thief := must(client.New(managersConfig(t), client.Options{Scheme: admin.Scheme()}))(t)
	for name, why := range map[string]string{
		v1alpha1.BudgetInterceptor: "it is the interceptor of EvictionBudgets",
		v1alpha1.NativeInterceptor: "it is the interceptor of pods' own spec.evictionResponders",
		v1alpha1.OrderInterceptor:  "it is the interceptor of spec.after of all registrations",
	} {
		registration := builder.EvictionInterceptor(name)
		mustDeny(t, thief.Create(t.Context(), registration.Clone().Obj(), client.DryRunAll), "interceptor-names.drawbridge.dev", why)
		if err := admin.Create(t.Context(), registration.Clone().Obj(), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			t.Errorf("an administrator, %s: %v", name, err)
		}
	}
	for _, name := range []string{"mybudgets.drawbridge.dev", "a." + v1alpha1.BudgetInterceptor, "a." + v1alpha1.NativeInterceptor} {
		if err := admin.Create(t.Context(), builder.EvictionInterceptor(name).Obj(), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
