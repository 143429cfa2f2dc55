//go:build unix

package e2e

import (
	"context"
	"errors"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// letBudgetsRead lets the manager read what it otherwise may not, as an administrator would.
func letBudgetsRead(name string, rules ...rbacv1.PolicyRule) error {
	return admin.Create(context.Background(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"drawbridge.dev/aggregate-to-budgets": "true"}},
		Rules:      rules,
	})
}

// mayWatch are the permissions for what conditions read.
func mayWatch(group, resource string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"list", "watch"}}
}

var letBudgetsReadConfigMaps = sync.OnceValue(func() error {
	return letBudgetsRead("budgets-read-configmaps", mayWatch("", "configmaps"))
})

// Evictions wait until the conditions are true of an object, and go on when it changes.
func TestABudgetWaitsForItsConditions(t *testing.T) {
	shareManager(t)
	if err := letBudgetsReadConfigMaps(); err != nil {
		t.Fatal(err)
	}
	ring := v1alpha1.BudgetConfig{APIVersion: "v1", Kind: "ConfigMap", Name: "ring"}
	ringIn := func(namespace string, data map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ring.Name}, Data: data}
	}
	// become creates the object, or changes it.
	become := func(t *testing.T, p *paced, data map[string]string) {
		t.Helper()
		eventually(t, "the ring to change", func(ctx context.Context) error {
			err := admin.Update(ctx, ringIn(p.namespace, data))
			if err != nil {
				err = errors.Join(err, admin.Create(ctx, ringIn(p.namespace, data)))
			}
			return err
		})
	}
	for name, tc := range map[string]struct {
		config v1alpha1.BudgetConfig
		// data of the ConfigMap; nil if there is none.
		data       map[string]string
		expression string
		// want are parts of the message.
		want []string
		then func(*testing.T, *paced)
	}{
		"one that is not true": {
			config: ring, data: map[string]string{"unhealthy": "1"}, expression: `config.data.unhealthy == "0"`,
			want: []string{"condition is-healthy is not true."},
			then: func(t *testing.T, p *paced) { t.Helper(); become(t, p, map[string]string{"unhealthy": "0"}) },
		},
		"an object that does not exist": {
			config: ring, expression: `config != null`,
			want: []string{"condition is-healthy is not true."},
			then: func(t *testing.T, p *paced) { t.Helper(); become(t, p, nil) },
		},
		"an expression that fails": {
			config: ring, data: map[string]string{"healthy": "3"}, expression: `config.data.unhealthy == "0"`,
			want: []string{"condition is-healthy cannot be evaluated: ", "no such key: unhealthy"},
			then: func(t *testing.T, p *paced) { t.Helper(); become(t, p, map[string]string{"unhealthy": "0"}) },
		},
		"a kind that Drawbridge may not read": {
			config: v1alpha1.BudgetConfig{APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Name: "ring"}, expression: `config != null`,
			want: []string{
				"its config cannot be read: Drawbridge may not read Ingress ", "/ring: it needs the verbs list and watch on ingresses",
				`API group "networking.k8s.io" (by a ClusterRole with the label drawbridge.dev/aggregate-to-budgets: "true")`,
			},
			then: func(t *testing.T, p *paced) {
				t.Helper()
				create(t, &networkingv1.Ingress{
					ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "ring"},
					Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
						Service: &networkingv1.IngressServiceBackend{Name: "ring", Port: networkingv1.ServiceBackendPort{Number: 80}},
					}},
				})
				if err := letBudgetsRead("budgets-read-ingresses", mayWatch("networking.k8s.io", "ingresses")); err != nil {
					t.Fatal(err)
				}
			},
		},
		"a kind that there is not": {
			config: v1alpha1.BudgetConfig{APIVersion: "ring.example.com/v1", Kind: "Ring", Name: "ring"}, expression: `config != null`,
			want: []string{"its config cannot be read: Ring of ring.example.com/v1 is not installed."},
			then: dropConditions,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPaced(t, 1, func(b *builder.EvictionBudgetWrapper) { b.When(tc.config, tc.expression) })
			if tc.data != nil {
				create(t, ringIn(p.namespace, tc.data))
			}
			p.room(t)
			drain := startDrain(t, "alice", p.node)
			waitBudgetsSay(t, &p.pods[0], append(tc.want, "EvictionBudget pace: ")...)
			waitBudget(t, p.budget, "wait for its condition", refusesWith(v1alpha1.ReasonConditionFalse, tc.want...))
			p.live(t)
			drainGoesOn(t, drain)
			tc.then(t, p)
			p.leaves(t, drain)
		})
	}
}

// dropConditions leaves a budget without conditions.
func dropConditions(t *testing.T, p *paced) {
	t.Helper()
	p.spec(t, func(s *v1alpha1.EvictionBudgetSpec) { s.Config, s.Conditions = nil, nil })
}
