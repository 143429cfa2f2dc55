package doctor

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/refusals"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestWritesThatWouldBeRefused(t *testing.T) {
	quota := &refusals.Refusal{Write: refused.Request, Cause: refused.Quota, Words: "exceeded quota: none"}
	policy := &refusals.Refusal{Write: refused.GuardBudget, Cause: refused.Policy, Words: "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"}
	var many []string
	for i := range maxTried + 2 {
		many = append(many, fmt.Sprintf("team-%02d", i))
	}
	const more = "WARN : only the first 50 of 52 namespaces are tried"
	cases := map[string]struct {
		namespaces []string
		tried      []Tried
		findings   []string
		summary    string
	}{
		"no pod is intercepted":   {summary: "0 namespaces with pods that have interceptors"},
		"all is accepted":         {namespaces: []string{"shop"}, tried: []Tried{{Namespace: "shop"}, {Namespace: "shop"}}, summary: "1 namespace with pods that have interceptors"},
		"you may not try":         {namespaces: []string{"shop"}, tried: []Tried{{Namespace: "shop", Problem: "forbidden"}, {Namespace: "shop", Problem: "forbidden, too"}}, summary: "1 namespace with pods that have interceptors; it could not be tried in shop (forbidden)"},
		"more than are tried":     {namespaces: many, summary: "52 namespaces with pods that have interceptors; only the first 50 are tried"},
		"more, and one is bad":    {namespaces: many, tried: []Tried{{Namespace: "team-00", Refusal: quota}}, findings: []string{"WARN namespace/team-00: Drawbridge cannot write the EvictionRequest: a quota of the namespace refuses it: exceeded quota: none", more}},
		"the request, the budget": {namespaces: []string{"shop"}, tried: []Tried{{Namespace: "shop", Refusal: quota}, {Namespace: "shop", Refusal: policy}}, findings: []string{"WARN namespace/shop: Drawbridge cannot write the EvictionRequest: a quota of the namespace refuses it: exceeded quota: none", "WARN namespace/shop: Drawbridge cannot write the guard's PodDisruptionBudget: an admission policy refuses it: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fine()
			f.Intercepted, f.Tried = tc.namespaces, tc.tried
			got := only(t, f, "refused-writes")
			if diff := cmp.Diff(tc.findings, brief(got)); diff != "" || got.Summary != tc.summary {
				t.Errorf("summary %q, want %q, findings (-want +got):\n%s", got.Summary, tc.summary, diff)
			}
		})
	}
}

func TestNamespacesOfInterceptedPods(t *testing.T) {
	f := fine()
	registry := resolver(&f)
	for _, pod := range []*builder.PodWrapper{
		builder.Pod("shop", "db-0").Interceptors("a.example.com"), builder.Pod("depot", "db-0").Interceptors("a.example.com"),
		builder.Pod("shop", "db-1").Interceptors("a.example.com"), builder.Pod("web", "web-0"),
	} {
		f.meet(registry, pod.Obj())
	}
	if diff := cmp.Diff([]string{"depot", "shop"}, f.Intercepted); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
}
