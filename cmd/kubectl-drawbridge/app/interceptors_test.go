package app

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/listing"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/golden"
)

func TestInterceptorsArePrinted(t *testing.T) {
	_, requests := state()
	a := builder.EvictionInterceptor("a.example.com").Priority(20000).ActedBy("ops", "a").Guard(v1alpha1.GuardAlways).Obj()
	pods := int32(12)
	a.Status.MatchingPods = &pods
	a.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue}}
	c := builder.EvictionInterceptor("c.example.com").Obj()
	c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Message: "matchConditions[0] does not compile"}}
	o, out, _ := testOptions()
	o.Output = cli.FormatWide
	if err := o.printInterceptors(listing.Interceptors([]v1alpha1.EvictionInterceptor{*c, *a}, nil, nil, requests)); err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "interceptors.golden.txt", out.String())
}
