package charts_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/drawbridge-dev/drawbridge/internal/certs"
)

// The manager puts a token into the paths of a configuration that says so, as soon as no
// pod runs that does not say so.
func TestTheChartSaysThatTokensAreKnown(t *testing.T) {
	deployment := only[*appsv1.Deployment](t, render(t, values{"surge": values{"enabled": false}}))
	if got := deployment.Spec.Template.Annotations[certs.TokenAnnotation]; got != certs.TokenInPath {
		t.Errorf("annotation of the pods: %q", got)
	}
	args := deployment.Spec.Template.Spec.Containers[0].Args
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--webhook-client-") }) {
		t.Errorf("client certificates are asked for by default: %q", args)
	}
	asking := only[*appsv1.Deployment](t, render(t, values{"webhook": values{"clientUsers": []any{"kube-apiserver-webhooks"}}}))
	args = asking.Spec.Template.Spec.Containers[0].Args
	for _, want := range []string{"--webhook-client-ca=kube-system/extension-apiserver-authentication", "--webhook-client-user=kube-apiserver-webhooks"} {
		if !slices.Contains(args, want) {
			t.Errorf("%s is not among the arguments: %q", want, args)
		}
	}
}
