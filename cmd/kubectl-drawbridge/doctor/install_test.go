package doctor

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func TestKubernetesVersions(t *testing.T) {
	cases := map[string]struct {
		version string
		want    Severity
	}{
		"the oldest one that is supported": {"v1.30.0", OK},
		"one before it":                    {"v1.29.14", Fail},
		"a distribution's":                 {"v1.33.4-gke.1134000", OK},
		"one that cannot be read":          {"unknown", Warn},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fine()
			f.Kubernetes = tc.version
			if got := only(t, f, "kubernetes").Severity; got != tc.want {
				t.Errorf("severity %s, want %s", got, tc.want)
			}
		})
	}
}

// The policy that warns refuses nothing, so without it the check warns, too.
func TestThePolicyThatWarns(t *testing.T) {
	cases := map[string]struct {
		change func(*Facts)
		want   string
	}{
		"is there":         {func(*Facts) {}, ""},
		"denies even":      {func(f *Facts) { f.PolicyBindings[0].Spec.ValidationActions[0] = admissionregistrationv1.Deny }, ""},
		"is missing":       {func(f *Facts) { f.AdmissionPolicies = f.AdmissionPolicies[1:] }, "it is missing: nobody is warned"},
		"is not bound":     {func(f *Facts) { f.PolicyBindings = f.PolicyBindings[1:] }, "the policy is not bound: nobody is warned"},
		"is only recorded": {func(f *Facts) { f.PolicyBindings[0].Spec.ValidationActions[0] = admissionregistrationv1.Audit }, "it does not warn: nobody is warned"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fine()
			tc.change(&f)
			wantFinding(t, only(t, f, "admission-policies"), tc.want)
		})
	}
}
