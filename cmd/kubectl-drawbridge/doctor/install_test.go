package doctor

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
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

// What may run together is decided in package skew. Here are the facts of an installation.
func TestVersions(t *testing.T) {
	cases := map[string]struct {
		change func(*Facts)
		want   string
	}{
		"are the same":                          {func(*Facts) {}, ""},
		"are those in the middle of an upgrade": {func(f *Facts) { f.Plugin = "v0.2.0" }, ""},
		"of a plugin that is too new":           {func(f *Facts) { f.Plugin = "v0.3.0" }, "the manager (0.1.0) is older than this plugin (v0.3.0)"},
		"of an image that is not the chart's": {
			func(f *Facts) {
				f.Deployments[0].Spec.Template.Spec.Containers[0].Image = "registry:5000/drawbridge:v0.0.9@sha256:00"
			},
			"the chart is 0.1.0 and runs a manager v0.0.9"},
		"of an image whose tag is none": {
			func(f *Facts) {
				f.Deployments[0].Spec.Template.Spec.Containers[0].Image = "registry:5000/drawbridge:nightly"
			}, ""},
		"of definitions that nobody upgraded": {
			func(f *Facts) { f.CRDs[2].Labels[cli.VersionLabel] = "0.0.9" },
			"the CustomResourceDefinitions are of version 0.0.9, older than the manager (0.1.0)"},
		"of definitions that do not say": {func(f *Facts) { f.CRDs[2].Labels = nil }, ""},
		"of a manager elsewhere":         {func(f *Facts) { f.Deployments = nil }, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fine()
			tc.change(&f)
			wantFinding(t, only(t, f, "versions"), tc.want)
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
		"is missing":       {func(f *Facts) { f.AdmissionPolicies = f.AdmissionPolicies[1:] }, "it is missing: registering an interceptor for every pod of the cluster gives no warning"},
		"is not bound":     {func(f *Facts) { f.PolicyBindings = f.PolicyBindings[1:] }, "the policy is not bound: registering an interceptor for every pod of the cluster gives no warning"},
		"is only recorded": {func(f *Facts) { f.PolicyBindings[0].Spec.ValidationActions[0] = admissionregistrationv1.Audit }, "it does not warn: registering an interceptor for every pod of the cluster gives no warning"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fine()
			tc.change(&f)
			wantFinding(t, only(t, f, "admission-policies"), tc.want)
		})
	}
}
