package doctor

import (
	"testing"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestARegistrationForAllPodsIsAFinding(t *testing.T) {
	cases := map[string]struct {
		registration *builder.EvictionInterceptorWrapper
		want         string
	}{
		"of everything":              {builder.EvictionInterceptor("a.example.com"), "it intercepts every pod"},
		"of some pods":               {builder.EvictionInterceptor("a.example.com").Pods("app", "db"), ""},
		"of some namespaces":         {builder.EvictionInterceptor("a.example.com").InNamespace("shop"), ""},
		"of what an expression says": {builder.EvictionInterceptor("a.example.com").When("true"), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fine()
			r := tc.registration.Obj()
			r.Status.ObservedGeneration = r.Generation
			f.Registrations = []v1alpha1.EvictionInterceptor{*r}
			wantFinding(t, only(t, f, "registrations"), tc.want)
		})
	}
}
