//go:build unix

package doctor

import (
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// blindDescheduler is one that does not know of evictions in the background.
func blindDescheduler(t *testing.T) {
	t.Helper()
	d := builder.Deployment(kube.Namespace(t), "descheduler").Replicas(0)
	d.Spec.Template.Spec.Containers[0].Image = "registry.k8s.io/descheduler/descheduler:v0.36.0"
	passing(t, d.Obj())
}

// hastyKarpenter leaves pods less time than an interceptor says it needs.
func hastyKarpenter(t *testing.T) {
	t.Helper()
	pool := schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1", Kind: "NodePool"}
	definition := vmcrds.Definition(pool, "nodepools", false)
	definition.Spec.Scope = apiextensionsv1.ClusterScoped
	if err := vmcrds.Install(t.Context(), admin, []*apiextensionsv1.CustomResourceDefinition{definition}); err != nil {
		t.Fatal(err)
	}
	passing(t, vmcrds.New(pool, "", "spot", map[string]any{"spec.template.spec.terminationGracePeriod": "2m"}))
	registration := builder.EvictionInterceptor("slow.example.com").Generation(0).Pods("tools.example.com/none", "none").Obj()
	registration.Spec.Minimum = &metav1.Duration{Duration: 10 * time.Minute}
	passing(t, registration)
}
