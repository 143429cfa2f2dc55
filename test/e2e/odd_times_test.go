//go:build unix

package e2e

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// The format date-time of a schema takes more than a client of Go can read. One such time
// would end every list and watch of the kind, ours too.
func TestTimesThatNoClientOfGoReadsAreNotStored(t *testing.T) {
	const odd = `"2026-11-22t10:21:11z"`
	namespace := kube.Namespace(t)
	maintenance := builder.NodeMaintenance(namespace).Nodes("none-of-" + namespace).Obj()
	registration := builder.EvictionInterceptor(nameIn(namespace, "odd")).InNamespace(namespace).Pods(builder.AppLabel, "odd").Generation(0).Obj()
	policy := presetPolicy(t, "kubevirt")
	policy.Name = "odd-" + namespace
	policy.Spec.Interceptor = registration.Name
	for _, object := range []client.Object{maintenance, registration, policy} {
		create(t, object)
		t.Cleanup(func() {
			// The test's own context has ended by now.
			if err := client.IgnoreNotFound(admin.Delete(context.Background(), object)); err != nil {
				t.Error(err)
			}
		})
	}
	const node = `"name":"n1","stage":"Drain","podsPendingEvacuation":0,"podsEvacuating":0`
	const condition = `{"conditions":[{"type":"Mine","status":"True","reason":"Mine","message":"","lastTransitionTime":` + odd + `}]}`
	cases := map[string]struct {
		of     client.Object
		status string
	}{
		"a condition of a maintenance":      {maintenance, condition},
		"the start of a maintenance":        {maintenance, `{"startTime":` + odd + `}`},
		"the end of a maintenance":          {maintenance, `{"completionTime":` + odd + `}`},
		"the start of a node's drain":       {maintenance, `{"nodes":[{` + node + `,"startTime":` + odd + `}]}`},
		"the end of a node's drain":         {maintenance, `{"nodes":[{` + node + `,"completionTime":` + odd + `}]}`},
		"what the pods of a node wait for":  {maintenance, `{"nodes":[{` + node + `,"waitingUntil":` + odd + `}]}`},
		"a condition of a registration":     {registration, condition},
		"a condition of an evacuation rule": {policy, condition},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			object := tc.of.DeepCopyObject().(client.Object)
			err := admin.Status().Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"status":`+tc.status+`}`)))
			if err == nil || !strings.Contains(err.Error(), "in RFC 3339") {
				t.Errorf("want a refusal, got %v", err)
			}
		})
	}
}
