package charts_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/webhook"
)

// pathsOf are the paths of the Services by the names of the webhooks; "-" for none.
func pathsOf(conf *admissionregistrationv1.ValidatingWebhookConfiguration) map[string]string {
	paths := map[string]string{}
	for _, w := range conf.Webhooks {
		paths[w.Name] = "-"
		if path := w.ClientConfig.Service.Path; path != nil {
			paths[w.Name] = *path
		}
	}
	return paths
}

// What the manager writes where the chart leaves a path out is what the chart renders
// otherwise.
func TestTheManagerKnowsThePathsThatTheChartRenders(t *testing.T) {
	rendered := render(t, values{"preemption": values{"enabled": true, "guardDeletes": true}})
	got := pathsOf(only[*admissionregistrationv1.ValidatingWebhookConfiguration](t, rendered))
	if diff := cmp.Diff(webhook.Paths(), got); diff != "" {
		t.Errorf("paths (-manager +chart):\n%s", diff)
	}
}

// A tool that applies the chart again and again resets what it renders, and nothing else.
func TestWhatTheManagerWritesIsNotRenderedForGitOps(t *testing.T) {
	all := values{"preemption": values{"enabled": true, "guardDeletes": true}, "gitops": values{"enabled": true}}
	cases := map[string]struct {
		policy string
		want   admissionregistrationv1.FailurePolicyType
	}{
		"the default policy, with the guard": {"", admissionregistrationv1.Ignore},
		"an explicit policy applies at once": {"Fail", admissionregistrationv1.Fail},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			all["webhook"] = values{"failurePolicy": tc.policy}
			conf := only[*admissionregistrationv1.ValidatingWebhookConfiguration](t, render(t, all))
			want := map[string]string{}
			for name := range webhook.Paths() {
				want[name] = "-"
			}
			if diff := cmp.Diff(want, pathsOf(conf)); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
			for _, w := range conf.Webhooks {
				if len(w.ClientConfig.CABundle) > 0 {
					t.Errorf("webhook %s has a CA", w.Name)
				}
			}
			if got := *conf.Webhooks[0].FailurePolicy; got != tc.want || conf.Annotations["drawbridge.dev/failure-policy"] != string(tc.want) {
				t.Errorf("failurePolicy %s, wanted by annotation %s, want %s", got, conf.Annotations["drawbridge.dev/failure-policy"], tc.want)
			}
		})
	}
}

// A tool of GitOps takes any difference between two renderings for a change to apply.
func TestTheChartRendersTheSameTwice(t *testing.T) {
	o := install.Options{Values: values{"gitops": values{"enabled": true}}}
	first, err := install.Render(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	second, err := install.Render(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("objects (-first +second):\n%s", diff)
	}
}
